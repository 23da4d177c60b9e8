package chokepoint

import (
	"context"
	"fmt"
	"sync"
	"time"

	"navra/internal/blackbox"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/store"
)

// complainEvery is the least time between two complaints of the log, however much is denied.
const complainEvery = time.Second

// A toll counts what could not be recorded until something can be again. Its methods may be called concurrently.
type toll struct {
	mu    sync.Mutex
	n     int64     // since the last time that something was recorded; guarded by mu
	since time.Time // of the first of them; guarded by mu
	told  time.Time // when the log was told last; guarded by mu
	quiet int64     // not told; guarded by mu
}

// add counts one. tell is true where the log is to be told now, of this one and so many before it.
func (t *toll) add(now time.Time) (tell bool, before int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n++; t.n == 1 {
		t.since = now
	}
	if now.Sub(t.told) < complainEvery {
		t.quiet++
		return false, 0
	}
	before, t.told, t.quiet = t.quiet, now, 0
	return true, before
}

// take returns the count and begins anew.
func (t *toll) take() (n int64, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, t.n = t.n, 0
	return n, t.since
}

func (t *toll) putBack(n int64, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n, t.since = t.n+n, since
}

// unrecorded turns a failure to record into a denial; nil stays nil.
func (p *Chokepoint) unrecorded(x *Crossing, err error) error {
	if err == nil {
		if p.observe != nil {
			p.observe(policy.StageRecord, p.now().Sub(x.began), x.verdict.Effect)
		}
		return nil
	}
	if tell, before := p.toll.add(p.now()); tell {
		p.log.Error("crossing could not be recorded, so it is denied", "method", x.entry.Method, "upstream", x.entry.Upstream, "err", err, "more_before", before)
	}
	reason := "it could not be recorded in the blackbox"
	if why := store.Why(err); why != "" {
		reason += " (" + why + ")"
	}
	x.verdict = policy.Denied(policy.StageRecord, reason)
	return err
}

// caughtUp records, once something could be recorded again, what was denied meanwhile because nothing could.
func (p *Chokepoint) caughtUp(ctx context.Context) {
	n, since := p.toll.take()
	if n == 0 {
		return
	}
	text := fmt.Sprintf("%d messages were denied since %s because they could not be recorded", n, since.UTC().Format(time.RFC3339))
	if err := p.tell(ctx, text); err != nil {
		p.toll.putBack(n, since)
		return
	}
	p.log.Warn("messages were denied because they could not be recorded; now something could again", "denied", n, "since", since)
}

// owed reports whether an entry may use the room that is kept back: what follows from a call that was let through.
func owed(e blackbox.Entry) bool {
	return e.Kind == blackbox.Answer || e.Kind == blackbox.OwnAnswer || e.Kind == blackbox.Own && e.Method == mcp.Cancelled
}
