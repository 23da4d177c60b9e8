package chokepoint

import (
	"errors"
	"sync/atomic"

	"navra/internal/auth"
	"navra/internal/blackbox"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/scope"
)

// A Peer is one client's end of a message: who sent it and what arrived. The scope is derived from it here, never handed in.
type Peer struct {
	Who     auth.Principal
	In      mcp.Inbound
	Version mcp.Version      // negotiated in the session, or the request's own; "" where there is none yet
	Session string           // the session's nonce, or the connection; "" in the stateless era
	Caps    mcp.Capabilities // what the client said that it can be asked
	Level   mcp.Level        // of log messages that the request wants; stateless era
	Refused *mcp.Refused     // why the message is refused before anything else, where it is
}

// A Lane names one connection to an upstream: no two principals, no two sessions of the stateful era, and no clients that can be asked
// different things share one. It is comparable and opaque; the chokepoint makes it.
type Lane struct {
	upstream, principal, session string
	caps                         mcp.Capabilities
}

// Upstream is the canonical name of the lane's upstream.
func (l Lane) Upstream() string { return l.upstream }

// Principal is the name of the principal that the lane belongs to.
func (l Lane) Principal() string { return l.principal }

// Session is the session that the lane belongs to; "" for the one that a principal's stateless clients share.
func (l Lane) Session() string { return l.session }

// Caps is what the upstream may ask over the lane.
func (l Lane) Caps() mcp.Capabilities { return l.caps }

// Self is the upstream of what navra answers itself.
const Self = "self"

// An Outcome says what is known of a call that did not end well.
type Outcome string

// The outcomes. The zero Outcome is unknown.
const (
	Unknown Outcome = "unknown"
	NotSent Outcome = "not-sent"
	Ran     Outcome = "ran"
)

// A ToUpstream is a message that was permitted and recorded. It can be sent once, by an upstream bound to the same
// Chokepoint. The zero value is refused.
type ToUpstream struct{ c *clearance }

type clearance struct {
	by       *Chokepoint
	lane     Lane
	id       jsonrpc.ID // navra's, towards the upstream; zero for a notification
	method   string
	body     jsonrpc.Message // exactly what was judged and recorded, and will be sent
	spent    atomic.Bool
	answered atomic.Bool

	from    Peer
	caps    mcp.Capabilities // what the upstream may ask while it runs
	x       Crossing         // as it was admitted; the entry holds what the answer's entry repeats
	seq     blackbox.Seq
	token   jsonrpc.Raw // the client's progress token; nil if it asked for no progress
	open    scope.Opening
	notes   atomic.Int64 // progress that crossed
	altered bool         // the filter found something in the answer
	sent    jsonrpc.Raw  // params as the client gave them, for the paths they name
	visit   *Visit       // of navra's own messages that open a lane or read its lists
}

// Cleared is what an upstream needs to send a message. The zero Cleared is nothing.
type Cleared struct {
	Lane   Lane
	ID     jsonrpc.ID // zero: nothing will be answered
	Method string
	c      *clearance
	level  mcp.Level
}

// Spend returns the cleared bytes, once.
func (m ToUpstream) Spend(by *Chokepoint) (Cleared, error) {
	if m.c == nil || by == nil || m.c.by != by || m.c.spent.Swap(true) {
		return Cleared{}, ErrUncleared
	}
	return Cleared{Lane: m.c.lane, ID: m.c.id, Method: m.c.method, c: m.c}, nil
}

// Lane is the connection that m goes over.
func (m ToUpstream) Lane() Lane {
	if m.c == nil {
		return Lane{}
	}
	return m.c.lane
}

// Upstream is the canonical name of the upstream that m goes to; Self for what navra answers itself, "" for the zero value.
func (m ToUpstream) Upstream() string {
	if m.c == nil {
		return ""
	}
	return m.c.lane.upstream
}

// A FromUpstream holds what an upstream sent. Only the chokepoint opens it. The zero value is refused.
type FromUpstream struct {
	cause    *clearance // what it answers or reports on
	by       *Chokepoint
	lane     Lane
	kind     fromKind
	msg      jsonrpc.Message
	repaired int
	outcome  Outcome
	err      error
}

type fromKind uint8

const (
	answer fromKind = iota + 1
	progress
	failure
	unsolicited
)

// Answer wraps the upstream's answer to m; repaired counts what the parser mended.
func (m ToUpstream) Answer(msg jsonrpc.Message, repaired int) FromUpstream {
	return FromUpstream{cause: m.c, kind: answer, msg: msg, repaired: repaired}
}

// Progress wraps a progress notification that the upstream sent for m.
func (m ToUpstream) Progress(msg jsonrpc.Message) FromUpstream {
	return FromUpstream{cause: m.c, kind: progress, msg: msg}
}

// Failed says that m will have no answer. The error's text stays in navra's log and blackbox; the client is told a safe sentence.
func (m ToUpstream) Failed(outcome Outcome, err error) FromUpstream {
	return FromUpstream{cause: m.c, kind: failure, outcome: outcome, err: err}
}

// Unsolicited wraps a request or notification that an upstream started.
func (p *Chokepoint) Unsolicited(lane Lane, msg jsonrpc.Message) FromUpstream {
	return FromUpstream{by: p, lane: lane, kind: unsolicited, msg: msg}
}

// Last reports whether f is the one last thing that comes back for its cause.
func (f FromUpstream) Last() bool { return f.kind == answer || f.kind == failure }

// Unwell reports whether f says that the upstream, rather than the call, is at fault: it is not there, or does not answer in time.
func (f FromUpstream) Unwell() bool {
	return f.kind == failure && (errors.Is(f.err, ErrDeadline) || errors.Is(f.err, ErrUnavailable))
}

// A Released is a message that may go to the client. Drop is set where nothing is to be sent: it was recorded and ends here.
type Released struct {
	Msg    jsonrpc.Message
	Status int // HTTP status the specification asks for; 0: the usual
	Drop   bool
}
