package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A site is an MCP endpoint of the stateful era in the test's own process, which keeps what arrives.
type site struct {
	URL string

	mu    sync.Mutex
	posts []posted
	gets  []time.Time
}

type posted struct {
	head   http.Header
	method string
	body   string
}

func (s *site) count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.posts {
		if p.method == method {
			n++
		}
	}
	return n
}

// newSite serves: call answers tools/call, get answers GET; nil for the usual.
func newSite(t *testing.T, call, get http.HandlerFunc) *site {
	s := &site{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var m message
		if r.Method == http.MethodPost && json.Unmarshal(b, &m) != nil {
			t.Errorf("the upstream got %q", b)
		}
		s.mu.Lock()
		if r.Method == http.MethodPost {
			s.posts = append(s.posts, posted{r.Header.Clone(), m.Method, string(b)})
		} else {
			s.gets = append(s.gets, time.Now())
		}
		s.mu.Unlock()
		reply := func(result string) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		}
		switch {
		case r.Method == http.MethodGet && get != nil:
			get(w, r)
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "s1")
			reply(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"site","version":"1"}}`)
		case m.Method == "tools/list":
			reply(`{"tools":[{"name":"act","inputSchema":{"type":"object"}}]}`)
		case m.Method == "tools/call" && call != nil:
			call(w, r)
		case m.Method == "tools/call":
			reply(`{"content":[{"type":"text","text":"done"}]}`)
		default:
			w.WriteHeader(http.StatusBadRequest) // it knows no other era
		}
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	s.URL = srv.URL
	return s
}

func (s *site) act(w *web) message {
	return w.request("tools/call", map[string]any{"name": "odd__act", "arguments": map[string]any{}})
}

// TestHeadersOfThisHop: an upstream gets the headers of navra's own request, and none of the client's.
func TestHeadersOfThisHop(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	up := newSite(t, nil, nil)
	w := s.webOn(fmt.Sprintf("url: %q", up.URL))
	head := http.Header{"Content-Type": {`Application/JSON; Charset="UTF-8"`}, "Cookie": {"a=b"}, "Traceparent": {"00-x"}, "Authorization": {"Bearer client"}, "Origin": {"https://app.example"}, "X-Forwarded-For": {"192.0.2.1"}}
	if status, _, got := w.post(request(5, "tools/call", map[string]any{"name": "odd__act", "arguments": map[string]any{}}), head); status != 200 || len(got) != 1 || got[0].Error != nil {
		t.Fatalf("%d %+v", status, got)
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	for _, p := range up.posts {
		if got := p.head["Content-Type"]; len(got) != 1 || got[0] != "application/json" {
			t.Errorf("%s came with Content-Type %q", p.method, got)
		}
		for _, name := range []string{"Cookie", "Traceparent", "Authorization", "Origin", "X-Forwarded-For"} {
			if p.head.Get(name) != "" {
				t.Errorf("%s came with the client's %s", p.method, name)
			}
		}
	}
	if last := up.posts[len(up.posts)-1]; last.method != "tools/call" || last.head.Get("Mcp-Session-Id") != "s1" || last.head.Get("Mcp-Protocol-Version") != "2025-11-25" {
		t.Errorf("the call came as %+v", last)
	}
}

// TestCallsAreNotRepeated: a call that may have been executed is not sent again, and its client is told that nobody knows.
func TestCallsAreNotRepeated(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]http.HandlerFunc{
		"the connection breaks": func(w http.ResponseWriter, _ *http.Request) {
			if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
				conn.Close()
			}
		},
		"the stream breaks off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, ": soon\n\n")
		},
		"an empty answer": func(http.ResponseWriter, *http.Request) {},
		"empty JSON":      func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "application/json") },
		"a bad gateway":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			up := newSite(t, call, nil)
			w := s.webOn(fmt.Sprintf("url: %q", up.URL))
			w.request("tools/list", map[string]any{}) // so that the connection is in use already
			m := up.act(w)
			if m.Error == nil {
				t.Fatalf("answered %s", m.Result)
			}
			var data struct{ Outcome string }
			json.Unmarshal(m.Error.Data, &data)
			if want := map[bool]string{true: "ran", false: "unknown"}[name == "empty JSON"]; data.Outcome != want {
				t.Errorf("outcome %q (%s), want %q", data.Outcome, m.Error.Message, want)
			}
			if n := up.count("tools/call"); n != 1 {
				t.Errorf("the upstream got the call %d times", n)
			}
			recorded := 0
			for _, e := range s.entries() {
				if e.Kind == "answer" && e.Method == "tools/call" && e.Outcome == data.Outcome {
					recorded++
				}
			}
			if recorded != 1 {
				t.Errorf("%d entries have the outcome %q, want 1: %+v", recorded, data.Outcome, s.entries())
			}
			for range 99 {
				up.act(w)
			}
			if n := up.count("tools/call"); n > 100 {
				t.Errorf("100 calls reached the upstream as %d", n)
			}
			if n := up.count("initialize"); n > 110 {
				t.Errorf("the upstream was greeted %d times", n)
			}
		})
	}
}

// TestPushStreamThatEnds: a stream that brings nothing is opened again ever more slowly, whatever time the upstream asks for.
func TestPushStreamThatEnds(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"at once": "", "with a retry time": "retry: 1\n\n", "with a comment": ": hello\n\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			up := newSite(t, nil, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, body)
			})
			w := s.webOn(fmt.Sprintf("url: %q", up.URL))
			up.act(w)
			opened := func() []time.Time {
				up.mu.Lock()
				defer up.mu.Unlock()
				return slices.Clone(up.gets)
			}
			n, least := 4, 500*time.Millisecond // half of a second before it is opened again, and twice as long each time
			if strings.HasPrefix(body, "retry") {
				n, least = 6, 50*time.Millisecond // half of the least that an upstream may ask for
			}
			eventually(t, "it is opened again and again", func() bool { return len(opened()) >= n })
			gets := opened()
			for i := range n - 1 { // a stall makes the next come later, and never sooner
				if pause := gets[i+1].Sub(gets[i]); pause < least<<i {
					t.Errorf("it was opened again after %s, for the %d. time", pause, i+1)
				}
			}
		})
	}
}
