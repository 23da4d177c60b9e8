package gateway

import (
	"context"
	"time"

	"navra/internal/chokepoint"
)

const (
	// wayLimit is how long a question that belongs to no call waits for a stream on which its client can be asked.
	wayLimit = 10 * time.Second
	// maxBacklog bounds what waits for one session, maxBacklogs the sessions that something waits for.
	maxBacklog  = 64
	maxBacklogs = 4096
)

// A backlog is what upstreams send to one session without a call that it belongs to, in the order in which it came. All is guarded by the
// gateway's mu.
type backlog struct {
	items   []unbidden
	open    int  // questions that are being asked
	running bool // somebody delivers items
}

type unbidden struct {
	lane chokepoint.Lane
	what chokepoint.FromUpstream
}

// unasked takes what an upstream sends to a session without a call of its own. It is false where there is no room: an upstream that sends more
// than its client takes harms that session alone.
func (g *Gateway) unasked(l chokepoint.Lane, f chokepoint.FromUpstream) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.backlogs[l.Session()]
	switch {
	case g.ctx.Err() != nil || b == nil && len(g.backlogs) >= maxBacklogs || b != nil && len(b.items) >= maxBacklog:
		return false
	case b == nil:
		b = &backlog{}
		g.backlogs[l.Session()] = b
	}
	b.items = append(b.items, unbidden{l, f})
	if !b.running {
		b.running = true
		g.work.Go(func() { g.deliver(l.Session(), b) })
	}
	return true
}

// deliver hands over what is there, until there is no more. Questions are asked beside.
func (g *Gateway) deliver(session string, b *backlog) {
	for {
		g.mu.Lock()
		if len(b.items) == 0 {
			b.running = false
			g.settleBacklog(session, b)
			g.mu.Unlock()
			return
		}
		it := b.items[0]
		b.items = b.items[1:]
		asks := !it.what.ID().IsZero()
		room := asks && b.open < maxAsking && g.ctx.Err() == nil
		if room {
			b.open++
			g.work.Go(func() {
				g.putUnasked(g.ctx, it)
				g.mu.Lock()
				defer g.mu.Unlock()
				b.open--
				g.settleBacklog(session, b)
			})
		}
		g.mu.Unlock()
		switch {
		case asks && !room:
			g.turnDown(g.ctx, it.what)
		case !asks:
			g.tellUnasked(g.ctx, it)
		}
	}
}

// settleBacklog forgets a backlog that holds nothing. g.mu is held.
func (g *Gateway) settleBacklog(session string, b *backlog) {
	if !b.running && b.open == 0 {
		delete(g.backlogs, session)
	}
}

// tellUnasked sends a notification to a client that can be told something now.
func (g *Gateway) tellUnasked(ctx context.Context, it unbidden) {
	w, ok := g.wayNow(it.lane.Session())
	if !ok {
		g.chokepoint.Overhear(ctx, it.what)
		return
	}
	m, err := g.chokepoint.ReleaseUnasked(ctx, it.what, w.from)
	if err == nil && !m.Drop {
		_ = w.out.Send(m.Msg) // a client that is gone misses it
	}
}

// putUnasked asks a question that belongs to no call.
func (g *Gateway) putUnasked(ctx context.Context, it unbidden) {
	w, ok := g.wayTo(ctx, it.lane.Session(), wayLimit)
	if !ok {
		g.turnDown(ctx, it.what)
		return
	}
	m, err := g.chokepoint.ReleaseUnasked(ctx, it.what, w.from)
	switch {
	case err != nil: // what its client may be asked is something else since the connection was opened
		g.turnDown(ctx, it.what)
	case m.Question != nil:
		g.ask(ctx, w, m.Question, func() {})
	default:
		g.replyWith(context.WithoutCancel(ctx), m.Reply, nil)
	}
}

// turnDown answers a question that nobody is asked.
func (g *Gateway) turnDown(ctx context.Context, f chokepoint.FromUpstream) {
	ctx = context.WithoutCancel(ctx)
	up, err := g.chokepoint.AdmitReply(ctx, f)
	g.replyWith(ctx, up, err)
}

// maxBackground bounds what clients have navra tell upstreams beside their calls; what comes beyond that is dropped.
const maxBackground = 256

// background runs f beside whatever called it. Stop waits for it.
func (g *Gateway) background(f func(context.Context)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return
	}
	select {
	case g.slots <- struct{}{}:
	default:
		g.log.Warn("too much at once for upstreams; something was dropped")
		return
	}
	g.work.Go(func() {
		defer func() { <-g.slots }()
		f(g.ctx)
	})
}
