// Package websocket serves clients over WebSocket at one path: it turns text messages into messages with a proven principal,
// and back. It knows no policy, no sessions and no methods.
//
// No version of MCP defines WebSocket; it is a custom transport (MCP 2025-11-25 and 2026-07-28, basic/transports §Custom
// Transports) with the message rules of stdio: a connection is a session, requests are cancelled by
// notifications/cancelled, nothing is mirrored in headers. The subprotocol is "mcp", as in the TypeScript SDK.
package websocket

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/transport/door"
	"navra/internal/transport/duplex"
)

// Options are the parts of the transport. Base, Handler, Auth and Logger are required.
type Options struct {
	// Base ends when the server shuts down: calls are cancelled with its cause and connections closed then.
	Base    context.Context
	Handler duplex.Handler
	Auth    auth.Authenticator // must be cheap: it is asked for each message
	Logger  *slog.Logger

	// Loopback, AllowedHosts, AllowedOrigins and Challenge are those of [door.Options].
	Loopback                     bool
	AllowedHosts, AllowedOrigins []string
	Challenge                    string

	// Changed, where set, returns a channel that is closed when credentials may have been withdrawn: they are proved again then.
	Changed func() <-chan struct{}

	// Refused, where not nil, hears of each request of a proven principal that is not upgraded, with its status of HTTP, and of each message that closes
	// the connection before it is read, with that of WebSocket. why is one of few texts. It must not wait.
	Refused func(who auth.Principal, status int, why string)

	MaxMessage int64 // bytes of one message; 0 means DefaultMaxMessage
	MaxConns   int   // connections at a time; 0 means DefaultMaxConns

	times times // zero: those of usual
}

// Limits: bytes of one message, and connections at a time.
const (
	DefaultMaxMessage = 4 << 20
	DefaultMaxConns   = 1024
	// MaxPerPrincipal bounds one principal's connections at a time.
	MaxPerPrincipal = 64
)

// Subprotocol is what a client must ask for, RFC 6455 §1.9.
const Subprotocol = "mcp"

// times are how long things may take.
type times struct {
	recheck time.Duration // between two proofs of an idle client's principal
	check   time.Duration // of one such proof; long, since a busy machine is no reason to end what is in flight, and nothing passes while it waits
	ping    time.Duration // between two pings
	silence time.Duration // without a pong or anything else, while it is listened for
	message time.Duration // from a message's first byte to its last
	write   time.Duration // of one message; the library gives control frames 5 s
	cancel  time.Duration // for what is in flight to end, when it was cancelled
	close   time.Duration // of the closing handshake
}

var usual = times{
	recheck: 15 * time.Second, check: 30 * time.Second, ping: 15 * time.Second, silence: 30 * time.Second,
	message: 60 * time.Second, write: 10 * time.Second, cancel: time.Second, close: 2 * time.Second,
}

// retryAfter is what a client is told that finds no room, in seconds.
const retryAfter = "10"

// A Server is the handler of the endpoint. It may be used concurrently.
type Server struct {
	o    Options
	door *door.Door
	room room
}

// New returns the handler of the endpoint, for every method. The server needs a ReadHeaderTimeout; its other timeouts do not reach
// connections that were upgraded, and neither does its Shutdown: see [Server.Wait].
//
// Before the upgrade checks come in this order: Host and Origin (403), authentication (401; 503 where it cannot be told), method
// (405), upgrade headers (426), subprotocol (400), room for one more connection (503 with Retry-After). A credential is taken from where
// the authenticator looks, never from the query. RFC 6455 §4.2, §10.
//
// After it, the connection is closed with
//
//   - 1001 when the server shuts down: requests in flight are cancelled and their answers sent first,
//   - 1003 for a binary message, 1009 for one over the limit,
//   - 1008 when the credential no longer proves the same principal, by name: asked before each message is handed over, when Changed says so, and
//     every 15 s beside, and when a message takes more than a minute to arrive,
//   - 1011 when that cannot be told now (fail closed, as 503 before the upgrade), or the client is silent: pinged every 15 s, it
//     let 30 s go by without a pong.
//
// With each, requests in flight are cancelled; when the credential fails or the client is silent, nothing more is sent. What is no
// JSON is answered (-32700) and closes nothing.
// Messages are not compressed. RFC 6455 §7.4.1.
func New(o Options) *Server {
	if o.Refused == nil {
		o.Refused = func(auth.Principal, int, string) {}
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = DefaultMaxMessage
	}
	if o.MaxConns <= 0 {
		o.MaxConns = DefaultMaxConns
	}
	if o.times == (times{}) {
		o.times = usual
	}
	return &Server{o: o, room: room{most: o.MaxConns, taken: map[string]int{}}, door: door.New(door.Options{
		Auth: o.Auth, Logger: o.Logger, Loopback: o.Loopback, AllowedHosts: o.AllowedHosts, AllowedOrigins: o.AllowedOrigins, Challenge: o.Challenge,
	})}
}

// Wait waits until no connection is open, or returns ctx's error. No new one is let in from then on. It closes none: the end of Base does.
func (s *Server) Wait(ctx context.Context) error { return s.room.wait(ctx) }

// ServeHTTP is the path of every request; it returns when the connection has ended.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, refusal := s.door.Enter(r)
	switch {
	case refusal != nil:
		if refusal.Challenge != "" {
			w.Header().Set("WWW-Authenticate", refusal.Challenge)
		}
		refuse(w, refusal.Status, refusal.Text)
		return
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		s.refuse(w, who, http.StatusMethodNotAllowed, "the method must be GET")
		return
	case !has(r.Header["Connection"], "upgrade", strings.EqualFold) || !has(r.Header["Upgrade"], "websocket", strings.EqualFold):
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		s.refuse(w, who, http.StatusUpgradeRequired, "this endpoint speaks WebSocket alone")
		return
	case !has(r.Header["Sec-Websocket-Protocol"], Subprotocol, same):
		s.refuse(w, who, http.StatusBadRequest, "Sec-WebSocket-Protocol must offer "+Subprotocol)
		return
	case s.o.Base.Err() != nil || !s.room.enter(who.Name()):
		w.Header().Set("Retry-After", retryAfter)
		s.refuse(w, who, http.StatusServiceUnavailable, "no room for one more connection; try again later")
		return
	}
	defer s.room.leave(who.Name())
	s.serve(w, r, who)
}

// has reports whether a header that is a list holds a value.
func has(lists []string, want string, equal func(a, b string) bool) bool {
	for _, list := range lists {
		for v := range strings.SplitSeq(list, ",") {
			if equal(strings.Trim(v, " \t"), want) {
				return true
			}
		}
	}
	return false
}

func same(a, b string) bool { return a == b }

// refuse answers a proven principal whose request is not upgraded.
func (s *Server) refuse(w http.ResponseWriter, who auth.Principal, status int, text string) {
	s.o.Refused(who, status, text)
	refuse(w, status, text)
}

// refuse answers a request that is not upgraded, with an error that has no id.
func refuse(w http.ResponseWriter, status int, text string) {
	code := jsonrpc.CodeInvalidRequest
	if status >= http.StatusInternalServerError {
		code = jsonrpc.CodeInternal
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(jsonrpc.Message{Error: &jsonrpc.Error{Code: code, Message: text}}.Append(nil)) // a client that is gone needs no answer
}
