// Package filter finds content that must not pass as it stands, and replaces it. It is pure: text in, findings and text out. It
// knows no policy: what becomes of a finding is its caller's business.
package filter

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrBudget reports a message with more text than is looked through.
var ErrBudget = errors.New("more text than the filter looks through")

// maxText bounds the text of one message, in bytes: the largest message that navra takes.
const maxText = 16 << 20

// A Finding is one secret: which kind, and its value. Its value is for replacing and for keyed hashes only.
type Finding struct{ Kind, Value string }

// A Span is where a finding stands in a text, in bytes.
type Span struct {
	Kind       string
	Start, End int
}

// A Set is the detectors. It is immutable and may be used concurrently.
type Set struct {
	detectors []detector
	index     *index // of their literals
	known     *known // nil where nothing is
}

// New builds the detectors and tries each on its canary; a detector that misses it is an error, and so navra does not start.
func New() (*Set, error) {
	s := &Set{detectors: secrets()}
	s.index = newIndex(s.detectors)
	for _, d := range s.detectors {
		text := "x = " + d.canary + " y"
		if !slices.ContainsFunc(s.Scan(text), func(sp Span) bool { return sp.Kind == d.kind }) {
			return nil, fmt.Errorf("filter %s misses its canary", d.kind)
		}
	}
	return s, nil
}

// Scan returns what is found in text: in order, none overlapping; of two that do, the one that begins first, or is longer.
func (s *Set) Scan(text string) []Span {
	var all []Span
	if s.known != nil { // first: of two findings of one span, the kind under which it is known counts
		all = s.known.scan(text, all)
	}
	all = s.index.scan(text, all)
	if len(all) < 2 {
		return all
	}
	slices.SortStableFunc(all, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
	})
	out := all[:1]
	for _, sp := range all[1:] {
		if sp.Start >= out[len(out)-1].End {
			out = append(out, sp)
		}
	}
	return out
}
