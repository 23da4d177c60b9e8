package stdio

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// dispatch hands messages to the handler in the order in which they came, until there are no more or ctx ends.
func (c *conn) dispatch(ctx context.Context, in <-chan mcp.Inbound) {
	for {
		select {
		case <-ctx.Done():
			return
		case m, ok := <-in:
			if !ok {
				return
			}
			c.take(ctx, m)
		}
	}
}

// take starts one message and returns when the next may follow.
func (c *conn) take(ctx context.Context, in mcp.Inbound) {
	done := func() {}
	if in.Fault != nil || in.Msg.Kind() == jsonrpc.Request {
		select {
		case c.slots <- struct{}{}:
			done = func() { <-c.slots }
		case <-ctx.Done():
			return
		}
	}
	registered, handled := make(chan struct{}), make(chan struct{})
	if overtakes(in) {
		in.Registered = sync.OnceFunc(func() { close(registered) })
	}
	c.calls.Go(func() {
		defer done()
		defer close(handled)
		c.handle(ctx, in)
	})
	select {
	case <-registered:
	case <-handled:
	case <-c.ended: // nothing follows
	case <-ctx.Done():
	}
}

// overtakes reports whether a message that follows in may be handed over once in is registered, rather than handled.
func overtakes(in mcp.Inbound) bool {
	return in.Fault != nil || in.Msg.Kind() == jsonrpc.Request && in.Msg.Method != mcp.Initialize
}

// handle has one message handled, and answers it where the handler could not.
func (c *conn) handle(ctx context.Context, in mcp.Inbound) {
	out := &sink{out: c.out, in: in}
	if c.guard(ctx, "handle", in.Msg.Method, func() error { return c.o.Handler.Handle(ctx, c.o.Who, in, out) }) {
		return
	}
	if err := out.fail(); err != nil {
		c.o.Logger.DebugContext(ctx, "answer not sent", slog.Any("err", err))
	}
}

func (c *conn) listen(ctx context.Context) {
	in := c.inbound()
	c.guard(ctx, "listen", "", func() error { return c.o.Handler.Listen(ctx, c.o.Who, in, pushes{c.out}) })
}

// guard runs f and reports whether it went well. An error and a panic are logged, without what a panic carries: that may
// be content.
func (c *conn) guard(ctx context.Context, what, method string, f func() error) (ok bool) {
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
