package gateway

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"navra/internal/auth"
	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// sessionLife is how long a session id of the stateful era is good for. It is sealed, so that it survives a restart and a
// foreign one is refused without a look-up.
const sessionLife = 7 * 24 * time.Hour

// A flight is one request that is not answered yet: in which session or connection, and the client's id.
type flight struct {
	place string
	id    jsonrpc.ID
}

// A running is a request in flight.
type running struct {
	cancel context.CancelCauseFunc
	firm   bool // its client cannot cancel it; a shutdown can
	began  time.Time
	way    *way // to its client; nil before; guarded by the gateway's mu

	mu     sync.Mutex // held while something is sent for it
	silent bool       // its client hears no more of it; guarded by mu
}

// silence returns when nothing more is sent for the request.
func (r *running) silence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = true
}

// unlessSilent sends something for the request, if its client hears of it yet.
func (r *running) unlessSilent(send func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent {
		return nil
	}
	return send()
}

// An agreement is what a session was opened with.
type agreement struct {
	version mcp.Version
	caps    mcp.Capabilities
}

// place is where a client's ids are unique; "" where each request is a space of its own.
func place(from chokepoint.Peer) string {
	if from.In.Conn != "" {
		return from.In.Conn
	}
	return from.Session
}

// track registers a request, so that it can be cancelled. An id that is in flight already is refused. done takes it out of flight, end
// also ends its context.
func (g *Gateway) track(ctx context.Context, from *chokepoint.Peer) (_ context.Context, this *running, done, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	key := flight{place(*from), from.In.Msg.ID}
	nothing := func() {}
	this = &running{cancel: cancel, firm: from.In.Msg.Method == mcp.Initialize, began: time.Now()}
	if from.In.Fault != nil || key.place == "" || from.Refused != nil {
		return ctx, this, nothing, func() { cancel(nil) }
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, twice := g.flights[key]; twice {
		from.Refused = &mcp.Refused{Status: http.StatusBadRequest, Err: jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "Invalid request: a request with this id is still in flight"}}
		return ctx, this, nothing, func() { cancel(nil) }
	}
	g.flights[key] = this
	done = sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.flights[key] == this { // and not that of a later request, after this one was cancelled
			delete(g.flights, key)
		}
	})
	return ctx, this, done, func() {
		done()
		cancel(nil)
	}
}

// peer tells a message's era, version and session.
func (g *Gateway) peer(ctx context.Context, who auth.Principal, in mcp.Inbound) chokepoint.Peer {
	from := chokepoint.Peer{Who: who, In: in}
	if in.Fault != nil && in.Fault.Batch == nil {
		return from
	}
	stateless, v, refused := mcp.EraOf(in)
	if stateless {
		from.Version, from.Refused = v, refused
		if refused == nil {
			from.Refused = options(&from)
		}
		if from.Refused == nil && in.Transport == mcp.HTTP && in.Msg.Kind() == jsonrpc.Response {
			from.Refused = refuse(http.StatusBadRequest, "Invalid request: in this version clients send no responses")
		}
		return from
	}
	if in.Transport == mcp.HTTP {
		g.httpSession(ctx, &from)
	} else {
		g.connSession(&from)
	}
	g.mu.Lock()
	from.Level = g.levels[from.Session]
	g.mu.Unlock()
	return from
}

// options reads what a request of the stateless era says of what its client wants and can do.
func options(from *chokepoint.Peer) *mcp.Refused {
	caps, _ := from.In.Msg.Params.Get("_meta", mcp.Meta+"clientCapabilities")
	from.Caps = mcp.CapabilitiesOf(caps, from.Version)
	if raw, has := from.In.Msg.Params.Get("_meta", mcp.Meta+"logLevel"); has {
		name, _ := raw.Text()
		level, ok := mcp.ParseLevel(name)
		if !ok {
			return &mcp.Refused{Status: http.StatusBadRequest, Err: jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Invalid params: " + mcp.Meta + "logLevel is no log level"}}
		}
		from.Level = level
	}
	return nil
}

// connSession finds the version of a connection. The connection is the session.
func (g *Gateway) connSession(from *chokepoint.Peer) {
	from.Session = from.In.Conn
	if from.In.Msg.Method == mcp.Initialize {
		from.Version, from.Caps = wishes(from.In.Msg)
		return
	}
	g.mu.Lock()
	agreed := g.conns[from.In.Conn]
	g.mu.Unlock()
	from.Version, from.Caps = agreed.version, agreed.caps
	if from.Version == "" && from.In.Msg.Method != mcp.Ping && from.In.Msg.Kind() == jsonrpc.Request && mcp.IsMethod(from.In.Msg.Method) {
		from.Refused = refuse(http.StatusBadRequest, "Invalid request: initialize first")
	}
}

// httpSession opens the session id of a request, or makes a new one for initialize.
func (g *Gateway) httpSession(ctx context.Context, from *chokepoint.Peer) {
	if from.In.Msg.Method == mcp.Initialize && from.In.Msg.Kind() == jsonrpc.Request {
		from.Session = rand.Text()
		from.Version, from.Caps = wishes(from.In.Msg)
		return
	}
	from.Refused = g.openSession(ctx, from)
}

// openSession checks a sealed session id: made here, for this principal, not ended, and of the version that the header names.
func (g *Gateway) openSession(ctx context.Context, from *chokepoint.Peer) *mcp.Refused {
	if from.In.Session == "" {
		return refuse(http.StatusBadRequest, "Invalid request: the Mcp-Session-Id header is missing; initialize first")
	}
	unknown := refuse(http.StatusNotFound, "Session not found")
	plain, err := g.seal.Open(from.In.Session, []byte(from.Who.Name()))
	if err != nil {
		return unknown
	}
	version, rest, _ := strings.Cut(string(plain), " ")
	nonce, rest, _ := strings.Cut(rest, " ")
	until, caps, _ := strings.Cut(rest, " ")
	expires, err := time.Parse(time.RFC3339, until)
	if err != nil || time.Now().After(expires) {
		return unknown
	}
	from.Version, from.Session = mcp.Version(version), nonce
	ended, err := g.sessions.SessionEnded(ctx, nonce)
	switch {
	case err != nil: // not 404: a client would take that for the end of its session
		return &mcp.Refused{Status: http.StatusServiceUnavailable, Err: jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "the session cannot be looked up now; nothing was sent, try again later"}}
	case ended:
		from.Version, from.Session = "", ""
		return unknown
	}
	from.Caps = mcp.ParseCapabilities(caps)
	if head := from.In.Header.Get(mcp.HeaderVersion); head != "" && head != version {
		return refuse(http.StatusBadRequest, "Bad Request: the MCP-Protocol-Version header names another version than the session's, "+version)
	}
	return nil
}

// opened notes what an answered initialize agreed on, and hands the session id out.
func (g *Gateway) opened(from chokepoint.Peer, reply mcp.Sink) {
	if from.In.Transport != mcp.HTTP {
		g.mu.Lock()
		g.conns[from.In.Conn] = agreement{from.Version, from.Caps}
		g.mu.Unlock()
		return
	}
	plain := strings.Join([]string{string(from.Version), from.Session, time.Now().Add(sessionLife).UTC().Format(time.RFC3339), from.Caps.String()}, " ")
	reply.Open(g.seal.Seal([]byte(plain), []byte(from.Who.Name())))
}

// Close ends a session: DELETE over HTTP, the end of the connection elsewhere. Its upstream sessions end with it.
func (g *Gateway) Close(ctx context.Context, who auth.Principal, in mcp.Inbound) error {
	from := chokepoint.Peer{Who: who, In: in, Session: in.Conn}
	if in.Transport == mcp.HTTP {
		if r := g.openSession(ctx, &from); r != nil {
			return httpError(r)
		}
		if err := g.sessions.EndSession(ctx, from.Session, time.Now().Add(sessionLife)); err != nil {
			return err
		}
	}
	g.mu.Lock()
	delete(g.levels, from.Session)
	if agreed, ok := g.conns[in.Conn]; ok {
		from.Version, from.Caps = agreed.version, agreed.caps
		delete(g.conns, in.Conn)
	}
	for key, r := range g.flights {
		if key.place == from.Session && !r.firm {
			r.cancel(chokepoint.ErrCancelled)
		}
	}
	for l := range g.listeners {
		if l.from.Session == from.Session {
			l.end()
		}
	}
	for key, a := range g.asked {
		if key.place == from.Session {
			a.drop(chokepoint.ErrCancelled)
		}
	}
	g.mu.Unlock()
	g.readers.close(g.readers.find(place(from)))
	lanes := slices.DeleteFunc(g.chokepoint.Lanes(from), func(l chokepoint.Lane) bool { return l.Session() == "" }) // those that others use too stay
	g.upstreams.Drop(lanes)
	g.chokepoint.ForgetKept(lanes)
	return nil
}

// maxLevels bounds the sessions whose level is remembered; most end without saying so.
const maxLevels = 10_000

func (g *Gateway) setLevel(session string, level mcp.Level) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.levels[session]; !known && len(g.levels) >= maxLevels {
		for any := range g.levels { // one of them hears what its upstreams choose, from now on
			delete(g.levels, any)
			break
		}
	}
	g.levels[session] = level
}

// wishes reads what an initialize asks for.
func wishes(m jsonrpc.Message) (mcp.Version, mcp.Capabilities) {
	raw, _ := m.Params.Get("protocolVersion")
	s, _ := raw.Text()
	v := mcp.Negotiate(s)
	caps, _ := m.Params.Get("capabilities")
	return v, mcp.CapabilitiesOf(caps, v)
}

func refuse(status int, text string) *mcp.Refused {
	return &mcp.Refused{Status: status, Err: jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: text}}
}

func httpError(r *mcp.Refused) error {
	return &mcp.HTTPError{Status: r.Status, Msg: jsonrpc.Message{Error: &r.Err}}
}
