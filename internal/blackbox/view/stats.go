package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"navra/internal/blackbox"
)

// maxGroups bounds the groups of a count: what names them may be a peer's. The rest is counted as one.
const maxGroups = 10_000

// By lists what entries can be grouped by; "" is no grouping.
func By() []string { return []string{"principal", "tool", "verdict", "upstream", "hour"} }

// A Tally counts entries.
type Tally struct {
	Name    string `json:"name,omitempty"`
	Entries int    `json:"entries"`
	Denials int    `json:"denials"`
	Asks    int    `json:"asks"`

	at time.Time // of its first entry
}

func (t *Tally) add(e blackbox.Entry) {
	t.Entries++
	switch e.Verdict {
	case "deny":
		t.Denials++
	case "ask":
		t.Asks++
	}
}

// Stats counts entries, whole and by group. Hours begin as clocks of loc show them.
type Stats struct {
	by     string
	loc    *time.Location
	total  Tally
	groups map[string]*Tally
}

// NewStats groups by one of By.
func NewStats(by string, loc *time.Location) *Stats {
	return &Stats{by: by, loc: loc, groups: map[string]*Tally{}}
}

// Add counts one entry.
func (s *Stats) Add(e blackbox.Entry) {
	s.total.add(e)
	if s.by == "" {
		return
	}
	name := s.group(e)
	g := s.groups[name]
	if g == nil && len(s.groups) >= maxGroups {
		name = "(others)"
		g = s.groups[name]
	}
	if g == nil {
		g = &Tally{Name: name, at: e.Time}
		s.groups[name] = g
	}
	g.add(e)
}

func (s *Stats) group(e blackbox.Entry) string {
	name := ""
	switch s.by {
	case "principal":
		name = e.Principal
	case "tool":
		name = e.Target
	case "verdict":
		name = e.Verdict
	case "upstream":
		name = e.Upstream
	case "hour":
		t := e.Time.In(s.loc)
		return t.Add(-time.Duration(t.Minute())*time.Minute - time.Duration(t.Second())*time.Second - time.Duration(t.Nanosecond())).Format(time.RFC3339)
	}
	return cmp.Or(name, "(none)")
}

// Groups are the counts by group: hours in their order, others the most frequent first.
func (s *Stats) Groups() []Tally {
	out := []Tally{}
	for _, g := range s.groups {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Tally) int {
		if s.by == "hour" {
			return a.at.Compare(b.at)
		}
		return cmp.Or(cmp.Compare(b.Entries, a.Entries), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Text is the counts as a table.
func (s *Stats) Text() string {
	groups := s.Groups()
	w := len("total")
	for i := range groups {
		groups[i].Name = Plain(groups[i].Name, maxCell)
		w = max(w, len(groups[i].Name))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s  %8s  %8s  %8s\n", w, strings.ToUpper(s.by), "ENTRIES", "DENIALS", "ASKS")
	total := s.total
	total.Name = "total"
	for _, g := range append(groups, total) {
		fmt.Fprintf(&b, "%-*s  %8d  %8d  %8d\n", w, g.Name, g.Entries, g.Denials, g.Asks)
	}
	return b.String()
}

// JSON is the counts as one JSON object.
func (s *Stats) JSON() ([]byte, error) {
	return marshal(struct {
		By     string  `json:"by,omitempty"`
		Total  Tally   `json:"total"`
		Groups []Tally `json:"groups,omitempty"`
	}{s.by, s.total, s.Groups()})
}
