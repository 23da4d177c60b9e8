package duplex

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// read takes messages from the client and passes them on, one at a time, until Next or ctx ends.
func (c *Conn) read(ctx context.Context, to chan<- mcp.Inbound) {
	defer close(to)
	defer close(c.ended)
	if !c.guard(ctx, "read", "", func() error { c.readErr = c.pass(ctx, to); return nil }) {
		c.readErr = errPanic
	}
}

func (c *Conn) pass(ctx context.Context, to chan<- mcp.Inbound) (err error) {
	for {
		in := c.o.From
		if in.Msg, in.Fault, err = c.o.Next(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		select {
		case to <- in:
		case <-ctx.Done():
			return nil
		}
	}
}

// dispatch hands messages to the handler in the order in which they came, until there are no more or ctx ends.
func (c *Conn) dispatch(ctx context.Context, in <-chan mcp.Inbound) {
	for {
		if len(c.held) > 0 {
			m := c.held[0]
			c.held = c.held[1:]
			c.take(ctx, m, in)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case m, ok := <-in:
			if !ok {
				return
			}
			c.take(ctx, m, in)
		}
	}
}

// maxHeld bounds what waits behind a request that waits for room.
const maxHeld = 64

// room waits until a request may run. What runs may wait for the client's answers, so these are taken meanwhile; what else comes is held.
func (c *Conn) room(ctx context.Context, behind <-chan mcp.Inbound) bool {
	for {
		if len(c.held) >= maxHeld {
			behind = nil
		}
		select {
		case c.slots <- struct{}{}:
			return true
		case <-ctx.Done():
			return false
		case m, ok := <-behind:
			switch {
			case !ok:
				behind = nil
			case m.Fault == nil && m.Msg.Kind() == jsonrpc.Response:
				c.start(ctx, m, func() {})
			default:
				c.held = append(c.held, m)
			}
		}
	}
}

// take starts one message when there is room for it. behind is where the next will come from.
func (c *Conn) take(ctx context.Context, in mcp.Inbound, behind <-chan mcp.Inbound) {
	done := func() {}
	if asks(in) {
		if !c.room(ctx, behind) {
			return
		}
		done = func() { <-c.slots }
	}
	c.start(ctx, in, done)
}

// start has one message handled, and returns when the next may follow.
func (c *Conn) start(ctx context.Context, in mcp.Inbound, done func()) {
	if err := c.recheck(); err != nil {
		done()
		c.out.abort(err)
		return
	}
	registered, handled := make(chan struct{}), make(chan struct{})
	if overtakes(in) {
		in.Registered = sync.OnceFunc(func() { close(registered) })
	}
	who := c.who
	c.calls.Go(func() {
		defer done()
		defer close(handled)
		c.handle(ctx, who, in)
	})
	ended := c.ended // nothing follows
	if len(c.held) > 0 {
		ended = nil
	}
	select {
	case <-registered:
	case <-handled:
	case <-ended:
	case <-ctx.Done():
	}
}

// recheck learns who sends messages now; after a wait for room, so that what waited is judged by what is true when it goes on.
func (c *Conn) recheck() error {
	if c.o.Recheck == nil {
		return nil
	}
	who, err := c.o.Recheck()
	if err != nil {
		return err
	}
	c.who = who
	return nil
}

// asks reports whether a message is to be answered: a request, or bytes that may have been one.
func asks(in mcp.Inbound) bool { return in.Fault != nil || in.Msg.Kind() == jsonrpc.Request }

// overtakes reports whether a message that follows in may be handed over once in is registered, rather than handled.
func overtakes(in mcp.Inbound) bool {
	return asks(in) && (in.Fault != nil || in.Msg.Method != mcp.Initialize)
}

// handle has one message handled, and answers it where the handler could not.
func (c *Conn) handle(ctx context.Context, who auth.Principal, in mcp.Inbound) {
	out := &sink{out: c.out, in: in}
	if c.guard(ctx, "handle", in.Msg.Method, func() error { return c.o.Handler.Handle(ctx, who, in, out) }) {
		return
	}
	if err := out.fail(); err != nil {
		c.o.Logger.DebugContext(ctx, "answer not sent", slog.Any("err", err))
	}
}

func (c *Conn) listen(ctx context.Context, who auth.Principal) {
	c.guard(ctx, "listen", "", func() error { return c.o.Handler.Listen(ctx, who, c.o.From, pushes{c.out}) })
}

var errPanic = errors.New("panic")

// guard runs f and reports whether it went well. An error and a panic are logged, without what a panic carries: that may
// be content.
func (c *Conn) guard(ctx context.Context, what, method string, f func() error) (ok bool) {
	log := c.o.Logger.With(slog.String("step", what), slog.String("method", method))
	defer func() {
		if v := recover(); v != nil {
			ok = false
			log.ErrorContext(ctx, "handler panicked", slog.String("panic", panicText(v)), slog.String("stack", string(debug.Stack())))
		}
	}()
	err := f()
	switch {
	case err == nil:
		return true
	case ctx.Err() != nil:
		log.DebugContext(ctx, "ended before it was done", slog.Any("err", err))
	default:
		log.ErrorContext(ctx, "message not handled", slog.Any("err", err))
	}
	return false
}

// panicText describes a panic: Go's own errors hold no content, of others only the type is told.
func panicText(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", v)
}
