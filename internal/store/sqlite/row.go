package sqlite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"navra/internal/blackbox"
	"navra/internal/store"
)

// maxRow is how many entries a row holds at most. Those that are committed together share rows, which costs half of what a row for each would, and
// is verified faster; each is still read, and its payload removed, by itself.
const maxRow = 16

// A stored is a row of the table: entries that follow one another. Its number is that of the last of them.
type stored struct {
	seq      int64
	bodies   []byte // a line each
	hashes   []byte // 32 bytes each
	payloads []byte // of one entry as appendPayloads packs them; of several with a length (unsigned LEB128) before those of each; empty for none at all
}

// maxRead is how many entries a row may have to be read: one with more was made to use up memory.
const maxRead = 256

// first is the number of a row's first entry, and how many it has. A damaged one, and one for which there are no numbers, has one, which whoever verifies
// finds to be damaged.
func (s stored) first() (seq int64, n int) {
	n = len(s.hashes) / 32
	if n < 1 || n > maxRead || s.seq < math.MinInt64+int64(n) {
		n = 1
	}
	return s.seq - int64(n-1), n
}

// entries appends a row's entries to out, and their payloads to room, which is empty, as far as it goes. What does not fit together is left to whoever
// verifies: an entry gets the part in its place, the last one all that is left.
func (s stored) entries(out []blackbox.Row, room []blackbox.Payload) []blackbox.Row {
	seq, n := s.first()
	bodies, hashes, parts := s.bodies, s.hashes, s.parts(n)
	for i := range n {
		r := blackbox.Row{Seq: blackbox.Seq(seq + int64(i)), Encoded: bodies, Hash: whole(hashes)}
		if i < n-1 {
			r.Encoded, bodies, _ = bytes.Cut(bodies, newline)
			r.Hash, hashes = [32]byte(hashes), hashes[32:]
		}
		var err error
		if r.Payloads, err = decodePayloads(parts(i), room); err != nil {
			r.Payloads, r.Damaged = nil, true // found by whoever verifies
		}
		used := min(len(r.Payloads), cap(room))
		room = room[used:used]
		out = append(out, r)
	}
	return out
}

var newline = []byte("\n")

// parts takes the packed payloads of a row apart, one entry after the other.
func (s stored) parts(n int) func(i int) []byte {
	left := s.payloads
	return func(i int) (part []byte) {
		if n == 1 || len(s.payloads) == 0 {
			return left
		}
		var ok bool
		if part, left, ok = cutPart(left); !ok || i == n-1 && len(left) > 0 {
			left = damaged
			return damaged
		}
		return part
	}
}

// damaged is what neither cutPart nor decodePayloads takes.
var damaged = []byte{0xff}

// cutPart cuts off a length (unsigned LEB128) and so many bytes.
func cutPart(b []byte) (part, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	b = b[size:]
	return b[:n:n], b[n:], true
}

func appendPart(b, part []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

// A packer makes rows. Its memory serves one after the other.
type packer struct {
	stored
	part []byte
}

// pack makes the row of entries that follow one another, at most maxRow. It is good until the next is made.
func (p *packer) pack(list []store.Written) stored {
	p.bodies, p.hashes, p.payloads = p.bodies[:0], p.hashes[:0], p.payloads[:0]
	some := slices.ContainsFunc(list, func(w store.Written) bool { return len(w.Payloads) > 0 })
	for i, w := range list {
		if i > 0 {
			p.bodies = append(p.bodies, '\n')
		}
		p.bodies, p.hashes = append(p.bodies, w.Encoded...), append(p.hashes, w.Hash[:]...)
		switch {
		case !some:
		case len(list) == 1:
			p.payloads = appendPayloads(p.payloads, w.Payloads)
		default:
			p.part = appendPayloads(p.part[:0], w.Payloads)
			p.payloads = appendPart(p.payloads, p.part)
		}
		p.seq = int64(w.Seq)
	}
	row := p.stored
	if cap(p.bodies)+cap(p.payloads) > maxPacked {
		p.stored, p.part = stored{}, nil
	}
	return row
}

// maxPacked is how much memory for rows is kept.
const maxPacked = 1 << 20

// drop removes the payloads of entries below a number, of limit entries at most, and reports of how many. What is damaged goes once all entries of the row
// are below.
func (s *stored) drop(below int64, limit int) (dropped int) {
	seq, n := s.first()
	var kept []byte
	left := false
	parts := s.parts(n)
	for i := range n {
		part := parts(i)
		switch {
		case len(part) == 0:
		case seq+int64(i) >= below || dropped == limit:
			left = true
			if bytes.Equal(part, damaged) {
				return 0
			}
		default:
			dropped++
			part = nil
		}
		kept = appendPart(kept, part)
	}
	switch {
	case !left:
		s.payloads = nil
	case dropped > 0:
		s.payloads = kept
	}
	return dropped
}

var errHash = errors.New("it has no whole hash")

// lastHash is the hash of a row's last entry.
func lastHash(hashes []byte) (h [32]byte, err error) {
	if len(hashes) == 0 || len(hashes)%32 != 0 {
		return h, errHash
	}
	return [32]byte(hashes[len(hashes)-32:]), nil
}

// hashIn is the hash of an entry in a row, zero where the row does not have it.
func hashIn(seq int64, hashes []byte, n blackbox.Seq) [32]byte {
	at, size := stored{seq: seq, hashes: hashes}.first()
	if int64(n) < at || int64(n) > seq {
		return [32]byte{}
	}
	if size == 1 {
		return whole(hashes)
	}
	return [32]byte(hashes[32*(int64(n)-at):])
}
