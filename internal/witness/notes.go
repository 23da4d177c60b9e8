package witness

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"navra/internal/blackbox"
	"navra/internal/heads"
	"navra/internal/store"
)

// notes are the checkpoints that a log is held against: those in the database, which are opened when the entries up to them are known, so that what is wrong
// first is named first, and those that were copied elsewhere.
type notes struct {
	ctx     context.Context
	log     store.Log
	keys    []string
	kept    map[blackbox.Seq][][]byte   // notes, by the size of their row
	copied  map[blackbox.Seq][][32]byte // roots
	looked  bool                        // for changes of the key
	problem string                      // of a checkpoint that comes before the first entry
	err     error
}

// A SinceError says which of Evidence.Since cannot be used, and why: nothing is said of the log.
type SinceError struct {
	N   int
	Err error
}

func (e SinceError) Error() string { return e.Err.Error() }
func (e SinceError) Unwrap() error { return e.Err }

func (e Evidence) notes(ctx context.Context, log store.Log) (*notes, error) {
	n := &notes{ctx: ctx, log: log, keys: append([]string{e.Key}, e.Also...), kept: map[blackbox.Seq][][]byte{}, copied: map[blackbox.Seq][][32]byte{}}
	if e.Key == "" {
		return n, nil
	}
	kept, err := log.Checkpoints(ctx)
	if err != nil {
		return n, err
	}
	for _, c := range kept {
		if int64(c.Size) < 1 { // a store's number may be negative
			n.problem = fmt.Sprintf("a checkpoint says that it is of %d entries: it was put there, or edited", int64(c.Size))
			return n, nil
		}
		n.kept[c.Size] = append(n.kept[c.Size], c.Note)
	}
	for i, b := range e.Since {
		s, err := n.open(b)
		if n.err != nil {
			return n, n.err
		} else if err != nil {
			return n, SinceError{i, err}
		}
		n.copied[s.Size] = append(n.copied[s.Size], s.Root)
	}
	return n, nil
}

// open opens a note. Where no key does, those are tried that the log's own changes lead to, wherever they are: they are found by reading all of it, which is
// done once.
func (n *notes) open(b []byte) (s blackbox.Signed, err error) {
	if s, err = blackbox.OpenNote(b, n.keys...); err == nil || n.looked {
		return s, err
	}
	n.looked = true
	var changes [][2]string
	for row, err := range n.log.Rows(n.ctx, 1) {
		if err != nil {
			n.err = err
			return s, err
		}
		if bytes.Contains(row.Encoded, rotationWords) {
			if old, next, ok := changeIn(row); ok {
				changes = append(changes, [2]string{old, next})
			}
		}
	}
	for _, key := range n.keys {
		n.keys = append(n.keys, follow(key, changes)...)
	}
	return blackbox.OpenNote(b, n.keys...)
}

// rotationWords stand in each entry that changes the key.
var rotationWords = []byte("checkpoint key changed from ")

// at holds the log, of which so many entries were looked at, against what was signed for so many.
func (n *notes) at(size blackbox.Seq, f *Finding) (problem string) {
	if len(n.kept[size])+len(n.copied[size]) == 0 {
		return ""
	}
	roots := slices.Clone(n.copied[size])
	for _, b := range n.kept[size] {
		s, err := n.open(b)
		if err != nil || s.Size != size {
			return edited(size)
		}
		roots = append(roots, s.Root)
	}
	for _, want := range roots {
		if f.tree.Root() != want {
			return fmt.Sprintf("the first %d entries are not those of the checkpoint that was signed for them: something among them was changed", size)
		}
		f.Checkpoints++
	}
	return ""
}

// beyond holds a log that is whole against what was signed and marked for more entries than it has.
func (n *notes) beyond(f *Finding, mark *heads.Mark, marked [32]byte) error {
	size, kept, copied := f.tree.Size(), blackbox.Seq(0), blackbox.Seq(0)
	for _, at := range slices.Sorted(maps.Keys(n.kept)) {
		if at <= size {
			continue
		}
		for _, b := range n.kept[at] {
			if s, err := n.open(b); n.err != nil {
				return n.err
			} else if err != nil || s.Size != at {
				f.At, f.Problem = at, edited(at)
				return nil
			}
		}
		kept = at
	}
	for at := range n.copied {
		copied = max(copied, at)
	}
	f.length(size, kept, copied, marked, mark)
	return nil
}

func edited(size blackbox.Seq) string {
	return fmt.Sprintf("the checkpoint at %d entries was edited, or signed with another key that the log knows no change to: a swapped key", size)
}
