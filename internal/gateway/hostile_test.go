package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"navra/internal/auth"
	"navra/internal/auth/token"
	"navra/internal/blackbox"
	"navra/internal/catalogue"
	"navra/internal/chokepoint"
	"navra/internal/filter"
	"navra/internal/gateway"
	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/seal"
	"navra/internal/store"
	"navra/internal/store/sqlite"
)

// A hostile is an upstream of 2025-11-25 over HTTP with one tool, bad.
type hostile struct {
	call  func(w http.ResponseWriter, r *http.Request, id json.RawMessage) // answers tools/call
	other func(r *http.Request, method string)                             // hears of everything else; may be nil
	push  func(w http.ResponseWriter, r *http.Request)                     // serves GET; may be nil
}

func (h hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		if r.Method == http.MethodGet && h.push != nil {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			h.push(w, r)
			return
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.NewDecoder(r.Body).Decode(&m)
	if m.Method != "tools/call" && h.other != nil {
		h.other(r, m.Method)
	}
	results := map[string]string{
		"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"hostile","version":"1"}}`,
		"tools/list": `{"tools":[{"name":"bad","inputSchema":{"type":"object"}}]}`,
	}
	switch result, known := results[m.Method]; {
	case m.Method == "tools/call":
		h.call(w, r, m.ID)
	case known:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	case m.Method == "server/discover":
		w.WriteHeader(http.StatusNotFound)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// A rig is a gateway before one upstream.
type rig struct {
	*gateway.Gateway
	t   *testing.T
	db  *sqlite.DB
	who auth.Principal
}

func newRig(t *testing.T, h http.Handler, callTime time.Duration) *rig {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "navra.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	f, err := filter.New()
	if err != nil {
		t.Fatal(err)
	}
	pol, err := policy.New(policy.Options{
		Roles: map[string]policy.Role{policy.LocalDefault: policy.DefaultRole()}, OnViolation: policy.Allow, Results: policy.Record, Arguments: policy.Allow,
	})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	book := catalogue.NewBook([]*catalogue.Upstream{{Name: "up", Label: ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.Sensitive}, Folder: t.TempDir(), Kept: "up"}}, 0)
	cp := chokepoint.New(chokepoint.Options{Policy: pol, Filter: f, Store: db, Catalogue: book, Vault: seal.New().For("test"), Logger: log, Version: "test"})
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	g := gateway.New(gateway.Options{
		Chokepoint: cp, Sessions: db, Seal: seal.New().For("session"), Logger: log, Version: "test",
		Upstreams: []gateway.Spec{{Name: "up", URL: u, Connect: 5 * time.Second, Call: callTime, CallMax: time.Minute}},
	})
	t.Cleanup(g.Stop)
	secret, tok := token.New("ann", time.Now(), time.Now().Add(time.Hour))
	if err := db.AddToken(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	a := token.Authenticator{Tokens: db, NotFound: store.ErrNotFound, Directory: auth.Directory{"ann": {policy.LocalDefault}}, Now: time.Now}
	who, err := a.Verify(t.Context(), secret.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{g, t, db, who}
	r.handle(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`, &sink{})
	return r
}

// handle carries one message across, on the rig's one connection.
func (r *rig) handle(message string, out mcp.Sink) error {
	r.t.Helper()
	m, fault := jsonrpc.Parse([]byte(message))
	if fault != nil {
		r.t.Fatal(fault)
	}
	return r.Handle(r.t.Context(), r.who, mcp.Inbound{Msg: m, Transport: mcp.WebSocket, Conn: "c"}, out)
}

const badCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__bad","arguments":{},"_meta":{"progressToken":"p"}}}`

// A sink keeps what is sent, until it fails.
type sink struct {
	fail error // of each message

	mu   sync.Mutex
	sent []jsonrpc.Message
}

func (s *sink) Open(string) {}
func (s *sink) Send(m jsonrpc.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, m)
	return s.fail
}
func (s *sink) Together([]jsonrpc.Message) error      { return s.fail }
func (s *sink) Refuse(_ int, m jsonrpc.Message) error { return s.Send(m) }
func event(w http.ResponseWriter, format string, args ...any) {
	fmt.Fprintf(w, "data: "+format+"\n\n", args...)
	_ = http.NewResponseController(w).Flush()
}

func TestOutcomeIsRecordedWhenTheClientIsGone(t *testing.T) {
	r := newRig(t, hostile{call: func(w http.ResponseWriter, _ *http.Request, id json.RawMessage) {
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range 3 {
			event(w, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, id, n)
		}
		event(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, id)
	}}, time.Minute)
	gone := errors.New("gone")
	out := &sink{fail: gone}
	if err := r.handle(badCall, out); !errors.Is(err, gone) {
		t.Errorf("Handle = %v, want %v", err, gone)
	}
	if len(out.sent) != 1 {
		t.Errorf("%d messages were sent to a client that is gone, want 1", len(out.sent))
	}
	last := blackbox.Entry{}
	for row, err := range r.db.Rows(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e, err := blackbox.Decode(row.Encoded); err == nil && e.Kind == blackbox.Answer && e.Method == mcp.ToolsCall {
			last = e
		}
	}
	if last.Outcome != string(chokepoint.Ran) {
		t.Errorf("the call's outcome is recorded as %q, want ran", last.Outcome)
	}
}

// An upstream that takes neither cancellations nor answers to its own requests must not hold a call beyond its deadline.
func TestUpstreamThatTakesNothing(t *testing.T) {
	for name, call := range map[string]func(w http.ResponseWriter, hang <-chan struct{}){
		"cancellation": func(_ http.ResponseWriter, hang <-chan struct{}) { <-hang },
		"answers": func(w http.ResponseWriter, hang <-chan struct{}) {
			w.Header().Set("Content-Type", "text/event-stream")
			var b strings.Builder
			for n := range 200 {
				fmt.Fprintf(&b, "data: {\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"ping\"}\n\n", n)
			}
			_, _ = io.WriteString(w, b.String())
			_ = http.NewResponseController(w).Flush()
			<-hang
		},
	} {
		t.Run(name, func(t *testing.T) {
			hang := make(chan struct{})
			r := newRig(t, hostile{
				call: func(w http.ResponseWriter, _ *http.Request, _ json.RawMessage) { call(w, hang) },
				other: func(_ *http.Request, method string) {
					if method == "" || method == mcp.Cancelled {
						<-hang
					}
				},
			}, 300*time.Millisecond)
			t.Cleanup(func() { close(hang) })
			out, began := &sink{}, time.Now()
			if err := r.handle(badCall, out); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("a call with 300ms was answered after %s", took)
			}
			if len(out.sent) != 1 || out.sent[0].Error == nil || out.sent[0].Error.Code != -32001 {
				t.Errorf("the client got %+v, want one error -32001", out.sent)
			}
		})
	}
}

func TestStormOfChangesIsReadOnceASecond(t *testing.T) {
	var lists atomic.Int64
	read := make(chan struct{}, 1000)
	r := newRig(t, hostile{
		other: func(_ *http.Request, method string) {
			if method == mcp.ToolsList {
				lists.Add(1)
				read <- struct{}{}
			}
		},
		push: func(w http.ResponseWriter, r *http.Request) {
			for {
				select {
				case <-read: // says that they have changed just after each reading
					for range 5 {
						event(w, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
						time.Sleep(10 * time.Millisecond)
					}
				case <-r.Context().Done():
					return
				}
			}
		},
	}, time.Minute)
	ctx, stop := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer stop()
	<-ctx.Done()
	if n := lists.Load(); n < 2 || n > 5 {
		t.Errorf("the list was read %d times in 2.5s, want 2 to 5", n)
	}
	r.Stop()
}

func TestTooLargeAnswerIsNotReadAgain(t *testing.T) {
	var again atomic.Int64
	r := newRig(t, hostile{
		call: func(w http.ResponseWriter, _ *http.Request, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			event(w, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\nid: 1\nretry: 1")
			for range 17 {
				fmt.Fprintf(w, "data: %s\n", strings.Repeat("x", 1<<20))
			}
		},
		push: func(_ http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Last-Event-ID") != "" {
				again.Add(1)
				return
			}
			<-r.Context().Done()
		},
	}, 20*time.Second)
	out := &sink{}
	if err := r.handle(badCall, out); err != nil {
		t.Fatal(err)
	}
	if len(out.sent) != 1 || out.sent[0].Error == nil || out.sent[0].Error.Code != -32002 {
		t.Errorf("the client got %+v, want one error -32002", out.sent)
	}
	if n := again.Load(); n != 0 {
		t.Errorf("the stream was resumed %d times", n)
	}
	r.Stop()
}
