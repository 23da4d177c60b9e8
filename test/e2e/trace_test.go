package e2e

import (
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A spanCollector takes spans over OTLP/HTTP.
type spanCollector struct {
	*httptest.Server
	mu    sync.Mutex
	heads []http.Header
	raw   []byte
	spans []*tracepb.Span
}

func newCollector(t *testing.T) *spanCollector {
	c := &spanCollector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in tracepb.TracesData
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		b, err := io.ReadAll(z)
		if err != nil || proto.Unmarshal(b, &in) != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("the collector got %s %v: %v", r.URL, r.Header, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.heads, c.raw = append(c.heads, r.Header), append(c.raw, b...)
		for _, rs := range in.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				c.spans = append(c.spans, ss.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// by returns the span with an id, given in hex; nil for none.
func (c *spanCollector) by(id string) *tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if hex.EncodeToString(s.SpanId) == id {
			return s
		}
	}
	return nil
}

// has reports whether a server span of a trace has arrived.
func (c *spanCollector) has(trace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Kind == tracepb.Span_SPAN_KIND_SERVER && hex.EncodeToString(s.TraceId) == trace {
			return true
		}
	}
	return false
}

// hasOwn reports whether the spans of all that was heard have arrived.
func (c *spanCollector) hasOwn(all []heard) bool {
	return !slices.ContainsFunc(all, func(h heard) bool {
		m := wellFormed.FindStringSubmatch(h.text("traceparent"))
		return m != nil && c.by(m[2]) == nil
	})
}

// A heard is what an upstream heard of one message's trace.
type heard struct {
	Method string
	Meta   map[string]any
	Head   map[string]string
}

func (h heard) text(name string) string { s, _ := h.Meta[name].(string); return s }

func heardBy(t *testing.T, path string) (out []heard) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		var h heard
		if err := json.Unmarshal([]byte(line), &h); err != nil {
			t.Fatal(err)
		}
		out = append(out, h)
	}
	return out
}

var wellFormed = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-(0[0-3])$`)

// calls returns what was heard of calls, in order.
func calls(all []heard) (out []heard) {
	for _, h := range all {
		if h.Method == "tools/call" {
			out = append(out, h)
		}
	}
	return out
}

// A given is a call's trace as its client knows it, and where the client puts it.
type given struct{ trace, span, way string }

func newGiven(n int, way string) given {
	return given{fmt.Sprintf("4bf92f3577b34da6a3ce929d0e0e%04x", n+1), fmt.Sprintf("00f067aa0ba9%04x", n+1), way}
}

func (g given) parent() string { return "00-" + g.trace + "-" + g.span + "-01" }

func (g given) params(nonce string) map[string]any {
	p := map[string]any{"name": "odd__echo", "arguments": map[string]any{"text": nonce}}
	if g.way == "_meta" {
		p["_meta"] = map[string]any{"traceparent": g.parent(), "tracestate": "vendor=" + g.span, "baggage": "user=alice"}
	}
	return p
}

func (g given) head() map[string]string {
	if g.way == "_meta" {
		return map[string]string{"Traceparent": newGiven(0xfff0, "").parent(), "Tracestate": "of=headers"} // which do not count beside _meta
	}
	return map[string]string{"Traceparent": g.parent(), "Tracestate": "vendor=" + g.span, "Baggage": "user=alice"}
}

// TestTraceIsUnbroken follows calls of clients of both eras, over HTTP and stdio, through navra to upstreams of both, over all ways: the
// upstream gets the id of a span that navra exported, below a span below the client's.
func TestTraceIsUnbroken(t *testing.T) {
	t.Parallel()
	for _, c := range cells() {
		if strings.Contains(c.name, "silent") || strings.Contains(c.name, "exits") {
			continue // which differ only in how they are greeted
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, out := newSetup(t), newCollector(t)
			log := filepath.Join(s.Dir, "heard.log")
			s.Env = append(s.Env, "COLLECTOR_KEY=hush")
			config := s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\nifc: {on_violation: observe}\n"+
				"telemetry: {otlp: {endpoint: '"+out.URL+"', headers: {api-key: '${env:COLLECTOR_KEY}'}}}\n"+
				"upstreams: {odd: {"+c.key(s, "odd", "-heard", log)+"}}\n")
			var traces []given
			nonce := "never-in-a-span"
			g := s.serve(config)
			for _, modern := range []bool{false, true} {
				w := &web{t: t, addr: g.Addr, modern: modern}
				if !modern {
					w.open()
				}
				for _, way := range []string{"_meta", "headers"} {
					one := newGiven(len(traces), way)
					traces = append(traces, one)
					if m := w.send("tools/call", one.params(nonce), one.head()); m.Error != nil {
						t.Fatalf("%+v", m.Error)
					}
				}
			}
			eventually(t, "the spans arrive", func() bool { // the end may be too short for them
				return !slices.ContainsFunc(traces, func(one given) bool { return !out.has(one.trace) }) && out.hasOwn(heardBy(t, log))
			})
			g.stop()
			for _, modern := range []bool{false, true} {
				one := newGiven(len(traces), "_meta")
				traces = append(traces, one)
				k, p := s.start(navraBin, "stdio", "--config", config), one.params(nonce)
				if !modern {
					k.open()
				} else {
					p = modernParams("2026-07-28", p)
				}
				result(t, k.request("tools/call", p))
				eventually(t, "the spans arrive", func() bool { return out.has(one.trace) && out.hasOwn(heardBy(t, log)) })
				k.close()
			}
			all := heardBy(t, log)
			got := calls(all)
			if len(got) != len(traces) {
				t.Fatalf("the upstream heard %d calls, want %d", len(got), len(traces))
			}
			for i, one := range traces {
				checkChain(t, out, one, got[i])
			}
			checkEntries(t, s, traces)
			checkOwn(t, out, traces, all, strings.HasPrefix(c.name, "http") || c.name == "sse")
			if strings.Contains(string(out.raw), nonce) || strings.Contains(string(out.raw), "alice") {
				t.Error("an argument or baggage is in what was exported")
			}
			if out.heads[0].Get("Api-Key") != "hush" {
				t.Errorf("the collector got the headers %v", out.heads[0])
			}
		})
	}
}

// checkChain: client's span, navra's server span, navra's client span, what the upstream got.
func checkChain(t *testing.T, out *spanCollector, one given, h heard) {
	t.Helper()
	m := wellFormed.FindStringSubmatch(h.text("traceparent"))
	if m == nil || m[1] != one.trace || m[3] != "01" || h.text("tracestate") != "vendor="+one.span || h.text("baggage") != "" {
		t.Errorf("%+v became %+v", one, h)
		return
	}
	client := out.by(m[2])
	if client == nil || client.Kind != tracepb.Span_SPAN_KIND_CLIENT || client.Name != "tools/call odd/echo" {
		t.Errorf("the span that the upstream was told of, %s, was exported as %v", m[2], client)
		return
	}
	server := out.by(hex.EncodeToString(client.ParentSpanId))
	if server == nil || server.Kind != tracepb.Span_SPAN_KIND_SERVER || server.Name != "tools/call odd/echo" || hex.EncodeToString(server.ParentSpanId) != one.span {
		t.Errorf("above it is %v, want navra's server span below %s", server, one.span)
		return
	}
	if hex.EncodeToString(client.TraceId) != one.trace || hex.EncodeToString(server.TraceId) != one.trace {
		t.Errorf("the spans are of the traces %x and %x, want %s", client.TraceId, server.TraceId, one.trace)
	}
}

// checkOwn: navra's own messages carry traces of their own, that were exported; over HTTP headers mirror all.
func checkOwn(t *testing.T, out *spanCollector, traces []given, all []heard, http bool) {
	t.Helper()
	for _, h := range all {
		if http != (h.Head["traceparent"] != "") || http && h.Head["traceparent"] != h.text("traceparent") || http && h.Head["tracestate"] != h.text("tracestate") {
			t.Errorf("%s: headers %v beside _meta %v", h.Method, h.Head, h.Meta)
		}
		m := wellFormed.FindStringSubmatch(h.text("traceparent"))
		if h.Method == "tools/call" || m == nil {
			if m == nil {
				t.Errorf("%s carries %v", h.Method, h.Meta)
			}
			continue
		}
		for _, one := range traces {
			if m[1] == one.trace {
				t.Errorf("%s is in a client's trace", h.Method)
			}
		}
		if span := out.by(m[2]); span == nil || span.Name != h.Method || len(span.ParentSpanId) != 0 {
			t.Errorf("the span of %s was exported as %v", h.Method, span)
		}
	}
}

// checkEntries: a call's two entries say of which trace they are.
func checkEntries(t *testing.T, s *setup, traces []given) {
	t.Helper()
	text, code := s.runOut("blackbox", "export", "--format", "jsonl", "--store", filepath.Join(s.Home, "state", "navra", "navra.db"))
	for _, one := range traces {
		if n := strings.Count(text, `"trace":"`+one.trace+`"`); code != 0 || n != 2 {
			t.Errorf("%d entries are of the trace %s, want 2 (exit code %d)", n, one.trace, code)
		}
	}
}

// TestTraceWithoutTelemetry: what is well formed goes on as a child, what is not is dropped and refuses nothing, and navra's own
// messages carry none.
func TestTraceWithoutTelemetry(t *testing.T) {
	t.Parallel()
	one := newGiven(0, "_meta")
	for _, c := range cells() {
		if c.name != "stdio stateful" && c.name != "http stateless" {
			continue
		}
		for _, baggage := range []string{"drop", "pass"} {
			t.Run(c.name+" "+baggage, func(t *testing.T) {
				t.Parallel()
				s := newSetup(t)
				log := filepath.Join(s.Dir, "heard.log")
				w := s.webOn(c.key(s, "odd", "-heard", log), "telemetry: {baggage: "+baggage+"}")
				for _, tt := range []struct {
					meta                   map[string]any
					head                   map[string]string
					child, state, passable string
				}{
					{map[string]any{"traceparent": one.parent(), "tracestate": "a=1", "baggage": "user=alice"}, nil, one.trace, "a=1", "user=alice"},
					{map[string]any{"traceparent": strings.ToUpper(one.parent()), "tracestate": "a=1", "baggage": "x"}, nil, "", "", ""},
					{map[string]any{"traceparent": []int{1}, "tracestate": map[string]any{}, "baggage": 7}, nil, "", "", ""},
					{map[string]any{"traceparent": one.parent(), "tracestate": "a=1,a=2", "baggage": strings.Repeat("a=1,", 70)}, nil, one.trace, "", ""},
					{map[string]any{"vendor": 1}, map[string]string{"Traceparent": "00-zz", "Baggage": "\"x\""}, "", "", ""},
				} {
					m := w.send("tools/call", map[string]any{"name": "odd__echo", "arguments": map[string]any{"text": "x"}, "_meta": tt.meta}, tt.head)
					if m.Error != nil || strings.Contains(string(m.Result), `"isError":true`) {
						t.Errorf("%v: %s %+v", tt.meta, m.Result, m.Error)
					}
					all := calls(heardBy(t, log))
					h := all[len(all)-1]
					trace := ""
					if m := wellFormed.FindStringSubmatch(h.text("traceparent")); m != nil && m[2] != one.span {
						trace = m[1]
					}
					if baggage == "drop" {
						tt.passable = ""
					}
					if trace != tt.child || trace == "" && h.Meta["traceparent"] != nil || h.text("tracestate") != tt.state || h.text("baggage") != tt.passable {
						t.Errorf("%v became %v", tt.meta, h.Meta)
					}
				}
				for _, h := range heardBy(t, log) {
					if h.Method != "tools/call" && (h.Meta["traceparent"] != nil || len(h.Head) > 0) {
						t.Errorf("%s carries %v %v", h.Method, h.Meta, h.Head)
					}
				}
			})
		}
	}
}

// TestTraceOverWebSocket: the headers of the upgrade count for each message without a trace of its own.
func TestTraceOverWebSocket(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	log := filepath.Join(s.Dir, "heard.log")
	w := s.webOn(fmt.Sprintf("command: [%q, odd, -heard, %q]", fixtureBin, log))
	one, two := newGiven(0, "headers"), newGiven(1, "_meta")
	c, err := dialWith(t, w.addr, http.Header{"Traceparent": {one.parent()}})
	if err != nil {
		t.Fatal(err)
	}
	c.open("2025-11-25")
	result(t, c.request("tools/call", map[string]any{"name": "odd__echo", "arguments": map[string]any{"text": "x"}}))
	result(t, c.request("tools/call", two.params("y")))
	got := calls(heardBy(t, log))
	if len(got) != 2 || !strings.HasPrefix(got[0].text("traceparent"), "00-"+one.trace) || !strings.HasPrefix(got[1].text("traceparent"), "00-"+two.trace) {
		t.Errorf("the upstream heard %+v", got)
	}
}

// TestWrapExportsSpans: wrap has no configuration; a collector that never answers holds nothing up.
func TestWrapExportsSpans(t *testing.T) {
	t.Parallel()
	out := newCollector(t)
	s := newSetup(t)
	s.Env = append(s.Env, "NAVRA_OTLP_HEADERS=api-key=hush")
	c := s.start(navraBin, "wrap", "--name", "odd", "--otlp", out.URL, "--", fixtureBin, "odd", "-env").open()
	if env := c.call("env", map[string]any{}).text(); strings.Contains(env, "hush") {
		t.Errorf("the server got the collector's headers: %s", env)
	}
	named := func(name string) bool {
		out.mu.Lock()
		defer out.mu.Unlock()
		return slices.ContainsFunc(out.spans, func(s *tracepb.Span) bool { return s.Name == name }) && out.heads[0].Get("Api-Key") == "hush"
	}
	eventually(t, "the spans arrive, with the header", func() bool { return named("tools/call odd/env") && named("initialize") })
	c.close()

	free := make(chan struct{})
	mute := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); <-free }))
	defer mute.Close()
	defer close(free)
	c = s.start(navraBin, "wrap", "--name", "odd", "--otlp", mute.URL, "--", fixtureBin, "odd").open()
	for range 20 {
		c.call("echo", map[string]any{"text": "x"})
	}
	c.close()
	if !c.cmd.ProcessState.Success() {
		t.Errorf("navra wrap ended with %v", c.cmd.ProcessState)
	}
	if text, code := s.run("wrap", "--otlp", "127.0.0.1:4318", "--", "x"); code != 2 || !strings.Contains(text, "--otlp") {
		t.Errorf("%d %s", code, text)
	}
}
