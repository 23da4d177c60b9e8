package sqlite

import (
	"context"
	"database/sql"
	"sync/atomic"
)

// turns have those who read wait in a row for one of the connections. database/sql lets who waits have one in no order: among hundreds of callers some would
// wait for seconds while others are served twice.
type turns struct {
	taken   chan struct{}
	waiting atomic.Int64
}

func newTurns(n int) *turns { return &turns{taken: make(chan struct{}, n)} }

// take waits for a turn, which ends with give.
func (t *turns) take(ctx context.Context) error {
	select {
	case t.taken <- struct{}{}: // nobody waits: who does is let in first
		return nil
	default:
	}
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	select {
	case t.taken <- struct{}{}: // a channel serves those who wait in the order in which they came
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *turns) give() { <-t.taken }

// ask runs f with a statement on a connection that reads, prepared once, in its turn. What f returns is heard.
func (db *DB) ask(ctx context.Context, query string, f func(*sql.Stmt) error) error {
	if err := db.reading.take(ctx); err != nil {
		return err
	}
	defer db.reading.give()
	q, err := db.prepared(ctx, query)
	if err == nil {
		err = f(q)
	}
	return db.heard(err)
}
