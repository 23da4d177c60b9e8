package listener

import (
	"context"
	"net/http"
	"sync"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// A Handler is what the gateway is to its transports.
type Handler interface {
	Handle(ctx context.Context, who auth.Principal, in mcp.Inbound, out mcp.Sink) error
	Listen(ctx context.Context, who auth.Principal, in mcp.Inbound, push mcp.Sink) error
	Close(ctx context.Context, who auth.Principal, in mcp.Inbound) error
}

// A Gate lets requests in until the gateway stops. Then it refuses new ones with 503, those that would begin a session among them, while
// the ones under way finish and may still be cancelled or be given the answers that they wait for. The zero value is open. Its methods may
// be called concurrently.
type Gate struct {
	mu       sync.Mutex
	inside   int           // guarded by mu
	draining bool          // guarded by mu
	empty    chan struct{} // closed when draining and nobody is inside; guarded by mu, made by Shut
}

// Shut refuses new requests from now on. The channel is closed when none is under way any more.
func (g *Gate) Shut() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.draining {
		g.draining, g.empty = true, make(chan struct{})
		if g.inside == 0 {
			close(g.empty)
		}
	}
	return g.empty
}

// Draining reports whether the gate is shut.
func (g *Gate) Draining() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.draining
}

func (g *Gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return false
	}
	g.inside++
	return true
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.draining {
		close(g.empty)
	}
}

// Guard returns h behind the gate.
func (g *Gate) Guard(h Handler) Handler { return guarded{g, h} }

type guarded struct {
	*Gate
	next Handler
}

func (g guarded) Handle(ctx context.Context, who auth.Principal, in mcp.Inbound, out mcp.Sink) error {
	batch := in.Fault != nil && in.Fault.Batch != nil
	if !batch && (in.Fault != nil || in.Msg.Kind() != jsonrpc.Request) { // refused anyway; or what a request under way waits for
		return g.next.Handle(ctx, who, in, out)
	}
	if !g.enter() {
		return out.Refuse(http.StatusServiceUnavailable, stopping(in.Msg.ID))
	}
	defer g.leave()
	return g.next.Handle(ctx, who, in, out)
}

func (g guarded) Listen(ctx context.Context, who auth.Principal, in mcp.Inbound, push mcp.Sink) error {
	if in.Transport == mcp.HTTP && !in.Resumes && g.Draining() { // a call under way may still be answered
		return &mcp.HTTPError{Status: http.StatusServiceUnavailable, Msg: stopping(jsonrpc.ID{})}
	}
	return g.next.Listen(ctx, who, in, push)
}

func (g guarded) Close(ctx context.Context, who auth.Principal, in mcp.Inbound) error {
	return g.next.Close(ctx, who, in)
}

// codeStopped is navra's code for what a deadline, a cancellation or a shutdown ended.
const codeStopped = -32001

// stopping is the refusal of a request that did not go on.
func stopping(id jsonrpc.ID) jsonrpc.Message {
	return jsonrpc.Message{ID: id, Error: &jsonrpc.Error{
		Code: codeStopped, Message: "navra is shutting down; nothing was sent, try again later",
		Data: new(jsonrpc.Object).Text("reason", "shutdown").Text("outcome", "not-sent").Done(),
	}}
}
