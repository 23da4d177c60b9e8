package chokepoint

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"navra/internal/blackbox"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// Kinds of spans.
const (
	SpanServer = "server" // a client's request, from its admission to its answer
	SpanClient = "client" // a message to an upstream, from its sending to what came back
	SpanStage  = "stage"  // a step of the pipeline
)

// A Span is one finished part of a message's way, in a trace that is sampled. It holds no argument, no result, no token and no text
// of a finding. It has only built-in types, so that what exports it needs not know this package.
type Span struct {
	Trace        [16]byte
	ID, Parent   [8]byte // Parent is zero for the first of a trace
	State        string  // tracestate
	Kind, Name   string  // names are of few: methods with canonical names of tools and prompts, and stages
	Began, Ended time.Time

	// Of a message; all empty for a stage.
	Method, Version, Transport string // the latter two of the client's side, and only for a server span
	Session                    string // hashed; as RequestID of a server span
	RequestID                  string // as JSON, redacted
	Upstream, Tool, Prompt     string // canonical
	Verdict, Stage, Outcome    string // as in the entry
	Ref                        string // of the entry
	Failure                    string // why it went wrong, in a word; "" where it went well
	Code                       int    // of a JSON-RPC error; 0 for none
}

// A trail is the trace context of one client's message, or one of navra's own. A nil trail is none.
type trail struct {
	parent  [8]byte   // the client's span; zero where the trace begins here
	server  [8]byte   // navra's span of the request; zero for its own messages
	out     mcp.Trace // what the upstream gets
	baggage string    // that goes on to it
	watched bool      // spans are told of

	began   time.Time // when the request came
	left    time.Time // when it was sent
	failure string
	code    int
	stages  []stage
	goesOn  bool // the request is not at its end: it is sent again with what the client is asked
}

type stage struct {
	name         policy.Stage
	began, ended time.Time
}

// stageJudge is name, content and flow together.
const stageJudge policy.Stage = "judge"

const maxSpanText = 64 // bytes of what a peer chose

// follow continues a client's trace, or begins one where somebody watches.
func (p *Chokepoint) follow(x *Crossing, from Peer) {
	t, baggage := mcp.TraceOf(from.In)
	if !p.baggage {
		baggage = ""
	}
	if t.IsZero() && p.spans == nil {
		if baggage != "" {
			x.trail = &trail{baggage: baggage}
		}
		return
	}
	x.trail = &trail{parent: t.Span, server: newSpan(), out: t, baggage: baggage, began: x.began}
	if t.IsZero() {
		x.trail.out = newTrace()
	}
	x.trail.out.Span = newSpan()
	x.trail.watched = p.spans != nil && x.trail.out.Flags&mcp.Sampled != 0
	x.entry.Trace = hex.EncodeToString(x.trail.out.ID[:])
}

// another is the trail of one more sending of the same request; nil for none.
func (t *trail) another() *trail {
	if t == nil {
		return nil
	}
	n := *t
	n.out.Span, n.left, n.failure, n.code, n.stages, n.goesOn = newSpan(), time.Time{}, "", 0, nil, false
	return &n
}

// lead begins the trace of one of navra's own messages, which never carries a client's. Where nobody watches there is none.
func (p *Chokepoint) lead(x *Crossing) {
	if p.spans == nil {
		return
	}
	x.trail = &trail{out: newTrace(), watched: true}
	x.trail.out.Span = newSpan()
	x.entry.Trace = hex.EncodeToString(x.trail.out.ID[:])
}

// Ids need be unique, not secret.
func newTrace() (t mcp.Trace) {
	binary.BigEndian.PutUint64(t.ID[:8], rand.Uint64())
	binary.BigEndian.PutUint64(t.ID[8:], rand.Uint64()|1) // never all zeros
	t.Flags = mcp.Sampled
	return t
}

func newSpan() (id [8]byte) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// carry puts the trail into params, where it is looked through and recorded like everything else that goes on.
func (t *trail) carry(v jsonrpc.Raw) jsonrpc.Raw {
	if t == nil || t.out.IsZero() && t.baggage == "" {
		return v
	}
	meta, _ := v.Get("_meta")
	meta = orEmpty(meta)
	for _, m := range []struct{ name, text string }{{mcp.TraceParent, t.out.String()}, {mcp.TraceState, t.out.State}, {mcp.Baggage, t.baggage}} {
		if m.text != "" {
			meta = meta.With(m.name, jsonrpc.Quote(m.text))
		}
	}
	return orEmpty(v).With("_meta", meta)
}

// traceHeader mirrors the trace context of a message in HTTP headers, from what was judged; nil where it has none.
func (c *clearance) traceHeader() http.Header {
	if c.x.trail == nil {
		return nil
	}
	meta, _ := c.body.Params.Get("_meta")
	h := http.Header{}
	for _, m := range []struct {
		name, header string
		valid        func(string) (string, bool)
	}{
		{mcp.TraceParent, "Traceparent", func(s string) (string, bool) { t, ok := mcp.ParseTraceParent(s); return t.String(), ok }},
		{mcp.TraceState, "Tracestate", mcp.ParseTraceState}, {mcp.Baggage, "Baggage", mcp.ParseBaggage},
	} {
		raw, _ := meta.Get(m.name)
		text, _ := raw.Text()
		if value, ok := m.valid(text); ok && value != "" {
			h[m.header] = []string{value}
		}
	}
	return h
}

// clock is the time where t is watched; the zero time, for nothing, elsewhere.
func (t *trail) clock(now func() time.Time) time.Time {
	if t == nil || !t.watched {
		return time.Time{}
	}
	return now()
}

// step notes a stage that began then and ends now.
func (t *trail) step(name policy.Stage, began time.Time, now func() time.Time) {
	if t != nil && t.watched {
		t.stages = append(t.stages, stage{name, began, now()})
	}
}

// sent notes that the message leaves.
func (t *trail) sent(now func() time.Time) {
	if t != nil && t.watched {
		t.left = now()
	}
}

// back notes how what came back ended the message.
func (t *trail) back(in FromUpstream) {
	if t == nil || !t.watched {
		return
	}
	switch m := in.msg; {
	case in.kind == failure:
		t.failure = failureOf(in.err, "", 0).reason
	case m.Error != nil:
		t.code, t.failure = m.Error.Code, strconv.Itoa(m.Error.Code)
	default:
		if bad, _ := m.Result.Get("isError"); string(bad) == "true" {
			t.failure = "tool_error"
		}
	}
}

// ended tells of the spans of a message that has come to its end with x.
func (p *Chokepoint) ended(x *Crossing) {
	t := x.trail
	if t == nil || !t.watched {
		return
	}
	now := p.now()
	switch kind := x.entry.Kind; {
	case kind == blackbox.Request && x.verdict.Permits():
	case x.way == toUpstream && (kind == blackbox.Request || kind == blackbox.Notification):
		p.tellServer(x, now)
	case kind == blackbox.Answer:
		if !t.left.IsZero() && x.entry.Upstream != Self {
			p.tellClient(x, t.server, x.began)
		}
		if !t.goesOn {
			p.tellServer(x, now)
		}
	case kind == blackbox.OwnAnswer:
		p.tellClient(x, [8]byte{}, x.began)
	}
}

// endedAlone is ended for a message of navra's own that nothing comes back for.
func (p *Chokepoint) endedAlone(x *Crossing) {
	if x.trail != nil {
		x.trail.left = x.began
		p.tellClient(x, [8]byte{}, p.now())
	}
}

func (p *Chokepoint) tellServer(x *Crossing, now time.Time) {
	t := x.trail
	s := p.span(x, SpanServer)
	s.Version, s.Transport, s.Session = x.entry.Version, x.entry.Transport, x.entry.Session
	if s.RequestID = x.entry.RequestID; len(s.RequestID) >= shortestSecret {
		s.RequestID = p.Redact(s.RequestID)
		s.RequestID = s.RequestID[:min(len(s.RequestID), maxSpanText)]
	}
	s.ID, s.Parent, s.Began, s.Ended = t.server, t.parent, t.began, now
	s.Verdict, s.Stage, s.Outcome = x.verdict.Effect.String(), string(x.verdict.Stage), x.entry.Outcome
	if !x.verdict.Permits() {
		s.Failure, s.Code = "denied", 0
	}
	p.spans(s)
	for _, st := range t.stages {
		p.spans(Span{Trace: s.Trace, State: s.State, ID: newSpan(), Parent: s.ID, Kind: SpanStage, Name: string(st.name), Began: st.began, Ended: st.ended})
	}
}

func (p *Chokepoint) tellClient(x *Crossing, parent [8]byte, ended time.Time) {
	s := p.span(x, SpanClient)
	s.ID, s.Parent, s.Began, s.Ended = x.trail.out.Span, parent, x.trail.left, ended
	p.spans(s)
}

// span is what all spans of a message say of it.
func (p *Chokepoint) span(x *Crossing, kind string) Span {
	t, e, it := x.trail, &x.entry, x.facts.Item
	s := Span{
		Trace: t.out.ID, State: t.out.State, Kind: kind, Method: "unknown", Upstream: e.Upstream, Ref: e.Ref, Failure: t.failure, Code: t.code,
	}
	if mcp.IsMethod(e.Method) || e.Method == mcp.Initialized || e.Method == mcp.Cancelled {
		s.Method = e.Method
	}
	s.Name = s.Method
	switch {
	case it.Name == "":
	case it.Topic == mcp.Tool:
		s.Tool = it.Canonical()
		s.Name += " " + s.Tool
	case it.Topic == mcp.Prompt:
		s.Prompt = it.Canonical()
		s.Name += " " + s.Prompt
	}
	return s
}
