// Package witness holds a log against what is kept of it elsewhere, and makes what is kept: signed checkpoints and the heads file.
package witness

import (
	"context"
	"errors"
	"fmt"
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

// Verify checks the whole log: its chain and payloads, that its tree is that of each checkpoint in the database and among the evidence, that no
// payload belongs to nothing, and that it is as long as the heads file says. The first problem from the first entry on ends it.
func Verify(ctx context.Context, log store.Log, e Evidence) (f Finding, err error) {
	n, err := e.notes(ctx, log)
	if err != nil {
		return f, err
	}
	if n.problem != "" {
		f.At, f.Problem = 1, n.problem
		return f, nil
	}
	var marked [32]byte
	f.Report, err = blackbox.VerifyEach(log.Facts(ctx, 0), func(at blackbox.Seq, hash [32]byte) string {
		f.tree.Append(hash)
		if e.Mark != nil && e.Mark.Size == at {
			marked = hash
		}
		return n.at(at, &f)
	})
	if err = errors.Join(err, n.err); err != nil || !f.OK() {
		return f, err
	}
	f.Root = f.tree.Root()
	if err := f.strays(ctx, log); err != nil || !f.OK() {
		return f, err
	}
	if err := n.beyond(&f, e.Mark, marked); err != nil {
		return f, err
	}
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

// length holds the number of entries against what was signed and marked for more. What was copied may be ahead of a disk that lost the tail.
func (f *Finding) length(size, kept, copied blackbox.Seq, marked [32]byte, mark *heads.Mark) {
	cut := func(n blackbox.Seq) {
		f.At, f.Problem = size+1, fmt.Sprintf("a checkpoint was signed for %d entries, and there are %d: the tail was cut off, or the database is an old copy", n, size)
	}
	if kept > size {
		cut(kept) // it was written after them: no stop of the machine loses them alone
		return
	}
	problem, unclean := "", false
	if mark != nil {
		problem, unclean = mark.Compare(size, marked)
	}
	if copied > size && !(unclean && copied <= mark.Size) {
		cut(copied)
		return
	}
	if problem != "" {
		f.At, f.Problem, f.Unclean = min(size+1, mark.Size), problem, unclean
	}
}
