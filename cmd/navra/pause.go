package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"navra/internal/auth/local"
	"navra/internal/blackbox"
	"navra/internal/blackbox/view"
	"navra/internal/config"
	"navra/internal/filter"
	"navra/internal/heads"
	"navra/internal/jsonrpc"
	"navra/internal/policy"
	"navra/internal/seal"
	"navra/internal/store"
)

// pauseFlags say what is paused.
type pauseFlags struct {
	storeFlags
	principal, upstream string
}

func (o *pauseFlags) add(c *cobra.Command) {
	o.storeFlags.add(c)
	c.Flags().StringVar(&o.principal, "principal", "", "only calls of this principal")
	c.Flags().StringVar(&o.upstream, "upstream", "", "only calls to this upstream")
}

// what names what is paused, for people.
func what(principal, upstream string) string {
	var parts []string
	if principal != "" {
		parts = append(parts, "principal "+principal)
	}
	if upstream != "" {
		parts = append(parts, "upstream "+upstream)
	}
	if parts == nil {
		return "everything"
	}
	return strings.Join(parts, " at ")
}

// known refuses a name that the configuration does not have, where one is given: a pause of it would hold nobody back.
func (o *pauseFlags) known() error {
	if o.config == "" {
		return nil
	}
	f, err := config.Load(o.config)
	if err != nil {
		return err
	}
	if _, ok := f.Principals[o.principal]; o.principal != "" && o.principal != local.Name && !ok {
		return fmt.Errorf("%s names no principal %q", f.Path, o.principal)
	}
	for _, u := range f.Upstreams {
		if u.Name == o.upstream {
			return nil
		}
	}
	if o.upstream != "" {
		return fmt.Errorf("%s names no upstream %q", f.Path, o.upstream)
	}
	return nil
}

// maxWhy bounds a reason, in bytes.
const maxWhy = 1024

func pauseCmd(s std) *cobra.Command {
	var o pauseFlags
	var why string
	var list, asJSON bool
	c := &cobra.Command{
		Use: "pause", Short: "Stop calls at once, in every process that uses the database", Args: cobra.NoArgs,
		Long: "Stop calls at once, in every process that uses the database: of one principal, to one upstream, or all.\n" +
			"New calls are denied and calls under way are cancelled, until navra resume. Lists and handshakes stay, so that clients keep navra.",
		Example: "  navra pause --principal claude --why \"reads files it should not\"\n  navra pause --upstream mail\n  navra pause --list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case list && (o.principal != "" || o.upstream != "" || why != ""):
				return usageError{errors.New("--list goes with none of --principal, --upstream and --why")}
			case list:
				return listPauses(cmd.Context(), s, o.storeFlags, asJSON)
			}
			if err := o.known(); err != nil {
				return err
			}
			if len(why) > maxWhy {
				return usageError{fmt.Errorf("--why has more than %d bytes", maxWhy)}
			}
			why, err := redacted(why)
			if err != nil {
				return err
			}
			p := store.Pause{Principal: o.principal, Upstream: o.upstream, Why: why, By: local.Subject(), At: time.Now().UTC()}
			r, err := o.control(cmd.Context(), s, store.Change{Apply: adding(p)})
			if err != nil {
				return err
			}
			return said(s, asJSON, p, "paused", r, o.where())
		},
	}
	o.add(c)
	c.Flags().StringVar(&why, "why", "", "the reason, for the record; agents are not told")
	c.Flags().BoolVar(&list, "list", false, "say what is paused, and pause nothing")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func resumeCmd(s std) *cobra.Command {
	var o pauseFlags
	var asJSON bool
	c := &cobra.Command{
		Use: "resume", Short: "Let calls pass again that navra pause has stopped", Args: cobra.NoArgs,
		Long:    "Let calls pass again that navra pause has stopped: it takes the same flags. A pause of everything does not end those of a principal or an upstream.",
		Example: "  navra resume --principal claude\n  navra resume --upstream mail",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := store.Pause{Principal: o.principal, Upstream: o.upstream, By: local.Subject(), At: time.Now().UTC()}
			r, err := o.control(cmd.Context(), s, store.Change{Apply: removing(p)})
			if err != nil {
				return err
			}
			return said(s, asJSON, p, "resumed", r, o.where())
		},
	}
	o.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// adding pauses; one that holds already gets the newer reason.
func adding(p store.Pause) func(*store.Controls) (blackbox.Entry, error) {
	return func(c *store.Controls) (blackbox.Entry, error) {
		c.Pauses = append(slices.DeleteFunc(c.Pauses, p.Same), p)
		return spoken(policy.StagePause, fmt.Sprintf("paused %s, by %s%s", what(p.Principal, p.Upstream), p.By, because(p.Why))), nil
	}
}

func removing(p store.Pause) func(*store.Controls) (blackbox.Entry, error) {
	return func(c *store.Controls) (blackbox.Entry, error) {
		n := len(c.Pauses)
		if c.Pauses = slices.DeleteFunc(c.Pauses, p.Same); len(c.Pauses) == n {
			return blackbox.Entry{}, fmt.Errorf("%s is not paused; see navra pause --list", what(p.Principal, p.Upstream))
		}
		return spoken(policy.StagePause, fmt.Sprintf("resumed %s, by %s", what(p.Principal, p.Upstream), p.By)), nil
	}
}

// said tells what was done, and where it is recorded: a gateway on another database goes on.
func said(s std, asJSON bool, p store.Pause, verb string, r store.Receipt, where string) error {
	if asJSON {
		return printJSON(s, map[string]any{"done": verb, "principal": p.Principal, "upstream": p.Upstream, "why": p.Why, "by": p.By, "at": p.At, "entry": r.Seq})
	}
	_, err := fmt.Fprintf(s.out, "%s: %s (entry %d of %s)\n", verb, view.Printable(what(p.Principal, p.Upstream)), r.Seq, view.Printable(where))
	return err
}

func printJSON(s std, v any) error {
	enc := json.NewEncoder(s.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func listPauses(ctx context.Context, s std, o storeFlags, asJSON bool) error {
	db, _, err := o.open(ctx, s, true)
	if err != nil {
		return err
	}
	defer db.Close()
	c, err := db.Controls(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(s, append([]store.Pause{}, c.Pauses...))
	}
	if len(c.Pauses) == 0 {
		_, err := fmt.Fprintln(s.out, "nothing is paused")
		return err
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PAUSED\tSINCE\tBY\tWHY")
	for _, p := range c.Pauses {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", view.Printable(what(p.Principal, p.Upstream)), p.At.Local().Format(time.DateTime), view.Printable(p.By), view.Printable(p.Why))
	}
	return w.Flush()
}

// control says something to all processes, and keeps the heads file where the key is here.
func (o *storeFlags) control(ctx context.Context, s std, ch store.Change) (r store.Receipt, err error) {
	db, keyPath, err := o.openKeyed(ctx, s, false)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	keyed, err := begun(ctx, db, keyPath)
	if err != nil {
		return r, err
	}
	if keyed {
		key, err := seal.LoadOrCreate(keyPath)
		if err != nil {
			return r, err
		}
		_, problem, err := heldPatiently(ctx, db, headsPath(keyPath), headsTag(key))
		if err != nil {
			return r, err
		}
		marks, err := heads.Open(headsPath(keyPath), headsTag(key), false)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, marks.Close()) }()
		db.OnCommit(func(r store.Receipt) error { return marks.Note(r.Seq, r.Hash) })
		if problem != "" { // else what is said here would take the place of what was cut off, and the file forget it
			logger(s, false).Error("the blackbox is not what the heads file says; run navra blackbox verify", "problem", problem)
			e := spoken(policy.StageMessage, blackbox.ChangedSince+problem)
			e.Time = time.Now()
			if _, err := db.Commit(ctx, store.Commit{Entry: e}); err != nil {
				return r, err
			}
		}
	}
	return db.Control(ctx, ch)
}

// begun reports whether the key is there, or is to be made: with the first entry of a log, whose heads file begins with it.
func begun(ctx context.Context, db database, keyPath string) (bool, error) {
	if _, err := os.Stat(keyPath); !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	last, err := db.Last(ctx)
	return last == 0, err
}

// spoken is the entry of what the person at this machine says to all processes.
func spoken(stage policy.Stage, text string) blackbox.Entry {
	return blackbox.Entry{
		Kind: blackbox.Event, Ref: blackbox.NewRef(), Principal: local.Name, Auth: "os", Verdict: policy.Allow.String(), Stage: string(stage), Reason: text,
	}
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// redacted takes secrets out of what a person gives as a reason: entries hold none.
func redacted(text string) (string, error) {
	set, err := filter.New()
	if err != nil {
		return "", err
	}
	v, _, err := set.Apply(jsonrpc.Quote(text), func(f filter.Finding) (string, bool) { return "[" + f.Kind + "]", true })
	if err != nil {
		return "", usageError{fmt.Errorf("--why: %w", err)}
	}
	out, _ := v.Text()
	return out, nil
}
