package jsonrpc

import (
	"bytes"
	"hash/maphash"
)

// Objects with up to linearNames members are searched one by one for a double name, larger ones through an index.
const linearNames = 16

// A span is a member's name in the scanner's output, quotes included.
type span struct{ start, end int }

// An object is one that is open: its names are the scanner's from first on, as far as they belong to no object in it.
type object struct {
	first int
	index *nameIndex // nil up to linearNames members
}

// addName notes a member of the innermost object and whether its name was there before. Names are compared in the one
// encoding, that is after unescaping.
func (s *scanner) addName(n span) {
	o := &s.objects[len(s.objects)-1]
	s.names = append(s.names, n)
	names := s.names[o.first:]
	last := len(names) - 1
	if last < linearNames {
		key := s.b[n.start:n.end]
		for _, other := range names[:last] {
			if other.end-other.start == len(key) && bytes.Equal(s.b[other.start:other.end], key) {
				s.double = true
			}
		}
		return
	}
	if o.index == nil {
		o.index = newNameIndex()
		for i := range last {
			o.index.add(s.b, names, i)
		}
	}
	if !o.index.add(s.b, names, last) {
		s.double = true
	}
}

// A nameIndex is a set of an object's names, hashed with a seed of its own, so that a sender cannot make them collide.
type nameIndex struct {
	seed  maphash.Seed
	count int
	slots []slot // a power of two of them, at most three quarters taken
}

// A slot holds one name's number, counted from 1, and its hash. The zero slot is free. Small, because a sender can fill
// a message with nothing but names.
type slot struct{ hash, number uint32 }

func newNameIndex() *nameIndex {
	return &nameIndex{seed: maphash.MakeSeed(), slots: make([]slot, 4*linearNames)}
}

// add adds names[i], of text b; ok is false if it is there already.
func (x *nameIndex) add(b []byte, names []span, i int) (ok bool) {
	if 4*(x.count+1) > 3*len(x.slots) {
		x.grow()
	}
	key := b[names[i].start:names[i].end]
	hash := uint32(maphash.Bytes(x.seed, key))
	mask := len(x.slots) - 1
	at := int(hash) & mask
	for ; x.slots[at].number != 0; at = (at + 1) & mask {
		if x.slots[at].hash != hash {
			continue
		}
		if other := names[x.slots[at].number-1]; bytes.Equal(b[other.start:other.end], key) {
			return false
		}
	}
	x.slots[at] = slot{hash, uint32(i) + 1}
	x.count++
	return true
}

func (x *nameIndex) grow() {
	old := x.slots
	x.slots = make([]slot, 2*len(old))
	mask := len(x.slots) - 1
	for _, s := range old {
		if s.number == 0 {
			continue
		}
		at := int(s.hash) & mask
		for x.slots[at].number != 0 {
			at = (at + 1) & mask
		}
		x.slots[at] = s
	}
}
