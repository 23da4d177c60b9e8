package gateway

import (
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

// newest returns which listener of each session of HTTP is pushed to: a message goes to one stream of a client's, the one that it opened last.
// g.mu is held.
func (g *Gateway) newest() map[string]*listener {
	m := map[string]*listener{}
	for l := range g.listeners {
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
