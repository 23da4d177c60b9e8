package chokepoint

import (
	"errors"
	"sync/atomic"

	"navra/internal/auth"
	"navra/internal/blackbox"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/scope"
)

// A Peer is one client's end of a message: who sent it and what arrived. The scope is derived from it here, never handed in.
type Peer struct {
	Who     auth.Principal
	In      mcp.Inbound
	Version mcp.Version      // negotiated in the session, or the request's own; "" where there is none yet
	Session string           // the session's nonce, or the connection; "" in the stateless era
	Caps    mcp.Capabilities // what the client said that it can be asked
	Level   mcp.Level        // from which on log messages are wanted: by the request, or set in the session; zero: it was not said
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

	from  Peer
	asked bool             // by a client: it is none of navra's own
	caps  mcp.Capabilities // what the upstream may ask while it runs
	x     Crossing         // as it was admitted; the entry holds what the answer's entry repeats
	seq   blackbox.Seq
	token jsonrpc.Raw // the client's progress token; nil if it asked for no progress
	wire  uint64      // connection that it must go over; 0: any of its lane

	task    *task            // that it is about; nil: none
	wish    wish             // whether it is to become a task
	news    bool             // its answer is told as a notification
	retry   *retry           // what it goes on with; nil: nothing
	round   *round           // what its answer asked for
	rounds  int              // of questions that were had
	missing mcp.Capabilities // that the upstream wanted of the client in vain
	logs    atomic.Int64     // log messages that crossed
	open    scope.Opening
	notes   atomic.Int64   // progress that crossed
	shown   *policy.Policy // that the answer was judged by
	altered bool           // the filter found something in the answer
	sent    jsonrpc.Raw    // params as the client gave them, for the paths they name
	visit   *Visit         // of navra's own messages that open a lane or read its lists
}

// Cleared is what an upstream needs to send a message. The zero Cleared is nothing.
type Cleared struct {
	Lane   Lane
	ID     jsonrpc.ID // zero: nothing will be answered
	Method string
	Wire   uint64 // connection that it must go over; 0: any of its lane
	c      *clearance
}

// Spend returns the cleared bytes, once.
func (m ToUpstream) Spend(by *Chokepoint) (Cleared, error) {
	if m.c == nil || by == nil || m.c.by != by || m.c.spent.Swap(true) {
		return Cleared{}, ErrUncleared
	}
	m.c.x.trail.sent(by.now)
	return Cleared{Lane: m.c.lane, ID: m.c.id, Method: m.c.method, Wire: m.c.wire, c: m.c}, nil
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
	wire     uint64 // connection that it came over
	kind     fromKind
	msg      jsonrpc.Message
	repaired int
	outcome  Outcome
	err      error
	says     func(View) jsonrpc.Message // makes msg, where navra answers from what its client may see
}

type fromKind uint8

const (
	answer fromKind = iota + 1
	progress
	failure
	unsolicited
	question
	note
)

// Answer wraps the upstream's answer to m; repaired counts what the parser mended.
func (m ToUpstream) Answer(msg jsonrpc.Message, repaired int) FromUpstream {
	return FromUpstream{cause: m.c, kind: answer, msg: msg, repaired: repaired}
}

// Says is the answer to m where navra answers it itself, from what its client may see: by the policy of the answer's commit.
func (m ToUpstream) Says(says func(View) jsonrpc.Message) FromUpstream {
	return FromUpstream{cause: m.c, kind: answer, says: says}
}

// Progress wraps a progress notification that the upstream sent for m.
func (m ToUpstream) Progress(msg jsonrpc.Message) FromUpstream {
	return FromUpstream{cause: m.c, kind: progress, msg: msg}
}

// Question wraps a request that the upstream made of the client while m was under way, over the connection of that number.
func (m ToUpstream) Question(msg jsonrpc.Message, wire uint64) FromUpstream {
	return FromUpstream{cause: m.c, kind: question, msg: msg, wire: wire}
}

// Note wraps a log message that the upstream sent for m.
func (m ToUpstream) Note(msg jsonrpc.Message) FromUpstream {
	return FromUpstream{cause: m.c, kind: note, msg: msg}
}

// IsZero reports whether m is no message at all.
func (m ToUpstream) IsZero() bool { return m.c == nil }

// Asked reports whether the upstream may ask the client something while m runs.
func (m ToUpstream) Asked() bool { return m.c != nil && m.c.caps&^mcp.CanTask != 0 }

// Own reports whether m is one of navra's own messages.
func (m ToUpstream) Own() bool { return m.c == nil || !m.c.asked }

// Level is from which level on m's client wants log messages; zero: it does not say.
func (m ToUpstream) Level() mcp.Level {
	if m.c == nil {
		return 0
	}
	return m.c.from.Level
}

// Failed says that m will have no answer. The error's text stays in navra's log and blackbox; the client is told a safe sentence.
func (m ToUpstream) Failed(outcome Outcome, err error) FromUpstream {
	return FromUpstream{cause: m.c, kind: failure, outcome: outcome, err: err}
}

// Unsolicited wraps a request or notification that an upstream started, over the connection of that number.
func (p *Chokepoint) Unsolicited(lane Lane, msg jsonrpc.Message, wire uint64) FromUpstream {
	return FromUpstream{by: p, lane: lane, kind: unsolicited, msg: msg, wire: wire}
}

// Is reports whether f is a failure for that reason.
func (f FromUpstream) Is(reason error) bool { return f.kind == failure && errors.Is(f.err, reason) }

// NotSent reports whether f is the failure of a message of which nothing had left.
func (f FromUpstream) NotSent() bool { return f.kind == failure && f.outcome == NotSent }

// IsZero reports whether f holds nothing.
func (f FromUpstream) IsZero() bool { return f.kind == 0 }

// Astray is a question that came with a call as one that belongs to none: nobody will be asked.
func (f FromUpstream) Astray() FromUpstream {
	if f.kind != question || f.cause == nil {
		return FromUpstream{}
	}
	return FromUpstream{by: f.cause.by, lane: f.cause.lane, wire: f.wire, kind: unsolicited, msg: f.msg}
}

// ID is the upstream's id of the request that f holds.
func (f FromUpstream) ID() jsonrpc.ID { return f.msg.ID }

// Asks reports whether f is a request that wants an answer of the client's.
func (f FromUpstream) Asks() bool { return f.kind == question }

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
	Later  bool // it is dropped, and may be told once this process can read the newest policy

	Question *Question  // that Msg asks
	Reply    ToUpstream // what the upstream is told at once in the place of an answer of the client's; zero: nothing
	// Rounds is set where the call ends with questions: Round has to be asked, and the call goes on with AdmitRound.
	Rounds bool
	Round  []*Question
}
