package view

import (
	"fmt"
	"strings"
	"time"

	"navra/internal/blackbox"
)

// Cells are a line of a Table.
type Cells [10]string

// The columns that are shrunk, coloured or left out first, by their place.
const (
	colSeq = iota
	colTime
	colKind
	colPrincipal
	colMethod
	colTarget
	colVerdict
	colStage
	colOutcome
	colReason
)

var (
	header  = Cells{"SEQ", "TIME", "KIND", "PRINCIPAL", "METHOD", "TARGET", "VERDICT", "STAGE", "OUTCOME", "REASON"}
	usual   = [len(Cells{})]int{5, len(timeShort), 7, 9, 10, 20, 7, 7, 7, 6}                  // widths at least, where there is room
	least   = [len(Cells{})]int{colPrincipal: 8, colMethod: 10, colTarget: 14, colReason: 16} // how far some can be cut
	spare   = [...]int{colOutcome, colStage, colKind, colMethod, colPrincipal, colReason, colTime, colTarget}
	colours = map[string]string{"allow": "\x1b[32m", "ask": "\x1b[33m", "deny": "\x1b[31m"}
)

const (
	timeShort = "01-02 15:04:05.000"
	maxCell   = 100 // characters
	gap       = 2   // spaces between columns
)

// Row is an entry's line, with the time in loc.
func Row(e blackbox.Entry, loc *time.Location) Cells {
	p := func(s string) string { return Plain(s, maxCell) }
	return Cells{
		fmt.Sprint(e.Seq), e.Time.In(loc).Format(timeShort), p(string(e.Kind)), p(e.Principal), p(e.Method), p(e.Target),
		p(e.Verdict), p(e.Stage), p(e.Outcome), p(e.Reason),
	}
}

// Unreadable is the line of an entry that cannot be decoded.
func Unreadable(seq blackbox.Seq, err error) Cells {
	return Cells{colSeq: fmt.Sprint(seq), colReason: fmt.Sprintf("(%v; run navra blackbox verify)", err)}
}

// A Table lays lines out in columns whose widths stay as they are once chosen.
type Table struct {
	width  int // of the terminal; 0: no limit, and nothing is cut
	colour bool
	w      [len(Cells{})]int // 0: the column is left out
}

// NewTable chooses widths for rows, and for others like them.
func NewTable(width int, colour bool, rows []Cells) *Table {
	natural := usual
	for _, r := range rows {
		for i, cell := range r {
			natural[i] = max(natural[i], len(cell))
		}
	}
	t := &Table{width: width, colour: colour, w: natural}
	for n := 0; width > 0 && !t.shrink() && n < len(spare); n++ {
		t.w = natural
		for _, col := range spare[:n+1] {
			t.w[col] = 0
		}
	}
	return t
}

// shrink cuts the widest columns until the table fits, and gives what is left to the reason. It reports whether that could be done.
func (t *Table) shrink() bool {
	for t.total() > t.width {
		widest := -1
		for i, l := range least {
			if l > 0 && t.w[i] > l && (widest < 0 || t.w[i] > t.w[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		t.w[widest]--
	}
	if t.w[colReason] > 0 {
		t.w[colReason] += t.width - t.total()
	}
	return true
}

func (t *Table) total() int {
	n := -gap
	for _, w := range t.w {
		if w > 0 {
			n += w + gap
		}
	}
	return n
}

// Header is the line of the columns' names.
func (t *Table) Header() string { return t.line(header, false) }

// Line lays out one line, without its end.
func (t *Table) Line(c Cells) string { return t.line(c, t.colour) }

func (t *Table) line(c Cells, colour bool) string {
	var b strings.Builder
	pad := 0 // spaces owed before the next cell
	for i, cell := range c {
		w := t.w[i]
		if w == 0 {
			continue
		}
		if t.width > 0 && len(cell) > w {
			cell = cell[:max(w-3, 0)] + "..."[:min(w, 3)]
		}
		if cell != "" {
			fmt.Fprintf(&b, "%*s", pad, "")
			pad = 0
		}
		on := colours[c[colVerdict]]
		if colour && i == colVerdict && on != "" {
			b.WriteString(on + cell + "\x1b[0m")
		} else {
			b.WriteString(cell)
		}
		pad += max(w-len(cell), 0) + gap
	}
	return b.String()
}
