// Package duplex serves one connection that carries messages both ways, whatever its framing: it hands over what comes in,
// in order, and writes what goes back, message by message. It knows no bytes beyond a message, no policy and no sessions; of
// methods it knows only that initialize comes before whatever follows it.
package duplex

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// A Handler carries what a client sends across and sends what comes back. Listen blocks until ctx ends and pushes what
// the client did not ask for; Close is told once, at the end of the connection.
type Handler interface {
	Handle(ctx context.Context, who auth.Principal, in mcp.Inbound, out mcp.Sink) error
	Listen(ctx context.Context, who auth.Principal, in mcp.Inbound, push mcp.Sink) error
	Close(ctx context.Context, who auth.Principal, in mcp.Inbound) error
}

// Options are the parts of a connection. Next, Write, Who, Handler and Logger are required.
type Options struct {
	// Next returns the client's next message, or the fault of bytes that are none; io.EOF is the client's end, and any error
	// is the last. One goroutine calls it, which stays in it beyond Serve until it returns.
	Next func() (jsonrpc.Message, *jsonrpc.Fault, error)
	// Write writes one message. Calls do not overlap; an error ends the connection.
	Write func(message []byte) error

	Who auth.Principal
	// Recheck, where not nil, is asked before each message is handed over for who sends it now, and its error ends the
	// connection like that of Beside. Listen keeps Who; Close gets the newest.
	Recheck func() (auth.Principal, error)
	// Beside are run as long as the connection lasts and return when ctx ends. An error ends the connection at once: nothing
	// more is written, and what runs is cancelled.
	Beside []func(ctx context.Context) error

	From    mcp.Inbound // what each message holds of the connection: Transport, Conn, Host
	Handler Handler
	Logger  *slog.Logger

	// FinishGrace is how long what runs may go on when the client has ended; CancelGrace how long it may take to end when it
	// was cancelled. What outstays both is left behind, and can send nothing more.
	FinishGrace, CancelGrace time.Duration
}

// MaxConcurrent bounds the requests in flight on one connection. When it is reached the next request waits until one is answered, and what is
// behind it, cancellations included, waits with it; but for responses: what is in flight may wait for them.
const MaxConcurrent = 256

// What sinks and Serve return.
var (
	ErrEnded    = errors.New("the connection has ended")
	ErrAnswered = errors.New("the request is answered already")
	ErrUnasked  = errors.New("an answer to a message that asks for none")
	ErrNoBatch  = errors.New("a batch is answered with one answer or more, and nothing else")
)

// A Conn is one connection.
type Conn struct {
	o     Options
	out   *writer
	slots chan struct{} // one for each request in flight; full: the next one waits

	who  auth.Principal // the newest; of the goroutine that is in Serve
	held []mcp.Inbound  // behind a request that waits for room; of the same goroutine

	calls, beside sync.WaitGroup

	ended   chan struct{} // closed when nothing more will be read
	readErr error         // why, set before ended is closed
}

// New returns a connection, to be served once.
func New(o Options) *Conn {
	return &Conn{
		o: o, out: &writer{write: o.Write}, who: o.Who,
		slots: make(chan struct{}, MaxConcurrent), ended: make(chan struct{}),
	}
}

// Serve serves the connection until the client or ctx ends, and returns nil then; otherwise the error of Next, Write, Recheck
// or one of Beside.
//
// Requests run at the same time, [MaxConcurrent] at most, and their answers come in any order. The next message is handed
// over when the last one is registered (see [mcp.Inbound]), so that a cancellation finds the request it follows. Initialize,
// notifications and responses are handled to their end first.
//
// Each message is written by itself, under one lock, with nothing queued behind it: a client that does not read holds up its
// own handlers, at most [MaxConcurrent] and one for pushed messages with one message each, and with them the reading. The
// client's end is seen once what it sent before was handed over.
func (c *Conn) Serve(ctx context.Context) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.out.broken = cancel
	in := make(chan mcp.Inbound)
	go c.read(inner, in)
	for _, run := range c.o.Beside {
		c.beside.Go(func() { c.run(inner, run) })
	}
	first := c.who
	c.beside.Go(func() { c.listen(inner, first) })
	c.dispatch(inner, in)

	err := c.why(ctx, inner)
	c.wind(inner, cancel)
	closing, stop := context.WithTimeout(context.WithoutCancel(ctx), c.o.CancelGrace)
	defer stop()
	c.guard(closing, "close", "", func() error { return c.o.Handler.Close(closing, c.who, c.o.From) })
	return err
}

// Wait waits for the goroutine that is in Next. Whoever calls it has made Next return.
func (c *Conn) Wait() { <-c.ended }

// run runs one of Beside.
func (c *Conn) run(ctx context.Context, f func(context.Context) error) {
	var err error
	if !c.guard(ctx, "beside", "", func() error { err = f(ctx); return nil }) {
		err = errPanic
	}
	if err != nil && ctx.Err() == nil {
		c.out.abort(err)
	}
}

// why tells what ended the connection: nil for the client's end and for the end of outer.
func (c *Conn) why(outer, inner context.Context) error {
	switch {
	case outer.Err() != nil:
		return nil
	case inner.Err() != nil:
		return context.Cause(inner)
	}
	<-c.ended
	return c.readErr
}

// wind lets what is nearly done finish, cancels the rest, and waits for it as long as the graces allow.
func (c *Conn) wind(ctx context.Context, cancel context.CancelCauseFunc) {
	if ctx.Err() == nil {
		wait(&c.calls, c.o.FinishGrace)
	}
	cancel(ErrEnded)
	timely := wait(&c.calls, c.o.CancelGrace)
	timely = timely && wait(&c.beside, c.o.CancelGrace)
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
