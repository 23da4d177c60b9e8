package gateway

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// mapped carries a request of a client that knows tasks of 2025-11-25 about a task that its upstream has in the form of the extension. What the
// upstream has no request for, navra makes of those that it has.
func (g *Gateway) mapped(ctx context.Context, m chokepoint.ToUpstream, w way) iter.Seq[chokepoint.FromUpstream] {
	return func(yield func(chokepoint.FromUpstream) bool) {
		if f, ok := g.chokepoint.Held(m); ok {
			yield(f)
			return
		}
		if m.Method() == mcp.TasksGet {
			g.upstreams.Send(ctx, m)(yield)
			return
		}
		t, err := g.chokepoint.MapTask(m)
		switch {
		case err != nil:
			yield(m.Failed(chokepoint.NotSent, err))
		case m.Method() == mcp.TasksCancel:
			yield(g.cancelMapped(ctx, t))
		default:
			yield(g.outcome(ctx, t, w, yield))
		}
	}
}

// cancelMapped cancels a task that has not ended. The upstream only acknowledges that.
func (g *Gateway) cancelMapped(ctx context.Context, t *chokepoint.OwnTask) chokepoint.FromUpstream {
	if err := g.askTask(ctx, t, mcp.TasksGet); err != nil {
		return t.Failed(chokepoint.NotSent, err)
	}
	if t.Over {
		return t.Failed(chokepoint.NotSent, chokepoint.ErrTaskEnded)
	}
	if err := g.askTask(ctx, t, mcp.TasksCancel); err != nil {
		return t.Failed(chokepoint.Unknown, err)
	}
	return t.Latch()
}

// outcome asks for a task until it has ended, has the client asked meanwhile what the upstream needs, and returns what the task came to. A client
// that does not wait leaves the task as it is. Meanwhile progress is told to tell.
func (g *Gateway) outcome(ctx context.Context, t *chokepoint.OwnTask, w way, tell func(chokepoint.FromUpstream) bool) chokepoint.FromUpstream {
	ctx, end := context.WithTimeoutCause(ctx, taskLimit, chokepoint.ErrDeadline)
	defer end()
	ctx, giveWay := context.WithCancelCause(ctx)
	defer g.outcomes.enter(w.from.Who.Name(), giveWay)()
	asking, stop := context.WithCancelCause(ctx)
	var questions sync.WaitGroup
	defer questions.Wait()
	defer stop(errAnswered)
	told := make(chan error) // for each question: why the task cannot go on; nil: its upstream was told
	for {
		if err := g.askTask(ctx, t, mcp.TasksGet); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return t.Failed(chokepoint.Unknown, err)
		}
		if t.Over {
			return t.Outcome()
		}
		if f, ok := t.Alive(); ok {
			tell(f)
		}
		asks, err := t.Asks(ctx)
		for _, q := range asks {
			questions.Go(func() {
				select {
				case told <- g.askDuring(asking, t, w, q):
				case <-asking.Done():
				}
			})
		}
		if err == nil {
			err = untilDue(ctx, t, told)
		}
		if err != nil {
			return t.Failed(chokepoint.Unknown, err)
		}
	}
}

// maxOutcomes bounds the requests of one principal that wait for what a task comes to: each has its upstream asked, and that recorded, again and again, and
// goes on when its client is gone.
const maxOutcomes = 64

// outcomes are those requests. The zero outcomes are none; the method may be called concurrently.
type outcomes struct {
	mu  sync.Mutex
	all map[string][]*context.CancelCauseFunc // by principal, the oldest first; guarded by mu
}

// enter adds a request until leave is called. Where there are too many the oldest of the principal's gives way: its client may have gone, and
// can ask again.
func (o *outcomes) enter(who string, giveWay context.CancelCauseFunc) (leave func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[string][]*context.CancelCauseFunc{}
	}
	if mine := o.all[who]; len(mine) >= maxOutcomes {
		(*mine[0])(chokepoint.ErrTooManyWait)
		o.all[who] = slices.Delete(mine, 0, 1)
	}
	o.all[who] = append(o.all[who], &giveWay)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all[who] = slices.DeleteFunc(o.all[who], func(f *context.CancelCauseFunc) bool { return f == &giveWay })
		if len(o.all[who]) == 0 {
			delete(o.all, who)
		}
		giveWay(nil)
	}
}

// untilDue waits until a task is to be asked for again: after a while, or when its upstream was told something. The error says why it is not.
func untilDue(ctx context.Context, t *chokepoint.OwnTask, told <-chan error) error {
	due := time.NewTimer(t.Wait)
	defer due.Stop()
	for {
		cancelled, next := t.Latched()
		if cancelled {
			return chokepoint.ErrTaskCancelled
		}
		select {
		case err := <-told:
			return err
		case <-due.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-next:
		}
	}
}

// askDuring asks a client what the upstream of a task needs, and tells that its answer. A question that is over before it is answered is withdrawn.
func (g *Gateway) askDuring(ctx context.Context, t *chokepoint.OwnTask, w way, q *chokepoint.Question) error {
	got, err := g.answerTo(ctx, w, q)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		got = reply{w.from, jsonrpc.Message{}}
	}
	m, err := t.Update(ctx, got.from, q, got.msg)
	if err != nil {
		return err
	}
	ctx, stop := outlasting(ctx, lastAnswer)
	defer stop()
	return g.learnTask(ctx, t, m)
}

// lastAnswer is how long an answer has to reach its upstream when nobody waits for the task any more: less than lastWords, and what waits for it.
const lastAnswer = 300 * time.Millisecond

// outlasting returns a context that ends a while after ctx does, for the same cause.
func outlasting(ctx context.Context, d time.Duration) (context.Context, func()) {
	out, end := context.WithCancelCause(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() {
		late := time.NewTimer(d)
		defer late.Stop()
		select {
		case <-late.C:
			end(context.Cause(ctx))
		case <-out.Done():
		}
	})
	return out, func() {
		forget()
		end(nil)
	}
}
