package filter

import (
	"cmp"
	"slices"
	"strings"
)

// An index finds the literals of all detectors in one pass over a text: its cost grows with the text, not with their number. Where three bytes
// stand with which no literal begins, letters in either case, nothing more is looked at.
type index struct {
	begins [1 << hashBits / 64]uint64 // a bit for the hash of three bytes with which a literal begins
	lists  map[uint32][]indexed       // those that begin so, in the order of detectors
	count  int
}

// An indexed is a literal and whose it is.
type indexed struct {
	literal string
	of      *detector
	rank    int // in the order of detectors
}

// keyBytes is how many bytes of a literal are hashed, and its least length.
const (
	keyBytes = 3
	hashBits = 15
)

// oneCase makes a letter a small one. What it makes of other bytes does not matter, as long as it is always the same.
func oneCase(c byte) uint32 { return uint32(c | 0x20) }

// hash is of three bytes, the first of them lowest (multiplicative hashing).
func hash(three uint32) uint32 { return three * 0x9e3779b1 >> (32 - hashBits) }

func newIndex(detectors []detector) *index {
	x := &index{lists: map[uint32][]indexed{}}
	for i := range detectors {
		for _, l := range detectors[i].literals {
			h := hash(oneCase(l[0]) | oneCase(l[1])<<8 | oneCase(l[2])<<16) // keyBytes
			x.begins[h/64] |= 1 << (h % 64)
			x.lists[h] = append(x.lists[h], indexed{l, &detectors[i], x.count})
			x.count++
		}
	}
	return x
}

// scan appends what detectors find in text to out, as if each had looked through it by itself, one after the other.
func (x *index) scan(text string, out []Span) []Span {
	if len(text) < keyBytes {
		return out
	}
	f := finds{text: text, count: x.count}
	three := oneCase(text[0])<<8 | oneCase(text[1])<<16
	for i := keyBytes - 1; i < len(text); i++ {
		three = three>>8 | oneCase(text[i])<<16
		h := hash(three)
		if x.begins[h/64]>>(h%64)&1 == 0 {
			continue
		}
		for _, l := range x.lists[h] {
			f.look(i-keyBytes+1, l)
		}
	}
	return f.appendTo(out)
}

// finds are what was found in a text so far.
type finds struct {
	text  string
	count int   // of literals
	next  []int // where each literal may begin next; nil as long as none has stood anywhere
	spans []Span
	ranks []int // of the literals by which spans were found
}

func (f *finds) look(at int, l indexed) {
	end := at + len(l.literal)
	if end > len(f.text) || f.text[at:end] != l.literal && !(l.of.fold && strings.EqualFold(f.text[at:end], l.literal)) {
		return
	}
	if f.next == nil {
		f.next = make([]int, f.count)
	}
	if at < f.next[l.rank] {
		return
	}
	span, ok, next := l.of.look(f.text, at, len(l.literal))
	f.next[l.rank] = next
	if ok {
		f.spans, f.ranks = append(f.spans, span), append(f.ranks, l.rank)
	}
}

func (f *finds) appendTo(out []Span) []Span {
	if len(f.spans) < 2 {
		return append(out, f.spans...)
	}
	order := make([]int, len(f.spans))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(f.ranks[a], f.ranks[b]) })
	for _, i := range order {
		out = append(out, f.spans[i])
	}
	return out
}
