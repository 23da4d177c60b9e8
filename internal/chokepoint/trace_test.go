package chokepoint_test

import (
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

const (
	traceID    = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan = "00f067aa0ba902b7"
	parent     = "00-" + traceID + "-" + clientSpan + "-01"
)

// traced is a call with a _meta of its own.
func traced(t testing.TB, b *bench, args, meta string) chokepoint.Peer {
	t.Helper()
	from := call(t, b.ann, "files__read", args)
	from.In.Msg.Params = from.In.Msg.Params.With("_meta", parse(t, meta))
	return from
}

func parse(t testing.TB, text string) jsonrpc.Raw {
	t.Helper()
	m, fault := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":` + text + `}`))
	if fault != nil {
		t.Fatal(fault)
	}
	return m.Params
}

// sent is the _meta and the headers of what goes on.
func sent(t testing.TB, b *bench, m chokepoint.ToUpstream, v mcp.Version) (jsonrpc.Raw, http.Header) {
	t.Helper()
	c, err := m.Spend(b.Chokepoint)
	if err != nil {
		t.Fatal(err)
	}
	out, fault := jsonrpc.Parse(c.Bytes(v))
	if fault != nil {
		t.Fatal(fault)
	}
	meta, _ := out.Params.Get("_meta")
	return meta, c.Header(v)
}

func text(v jsonrpc.Raw, name string) string {
	raw, _ := v.Get(name)
	s, _ := raw.Text()
	return s
}

func TestTraceGoesOn(t *testing.T) {
	for _, tt := range []struct {
		rule, meta     string
		head           http.Header
		watched, pass  bool
		parent         string // "" none, "child" of the client's, "new"
		state, baggage string
	}{
		{rule: "a client's is continued without telemetry", meta: `{"traceparent":"` + parent + `","tracestate":"a=1"}`, parent: "child", state: "a=1"},
		{rule: "and with it", meta: `{"traceparent":"` + parent + `","tracestate":"a=1"}`, watched: true, parent: "child", state: "a=1"},
		{rule: "from headers", meta: `{}`, head: http.Header{"Traceparent": {parent}, "Tracestate": {"h=1"}}, parent: "child", state: "h=1"},
		{rule: "no trace without telemetry", meta: `{"x":1}`},
		{rule: "one of navra's with it", meta: `{"x":1}`, watched: true, parent: "new"},
		{rule: "a malformed one is dropped", meta: `{"traceparent":"` + strings.ToUpper(parent) + `","tracestate":"a=1"}`},
		{rule: "and replaced", meta: `{"traceparent":"` + strings.ToUpper(parent) + `","tracestate":"a=1"}`, watched: true, parent: "new"},
		{rule: "baggage is dropped", meta: `{"traceparent":"` + parent + `","baggage":"k=v"}`, parent: "child"},
		{rule: "unless it may pass", meta: `{"traceparent":"` + parent + `","baggage":"k=v"}`, pass: true, parent: "child", baggage: "k=v"},
		{rule: "also without a trace", meta: `{"baggage":"k=v"}`, pass: true, baggage: "k=v"},
		{rule: "but not a malformed one", meta: `{"baggage":"k"}`, pass: true},
	} {
		for _, v := range []mcp.Version{mcp.V20251125, mcp.V20260728} {
			b := newBenchWith(t, permissive(), nil, func(o *chokepoint.Options) {
				o.Baggage = tt.pass
				if tt.watched {
					o.Spans = func(chokepoint.Span) {}
				}
			})
			from := traced(t, b, `{}`, tt.meta)
			from.In.Trace = tt.head
			meta, head := sent(t, b, b.admit(t, from), v)
			got := text(meta, "traceparent")
			p, ok := mcp.ParseTraceParent(got)
			child := ok && hex.EncodeToString(p.ID[:]) == traceID && hex.EncodeToString(p.Span[:]) != clientSpan && p.Flags == mcp.Sampled
			if ok != (tt.parent != "") || child != (tt.parent == "child") || text(meta, "tracestate") != tt.state || text(meta, "baggage") != tt.baggage {
				t.Errorf("%s, to %s: _meta %s", tt.rule, v, meta)
			}
			if head.Get("Traceparent") != got || head.Get("Tracestate") != tt.state || head.Get("Baggage") != tt.baggage {
				t.Errorf("%s, to %s: headers %v beside _meta %s", tt.rule, v, head, meta)
			}
			want := ""
			if ok {
				want = hex.EncodeToString(p.ID[:])
			}
			if e := b.entries(t); e[len(e)-1].Trace != want {
				t.Errorf("%s: the entry's trace is %q, want %q", tt.rule, e[len(e)-1].Trace, want)
			}
		}
	}
}

// TestTraceIsJudged: what trace context carries is looked through like arguments.
func TestTraceIsJudged(t *testing.T) {
	o := permissive()
	o.Arguments = policy.Deny
	b := newBenchWith(t, o, nil, func(o *chokepoint.Options) { o.Baggage = true })
	for _, meta := range []string{`{"traceparent":"` + parent + `","tracestate":"a=` + aws() + `"}`, `{"baggage":"k=` + aws() + `"}`} {
		if _, _, err := b.Admit(t.Context(), traced(t, b, `{}`, meta)); err == nil {
			t.Errorf("%s was admitted", meta)
		}
	}
	b.admit(t, traced(t, b, `{}`, `{"traceparent":"`+parent+`","tracestate":"dd=s:1;t.dm:-0,rojo=00f067aa0ba902b7"}`)) // nothing of it looks like a secret
}

type spans []chokepoint.Span

func (s spans) find(t testing.TB, kind, name string) chokepoint.Span {
	t.Helper()
	for _, one := range s {
		if one.Kind == kind && one.Name == name {
			return one
		}
	}
	t.Fatalf("no %s span %q in %+v", kind, name, s)
	return chokepoint.Span{}
}

func watch(t testing.TB, o policy.Options) (*bench, *spans) {
	got := new(spans)
	return newBenchWith(t, o, nil, func(o *chokepoint.Options) { o.Spans = func(s chokepoint.Span) { *got = append(*got, s) } }), got
}

func TestSpansOfACall(t *testing.T) {
	b, got := watch(t, permissive())
	from := traced(t, b, `{"path":"secret-plans"}`, `{"traceparent":"`+parent+`"}`)
	m := b.admit(t, from)
	meta, _ := sent(t, b, m, mcp.V20251125)
	if len(*got) != 0 {
		t.Fatalf("spans before the answer: %+v", *got)
	}
	answer := jsonrpc.Message{Result: parse(t, `{"content":[{"type":"text","text":"answered-text"}],"isError":true}`)}
	if _, err := b.Release(t.Context(), m.Answer(answer, 0), from); err != nil {
		t.Fatal(err)
	}
	server, client := got.find(t, chokepoint.SpanServer, "tools/call files/read"), got.find(t, chokepoint.SpanClient, "tools/call files/read")
	wire, _ := mcp.ParseTraceParent(text(meta, "traceparent"))
	if client.ID != wire.Span || client.Parent != server.ID || hex.EncodeToString(server.Parent[:]) != clientSpan {
		t.Errorf("the chain is broken: wire %q, client span %x below %x, server span %x below %x", wire, client.ID, client.Parent, server.ID, server.Parent)
	}
	if server.Tool != "files/read" || server.Verdict != "allow" || server.Failure != "tool_error" || server.RequestID != "7" || server.Outcome != "ran" || server.Session == "" || server.Session == "s" {
		t.Errorf("server span %+v", server)
	}
	stages := map[string]int{}
	for _, s := range *got {
		if hex.EncodeToString(s.Trace[:]) != traceID || s.Ended.Before(s.Began) || s.Began.IsZero() {
			t.Errorf("span %+v", s)
		}
		if s.Kind == chokepoint.SpanStage && s.Parent == server.ID {
			stages[s.Name]++
		}
	}
	if stages["resolve"] != 1 || stages["filter"] != 2 || stages["judge"] != 2 || stages["record"] != 2 {
		t.Errorf("stages %v", stages)
	}
	for _, e := range b.entries(t) {
		if e.Trace != traceID {
			t.Errorf("the trace of entry %d, %s, is %q", e.Seq, e.Kind, e.Trace)
		}
	}
}

func TestSpansOfWhatEndsHere(t *testing.T) {
	o := permissive()
	o.Arguments = policy.Deny
	b, got := watch(t, o)
	if _, _, err := b.Admit(t.Context(), traced(t, b, `{"key":"`+aws()+`"}`, `{"traceparent":"`+parent+`"}`)); err == nil {
		t.Fatal("a secret was admitted")
	}
	s := got.find(t, chokepoint.SpanServer, "tools/call files/read")
	if s.Verdict != "deny" || s.Failure != "denied" || s.Outcome != "" && s.Outcome != "not-sent" {
		t.Errorf("span of a denied call: %+v", s)
	}
	*got = nil
	from := call(t, b.ann, "no-such-"+aws(), `{}`)
	from.In.Msg.Method = "invented/" + aws()
	_, _, _ = b.Admit(t.Context(), from)
	if s := got.find(t, chokepoint.SpanServer, "unknown"); s.Method != "unknown" || s.Tool != "" {
		t.Errorf("span of what a client invented: %+v", s)
	}
	*got = nil
	if _, _, err := b.Admit(t.Context(), traced(t, b, `{"key":"`+aws()+`"}`, `{"traceparent":"`+parent[:53]+`00"}`)); err == nil || len(*got) != 0 {
		t.Errorf("a trace that is not sampled: %v, %+v", err, *got)
	}
}

// TestOwnMessagesHaveTheirOwnTrace: a cancellation is recorded under the trace of the call, and carries another.
func TestOwnMessagesHaveTheirOwnTrace(t *testing.T) {
	for _, watched := range []bool{false, true} {
		b := newBench(t, permissive(), nil)
		if watched {
			b, _ = watch(t, permissive())
		}
		m := b.admit(t, traced(t, b, `{}`, `{"traceparent":"`+parent+`"}`))
		lane := m.Lane()
		sent(t, b, m, mcp.V20251125)
		cancel, err := b.AdmitCancel(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		hello, err := b.Visit(lane).Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for what, own := range map[string]chokepoint.ToUpstream{"cancel": cancel, "hello": hello} {
			meta, head := sent(t, b, own, mcp.V20251125)
			p, ok := mcp.ParseTraceParent(text(meta, "traceparent"))
			if ok != watched || hex.EncodeToString(p.ID[:]) == traceID || head.Get("Traceparent") != text(meta, "traceparent") {
				t.Errorf("watched %v: %s carries %s, headers %v", watched, what, meta, head)
			}
		}
		for _, e := range b.entries(t) {
			if e.Method == mcp.Cancelled && (e.Kind != blackbox.Own || e.Trace != traceID) {
				t.Errorf("the cancellation's entry is of trace %q", e.Trace)
			}
		}
	}
}
