package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	ws "github.com/coder/websocket"
)

// A script is an upstream with the tool ask, whose calls a test plays. It speaks one era, over Streamable HTTP or WebSocket.
type script struct {
	stateless bool
	caps      string            // members of its capabilities, beside tools
	play      func(c *callOf)   // a tools/call; in a goroutine of its own
	hear      func(m wireIn)    // everything else, but answers to questions; may be nil
	push      chan string       // over HTTP: what the GET stream sends
	conns     chan func(string) // over WebSocket: how each connection is written to

	mu      sync.Mutex
	asked   map[string]chan wireIn // by id
	started []wireIn               // calls
}

type wireIn struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
	}
}

// A callOf is one tools/call as the upstream has it.
type callOf struct {
	s     *script
	in    wireIn
	write func(raw string)
	gone  <-chan struct{}
}

func newScript(stateless bool, play func(c *callOf)) *script {
	return &script{stateless: stateless, play: play, push: make(chan string, 100), conns: make(chan func(string), 100), asked: map[string]chan wireIn{}}
}

// begin sends a request to the client; the answer comes over the channel.
func (c *callOf) begin(id, method, params string) chan wireIn {
	ch := make(chan wireIn, 4)
	c.s.mu.Lock()
	c.s.asked[id] = ch
	c.s.mu.Unlock()
	c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return ch
}

// ask asks the client in the way of its era. In the stateless one ok is false where the result asked, and nothing more is to be done.
func (c *callOf) ask(id, method, params string) (answer wireIn, ok bool) {
	if c.s.stateless {
		var p struct {
			InputResponses map[string]json.RawMessage
			RequestState   string
		}
		_ = json.Unmarshal(c.in.Params, &p)
		if p.InputResponses["q"] != nil {
			return wireIn{Result: p.InputResponses["q"]}, true
		}
		c.result(fmt.Sprintf(`{"resultType":"input_required","inputRequests":{"q":{"method":%q,"params":%s}},"requestState":"of the upstream"}`, method, params))
		return wireIn{}, false
	}
	select {
	case answer = <-c.begin(id, method, params):
		return answer, true
	case <-c.gone:
		return wireIn{}, false
	}
}

func (c *callOf) result(raw string) {
	c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, c.in.ID, raw))
}

// say answers the call with text.
func (c *callOf) say(text string) {
	b, _ := json.Marshal(text)
	c.result(`{"content":[{"type":"text","text":` + string(b) + `}]}`)
}

// calls returns the calls that were begun.
func (s *script) calls() []wireIn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]wireIn(nil), s.started...)
}

// take handles one message; gone is closed when its answer cannot be sent any more.
func (s *script) take(m wireIn, write func(string), gone <-chan struct{}) {
	switch {
	case m.Method == "":
		s.mu.Lock()
		ch := s.asked[string(m.ID)]
		s.mu.Unlock()
		if ch != nil {
			ch <- m
		}
		return
	case m.Method == "tools/call":
		s.mu.Lock()
		s.started = append(s.started, m)
		s.mu.Unlock()
		s.play(&callOf{s, m, write, gone})
		return
	}
	if s.hear != nil {
		s.hear(m)
	}
	if m.ID == nil {
		return
	}
	caps := `{"tools":{}` + s.caps + `}`
	results := map[string]string{
		"initialize":       `{"protocolVersion":"2025-11-25","capabilities":` + caps + `,"serverInfo":{"name":"script","version":"1"}}`,
		"server/discover":  `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` + caps + `}`,
		"tools/list":       `{"tools":[{"name":"ask","inputSchema":{"type":"object"}}]}`,
		"logging/setLevel": `{}`,
	}
	if s.stateless {
		delete(results, "initialize")
	} else {
		delete(results, "server/discover")
	}
	if r, known := results[m.Method]; known {
		write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, r))
		return
	}
	write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID))
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" {
		s.socket(w, r)
		return
	}
	if r.Method == http.MethodGet && !s.stateless {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case raw := <-s.push:
				event(w, "%s", raw)
			case <-r.Context().Done():
				return
			}
		}
	}
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m wireIn
	b, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(b, &m)
	if m.ID == nil || m.Method == "" {
		s.take(m, nil, nil)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	var mu sync.Mutex
	w.Header().Set("Content-Type", "text/event-stream")
	_ = http.NewResponseController(w).Flush()
	s.take(m, func(raw string) {
		mu.Lock()
		defer mu.Unlock()
		event(w, "%s", raw)
	}, r.Context().Done())
}

func (s *script) socket(w http.ResponseWriter, r *http.Request) {
	conn, err := ws.Accept(w, r, &ws.AcceptOptions{Subprotocols: []string{"mcp"}})
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(32 << 20)
	ctx, end := context.WithCancel(context.Background())
	defer end()
	write := func(raw string) { _ = conn.Write(ctx, ws.MessageText, []byte(raw)) }
	s.conns <- write
	for {
		_, b, err := conn.Read(ctx)
		if err != nil {
			return
		}
		var m wireIn
		_ = json.Unmarshal(b, &m)
		if m.Method == "tools/call" {
			go s.take(m, write, ctx.Done())
			continue
		}
		s.take(m, write, ctx.Done())
	}
}

// url starts the upstream, over HTTP or WebSocket.
func (s *script) url(t *testing.T, wire string) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(s)
	srv.Config.ErrorLog = nil
	srv.Start()
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	if wire == "ws" {
		return "ws" + strings.TrimPrefix(srv.URL, "http")
	}
	return srv.URL
}

// soon waits until something is so.
func soon(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so after 20s: %s", what)
		}
	}
}
