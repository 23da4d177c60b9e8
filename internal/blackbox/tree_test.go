package blackbox

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
)

func leavesOf(n int) (out [][32]byte) {
	for i := range n {
		out = append(out, Hash(fmt.Append(nil, "entry ", i)))
	}
	return out
}

func each(list [][32]byte) iter.Seq2[[32]byte, error] {
	return func(yield func([32]byte, error) bool) {
		for _, h := range list {
			if !yield(h, nil) {
				return
			}
		}
	}
}

// root computes RFC 6962 §2.1 as it is written there.
func root(leaves [][32]byte) [32]byte {
	switch len(leaves) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return leaves[0]
	}
	k := 1
	for k*2 < len(leaves) {
		k *= 2
	}
	l, r := root(leaves[:k]), root(leaves[k:])
	return sha256.Sum256(append(append([]byte{1}, l[:]...), r[:]...))
}

func TestTreeIsThatOfRFC6962(t *testing.T) {
	all := leavesOf(70)
	var tree Tree
	for n := range all {
		if got := tree.Root(); got != root(all[:n]) {
			t.Fatalf("root of %d entries: %x, want %x", n, got, root(all[:n]))
		}
		resumed, err := TreeAt(tree.Size(), tree.Frontier())
		if err != nil {
			t.Fatal(err)
		}
		tree = *resumed
		tree.Append(all[n])
	}
}

func TestFrontierOfAnotherSize(t *testing.T) {
	for _, size := range []Seq{0, 2, 7, 1 << 40} {
		if _, err := TreeAt(size, make([][32]byte, 2)); err == nil {
			t.Errorf("a tree of %d entries has a frontier of two", size)
		}
	}
}

func TestProofs(t *testing.T) {
	all := leavesOf(37)
	for size := 1; size <= len(all); size++ {
		r := root(all[:size])
		for n := 1; n <= size; n++ {
			path, err := ProveInclusion(each(all), Seq(n), Seq(size))
			if err != nil {
				t.Fatal(err)
			}
			if err := CheckInclusion(all[n-1], Seq(n), Seq(size), path, r); err != nil {
				t.Errorf("entry %d of %d: %v", n, size, err)
			}
			other := all[n%size]
			if err := CheckInclusion(other, Seq(n), Seq(size), path, r); size > 1 && (!errors.Is(err, ErrProof) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("another entry is proved to be number %d of %d: %v", n, size, err)
			}
			old := root(all[:n])
			grown, err := ProveConsistency(each(all), Seq(n), Seq(size))
			if err != nil {
				t.Fatal(err)
			}
			if err := CheckConsistency(Seq(n), Seq(size), grown, old, r); err != nil {
				t.Errorf("from %d to %d: %v", n, size, err)
			}
			old[0] ^= 1
			if CheckConsistency(Seq(n), Seq(size), grown, old, r) == nil {
				t.Errorf("from another tree of %d to %d: the proof holds", n, size)
			}
		}
	}
	for _, n := range []Seq{0, 38} {
		if _, err := ProveInclusion(each(all), n, 37); err == nil {
			t.Errorf("a proof for entry %d", n)
		}
	}
	if _, err := ProveInclusion(each(all[:5]), 1, 37); err == nil {
		t.Error("a proof from leaves that are not there")
	}
}

func TestNotes(t *testing.T) {
	s, err := NewSigner([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	var tree Tree
	for _, l := range leavesOf(5) {
		tree.Append(l)
	}
	c, err := s.Sign(&tree)
	if err != nil {
		t.Fatal(err)
	}
	got, err := OpenNote(c.Note, s.Key())
	if err != nil || got.Size != 5 || got.Root != root(leavesOf(5)) || !strings.HasPrefix(s.Key(), got.Origin+"+") {
		t.Errorf("OpenNote = %+v, %v", got, err)
	}
	for name, bad := range map[string]string{
		"size":      strings.Replace(string(c.Note), "\n5\n", "\n6\n", 1),
		"signature": strings.Replace(string(c.Note), "— ", "— x", 1),
		"cut":       string(c.Note[:20]),
	} {
		if _, err := OpenNote([]byte(bad), s.Key()); err == nil {
			t.Errorf("%s edited: the note opens", name)
		}
	}
	other, _ := NewSigner([]byte(strings.Repeat("o", 32)))
	if _, err := OpenNote(c.Note, other.Key()); err == nil {
		t.Error("another key opens it")
	}
	if text := fmt.Sprintf("%v %+v %#v", s, s, s); strings.Contains(text, "PRIVATE") {
		t.Errorf("printed: %s", text)
	}
}

func BenchmarkTree(b *testing.B) {
	leaf := Hash([]byte("x"))
	var t Tree
	for b.Loop() {
		t.Append(leaf)
	}
}
