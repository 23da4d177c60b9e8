// Package streamable serves MCP's Streamable HTTP transport at one path: it turns requests into messages with a proven
// principal, and what comes back into a JSON answer or an event stream. It knows no policy and no sessions; of methods it
// knows only that the answer to initialize carries a session id in its header.
package streamable

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/transport/door"
)

// A Handler carries what a client sends across and sends what comes back. Listen serves a GET: it calls in.Registered when it
// takes the stream, and pushes until ctx ends. Close serves a DELETE. Listen and Close refuse with a *mcp.HTTPError.
type Handler interface {
	Handle(ctx context.Context, who auth.Principal, in mcp.Inbound, out mcp.Sink) error
	Listen(ctx context.Context, who auth.Principal, in mcp.Inbound, push mcp.Sink) error
	Close(ctx context.Context, who auth.Principal, in mcp.Inbound) error
}

// Options are the parts of the transport. Base, Handler, Auth and Logger are required.
type Options struct {
	// Base ends when the server shuts down: streams end then, and calls are cancelled.
	Base    context.Context
	Handler Handler
	Auth    auth.Authenticator
	Logger  *slog.Logger

	// Loopback says that the listener is reachable from this machine alone. Then Host must be localhost, 127.0.0.1 or [::1],
	// with any port, or one of AllowedHosts: a web page that had its name rebound to this machine is refused.
	Loopback bool
	// AllowedHosts are names of this server, as "host" (any port) or "host:port". Where there are none and Loopback is not
	// set, any Host is taken.
	AllowedHosts []string
	// AllowedOrigins are web pages that may send requests: scheme, host and port, compared exactly. On loopback the page of
	// the very same host and port may too; "null" never.
	AllowedOrigins []string

	MaxMessage int64  // bytes of a request's body; 0 means DefaultMaxMessage
	Challenge  string // of WWW-Authenticate with 401; "" means "Bearer"

	// Refused, where not nil, hears of each request of a proven principal that nobody else records: refused before its method was known, or a GET or
	// DELETE. why is one of few texts. It must not wait.
	Refused func(who auth.Principal, status int, why string)

	// Poll is how long the event stream of one request stays open before its client is told to come back for the rest, where it knows how
	// (from 2025-11-25 on); 0 means until the answer.
	Poll time.Duration
}

// Limits, in bytes. MaxHeader is for http.Server.MaxHeaderBytes.
const (
	DefaultMaxMessage = 4 << 20
	MaxHeader         = 32 << 10
)

const (
	// patience is how long an answer may take before an event stream is begun: two of three hosts give up on a silent JSON answer after 60 s.
	patience = 2 * time.Second
	// listenPatience is how long a GET may be refused before its stream is begun anyway.
	listenPatience = 250 * time.Millisecond
	// commentEvery is the time between comments on an event stream, so that no proxy takes it for dead.
	commentEvery = 15 * time.Second
	// writeTime bounds one write of at most writeBytes, so that a client that does not read holds nothing up for long.
	writeTime  = 30 * time.Second
	writeBytes = 256 << 10
	// bodyTime bounds the reading of one body.
	bodyTime = 60 * time.Second
)

const allowed = "GET, POST, DELETE"

// New returns the handler of the endpoint, for every method. The server must have no WriteTimeout and no ReadTimeout (but
// a ReadHeaderTimeout), since both would cut streams; the handler bounds each read of a body and each write by itself.
//
// Checks come in this order, each before anything of the body is read: Host and Origin (403), authentication (401; 503 where it
// cannot be told), method (405), doubled headers (400), Content-Type and Content-Encoding (415), Accept (406), size (413).
// MCP 2025-11-25 and 2026-07-28, basic/transports §Streamable HTTP.
//
// A request is answered with JSON, or with an event stream where the client takes one and a notification comes before the
// answer or the answer takes more than 2 s. A client that takes JSON alone gets no notifications.
//
// A client that goes away cancels its request where the MCP-Protocol-Version header names a version of the stateless era. In the
// stateful era the call goes on; where its event stream had begun, what comes is kept, and a GET with Last-Event-ID goes on with that
// stream, see book for how much and how long. MCP 2026-07-28, basic/utilities/cancellation; 2025-11-25, basic/transports.
func New(o Options) *Server {
	if o.Refused == nil {
		o.Refused = func(auth.Principal, int, string) {}
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = DefaultMaxMessage
	}
	return &Server{o: o, book: newBook(), door: door.New(door.Options{
		Auth: o.Auth, Logger: o.Logger, Loopback: o.Loopback, AllowedHosts: o.AllowedHosts, AllowedOrigins: o.AllowedOrigins, Challenge: o.Challenge,
	})}
}

// A Server serves the endpoint.
type Server struct {
	o    Options
	door *door.Door
	book *book
	work sync.WaitGroup // what goes on for clients that are gone
}

// Wait waits until nothing goes on for clients that are gone, or returns ctx's error. No new request may come meanwhile.
func (s *Server) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ServeHTTP is the path of every request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{Server: s, w: w, rc: http.NewResponseController(w), r: r}
	who, refusal := s.door.Enter(r)
	if refusal != nil {
		x.outside(refusal)
		return
	}
	x.who = who
	switch r.Method {
	case http.MethodPost, http.MethodGet, http.MethodDelete:
	default:
		x.refuse(http.StatusMethodNotAllowed, "the method must be one of "+allowed)
		return
	}
	if twice := doubled(r.Header); twice != "" {
		x.refuse(http.StatusBadRequest, "the "+twice+" header is given twice")
		return
	}
	x.in = inbound(r.Header)
	switch r.Method {
	case http.MethodPost:
		x.post()
	case http.MethodGet:
		x.get()
	case http.MethodDelete:
		x.delete()
	}
}

// outside answers a request that was not let in.
func (x *exchange) outside(refusal *door.Refusal) {
	if refusal.Challenge != "" {
		x.w.Header().Set("WWW-Authenticate", refusal.Challenge)
	}
	x.refuse(refusal.Status, refusal.Text)
}

// doubled names a header that may come once and came more often.
func doubled(h http.Header) string {
	for _, name := range []string{mcp.HeaderSession, mcp.HeaderVersion, headerLast} {
		if len(h[name]) > 1 {
			return name
		}
	}
	return ""
}

// headerLast names the last event of a stream that its client lost.
const headerLast = "Last-Event-Id"

// mirroredParam begins the headers that mirror arguments. MCP 2026-07-28, basic/transports §Custom Headers.
const mirroredParam = "Mcp-Param-"

// inbound holds what the headers say of a message.
func inbound(h http.Header) mcp.Inbound {
	in := mcp.Inbound{Transport: mcp.HTTP, Session: h.Get(mcp.HeaderSession), Header: http.Header{}, Trace: mcp.TraceHeaders(h)}
	for name, values := range h {
		switch {
		case name == mcp.HeaderVersion, name == mcp.HeaderMethod, name == mcp.HeaderName, strings.HasPrefix(name, mirroredParam):
			in.Header[name] = values
		}
	}
	return in
}

// plain is an error without an id, as the body of a refusal.
func plain(code int, text string, data jsonrpc.Raw) jsonrpc.Message {
	return jsonrpc.Message{Error: &jsonrpc.Error{Code: code, Message: text, Data: data}}
}
