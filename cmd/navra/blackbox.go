package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navra/internal/blackbox"
	"navra/internal/blackbox/view"
	"navra/internal/policy"
	"navra/internal/store"
)

func blackboxCmd(s std) *cobra.Command {
	var o storeFlags
	c := &cobra.Command{Use: "blackbox", Short: "Read, export and verify what was recorded"}
	o.add(c)
	c.AddCommand(listCmd(s, &o), tailCmd(s, &o), showCmd(s, &o), exportCmd(s, &o), statsCmd(s, &o), verifyCmd(s, &o), proveCmd(s, &o), verifyProofCmd(s), rotateKeyCmd(s, &o))
	return c
}

// filterFlags choose entries.
type filterFlags struct {
	since, until, kind string
	filter             view.Filter
}

func (o *filterFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.since, "since", "", "from this time on: RFC 3339, a local date such as 2026-07-28 or '2026-07-28 15:04', or how long ago, such as 2h or 7d")
	f.StringVar(&o.until, "until", "", "before this time, given alike")
	f.StringVar(&o.filter.Principal, "principal", "", "only of this principal")
	f.StringVar(&o.filter.Tool, "tool", "", "only of targets like this, * and ? standing for any characters: files/read_*, or read_* of all upstreams")
	f.StringVar(&o.filter.Upstream, "upstream", "", "only of this upstream")
	f.StringVar(&o.filter.Verdict, "verdict", "", "only with this verdict: allow, ask or deny")
	f.StringVar(&o.filter.Stage, "stage", "", "only decided by this stage, such as flow")
	f.StringVar(&o.kind, "kind", "", "only of this kind, such as request or answer")
	f.StringVar(&o.filter.Scope, "scope", "", "only of this conversation")
	f.StringVar(&o.filter.Ref, "ref", "", "only the entry with this reference")
	f.StringVar(&o.filter.Method, "method", "", "only of this method, such as tools/call")
}

// read returns the filter that the flags mean at a moment.
func (o *filterFlags) read(now time.Time) (view.Filter, error) {
	f := o.filter
	for _, t := range []struct {
		flag, text string
		to         *time.Time
	}{{"--since", o.since, &f.Since}, {"--until", o.until, &f.Until}} {
		if t.text == "" {
			continue
		}
		at, err := view.ParseTime(t.text, now)
		if err != nil {
			return f, usageError{fmt.Errorf("%s %q %w", t.flag, t.text, err)}
		}
		*t.to = at
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return f, usageError{fmt.Errorf("--since %s is not before --until %s: nothing lies between them", o.since, o.until)}
	}
	f.Kind = blackbox.Kind(o.kind)
	return f, errors.Join(
		oneOf("--verdict", f.Verdict, []string{"allow", "ask", "deny"}),
		oneOf("--kind", f.Kind, []blackbox.Kind{
			blackbox.Request, blackbox.Answer, blackbox.ClientAnswer, blackbox.Notification, blackbox.Own, blackbox.OwnAnswer, blackbox.FromUpstream, blackbox.Event,
		}),
		oneOf("--stage", policy.Stage(f.Stage), []policy.Stage{
			policy.StageMessage, policy.StageName, policy.StageAuth, policy.StagePause, policy.StagePolicy, policy.StageResolve, policy.StageSchema, policy.StageFilter, policy.StageContent, policy.StageFlow, policy.StageRecord,
		}),
	)
}

// oneOf refuses a word that is none of those known; "" is no word.
func oneOf[T ~string](flag string, word T, known []T) error {
	if word == "" || slices.Contains(known, word) {
		return nil
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = string(k)
	}
	return usageError{fmt.Errorf("%s %q is none of %s", flag, string(word), strings.Join(names, ", "))}
}

func listCmd(s std, o *storeFlags) *cobra.Command {
	var n int
	var asJSON bool
	var which filterFlags
	c := &cobra.Command{
		Use: "list", Short: "List the newest entries", Args: cobra.NoArgs,
		Example: "  navra blackbox list -n 50\n  navra blackbox list --verdict deny --since 2h\n  navra blackbox list --json | jq .reason",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listEntries(cmd.Context(), s, *o, which, listing{n: n, asJSON: asJSON})
		},
	}
	c.Flags().IntVarP(&n, "number", "n", 20, "how many; 0 for all")
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line, as recorded")
	which.add(c)
	return c
}

func tailCmd(s std, o *storeFlags) *cobra.Command {
	l := listing{}
	var which filterFlags
	c := &cobra.Command{
		Use: "tail", Short: "Show the newest entries, and with -f those that come", Args: cobra.NoArgs,
		Example: "  navra blackbox tail -f\n  navra blackbox tail -f --verdict deny --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return listEntries(cmd.Context(), s, *o, which, l) },
	}
	c.Flags().BoolVarP(&l.follow, "follow", "f", false, "go on showing entries as they are recorded, until interrupted")
	c.Flags().IntVarP(&l.n, "number", "n", 20, "how many of those that are there; 0 for all")
	c.Flags().BoolVar(&l.asJSON, "json", false, "one JSON object a line, as recorded")
	which.add(c)
	return c
}

// A listing is what list and tail were asked for.
type listing struct {
	n              int
	asJSON, follow bool
}

const pollEvery = 200 * time.Millisecond

func listEntries(ctx context.Context, s std, o storeFlags, which filterFlags, l listing) error {
	if l.n < 0 {
		return usageError{fmt.Errorf("-n %d is no number of entries: give 0 for all", l.n)}
	}
	f, err := which.read(time.Now())
	if err != nil {
		return err
	}
	db, _, err := o.open(ctx, s, true)
	if err != nil {
		return err
	}
	defer db.Close()
	last, err := db.Last(ctx)
	if err != nil {
		return err
	}
	p := newPrinter(s, l.asJSON)
	if err := newest(ctx, db, last, f, l.n, p.add); err != nil {
		return err
	}
	if err := p.flush(); err != nil || !l.follow {
		return err
	}
	if err := follow(ctx, s, db, last, f, p); ctx.Err() == nil {
		return err
	}
	return nil // interrupted: that is how it ends
}

// follow prints what is recorded after an entry, until ctx ends. While the database is in trouble, of which it says so once, it goes on trying.
func follow(ctx context.Context, s std, db database, seen blackbox.Seq, f view.Filter, p *printer) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	told := false
	for {
		err := catchUp(ctx, db, &seen, f, p)
		switch {
		case err == nil:
			told = false
		case store.Why(err) == "":
			return err
		case !told && ctx.Err() == nil:
			told = true
			fmt.Fprintf(s.err, "navra: %v; trying again\n", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// catchUp prints what is recorded after the entry that was seen, and moves that on as it is printed.
func catchUp(ctx context.Context, db database, seen *blackbox.Seq, f view.Filter, p *printer) error {
	last, err := db.Last(ctx)
	if err != nil || last <= *seen {
		return err
	}
	err = each(ctx, db, *seen+1, last, f, func(r found) error {
		*seen = r.Seq
		return p.add(r)
	})
	if err == nil {
		*seen = last
	}
	if out := p.flush(); out != nil {
		return out
	}
	return err
}

func showCmd(s std, o *storeFlags) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "show NUMBER|REFERENCE", Short: "Show one entry whole, with its payloads and what belongs to it", Args: cobra.ExactArgs(1),
		Example: "  navra blackbox show 42\n  navra blackbox show 4l5zeqv6d7qj2m3c --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return showEntry(cmd.Context(), s, *o, args[0], asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return c
}

func showEntry(ctx context.Context, s std, o storeFlags, name string, asJSON bool) error {
	if err := usableName(name); err != nil {
		return err
	}
	db, _, err := o.open(ctx, s, true)
	if err != nil {
		return err
	}
	defer db.Close()
	r, err := findEntry(ctx, db, name)
	if err != nil {
		return err
	}
	cause, answers, err := partners(ctx, db, r)
	if err != nil {
		return err
	}
	if asJSON {
		text, err := view.DetailJSON(r, cause, answers)
		if err != nil {
			return fmt.Errorf("entry %d: %w", r.Seq, err)
		}
		_, err = fmt.Fprintf(s.out, "%s\n", text)
		return err
	}
	var b strings.Builder
	b.WriteString(view.Detail(r, time.Local))
	if cause != nil {
		b.WriteString("\nits cause:\n" + view.Detail(*cause, time.Local))
	}
	for _, a := range answers {
		b.WriteString("\nits answer:\n" + view.Detail(a, time.Local))
	}
	if view.Unknown(r, answers) {
		b.WriteString("\nno answer is recorded: outcome unknown. The call is on its way, or its gateway was killed; it may have run.\n")
	}
	_, err = io.WriteString(s.out, b.String())
	return err
}

func exportCmd(s std, o *storeFlags) *cobra.Command {
	var format, file string
	var which filterFlags
	c := &cobra.Command{
		Use: "export", Short: "Write entries for other programs", Args: cobra.NoArgs,
		Example: "  navra blackbox export --format csv -o entries.csv\n  navra blackbox export --format ocsf --since 24h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exportEntries(cmd.Context(), s, *o, which, format, file)
		},
	}
	c.Flags().StringVar(&format, "format", "jsonl", "jsonl (as recorded), csv, or ocsf (API Activity)")
	c.Flags().StringVarP(&file, "output", "o", "", "a new file to write to; default: standard output")
	which.add(c)
	return c
}

func exportEntries(ctx context.Context, s std, o storeFlags, which filterFlags, format, file string) error {
	f, err := which.read(time.Now())
	if err := errors.Join(err, oneOf("--format", format, []string{"jsonl", "csv", "ocsf"})); err != nil {
		return err
	}
	db, _, err := o.open(ctx, s, true)
	if err != nil {
		return err
	}
	defer db.Close()
	if file == "" || file == "-" {
		return exportTo(ctx, db, s.out, f, format)
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is there already: name another file with -o, or remove it", file)
	} else if err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	return errors.Join(exportTo(ctx, db, out, f, format), out.Close())
}

func exportTo(ctx context.Context, db database, to io.Writer, f view.Filter, format string) error {
	last, err := db.Last(ctx)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(to)
	sheet := csv.NewWriter(w)
	if format == "csv" {
		if err := sheet.Write(view.CSVHeader()); err != nil {
			return err
		}
	}
	_, person := terminal(to)
	var bad unreadable
	err = each(ctx, db, 1, last, f, func(r found) error {
		if bad.note(r) && format != "jsonl" {
			return nil
		}
		switch format {
		case "csv":
			return sheet.Write(view.CSV(r.Entry))
		case "ocsf":
			line, err := view.OCSF(r.Entry, version)
			if err != nil {
				return fmt.Errorf("entry %d: %w", r.Seq, err)
			}
			_, err = fmt.Fprintf(w, "%s\n", line)
			return err
		}
		return writeJSON(w, r.Encoded, person)
	})
	sheet.Flush()
	return errors.Join(err, sheet.Error(), w.Flush(), bad.err())
}

func statsCmd(s std, o *storeFlags) *cobra.Command {
	var by string
	var asJSON bool
	var which filterFlags
	c := &cobra.Command{
		Use: "stats", Short: "Count entries, denials and asks", Args: cobra.NoArgs,
		Example: "  navra blackbox stats --by tool --since 24h\n  navra blackbox stats --by hour --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return countEntries(cmd.Context(), s, *o, which, by, asJSON)
		},
	}
	c.Flags().StringVar(&by, "by", "", "group by "+strings.Join(view.By(), ", "))
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	which.add(c)
	return c
}

func countEntries(ctx context.Context, s std, o storeFlags, which filterFlags, by string, asJSON bool) error {
	f, err := which.read(time.Now())
	if err := errors.Join(err, oneOf("--by", by, view.By())); err != nil {
		return err
	}
	db, _, err := o.open(ctx, s, true)
	if err != nil {
		return err
	}
	defer db.Close()
	last, err := db.Last(ctx)
	if err != nil {
		return err
	}
	stats := view.NewStats(by, time.Local)
	var bad unreadable
	err = each(ctx, db, 1, last, f, func(r found) error {
		if !bad.note(r) {
			stats.Add(r.Entry)
		}
		return nil
	})
	if err != nil {
		return err
	}
	text := stats.Text()
	if asJSON {
		line, err := stats.JSON()
		if err != nil {
			return err
		}
		text = string(line) + "\n"
	}
	_, err = io.WriteString(s.out, text)
	return errors.Join(err, bad.err())
}
