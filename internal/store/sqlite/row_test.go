package sqlite

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navra/internal/blackbox"
	"navra/internal/store"
)

// written makes n entries from a number on, of which each third has no payloads.
func written(from, n int) (out []store.Written) {
	for i := range n {
		w := store.Written{Seq: blackbox.Seq(from + i), Encoded: fmt.Appendf(nil, `{"seq":%d}`, from+i)}
		w.Hash = blackbox.Hash(w.Encoded)
		if (from+i)%3 > 0 {
			w.Payloads = []blackbox.Payload{blackbox.NewPayload("arguments", nil, []byte("a")), blackbox.NewPayload("result", nil, bytes.Repeat([]byte("r"), i))}
		}
		out = append(out, w)
	}
	return out
}

// clone is a row that does not share the packer's memory.
func clone(s stored) stored {
	return stored{s.seq, bytes.Clone(s.bodies), bytes.Clone(s.hashes), bytes.Clone(s.payloads)}
}

// kept is what a row keeps of entries.
func kept(list []store.Written) (out []blackbox.Row) {
	for _, w := range list {
		r := blackbox.Row{Seq: w.Seq, Encoded: w.Encoded, Hash: w.Hash}
		for _, p := range w.Payloads {
			r.Payloads = append(r.Payloads, blackbox.Payload{Name: p.Name, Stored: p.Stored, StoredSalt: p.StoredSalt, WholeSalt: p.WholeSalt})
		}
		out = append(out, r)
	}
	return out
}

func TestRowsKeepTheirEntries(t *testing.T) {
	var p packer
	for n := 1; n <= maxRow; n++ {
		for from := 1; from <= 3; from++ {
			list := written(from, n)
			s := clone(p.pack(list))
			if diff := cmp.Diff(kept(list), s.entries(nil, nil)); diff != "" {
				t.Fatalf("%d entries from %d: -written +read\n%s", n, from, diff)
			}
			for _, w := range list {
				if got := hashIn(s.seq, s.hashes, w.Seq); got != w.Hash {
					t.Errorf("%d entries from %d: the hash of entry %d is another", n, from, w.Seq)
				}
			}
			for _, other := range []int{from - 1, from + n} {
				if got := hashIn(s.seq, s.hashes, blackbox.Seq(other)); got != [32]byte{} {
					t.Errorf("%d entries from %d: entry %d, which is not there, has a hash", n, from, other)
				}
			}
			if got, err := lastHash(s.hashes); err != nil || got != list[n-1].Hash {
				t.Errorf("lastHash = %x, %v", got, err)
			}
		}
	}
}

// TestDropTakesPayloadsOfEntries: of those below a number, and of as many as were asked for.
func TestDropTakesPayloadsOfEntries(t *testing.T) {
	const from, n = 5, 9
	list := written(from, n)
	for below := from - 1; below <= from+n+1; below++ {
		for limit := range n {
			var p packer
			s := clone(p.pack(list))
			want, dropped := kept(list), 0
			for i := range want {
				if want[i].Seq < blackbox.Seq(below) && len(want[i].Payloads) > 0 && dropped < limit {
					want[i].Payloads = nil
					dropped++
				}
			}
			if got := s.drop(int64(below), limit); got != dropped {
				t.Errorf("drop(%d, %d) = %d, want %d", below, limit, got, dropped)
			}
			if diff := cmp.Diff(want, s.entries(nil, nil)); diff != "" {
				t.Errorf("after drop(%d, %d): -want +got\n%s", below, limit, diff)
			}
			if some := slices.ContainsFunc(want, func(r blackbox.Row) bool { return len(r.Payloads) > 0 }); some != (len(s.payloads) > 0) {
				t.Errorf("after drop(%d, %d) %d bytes of payloads are left", below, limit, len(s.payloads))
			}
		}
	}
}

// TestDropOfDamaged: damaged payloads stay as long as an entry of their row does, and go with the last.
func TestDropOfDamaged(t *testing.T) {
	var p packer
	s := clone(p.pack(written(1, 4)))
	s.payloads = s.payloads[:len(s.payloads)-1]
	before := clone(s)
	if n := s.drop(4, 100); n != 0 || !bytes.Equal(s.payloads, before.payloads) {
		t.Errorf("drop(4) = %d and changed the payloads: %v", n, !bytes.Equal(s.payloads, before.payloads))
	}
	if n := s.drop(5, 100); n == 0 || len(s.payloads) > 0 {
		t.Errorf("drop(5) = %d and left %d bytes", n, len(s.payloads))
	}
}

// FuzzRow: whatever a row holds, its entries have numbers that end with its own, and none has another's parts.
func FuzzRow(f *testing.F) {
	var p packer
	for _, n := range []int{1, 2, 7} {
		s := p.pack(written(1, n))
		f.Add(s.seq, s.bodies, s.hashes, s.payloads)
	}
	f.Add(int64(math.MinInt64), []byte("a\nb"), make([]byte, 64), []byte{1})
	f.Add(int64(3), []byte{}, make([]byte, 32*(maxRead+1)), []byte(nil))
	f.Fuzz(func(t *testing.T, seq int64, bodies, hashes, payloads []byte) {
		s := stored{seq, bodies, hashes, payloads}
		list := s.entries(nil, nil)
		if len(list) < 1 || len(list) > maxRead || int64(list[len(list)-1].Seq) != seq {
			t.Fatalf("%d entries, the last of them %d in row %d", len(list), int64(list[len(list)-1].Seq), seq)
		}
		size := len(list) - 1
		for i, r := range list {
			if i > 0 && int64(r.Seq) != int64(list[i-1].Seq)+1 {
				t.Fatalf("entry %d follows %d", int64(r.Seq), int64(list[i-1].Seq))
			}
			if r.Hash != [32]byte{} && r.Hash != hashIn(seq, hashes, r.Seq) && int64(r.Seq) >= 0 {
				t.Fatalf("entry %d has two hashes", r.Seq)
			}
			size += len(r.Encoded)
		}
		if size < len(bodies) {
			t.Fatalf("bodies of %d bytes have become %d", len(bodies), size)
		}
		dropped := s
		if n := dropped.drop(seq, len(list)); n > len(list)-1 {
			t.Fatalf("payloads of %d entries were dropped, and %d are below", n, len(list)-1)
		}
		for i, r := range dropped.entries(nil, nil) {
			if r.Hash != list[i].Hash || !bytes.Equal(r.Encoded, list[i].Encoded) {
				t.Fatalf("with payloads dropped entry %d is another", r.Seq)
			}
		}
	})
}
