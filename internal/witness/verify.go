// Package witness holds a log against what is kept of it elsewhere, and makes what is kept: signed checkpoints and the heads file.
package witness

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
	Checkpoints int // that agree with the log
	tree        blackbox.Tree
	Unclean     bool // the problem is a tail that was lost when the machine stopped without its disk being written, by all that can be told
}

// roots are those that the log had, by its size. Those of copied checkpoints may be ahead of a disk that lost the tail.
type roots struct {
	kept, copied map[blackbox.Seq][][32]byte
}

// Verify checks the whole log: its chain and payloads, that its tree is that of each checkpoint in the database and among the evidence, that no
// payload belongs to nothing, and that it is as long as the heads file says. The first problem ends it.
func Verify(ctx context.Context, log store.Log, e Evidence) (f Finding, err error) {
	var known roots
	if known, f.Report, err = e.notes(ctx, log); err != nil || !f.OK() {
		return f, err
	}
	var marked [32]byte
	agreed := 0
	f.Report, err = blackbox.VerifyEach(log.Facts(ctx, 0), func(n blackbox.Seq, hash [32]byte) string {
		f.tree.Append(hash)
		if e.Mark != nil && e.Mark.Size == n {
			marked = hash
		}
		for _, want := range slices.Concat(known.kept[n], known.copied[n]) {
			if f.tree.Root() != want {
				return fmt.Sprintf("the first %d entries are not those of the checkpoint that was signed for them: something among them was changed", n)
			}
			agreed++
		}
		return ""
	})
	if err != nil || !f.OK() {
		return f, err
	}
	f.Checkpoints, f.Root = agreed, f.tree.Root()
	if err := f.strays(ctx, log); err != nil || !f.OK() {
		return f, err
	}
	f.length(f.tree.Size(), marked, known, e.Mark)
	return f, nil
}

// maxNamed is how many payloads of no entry are named.
const maxNamed = 5

// strays finds payloads that belong to no entry.
func (f *Finding) strays(ctx context.Context, log store.Log) error {
	list, err := log.Strays(ctx, maxNamed+1)
	if err != nil || len(list) == 0 {
		return err
	}
	var names []string
	for i, s := range list {
		if i == maxNamed {
			names = append(names, "and more")
			break
		}
		names = append(names, fmt.Sprintf("%q of entry %d", s.Name, s.Seq))
	}
	f.At = blackbox.Seq(max(list[0].Seq, 1))
	f.Problem = "payloads belong to no entry: " + strings.Join(names, ", ") + ": they were put there, or the entry was taken away"
	return nil
}

// length holds the number of entries against what was signed and marked for more.
func (f *Finding) length(size blackbox.Seq, marked [32]byte, known roots, mark *heads.Mark) {
	cut := func(n blackbox.Seq) {
		f.At, f.Problem = size+1, fmt.Sprintf("a checkpoint was signed for %d entries, and there are %d: the tail was cut off, or the database is an old copy", n, size)
	}
	if n := largest(known.kept); n > size {
		cut(n) // it was written after them: no stop of the machine loses them alone
		return
	}
	problem, unclean := "", false
	if mark != nil {
		problem, unclean = mark.Compare(size, marked)
	}
	if n := largest(known.copied); n > size && !(unclean && n <= mark.Size) {
		cut(n)
		return
	}
	if problem != "" {
		f.At, f.Problem, f.Unclean = min(size+1, mark.Size), problem, unclean
	}
}

func largest(m map[blackbox.Seq][][32]byte) (n blackbox.Seq) {
	for size := range m {
		n = max(n, size)
	}
	return n
}

// notes reads all checkpoints' roots by size.
func (e Evidence) notes(ctx context.Context, log store.Log) (known roots, r blackbox.Report, err error) {
	known = roots{kept: map[blackbox.Seq][][32]byte{}, copied: map[blackbox.Seq][][32]byte{}}
	if e.Key == "" {
		return known, r, nil
	}
	kept, err := log.Checkpoints(ctx)
	if err != nil {
		return known, r, err
	}
	for _, c := range kept {
		s, err := blackbox.OpenNote(c.Note, e.keys()...)
		if err != nil || s.Size != c.Size {
			r.At, r.Problem = c.Size, fmt.Sprintf("the checkpoint at %d entries was edited, or signed with another key that the log knows no change to: a swapped key", c.Size)
			return known, r, nil
		}
		known.kept[s.Size] = append(known.kept[s.Size], s.Root)
	}
	for _, b := range e.Since {
		s, err := blackbox.OpenNote(b, e.keys()...)
		if err != nil {
			return known, r, err
		}
		known.copied[s.Size] = append(known.copied[s.Size], s.Root)
	}
	return known, r, nil
}

func (e Evidence) keys() []string { return append([]string{e.Key}, e.Also...) }
