// Package stdio serves one client over a pair of byte streams, usually the process's stdin and stdout: it turns lines into
// messages and messages into lines, and tells which program is at the other end. It knows no policy and no sessions; of
// methods it knows only that initialize comes before whatever follows it.
package stdio

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"navra/internal/auth"
	"navra/internal/mcp"
)

// A Handler carries what a client sends across and sends what comes back. Listen blocks until ctx ends and pushes what
// the client did not ask for; Close is told once, at the end of the connection.
type Handler interface {
	Handle(ctx context.Context, who auth.Principal, in mcp.Inbound, out mcp.Sink) error
	Listen(ctx context.Context, who auth.Principal, in mcp.Inbound, push mcp.Sink) error
	Close(ctx context.Context, who auth.Principal, in mcp.Inbound) error
}

// Options are the parts of a connection. In, Out, Who, Handler and Logger are required.
type Options struct {
	In         io.Reader
	Out        io.Writer // gets one Write per message
	Who        auth.Principal
	Host       mcp.HostKey
	Handler    Handler
	Logger     *slog.Logger
	MaxMessage int64 // bytes of one line without its end; 0 means DefaultMaxMessage
}

// DefaultMaxMessage bounds one message, in bytes.
const DefaultMaxMessage = 4 << 20

const (
	// maxConcurrent bounds the requests in flight. When it is reached the next request waits, and nothing is read behind it,
	// cancellations included, until one is answered.
	maxConcurrent = 256
	// Hosts kill a process some 100 ms after they asked it to end (measured: Claude Code, Codex, Gemini CLI). A client that
	// closes its end without a signal gets the answers that are ready within finishGrace; then, and on a signal at once,
	// what still runs is cancelled and has cancelGrace to end.
	finishGrace = 50 * time.Millisecond
	cancelGrace = 50 * time.Millisecond
)

// Serve serves one client until its stream or ctx ends, and returns nil then; the error is what reading or writing met
// otherwise. MCP 2025-11-25, basic/transports §stdio; MCP 2026-07-28, ditto.
//
// Requests run at the same time, [maxConcurrent] at most, and their answers come in any order. The next message is handed
// over when the last one is registered (see [mcp.Inbound]), so that a cancellation finds the request it follows. Initialize,
// notifications and responses are handled to their end first.
//
// Each message is written by itself, under one lock, with nothing queued behind it: a client that does not read holds up its
// own handlers, at most [maxConcurrent] and one for pushed messages with one message each, and with them the reading. The
// client's end is seen once what it sent before was handed over.
//
// A Read of In that blocks cannot be interrupted: where ctx ends first, one goroutine stays in it until it returns, and drops what it
// got. A handler that outstays its cancellation by 50 ms is left behind likewise, and can send nothing more.
func Serve(ctx context.Context, o Options) error {
	if o.MaxMessage <= 0 {
		o.MaxMessage = DefaultMaxMessage
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &conn{
		o: o, id: rand.Text(), out: &writer{w: o.Out, broken: cancel},
		slots: make(chan struct{}, maxConcurrent), ended: make(chan struct{}),
	}
	in := make(chan mcp.Inbound)
	go c.read(inner, in)
	c.listener.Go(func() { c.listen(inner) })
	c.dispatch(inner, in)

	err := c.why(ctx, inner)
	c.wind(inner, cancel)
	closing, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelGrace)
	defer stop()
	c.guard(closing, "close", "", func() error { return o.Handler.Close(closing, o.Who, c.inbound()) })
	return err
}

// A conn is one connection.
type conn struct {
	o     Options
	id    string // random, so that it is nobody else's
	out   *writer
	slots chan struct{} // one for each request in flight; full: the next one waits

	calls, listener sync.WaitGroup

	ended   chan struct{} // closed when nothing more will be read
	readErr error         // why, set before ended is closed; nil: the client closed its end
}

func (c *conn) inbound() mcp.Inbound {
	return mcp.Inbound{Transport: mcp.Stdio, Conn: c.id, Host: c.o.Host}
}

// why tells what ended the connection: nil for the client's end and for the end of outer.
func (c *conn) why(outer, inner context.Context) error {
	switch {
	case outer.Err() != nil:
		return nil
	case inner.Err() != nil:
		return context.Cause(inner)
	}
	<-c.ended
	return c.readErr
}

// wind lets what is nearly done finish, cancels the rest, and waits for it as long as a host waits.
func (c *conn) wind(ctx context.Context, cancel context.CancelCauseFunc) {
	if ctx.Err() == nil {
		wait(&c.calls, finishGrace)
	}
	cancel(errEnded)
	timely := wait(&c.calls, cancelGrace)
	timely = timely && wait(&c.listener, cancelGrace)
	c.out.ended.Store(true)
	if !timely {
		c.o.Logger.WarnContext(ctx, "requests left behind at the end of the connection")
	}
}

// wait reports whether wg is done within d.
func wait(wg *sync.WaitGroup, d time.Duration) bool {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

var (
	errEnded    = errors.New("the connection has ended")
	errAnswered = errors.New("the request is answered already")
	errUnasked  = errors.New("an answer to a message that asks for none")
)
