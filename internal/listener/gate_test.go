package listener

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// A parked handler holds requests until it is let go.
type parked struct{ open chan struct{} }

func (p parked) Handle(_ context.Context, _ auth.Principal, in mcp.Inbound, _ mcp.Sink) error {
	if in.Msg.Kind() == jsonrpc.Request {
		<-p.open
	}
	return errReached
}

func (parked) Listen(context.Context, auth.Principal, mcp.Inbound, mcp.Sink) error { return errReached }
func (parked) Close(context.Context, auth.Principal, mcp.Inbound) error            { return errReached }

var errReached = errors.New("reached")

type refusals struct{ status int }

func (*refusals) Open(string)                             {}
func (*refusals) Send(jsonrpc.Message) error              { return nil }
func (*refusals) Together([]jsonrpc.Message) error        { return nil }
func (r *refusals) Refuse(s int, _ jsonrpc.Message) error { r.status = s; return nil }

func inbound(t *testing.T, text string) mcp.Inbound {
	t.Helper()
	m, fault := jsonrpc.Parse([]byte(text))
	if fault != nil {
		t.Fatal(fault)
	}
	return mcp.Inbound{Transport: mcp.HTTP, Msg: m}
}

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		h := parked{make(chan struct{})}
		guard := g.Guard(h)
		request, note := inbound(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`), inbound(t, `{"jsonrpc":"2.0","method":"notifications/cancelled"}`)
		done := make(chan error, 1)
		go func() { done <- guard.Handle(t.Context(), auth.Principal{}, request, &refusals{}) }()
		synctest.Wait()
		empty := g.Shut()
		select {
		case <-empty:
			t.Error("empty while a request is under way")
		default:
		}
		out := &refusals{}
		if err := guard.Handle(t.Context(), auth.Principal{}, request, out); err != nil || out.status != http.StatusServiceUnavailable {
			t.Errorf("a new request: %d, %v", out.status, err)
		}
		if err := guard.Handle(t.Context(), auth.Principal{}, note, out); !errors.Is(err, errReached) {
			t.Errorf("a cancellation: %v", err)
		}
		var refused *mcp.HTTPError
		if err := guard.Listen(t.Context(), auth.Principal{}, request, out); !errors.As(err, &refused) || refused.Status != http.StatusServiceUnavailable {
			t.Errorf("a new stream: %v", err)
		}
		if err := guard.Close(t.Context(), auth.Principal{}, request); !errors.Is(err, errReached) {
			t.Errorf("the end of a session: %v", err)
		}
		close(h.open)
		<-g.Shut()
		if err := <-done; !errors.Is(err, errReached) {
			t.Error(err)
		}
	})
}

func TestEmptyGate(t *testing.T) {
	var g Gate
	<-g.Shut()
	<-g.Shut()
}

func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		var storeErr error
		asked := 0
		ups := []Check{{Name: "files", OK: true}, {Name: "git", Why: "it does not start"}}
		p := NewProbes(ProbeOptions{
			Gate: &g, Logger: slog.New(slog.DiscardHandler), Store: func(context.Context) error { asked++; return storeErr },
		})
		ask := func(h http.Handler, method, path string, status int, body string) {
			t.Helper()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			if w.Code != status || body != "" && w.Body.String() != body {
				t.Errorf("%s %s: %d %s, want %d %s", method, path, w.Code, w.Body, status, body)
			}
		}
		public, operators := p.Public(http.NotFoundHandler()), p.Operators(http.NotFoundHandler())
		const ready = `{"status":"ready","checks":[{"name":"draining","ok":true},{"name":"store","ok":true}]}` + "\n"
		ask(public, "GET", "/readyz", 200, ready)
		ask(public, "GET", "/readyz", 200, ready)
		if asked != 1 {
			t.Errorf("the store was asked %d times within a second", asked)
		}
		storeErr = io.ErrShortWrite
		time.Sleep(checkEvery)
		ask(public, "GET", "/readyz", 503, `{"status":"not ready","checks":[{"name":"draining","ok":true},{"name":"store","ok":false,"why":"the store cannot be written"}]}`+"\n")
		ask(public, "GET", "/healthz", 200, "ok\n")
		ask(public, "HEAD", "/healthz", 200, "")
		ask(public, "POST", "/readyz", 405, "")
		ask(public, "GET", "/other", 404, "")
		storeErr = nil
		time.Sleep(checkEvery)
		p.o.Upstreams = func() []Check { return ups }
		ask(public, "GET", "/readyz", 200, `{"status":"degraded","checks":[{"name":"draining","ok":true},{"name":"store","ok":true},{"name":"upstreams","ok":false,"why":"1 of 2 are not ready"}]}`+"\n")
		ask(operators, "GET", "/readyz", 200, `{"status":"degraded","checks":[{"name":"draining","ok":true},{"name":"store","ok":true},{"name":"files","ok":true},{"name":"git","ok":false,"why":"it does not start"}]}`+"\n")
		p.o.Upstreams = nil
		more := Check{Name: "configuration", Why: "it is bad"}
		p.o.More = func() []Check { return []Check{more} }
		ask(public, "GET", "/readyz", 200, `{"status":"degraded","checks":[{"name":"draining","ok":true},{"name":"store","ok":true},{"name":"configuration","ok":false,"why":"it is bad"}]}`+"\n")
		more.Down = true
		ask(public, "GET", "/readyz", 503, `{"status":"not ready","checks":[{"name":"draining","ok":true},{"name":"store","ok":true},{"name":"configuration","ok":false,"why":"it is bad"}]}`+"\n")
		p.o.More = nil
		g.Shut()
		ask(public, "GET", "/readyz", 503, `{"status":"draining","checks":[{"name":"draining","ok":false,"why":"navra is shutting down"},{"name":"store","ok":true}]}`+"\n")
	})
}

func TestOperators(t *testing.T) {
	for _, tt := range []struct {
		name, host, origin string
		loopback           bool
		want               int
	}{
		{"a program", "127.0.0.1:8421", "", true, 404},
		{"by name", "localhost:8421", "", true, 404},
		{"over IPv6", "[::1]:8421", "", true, 404},
		{"its own page", "localhost:8421", "http://localhost:8421", true, 404},
		{"a name that was rebound", "evil.example:8421", "", true, 403},
		{"a rebound name's page", "evil.example:8421", "http://evil.example:8421", true, 403},
		{"another page", "localhost:8421", "https://evil.example", true, 403},
		{"another port's page", "localhost:8421", "http://localhost:3000", true, 403},
		{"the null origin", "localhost:8421", "null", true, 403},
		{"the network", "admin.example", "", false, 404},
		{"another page, from the network", "admin.example", "https://evil.example", false, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			r.Host = tt.host
			if tt.origin != "" {
				r.Header.Set("Origin", tt.origin)
			}
			w := httptest.NewRecorder()
			Operators(tt.loopback, http.NotFoundHandler()).ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("status %d, want %d", w.Code, tt.want)
			}
		})
	}
}

func TestLogAddsRetryAfter(t *testing.T) {
	w := httptest.NewRecorder()
	Log(slog.New(slog.DiscardHandler), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) })).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Header().Get("Retry-After") != "5" {
		t.Errorf("headers %v", w.Header())
	}
}
