package postgres

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"navra/internal/store"
)

const (
	maxGroup = 256
	// groupTimeout bounds one transaction: a server that does not answer denies, and does not hang who waits.
	groupTimeout = 15 * time.Second
)

// A waiting is a commit and its caller, who waits for done.
type waiting struct {
	commit store.Commit
	state  atomic.Int32
	done   chan outcome // holds one
}

// Between its caller's end and the group that comes for it a commit is decided once: written or not.
const (
	queued int32 = iota
	taken
	withdrawn
)

func (w *waiting) take() bool     { return w.state.CompareAndSwap(queued, taken) }
func (w *waiting) withdraw() bool { return w.state.CompareAndSwap(queued, withdrawn) }

type outcome struct {
	receipt  store.Receipt
	err      error
	panicked any // by Judge, which the caller's own goroutine is to see
}

// Commit implements store.Store. A commit joins the group that is being gathered. If ctx ends before a group has taken it, it is
// not written; after that its outcome is waited for, which groupTimeout bounds. An error after the connection was lost while the
// transaction was being committed may stand for a commit that is there.
func (db *DB) Commit(ctx context.Context, c store.Commit) (store.Receipt, error) {
	w := &waiting{commit: c, done: make(chan outcome, 1)}
	o := db.join(ctx, w)
	if o.panicked != nil {
		panic(o.panicked)
	}
	if o.err != nil {
		return store.Receipt{}, fmt.Errorf("commit: %w", o.err)
	}
	return o.receipt, nil
}

func (db *DB) join(ctx context.Context, w *waiting) outcome {
	if db.readOnly {
		return outcome{err: errReadOnly}
	}
	if err := ctx.Err(); err != nil {
		return outcome{err: err}
	}
	select { // a full queue makes callers wait here
	case db.queue <- w:
	case <-ctx.Done():
		return outcome{err: ctx.Err()}
	case <-db.ended:
		return outcome{err: errClosed}
	}
	select {
	case o := <-w.done:
		return o
	case <-ctx.Done():
		if w.withdraw() {
			return outcome{err: ctx.Err()}
		}
	case <-db.ended:
		if w.withdraw() {
			return outcome{err: errClosed}
		}
	}
	return <-w.done
}

// run is the committer: one group after the other. What comes while one is written is the next.
func (db *DB) run() {
	defer close(db.ended)
	for {
		select {
		case <-db.stop:
			return
		default:
		}
		select {
		case w := <-db.queue:
			db.commitGroup(db.gather(w))
		case <-db.stop:
			return
		}
	}
}

func (db *DB) gather(w *waiting) (group []*waiting) {
	for {
		if w.take() {
			group = append(group, w)
		}
		if len(group) == maxGroup {
			return group
		}
		select {
		case w = <-db.queue:
		default:
			return group
		}
	}
}

// commitGroup writes a group and tells each caller. A transaction that fails has failed for all of them.
func (db *DB) commitGroup(group []*waiting) {
	if len(group) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	outcomes, err := db.write(ctx, group)
	for i, w := range group {
		if err != nil {
			w.done <- outcome{err: db.clean(err)}
		} else {
			w.done <- outcomes[i]
		}
	}
}
