package gateway

import (
	"context"
	"time"

	"navra/internal/auth"
)

// hearEvery is how often the store is asked what operators have said in other processes, while something is under way that they may end.
const hearEvery = time.Second

// A carried is a call that was sent to an upstream, and what ends it.
type carried struct {
	who      auth.Principal
	upstream string
	cancel   context.CancelCauseFunc
}

// underway registers a call of a client's until done is called: an operator may end it.
func (g *Gateway) underway(who auth.Principal, upstream string, cancel context.CancelCauseFunc) (done func()) {
	c := &carried{who, upstream, cancel}
	g.mu.Lock()
	g.carried[c] = struct{}{}
	g.mu.Unlock()
	if why := g.chokepoint.Halts(who, upstream); why != nil { // said before it was registered
		cancel(why)
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.carried, c)
	}
}

// obey ends what operators say is to end, until the gateway stops.
func (g *Gateway) obey() {
	tick := time.NewTicker(hearEvery)
	defer tick.Stop()
	changed, digest := g.chokepoint.Changed(), g.chokepoint.PolicyDigest()
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-tick.C:
			if g.endable() {
				_ = g.chokepoint.Refresh(g.ctx) // a store that cannot be read denies what comes, and is told of there
			}
			continue
		case <-changed:
		}
		changed = g.chokepoint.Changed()
		g.endHalted()
		if now := g.chokepoint.PolicyDigest(); now != digest { // who sees what is another
			digest = now
			g.readers.anew()
		}
	}
}

// endable reports whether there is anything that an operator may end.
func (g *Gateway) endable() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l := range g.listeners {
		if l.from.Who.Method() == "token" {
			return true
		}
	}
	return len(g.carried)+len(g.parks)+len(g.asked) > 0 || g.readers.listening()
}

// endHalted cancels calls, questions and parked calls of who is paused or whose credential was revoked, and ends the streams of who may not come
// any more. A session's stream outlives a pause, so that its client keeps navra; a listen ends where it follows what is paused.
func (g *Gateway) endHalted() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.carried {
		if why := g.chokepoint.Halts(c.who, c.upstream); why != nil {
			c.cancel(why)
		}
	}
	for _, a := range g.asked {
		if why := g.chokepoint.Halts(a.who, a.question.Lane().Upstream()); why != nil {
			a.drop(why)
		}
	}
	for handle, p := range g.parks {
		if why := g.chokepoint.Halts(p.from.Who, p.out.Upstream()); why != nil {
			go g.abandon(handle, why) // which takes the lock
		}
	}
	for l := range g.listeners {
		if g.chokepoint.Expelled(l.from.Who) != nil {
			l.end()
		}
	}
	g.readers.endListens(g.halted)
	g.readers.makeUp(g.chokepoint.Halts, g.chokepoint.Behind())
}

// halted says why a listen is ended; nil where it is not.
func (g *Gateway) halted(r *reader) error {
	if why := g.chokepoint.Expelled(r.from.Who); why != nil {
		return why
	}
	for _, it := range r.watches {
		if why := g.chokepoint.Halts(r.from.Who, it.watch.Lane().Upstream()); why != nil {
			return why
		}
	}
	return nil
}
