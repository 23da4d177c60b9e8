package streamable

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/transport/door"
)

// An exchange is one request and what goes back. Only the goroutine that net/http gave it writes; the handler runs in
// another, and hands over what it sends through a reply.
type exchange struct {
	*Server
	w   http.ResponseWriter
	rc  *http.ResponseController
	r   *http.Request
	who auth.Principal
	in  mcp.Inbound

	takes    accepted
	vouched  mcp.Version        // not empty: the session is one whose streams may be resumed
	taken    <-chan struct{}    // closed: another connection has taken the stream over
	tooLong  bool               // the body was over the limit
	lost     context.CancelFunc // what a failed write ends; nil: nothing
	comments *time.Ticker       // not nil: the event stream has begun
	answered bool
	gone     bool // nothing more can be written
}

// post carries one message across.
func (x *exchange) post() {
	if wrong := supportedBody(x.r.Header); wrong != "" {
		x.refuse(http.StatusUnsupportedMediaType, wrong)
		return
	}
	x.takes = accepts(x.r.Header)
	if !x.takes.json && !x.takes.stream {
		x.refuse(http.StatusNotAcceptable, "Accept must allow "+typeJSON+" or "+typeStream)
		return
	}
	body, err := x.body(x.o.MaxMessage)
	switch long := (errTooLong{}); {
	case errors.As(err, &long):
		x.in.Fault, x.tooLong = long.fault(), true
		x.w.Header().Set("Connection", "close") // the rest is not read
	case err != nil:
		x.unread(err)
		return
	default:
		x.in.Msg, x.in.Fault = jsonrpc.Parse(body)
	}
	if x.in.Msg.Method == mcp.Listen && x.in.Fault == nil && !x.takes.stream { // it would hear nothing
		m := plain(jsonrpc.CodeInvalidRequest, "Accept must allow "+typeStream, nil)
		m.ID = x.in.Msg.ID
		x.refused(http.StatusNotAcceptable, m.Error.Message)
		x.write(http.StatusNotAcceptable, m)
		return
	}
	c := x.start("handle", x.stateless(), nil, x.o.Handler.Handle)
	if err, held := x.converse(c, patience, nil); !held {
		x.conclude(c.ctx, err)
		c.finish()
	}
}

// conclude answers for a handler that did not.
func (x *exchange) conclude(ctx context.Context, err error) {
	x.log(ctx, "message not handled", err)
	switch {
	case x.answered:
	case x.asks() && (err != nil || !x.batch()): // a batch of notifications has no answer
		id := x.in.Msg.ID
		if x.in.Fault != nil {
			id = x.in.Fault.ID
		}
		x.take(item{msg: mcp.Broken(id)})
	case err != nil:
		x.write(http.StatusInternalServerError, mcp.Broken(jsonrpc.ID{}))
	default:
		x.status(http.StatusAccepted)
	}
}

// get serves a stream of what the client did not ask for.
func (x *exchange) get() {
	if x.takes.stream = accepts(x.r.Header).stream; !x.takes.stream {
		x.refuse(http.StatusNotAcceptable, "Accept must allow "+typeStream)
		return
	}
	if last := x.r.Header.Get(headerLast); last != "" && !x.stateless() && x.in.Session != "" && x.resume(last) {
		return
	}
	registered := make(chan struct{}, 1)
	told := func() {
		select {
		case registered <- struct{}{}:
		default:
		}
	}
	c := x.start("listen", false, told, x.o.Handler.Listen)
	x.lost = c.end
	err, held := x.converse(c, listenPatience, registered)
	if held {
		return
	}
	defer c.finish()
	switch {
	case x.begun() || x.answered:
		x.log(c.ctx, "stream ended", err)
	case err != nil:
		x.deny(c.ctx, err)
	default:
		x.begin() // and end
	}
}

// delete ends a session.
func (x *exchange) delete() {
	ctx, end := x.context(false)
	defer end()
	if err := x.call(ctx, "close", func() error { return x.o.Handler.Close(ctx, x.who, x.in) }); err != nil {
		x.deny(ctx, err)
		return
	}
	x.book.close(x.place())
	x.status(http.StatusNoContent)
}

// deny answers a GET or DELETE with the handler's refusal.
func (x *exchange) deny(ctx context.Context, err error) {
	var refused *mcp.HTTPError
	if errors.As(err, &refused) {
		x.refused(refused.Status, refused.Msg.Error.Message)
		x.write(refused.Status, refused.Msg)
		return
	}
	x.log(ctx, "request not handled", err)
	x.write(http.StatusInternalServerError, plain(jsonrpc.CodeInternal, "internal error of navra", nil))
}

// context returns the context of the handler: ended by the server's shutdown and, if tied, by the client's going away.
func (x *exchange) context(tied bool) (context.Context, context.CancelFunc) {
	ctx := x.r.Context()
	if !tied {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	end := func() { cancel(nil) }
	if tied {
		x.lost = end
	}
	stop := context.AfterFunc(x.o.Base, func() { cancel(context.Cause(x.o.Base)) })
	return ctx, func() {
		stop()
		end()
	}
}

// start runs the handler, whose context is ended by the client's going away if tied.
func (x *exchange) start(step string, tied bool, registered func(), run carry) *conversation {
	c := &conversation{done: make(chan error, 1)}
	c.ctx, c.end = x.context(tied)
	c.out = &reply{items: make(chan item), over: make(chan struct{}), asks: x.asks(), streams: x.streams()}
	in := x.in
	in.Registered = registered
	in.Resumable = func(v mcp.Version) { _ = c.out.hand(item{vouched: v}) }
	go func() { c.done <- x.call(c.ctx, step, func() error { return run(c.ctx, x.who, in, c.out) }) }()
	return c
}

// converse writes what the handler sends, until it returns. An event stream is begun at the first message that needs one, when the
// handler has registered, or when patience ends, if one may be begun at all; held is true where hold has taken it over then.
func (x *exchange) converse(c *conversation, patience time.Duration, registered <-chan struct{}) (err error, held bool) {
	slow := time.NewTimer(patience)
	defer slow.Stop()
	var gone <-chan struct{} // ends a GET that is not held
	if x.r.Method == http.MethodGet {
		gone = x.r.Context().Done()
	}
	for {
		select {
		case it := <-c.out.items:
			if x.events(it) && x.hold(c, &it) {
				return nil, true
			}
			x.take(it)
		case <-registered:
			if x.hold(c, nil) {
				return nil, true
			}
			x.begin()
		case <-slow.C:
			if c.out.streams && x.hold(c, nil) {
				return nil, true
			}
			if c.out.streams {
				x.begin()
			}
		case <-gone:
			gone = nil
			x.lost()
		case <-x.tick():
			if x.lasts() && !x.still() {
				x.lost() // the stream ends, and a new one is refused
				continue
			}
			x.send([]byte(":\n\n"))
		case err := <-c.done:
			if x.begun() {
				x.comments.Stop()
			}
			return err, false
		}
	}
}

// begun reports whether the event stream has begun.
func (x *exchange) begun() bool { return x.comments != nil }

// lasts reports whether the stream is one that has no end of its own.
func (x *exchange) lasts() bool {
	return x.lost != nil && (x.r.Method == http.MethodGet || x.in.Msg.Method == mcp.Listen)
}

// still reports whether the credential with which a stream was opened proves the same principal yet.
func (x *exchange) still() bool {
	who, err := x.door.Authenticate(x.r)
	return err == nil && who.Same(x.who)
}

// call runs f, and makes an error of a panic.
func (x *exchange) call(ctx context.Context, step string, f func() error) (err error) {
	defer door.Recovered(ctx, x.o.Logger, step, &err)
	return f()
}

// log tells of an error, once; a panic was told of already.
func (x *exchange) log(ctx context.Context, text string, err error) {
	switch {
	case err == nil, errors.Is(err, door.ErrPanic):
	case ctx.Err() != nil:
		x.o.Logger.DebugContext(ctx, text, slog.String("method", x.in.Msg.Method), slog.Any("err", err))
	default:
		x.o.Logger.ErrorContext(ctx, text, slog.String("method", x.in.Msg.Method), slog.Any("err", err))
	}
}

// asks reports whether the message is to be answered: a request, or bytes that may have been one.
func (x *exchange) asks() bool { return x.in.Fault != nil || x.in.Msg.Kind() == jsonrpc.Request }

func (x *exchange) batch() bool { return x.in.Fault != nil && x.in.Fault.Batch != nil }

func (x *exchange) stateless() bool {
	return mcp.Version(x.in.Header.Get(mcp.HeaderVersion)).Stateless()
}

// streams reports whether an event stream may be begun before there is an answer: that of a request whose client takes
// one, and a GET. Not that of a stateful initialize, whose answer brings a header.
func (x *exchange) streams() bool {
	switch {
	case x.r.Method == http.MethodGet:
		return true
	case x.in.Msg.Method == mcp.Initialize && !x.stateless():
		return false
	}
	return x.takes.stream && (x.in.Fault == nil || x.batch()) && x.asks()
}
