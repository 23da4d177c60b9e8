package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"navra/internal/blackbox"
	"navra/internal/blackbox/view"
)

// A found is an entry of the blackbox as a command sees it: bad says why it cannot be read.
type found struct {
	view.Record
	bad error
}

// each calls do with the entries from a number to another, both included, that f chooses, in order. One that cannot be read is chosen
// by the empty filter alone.
func each(ctx context.Context, db database, from, upto blackbox.Seq, f view.Filter, do func(found) error) error {
	if from > upto {
		return nil
	}
	for row, err := range db.Rows(ctx, from) {
		if err != nil {
			return err
		}
		if row.Seq > upto {
			return nil
		}
		e, bad := blackbox.Decode(row.Encoded)
		if bad != nil && f.Empty() || bad == nil && f.Match(e) {
			if err := do(found{view.Record{Row: row, Entry: e}, bad}); err != nil {
				return err
			}
		}
		if row.Seq == upto {
			return nil
		}
	}
	return nil
}

const window = 512 // entries that newest reads at a time

// newest calls do with the last n entries up to a number that f chooses, in order; 0 for all.
func newest(ctx context.Context, db database, upto blackbox.Seq, f view.Filter, n int, do func(found) error) error {
	if n == 0 {
		return each(ctx, db, 1, upto, f, do)
	}
	var blocks [][]found
	size := blackbox.Seq(window)
	if f.Empty() {
		size = blackbox.Seq(n)
	}
	for have := 0; upto > 0 && have < n; {
		from := blackbox.Seq(1)
		if upto > size {
			from = upto - size + 1
		}
		var block []found
		err := each(ctx, db, from, upto, f, func(r found) error {
			if block = append(block, r); len(block) == 2*window+2*n { // a window may have grown
				block = append(block[:0], block[len(block)-n:]...)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(block) == 0 { // numbers may have a gap that nobody could go through
			size *= 2
		}
		if over := have + len(block) - n; over > 0 {
			block = block[over:]
		}
		have += len(block)
		blocks = append(blocks, block)
		upto = from - 1
	}
	for _, block := range slices.Backward(blocks) {
		for _, r := range block {
			if err := do(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// isNumber and isRef say what an argument names an entry by.
func isNumber(text string) bool {
	n, err := strconv.ParseUint(text, 10, 63)
	return err == nil && n > 0
}

func isRef(text string) bool {
	return len(text) == 16 && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// usableName refuses an argument that names no entry.
func usableName(text string) error {
	if isNumber(text) || isRef(text) {
		return nil
	}
	return usageError{fmt.Errorf("%q is neither the number of an entry nor a reference, which has 16 letters and digits; see navra blackbox list", text)}
}

func findEntry(ctx context.Context, db database, name string) (view.Record, error) {
	last, err := db.Last(ctx)
	if err != nil {
		return view.Record{}, err
	}
	var r *view.Record
	if isRef(name) {
		err = newest(ctx, db, last, view.Filter{Ref: name}, 1, func(f found) error {
			r = &f.Record
			return nil
		})
	}
	if r == nil && err == nil && isNumber(name) {
		n, _ := strconv.ParseUint(name, 10, 63)
		r, err = entryAt(ctx, db, blackbox.Seq(n))
	}
	switch {
	case err != nil:
		return view.Record{}, err
	case r != nil:
		return *r, nil
	case isRef(name):
		return view.Record{}, fmt.Errorf("no entry has the reference %s; if it is of another database, name that with --store or --config", name)
	}
	return view.Record{}, fmt.Errorf("there is no entry %s: the newest is %d; see navra blackbox list", name, last)
}

// entryAt returns the entry of a number, nil if there is none.
func entryAt(ctx context.Context, db database, seq blackbox.Seq) (r *view.Record, err error) {
	err = each(ctx, db, seq, seq, view.Filter{}, func(f found) error {
		if f.bad != nil {
			return fmt.Errorf("entry %d: %w; run navra blackbox verify", f.Seq, f.bad)
		}
		r = &f.Record
		return nil
	})
	return r, err
}

// partners returns what an entry was caused by, and the entries up to its answer that it caused.
func partners(ctx context.Context, db database, r view.Record) (cause *view.Record, answers []view.Record, err error) {
	if c := r.Entry.Cause; c > 0 {
		if cause, err = entryAt(ctx, db, c); err != nil {
			return nil, nil, err
		}
	}
	switch r.Entry.Kind {
	case blackbox.Request, blackbox.Own, blackbox.FromUpstream:
	default:
		return cause, nil, nil
	}
	if r.Entry.Verdict != "allow" && r.Entry.Kind != blackbox.FromUpstream { // it was not sent
		return cause, nil, nil
	}
	for row, err := range db.Rows(ctx, r.Seq+1) {
		if err != nil {
			return nil, nil, err
		}
		e, bad := blackbox.Decode(row.Encoded)
		if bad != nil || e.Cause != r.Seq {
			continue
		}
		answers = append(answers, view.Record{Row: row, Entry: e})
		if e.Kind == blackbox.Answer || e.Kind == blackbox.OwnAnswer || r.Entry.Kind == blackbox.FromUpstream {
			break
		}
	}
	return cause, answers, nil
}

// unreadable remembers the entries that could not be read, so that what leaves them out does not end as if it were whole.
type unreadable struct {
	n     int
	first blackbox.Seq
}

func (u *unreadable) note(r found) bool {
	if r.bad == nil {
		return false
	}
	if u.n++; u.n == 1 {
		u.first = r.Seq
	}
	return true
}

func (u *unreadable) err() error {
	if u.n == 0 {
		return nil
	}
	return fmt.Errorf("%d entries cannot be read, entry %d first: run navra blackbox verify", u.n, u.first)
}

// terminal reports the width of the terminal that w is, if it is one.
func terminal(w io.Writer) (width int, is bool) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	return width, true
}

// coloured reports whether a terminal is to be given colours (https://no-color.org).
func coloured() bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && (runtime.GOOS != "windows" || os.Getenv("WT_SESSION") != "")
}

// writeJSON writes an encoding and a line end: to a terminal with what does not show escaped, else to the byte.
func writeJSON(w io.Writer, encoded []byte, person bool) error {
	if person {
		encoded = view.JSON(encoded)
	}
	_, err := fmt.Fprintf(w, "%s\n", encoded)
	return err
}

// A printer writes entries as a table, or as JSON lines.
type printer struct {
	out    *bufio.Writer
	asJSON bool
	person bool
	width  int
	table  *view.Table  // once the widths are chosen
	first  []view.Cells // until then
}

const measured = 1000 // lines that choose the widths of all

func newPrinter(s std, asJSON bool) *printer {
	p := &printer{out: bufio.NewWriter(s.out), asJSON: asJSON}
	p.width, p.person = terminal(s.out)
	return p
}

func (p *printer) add(r found) error {
	if p.asJSON {
		return writeJSON(p.out, r.Encoded, p.person)
	}
	cells := view.Row(r.Entry, time.Local)
	if r.bad != nil {
		cells = view.Unreadable(r.Seq, r.bad)
	}
	if p.table == nil {
		if p.first = append(p.first, cells); len(p.first) < measured {
			return nil
		}
		return p.begin()
	}
	_, err := fmt.Fprintln(p.out, p.table.Line(cells))
	return err
}

// begin chooses the widths, and writes what waited for that.
func (p *printer) begin() error {
	p.table = view.NewTable(p.width, p.person && coloured(), p.first)
	fmt.Fprintln(p.out, p.table.Header())
	for _, cells := range p.first {
		fmt.Fprintln(p.out, p.table.Line(cells))
	}
	p.first = nil
	return p.out.Flush()
}

// flush writes what was added so far.
func (p *printer) flush() error {
	if !p.asJSON && p.table == nil {
		return p.begin()
	}
	return p.out.Flush()
}
