package upstream

import (
	"context"
	"iter"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/mcp"
)

// Send sends m and yields what comes back: progress, log messages, questions, and exactly one last Answer or Failed. When ctx ends first,
// the upstream is told to cancel and the last is Failed with ctx's cause.
//
// A call whose connection turns out to be lost is sent once more over a new one, if nothing of it had left, or if it only reads; that is
// recorded. MCP has no way to tell whether any other has run.
func (p *Pool) Send(ctx context.Context, m chokepoint.ToUpstream) iter.Seq[chokepoint.FromUpstream] {
	return func(yield func(chokepoint.FromUpstream) bool) {
		c, err := m.Spend(p.by)
		if err != nil {
			yield(m.Failed(chokepoint.NotSent, err))
			return
		}
		spec := p.specs[c.Lane.Upstream()]
		if c.Method == mcp.TasksResult { // it is answered when the task has ended
			spec.Call = max(spec.Call, spec.CallMax)
		}
		ctx, wait := patient(ctx, spec)
		defer wait.stop()
		a := &attempt{pool: p, m: m, c: c, wait: wait, yield: yield}
		if lost := a.run(ctx); !lost.IsZero() {
			if err := p.by.Resent(ctx, m); err != nil {
				yield(lost)
				return
			}
			a.second = true
			a.run(ctx)
		}
	}
}

// An attempt is one sending of a call.
type attempt struct {
	pool   *Pool
	m      chokepoint.ToUpstream
	c      chokepoint.Cleared
	wait   *waiting
	yield  func(chokepoint.FromUpstream) bool
	second bool
}

// run sends the call and yields what comes back; but not the failure of one that may be sent again, which it returns.
func (a *attempt) run(ctx context.Context) (lost chokepoint.FromUpstream) {
	p, m := a.pool, a.m
	e, conn, err := p.connect(ctx, a.c.Lane)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		a.yield(m.Failed(chokepoint.NotSent, err))
		return lost
	}
	defer e.leave()
	leave, err := conn.takeTurn(ctx, m)
	if err != nil {
		a.yield(m.Failed(chokepoint.NotSent, err))
		return lost
	}
	defer leave()
	if err := e.breaker.enter(time.Now()); err != nil {
		a.yield(m.Failed(chokepoint.NotSent, err))
		return lost
	}
	p.level(ctx, conn, m.Level())
	more := true // wanted; a wire may yield on
	conn.wire.exchange(ctx, m, a.c, func(f chokepoint.FromUpstream) bool {
		a.wait.progressed()
		if more && f.Asks() {
			a.wait.asked(conn, f)
		}
		if f.Last() {
			e.breaker.note(f.Unwell(), time.Now())
			if ctx.Err() == nil && !conn.alive() && a.again(f) {
				lost = f
				return true
			}
		}
		more = more && a.yield(f)
		return more
	})
	return lost
}

// again reports whether a call that failed with its connection may be sent once more.
func (a *attempt) again(f chokepoint.FromUpstream) bool {
	if a.second || !f.Is(chokepoint.ErrUnavailable) {
		return false
	}
	switch a.c.Method {
	case mcp.ResourcesRead, mcp.PromptsGet, mcp.Complete, mcp.TasksGet, mcp.TasksResult:
		return true
	}
	return f.NotSent() && !f.Is(errSession) // an upstream that refused it for its session has had it
}
