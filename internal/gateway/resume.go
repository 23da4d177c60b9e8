package gateway

import (
	"context"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/mcp"
)

// vouch tells the transport that the session is good, so that streams of it may be resumed. In the stateless era none is.
func vouch(from chokepoint.Peer) {
	in := from.In
	if in.Resumable != nil && in.Transport == mcp.HTTP && from.Refused == nil && from.Session != "" && in.Session != "" && in.Msg.Method != mcp.Initialize {
		in.Resumable(from.Version)
	}
}

// newest returns which listener of each session of HTTP is pushed to: a message goes to one stream of a client's, the one that it opened last of
// those that it reads. Where it reads none there is none: what is to be told waits. g.mu is held.
func (g *Gateway) newest() map[string]*listener {
	m := map[string]*listener{}
	for l := range g.listeners {
		if r, ok := l.push.(mcp.Reader); ok && !r.Reading() {
			continue
		}
		if l.from.In.Transport == mcp.HTTP && (m[l.from.Session] == nil || m[l.from.Session].nth < l.nth) {
			m[l.from.Session] = l
		}
	}
	return m
}

// isNewest reports whether a listener is the one that its session is pushed to.
func (g *Gateway) isNewest(l *listener) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return l.from.In.Transport != mcp.HTTP || g.newest()[l.from.Session] == l
}

// restPause is how long a stream that nobody reads, or that is not the newest, leaves what is to be told to others.
const restPause = 500 * time.Millisecond

func rest(ctx context.Context) {
	t := time.NewTimer(restPause)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
