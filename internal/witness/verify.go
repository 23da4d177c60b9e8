// Package witness holds a log against what is kept of it elsewhere, and makes what is kept: signed checkpoints and the heads file.
package witness

import (
	"context"
	"fmt"

	"navra/internal/blackbox"
	"navra/internal/heads"
	"navra/internal/store"
)

// Evidence is what a log is held against, besides itself. The zero Evidence is none.
type Evidence struct {
	Key   string      // verifier key of checkpoints; "": they are not checked
	Also  []string    // further keys, which the log's own changes of the key lead to: see Keys
	Mark  *heads.Mark // of the heads file; nil: none
	Since [][]byte    // notes that were copied elsewhere; they need Key
}

// A Finding is what Verify came to.
type Finding struct {
	blackbox.Report
	Root        [32]byte
	Checkpoints int  // that agree with the log
	Unclean     bool // the problem may be a tail that was lost when the machine stopped without its disk being written
}

// Verify checks the whole log: its chain and payloads, and that its tree is that of each checkpoint in the database and among the evidence, and
// that it is as long as the heads file says. The first problem ends it.
func Verify(ctx context.Context, log store.Log, e Evidence) (f Finding, err error) {
	roots := map[blackbox.Seq][][32]byte{}
	if f.Report, err = e.notes(ctx, log, roots); err != nil || !f.OK() {
		return f, err
	}
	var tree blackbox.Tree
	var marked [32]byte
	var broken error
	agreed := 0
	f.Report, err = blackbox.VerifyEach(log.Rows(ctx, 1), func(n blackbox.Seq, hash [32]byte) string {
		if broken = tree.Append(hash); broken != nil {
			return "the tree cannot be computed"
		}
		if e.Mark != nil && e.Mark.Size == n {
			marked = hash
		}
		for _, want := range roots[n] {
			if root, err := tree.Root(); err != nil || root != want {
				return fmt.Sprintf("the first %d entries are not those of the checkpoint that was signed for them: something among them was changed", n)
			}
			agreed++
		}
		return ""
	})
	if err != nil || broken != nil || !f.OK() {
		return f, err
	}
	f.Checkpoints = agreed
	if f.Root, err = tree.Root(); err != nil {
		return f, err
	}
	size := tree.Size()
	for n := range roots {
		if n > size {
			f.At, f.Problem = size+1, fmt.Sprintf("a checkpoint was signed for %d entries, and there are %d: the tail was cut off, or the database is an old copy", n, size)
			return f, nil
		}
	}
	if e.Mark != nil {
		var problem string
		if problem, f.Unclean = e.Mark.Compare(size, marked); problem != "" {
			f.At, f.Problem = min(size+1, e.Mark.Size), problem
		}
	}
	return f, nil
}

// notes reads all checkpoints' roots by size.
func (e Evidence) notes(ctx context.Context, log store.Log, roots map[blackbox.Seq][][32]byte) (r blackbox.Report, err error) {
	if e.Key == "" {
		return r, nil
	}
	kept, err := log.Checkpoints(ctx)
	if err != nil {
		return r, err
	}
	for _, c := range kept {
		s, err := blackbox.OpenNote(c.Note, e.keys()...)
		if err != nil || s.Size != c.Size {
			r.At, r.Problem = c.Size, fmt.Sprintf("the checkpoint at %d entries was edited, or signed with another key that the log knows no change to: a swapped key", c.Size)
			return r, nil
		}
		roots[s.Size] = append(roots[s.Size], s.Root)
	}
	for _, b := range e.Since {
		s, err := blackbox.OpenNote(b, e.keys()...)
		if err != nil {
			return r, err
		}
		roots[s.Size] = append(roots[s.Size], s.Root)
	}
	return r, nil
}

func (e Evidence) keys() []string { return append([]string{e.Key}, e.Also...) }
