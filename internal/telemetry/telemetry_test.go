package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake is a collector.
type fake struct {
	*httptest.Server
	status int // 0: take what comes

	mu    sync.Mutex
	heads []http.Header
	spans []*tracepb.Span
}

func newFake(t *testing.T) *fake {
	f := &fake{}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heads = append(f.heads, r.Header)
	if f.status != 0 {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(f.status)
		io.WriteString(w, "words of the collector")
		return
	}
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		w.WriteHeader(400)
		return
	}
	b, _ := io.ReadAll(z)
	var in tracepb.TracesData
	if proto.Unmarshal(b, &in) != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		w.WriteHeader(400)
		return
	}
	for _, rs := range in.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			f.spans = append(f.spans, ss.Spans...)
		}
	}
}

func exporter(t *testing.T, endpoint string, log io.Writer) *Exporter {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://192.0.2.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-env=1")
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	e, err := New(Options{Endpoint: endpoint, Header: map[string]Secret{"Api-Key": "hush"}, Version: "test", Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var began = time.Unix(1_700_000_000, 0)

func span(n byte) Span {
	return Span{
		Trace: [16]byte{1, 2, 3}, ID: [8]byte{n + 1}, Parent: [8]byte{9}, State: "a=1", Kind: "server", Name: "tools/call files/read", Began: began, Ended: began.Add(time.Millisecond),
		Method: "tools/call", Version: "2025-11-25", Transport: "http", Session: "ab", RequestID: "7", Upstream: "files", Tool: "files/read", Verdict: "deny",
		Stage: "flow", Outcome: "not-sent", Ref: "R", Failure: "denied", Code: -32602,
	}
}

func TestExport(t *testing.T) {
	f := newFake(t)
	e := exporter(t, f.URL+"/v1/traces", io.Discard)
	e.Tell(span(0))
	root := span(1)
	root.Parent, root.Kind, root.Failure, root.Code = [8]byte{}, "client", "", 0
	e.Tell(root)
	e.Close(t.Context())
	if len(f.spans) != 2 {
		t.Fatalf("%d spans arrived, want 2", len(f.spans))
	}
	one, two := f.spans[0], f.spans[1]
	want := "\x01\x02\x03" + strings.Repeat("\x00", 13)
	if string(one.TraceId) != want || one.SpanId[0] != 1 || one.ParentSpanId[0] != 9 || one.TraceState != "a=1" || one.Kind != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("the first is %v", one)
	}
	if one.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || one.StartTimeUnixNano != uint64(began.UnixNano()) || one.EndTimeUnixNano-one.StartTimeUnixNano != 1e6 {
		t.Errorf("the first is %v", one)
	}
	if string(two.TraceId) != want || two.SpanId[0] != 2 || len(two.ParentSpanId) != 0 || two.Kind != tracepb.Span_SPAN_KIND_CLIENT || two.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the second is %v", two)
	}
	got := map[string]string{}
	for _, a := range one.Attributes {
		got[a.Key] = a.Value.GetStringValue()
	}
	for key, value := range map[string]string{
		"mcp.method.name": "tools/call", "mcp.protocol.version": "2025-11-25", "mcp.session.id": "ab", "jsonrpc.request.id": "7", "gen_ai.tool.name": "files/read",
		"gen_ai.operation.name": "execute_tool", "network.transport": "tcp", "network.protocol.name": "http", "error.type": "denied", "rpc.response.status_code": "-32602",
		"navra.upstream": "files", "navra.verdict": "deny", "navra.stage": "flow", "navra.outcome": "not-sent", "navra.ref": "R",
	} {
		if got[key] != value {
			t.Errorf("attribute %s is %q, want %q", key, got[key], value)
		}
	}
	if h := f.heads[0]; h.Get("Api-Key") != "hush" || h.Get("X-Env") != "" {
		t.Errorf("headers %v", h)
	}
}

// TestRefusal: what a collector that refuses says, its address and the secrets are not logged; redirects are not followed, and what may pass is tried again.
func TestRefusal(t *testing.T) {
	for status, want := range map[int]int{307: 1, 401: 1, 503: 2} {
		f, log := newFake(t), new(bytes.Buffer)
		f.status = status
		e := exporter(t, f.URL+"/v1/traces", log)
		e.Tell(span(0))
		e.Close(t.Context())
		if len(f.heads) != want {
			t.Errorf("%d: %d requests, want %d", status, len(f.heads), want)
		}
		text := log.String()
		if !strings.Contains(text, fmt.Sprintf("status %d", status)) || strings.Contains(text, "127.0.0.1") || strings.Contains(text, "words") || strings.Contains(text, "hush") {
			t.Errorf("%d: log %q", status, text)
		}
	}
}

// TestNobodyWaits: with a collector that does not answer, spans are taken at once, more than there is room for are dropped, and the
// end comes when the context says.
func TestNobodyWaits(t *testing.T) {
	arrived, free := make(chan struct{}, 100), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-free
	}))
	defer srv.Close()
	defer close(free)
	log := new(bytes.Buffer)
	e := exporter(t, srv.URL, log)
	for i := range batched {
		e.Tell(span(byte(i)))
	}
	<-arrived
	for i := range queued + 100 {
		e.Tell(span(byte(i)))
	}
	if got := e.dropped.Load(); got != 100 {
		t.Errorf("%d spans were dropped, want 100", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	e.Close(ctx) // returns
	if !strings.Contains(log.String(), "dropped=100") {
		t.Errorf("log %q", log)
	}
	e.Tell(span(0))
}

func TestNothingIsSentUnasked(t *testing.T) {
	f := newFake(t)
	exporter(t, f.URL, io.Discard).Close(t.Context())
	if len(f.heads) != 0 {
		t.Errorf("%d requests without a span", len(f.heads))
	}
	(*Exporter)(nil).Hurry()
	(*Exporter)(nil).Close(t.Context())
}

func TestHurry(t *testing.T) {
	arrived := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(arrived) }))
	defer srv.Close()
	e := exporter(t, srv.URL, io.Discard)
	e.Tell(span(0))
	e.Hurry()
	<-arrived
	e.Close(t.Context())
}

func TestSecretIsNotPrinted(t *testing.T) {
	if got := fmt.Sprintf("%v %+v %s %q", Secret("hush"), Options{Header: map[string]Secret{"a": "hush"}}, Secret("hush"), Secret("hush")); strings.Contains(got, "hush") {
		t.Errorf("printed %s", got)
	}
}
