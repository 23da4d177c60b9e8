package websocket

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	ws "github.com/coder/websocket"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/transport/door"
	"navra/internal/transport/duplex"
)

// A conn is one connection.
type conn struct {
	*Server
	upgrade *http.Request // what proved who, and is asked again
	who     auth.Principal
	socket  *ws.Conn
	net     net.Conn // under socket

	began time.Time
	since atomic.Int64 // nanoseconds from began to when the client was last heard or began to be listened for; 0: it is not listened for
}

// A closing is why the connection is closed, and with which status.
type closing struct {
	code   ws.StatusCode
	reason string // 123 bytes at most, RFC 6455 §5.5
}

func (c closing) Error() string { return fmt.Sprintf("closed with %d: %s", int(c.code), c.reason) }

// serve upgrades the request and serves the connection to its end.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, who auth.Principal) {
	c := &conn{Server: s, upgrade: r, who: who, began: time.Now()}
	log := s.o.Logger.With(slog.String("principal", who.Name()))
	hold := &holder{ResponseWriter: w}
	socket, err := ws.Accept(hold, r, &ws.AcceptOptions{
		Subprotocols:       []string{Subprotocol},
		InsecureSkipVerify: true, // of Origin: door has verified it
		CompressionMode:    ws.CompressionDisabled,
		OnPongReceived:     func(context.Context, []byte) { c.hear() },
	})
	if err != nil {
		s.o.Refused(who, http.StatusBadRequest, "the upgrade is not valid") // the library has answered
		log.DebugContext(r.Context(), "not upgraded", slog.Any("err", err))
		return
	}
	c.socket, c.net = socket, hold.net
	defer socket.CloseNow() //nolint:errcheck // it is closed already where all went well
	socket.SetReadLimit(s.o.MaxMessage)

	ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer end(nil)
	defer context.AfterFunc(s.o.Base, func() { end(context.Cause(s.o.Base)) })()
	d := duplex.New(duplex.Options{
		Next: c.next, Write: c.write, Who: who, Recheck: c.prove, Beside: []func(context.Context) error{c.watch, c.keep},
		From: mcp.Inbound{Transport: mcp.WebSocket, Conn: rand.Text(), Trace: mcp.TraceHeaders(r.Header)}, Handler: s.o.Handler, Logger: s.o.Logger,
		CancelGrace: s.o.times.cancel, // and no FinishGrace: a client that has ended takes no answers
	})
	err = d.Serve(ctx)
	log.DebugContext(ctx, "connection ended", slog.Any("err", err))
	c.close(ctx, err)
	d.Wait()
}

// close closes the connection for the reason with which it ended.
func (c *conn) close(ctx context.Context, err error) {
	why := closing{ws.StatusProtocolError, "protocol error"} // of the client; the library has told which. One that is gone hears nothing
	switch {
	case errors.As(err, &why):
	case err != nil:
		why = closing{ws.StatusInternalError, "internal error"}
	case ctx.Err() != nil:
		why = closing{ws.StatusGoingAway, "the server is shutting down"}
	}
	_ = c.net.SetReadDeadline(time.Time{}) // that of a message; it may be past
	// The library reads what is left of a frame without a limit in time.
	late := time.AfterFunc(c.o.times.close, func() { _ = c.net.Close() })
	defer late.Stop()
	_ = c.socket.Close(why.code, why.reason) // there is nobody to tell
}

// next reads one message.
func (c *conn) next() (m jsonrpc.Message, fault *jsonrpc.Fault, err error) {
	c.hear()
	defer c.since.Store(0)
	kind, r, err := c.socket.Reader(context.Background())
	switch {
	case err != nil:
		return m, nil, c.lost(err)
	case kind != ws.MessageText:
		return m, nil, c.refuse(closing{ws.StatusUnsupportedData, "messages must be text"})
	}
	if err := c.net.SetReadDeadline(time.Now().Add(c.o.times.message)); err != nil {
		return m, nil, io.EOF
	}
	body, err := io.ReadAll(progress{r, c})
	if err != nil {
		return m, nil, c.lost(err)
	}
	if err := c.net.SetReadDeadline(time.Time{}); err != nil {
		return m, nil, io.EOF
	}
	m, fault = jsonrpc.Parse(body) // which finds what is not UTF-8 too: answered as over the other transports, rather than closed as RFC 6455 §8.1 has it
	return m, fault, nil
}

// lost is what a failed read means: io.EOF for a client that has ended or broken the protocol.
func (c *conn) lost(err error) error {
	switch {
	case errors.Is(err, ws.ErrMessageTooBig): // the library has closed with this status
		return c.refuse(closing{ws.StatusMessageTooBig, "message over the size limit"})
	case errors.Is(err, os.ErrDeadlineExceeded):
		return c.refuse(closing{ws.StatusPolicyViolation, "the message took too long"})
	}
	return io.EOF
}

// refuse tells of a message that ends the connection before it was read.
func (c *conn) refuse(why closing) error {
	c.o.Refused(c.who, int(why.code), why.reason)
	return why
}

func (c *conn) write(message []byte) error {
	ctx, stop := context.WithTimeout(context.Background(), c.o.times.write)
	defer stop()
	return c.socket.Write(ctx, ws.MessageText, message)
}

// prove tells whether the upgrade's credential still proves the same principal, whose roles may have changed.
func (c *conn) prove() (auth.Principal, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.upgrade.Context()), c.o.times.check)
	defer stop()
	who, err := c.door.Authenticate(c.upgrade.WithContext(ctx))
	switch {
	case err == nil && who.Same(c.who):
		return who, nil
	case err == nil:
		return auth.Principal{}, closing{ws.StatusPolicyViolation, "the credential proves another principal now"}
	case door.Unproven(err):
		return auth.Principal{}, closing{ws.StatusPolicyViolation, "the credential is not accepted any more"}
	case ctx.Err() != nil: // door has not told of it
		c.o.Logger.ErrorContext(ctx, "credential not checked in time", slog.String("principal", c.who.Name()))
	}
	return auth.Principal{}, closing{ws.StatusInternalError, "the credential cannot be checked now"}
}

// watch ends a connection whose credential is withdrawn, however quiet it is.
func (c *conn) watch(ctx context.Context) error {
	tick := time.NewTicker(c.o.times.recheck)
	defer tick.Stop()
	changed := c.changed()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-changed:
			changed = c.changed()
		}
		if _, err := c.prove(); err != nil {
			return err
		}
	}
}

// changed is nil, which never is ready, where nobody says that credentials may have been withdrawn.
func (c *conn) changed() <-chan struct{} {
	if c.o.Changed == nil {
		return nil
	}
	return c.o.Changed()
}

// keep pings the client and ends a connection whose client is silent. While the client's next message waits for room nothing is
// read, pongs neither, and silence means nothing.
func (c *conn) keep(ctx context.Context) error {
	return every(ctx, c.o.times.ping, func() error {
		if since := c.since.Load(); since != 0 && time.Since(c.began)-time.Duration(since) >= c.o.times.silence {
			return closing{ws.StatusInternalError, "no pong"}
		}
		waiting, stop := context.WithTimeout(ctx, c.o.times.ping)
		defer stop()
		_ = c.socket.Ping(waiting) // what is heard counts, and reading finds what is broken
		return nil
	})
}

// every runs f at intervals until ctx ends, or f fails.
func every(ctx context.Context, interval time.Duration, f func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := f(); err != nil {
			return err
		}
	}
}

// hear notes that the client gave a sign of life, or that it is listened for from now on.
func (c *conn) hear() { c.since.Store(max(1, int64(time.Since(c.began)))) }

// progress is a message being read, each part of which is a sign of life.
type progress struct {
	io.Reader
	c *conn
}

func (p progress) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.c.hear()
	return n, err
}

// A holder keeps hold of the connection that the library takes over.
type holder struct {
	http.ResponseWriter
	net net.Conn
}

// Hijack is that of http.Hijacker.
func (h *holder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.net = conn
	return conn, rw, err
}
