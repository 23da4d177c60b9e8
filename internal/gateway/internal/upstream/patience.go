package upstream

import (
	"context"
	"sync"
	"time"

	"navra/internal/chokepoint"
)

// A waiting bounds a call: it ends when nothing is heard of it for the upstream's Call, and after CallMax whatever is heard. Time in which
// a client is asked something does not count, up to askedMax.
type waiting struct {
	spec Spec
	end  context.CancelCauseFunc

	mu    sync.Mutex
	open  int // questions; guarded by mu, like what follows
	ended bool
	spare time.Duration // of CallMax
	began time.Time     // when spare began to run
	late  *time.Timer   // Call
	max   *time.Timer   // CallMax
}

// askedMax bounds the time that questions hold a call, whatever becomes of them; who asks gives up before.
const askedMax = 30 * time.Minute

func patient(ctx context.Context, s Spec) (context.Context, *waiting) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &waiting{spec: s, end: cancel, spare: max(s.Call, s.CallMax), began: time.Now()}
	over := func() { cancel(chokepoint.ErrDeadline) }
	w.late, w.max = time.AfterFunc(s.Call, over), time.AfterFunc(w.spare, over)
	return ctx, w
}

func (w *waiting) stop() {
	w.mu.Lock()
	w.ended = true
	w.late.Stop()
	w.max.Stop()
	w.mu.Unlock()
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
	if w.open++; w.open == 1 {
		w.late.Stop()
		w.spare -= time.Since(w.began)
		w.max.Reset(askedMax)
	}
	w.mu.Unlock()
	c.pool.onReply(asking{c.serial, f.ID().String()}, w.answered)
}

func (w *waiting) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open--; w.open == 0 && !w.ended {
		w.began = time.Now()
		w.late.Reset(w.spec.Call)
		w.max.Reset(max(w.spare, w.spec.Call))
	}
}
