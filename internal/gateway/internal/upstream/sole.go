package upstream

import (
	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// What an upstream asks belongs to the call on whose stream it comes. Some servers ask on the stream that they push on, which names no call: then
// it belongs to the call that is under way, if there is just one. Anything else would be a guess.

// enter notes an exchange that can be asked back about.
func (w *web) enter(x *exchanging) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == nil {
		w.calls = map[*exchanging]struct{}{}
	}
	w.calls[x] = struct{}{}
}

// leave takes an exchange out. Nothing is given to it any more.
func (w *web) leave(x *exchanging) {
	w.mu.Lock()
	delete(w.calls, x)
	w.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.left = true
}

// sole returns the only call of a client's that is under way; nil if there is none or more than one.
func (w *web) sole() (only *exchanging) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for x := range w.calls {
		if x.m.Own() {
			continue
		}
		if only != nil {
			return nil
		}
		only = x
	}
	return only
}

// pushed takes what came on the stream that the upstream pushes on. A lane with a session has one client, who is found without a call.
func (w *web) pushed(m jsonrpc.Message) (taken bool) {
	if m.Kind() != jsonrpc.Request || mcp.QuestionOf(m.Method) == mcp.NoQuestion || w.conn.lane.Session() != "" || w.conn.pool.by.Answers(w.conn.lane, m.Method) {
		return false
	}
	x := w.sole()
	return x != nil && x.m.Asked() && x.give(x.m.Question(m, w.conn.serial))
}

// give yields something for the exchange, unless it has left.
func (x *exchanging) give(f chokepoint.FromUpstream) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.left {
		return false
	}
	x.yield(f)
	return true
}
