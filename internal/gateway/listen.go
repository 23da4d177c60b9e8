package gateway

import (
	"context"
	"net/http"

	"navra/internal/auth"
	"navra/internal/chokepoint"
	"navra/internal/mcp"
)

// A listener is a stream on which navra may speak first. Several of one session share what is to be told: each thing goes to one of them.
type listener struct {
	from chokepoint.Peer
	push mcp.Sink
	end  context.CancelFunc
	nth  uint64 // later ones are higher
}

// Listen pushes notifications to a client until ctx ends: over HTTP the stateful era's GET stream, elsewhere
// the connection.
func (g *Gateway) Listen(ctx context.Context, who auth.Principal, in mcp.Inbound, push mcp.Sink) error {
	from := chokepoint.Peer{Who: who, In: in, Session: in.Conn}
	if in.Transport == mcp.HTTP {
		if in.Session == "" || mcp.Version(in.Header.Get(mcp.HeaderVersion)).Stateless() {
			return httpError(refuse(http.StatusMethodNotAllowed, "no stream is offered without a session"))
		}
		if r := g.openSession(ctx, &from); r != nil {
			return httpError(r)
		}
		vouch(from)
		if in.Resumes {
			return nil
		}
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	l := &listener{from: from, push: push, end: end}
	g.mu.Lock()
	g.nth++
	l.nth = g.nth
	g.listeners[l] = struct{}{}
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.listeners, l)
		g.mu.Unlock()
	}()
	if g.chokepoint.Expelled(who) != nil { // said before it was registered
		end()
	}
	r := g.readers.session(from, 1)
	defer g.readers.leave(r)
	if in.Registered != nil {
		in.Registered()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.out.wake:
		}
		if !g.isNewest(l) { // a message goes to one stream, the one that was opened last; what waits here takes no room, however long
			r.out.ring()
			rest(ctx)
			continue
		}
		if err := g.push(ctx, r, from, push); err != nil {
			return err
		}
	}
}

// push tells a session what there is to tell. A connection that has not agreed on a stateful version is told nothing.
func (g *Gateway) push(ctx context.Context, r *reader, from chokepoint.Peer, push mcp.Sink) error {
	if from.In.Transport != mcp.HTTP {
		g.mu.Lock()
		from.Version = g.conns[from.In.Conn].version
		g.mu.Unlock()
		if from.Version == "" {
			r.out.take()
			return nil
		}
	}
	return g.tell(ctx, r, from, push)
}
