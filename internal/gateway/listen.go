package gateway

import (
	"context"
	"net/http"

	"navra/internal/auth"
	"navra/internal/catalogue"
	"navra/internal/chokepoint"
	"navra/internal/mcp"
)

// A listener is a stream on which navra may speak first.
type listener struct {
	from chokepoint.Peer
	push mcp.Sink
	news chan mcp.Topic
	end  context.CancelFunc
	nth  uint64 // later ones are higher
}

// newsRoom bounds what waits for a slow listener: there are four topics, and one notice of each is enough.
const newsRoom = 4

// Listen pushes navra's own notifications to a client until ctx ends: over HTTP the stateful era's GET stream, elsewhere
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
	if in.Registered != nil {
		in.Registered()
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	l := &listener{from: from, push: push, news: make(chan mcp.Topic, newsRoom), end: end}
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
	for {
		select {
		case <-ctx.Done():
			return nil
		case topic := <-l.news:
			if err := g.announce(ctx, l, topic); err != nil {
				return err
			}
		}
	}
}

// announce tells one listener that a list has changed. A connection that has not agreed on a stateful version is told nothing.
func (g *Gateway) announce(ctx context.Context, l *listener, topic mcp.Topic) error {
	from := l.from
	if from.In.Transport != mcp.HTTP {
		g.mu.Lock()
		from.Version = g.conns[from.In.Conn].version
		g.mu.Unlock()
		if from.Version == "" {
			return nil
		}
	}
	m, err := g.chokepoint.Announce(ctx, from, topic)
	if err != nil {
		return err
	}
	return l.push.Send(m.Msg)
}

// changed hears that lists of a principal's upstreams are others now, and tells those who listen. A listener that has not taken the last
// notice of a topic yet needs no second one.
func (g *Gateway) changed(principal string, topics []mcp.Topic) {
	g.mu.Lock()
	defer g.mu.Unlock()
	newest := g.newest()
	for l := range g.listeners {
		if l.from.In.Transport == mcp.HTTP && newest[l.from.Session] != l {
			continue
		}
		if principal != catalogue.Everyone && l.from.Who.Name() != principal {
			continue
		}
		for _, t := range topics {
			select {
			case l.news <- t:
			default:
			}
		}
	}
}
