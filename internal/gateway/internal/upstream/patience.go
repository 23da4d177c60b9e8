package upstream

import (
	"context"
	"sync"
	"time"

	"navra/internal/chokepoint"
)

// A waiting bounds a call: it ends when nothing is heard of it for the upstream's Call, and after CallMax whatever is heard. Time in which
// a client is asked something does not count.
type waiting struct {
	spec Spec
	end  context.CancelCauseFunc

	mu    sync.Mutex
	open  int           // questions; guarded by mu, like what follows
	spare time.Duration // of CallMax
	began time.Time     // when spare began to run
	late  *time.Timer   // Call
	max   *time.Timer   // CallMax
}

func patient(ctx context.Context, s Spec) (context.Context, *waiting) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &waiting{spec: s, end: cancel, spare: max(s.Call, s.CallMax), began: time.Now()}
	over := func() { cancel(chokepoint.ErrDeadline) }
	w.late, w.max = time.AfterFunc(s.Call, over), time.AfterFunc(w.spare, over)
	return ctx, w
}

func (w *waiting) stop() {
	w.late.Stop()
	w.max.Stop()
	w.end(nil)
}

// progressed begins the time for the next sign of life.
func (w *waiting) progressed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == 0 {
		w.late.Reset(w.spec.Call)
	}
}

// asked stops the time until the question is answered.
func (w *waiting) asked(c *conn, f chokepoint.FromUpstream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open++; w.open == 1 {
		w.late.Stop()
		w.max.Stop()
		w.spare -= time.Since(w.began)
	}
	c.onReply(f.ID(), w.answered)
}

func (w *waiting) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open--; w.open == 0 {
		w.began = time.Now()
		w.late.Reset(w.spec.Call)
		w.max.Reset(max(w.spare, w.spec.Call))
	}
}
