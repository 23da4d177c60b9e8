package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ws "github.com/coder/websocket"
)

// A socket speaks JSON-RPC to navra over WebSocket.
type socket struct {
	t    testing.TB
	conn *ws.Conn

	mu      sync.Mutex
	next    int
	waiting map[string]chan message
	others  []message
	arrived chan struct{} // a token for each of others
	closed  chan struct{}
	why     error
}

// dial connects; it does not initialize.
func dial(t testing.TB, addr, token string) *socket {
	t.Helper()
	s, err := tryDial(t, addr, token)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tryDial(t testing.TB, addr, token string) (*socket, error) {
	head := http.Header{}
	if token != "" {
		head.Set("Authorization", "Bearer "+token)
	}
	return dialWith(t, addr, head)
}

func dialWith(t testing.TB, addr string, head http.Header) (*socket, error) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	conn, _, err := ws.Dial(ctx, "ws://"+addr+"/ws", &ws.DialOptions{Subprotocols: []string{"mcp"}, HTTPHeader: head})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(32 << 20)
	s := &socket{t: t, conn: conn, waiting: map[string]chan message{}, arrived: make(chan struct{}, 10_000), closed: make(chan struct{})}
	go s.read()
	t.Cleanup(func() { conn.CloseNow() })
	return s, nil
}

func (s *socket) read() {
	defer close(s.closed)
	for {
		kind, b, err := s.conn.Read(context.Background())
		if err != nil {
			s.why = err
			return
		}
		var m message
		if kind != ws.MessageText || json.Unmarshal(b, &m) != nil {
			m.Method = "not JSON: " + string(b)
		}
		s.mu.Lock()
		if ch := s.waiting[string(m.ID)]; ch != nil && m.Method == "" {
			delete(s.waiting, string(m.ID))
			ch <- m
		} else {
			s.others = append(s.others, m)
			s.arrived <- struct{}{}
		}
		s.mu.Unlock()
	}
}

func (s *socket) write(text string) {
	s.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	if err := s.conn.Write(ctx, ws.MessageText, []byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

// begin sends a request and returns where its answer will come.
func (s *socket) begin(id, method string, params any) chan message {
	s.t.Helper()
	ch := make(chan message, 1)
	s.mu.Lock()
	s.waiting[id] = ch
	s.mu.Unlock()
	s.write(request(json.RawMessage(id), method, params))
	return ch
}

func (s *socket) request(method string, params any) message {
	s.t.Helper()
	s.mu.Lock()
	s.next++
	id := fmt.Sprint(s.next)
	s.mu.Unlock()
	select {
	case m := <-s.begin(id, method, params):
		return m
	case <-s.closed:
		s.t.Fatalf("%s: the connection ended: %v", method, s.why)
	case <-time.After(patience):
		s.t.Fatalf("%s: no answer", method)
	}
	return message{}
}

func (s *socket) open(version string) *socket {
	s.t.Helper()
	m := s.request("initialize", map[string]any{"protocolVersion": version, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
	if m.Error != nil {
		s.t.Fatal(m.Error)
	}
	s.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

// take returns the n messages that came unasked, and shows with a ping that the connection is usable. What navra tells of its lists is none of them.
func (s *socket) take(t *testing.T, n int) []message {
	t.Helper()
	count := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(unasked(s.others))
	}
	for late := time.After(patience); count() < n; {
		select {
		case <-s.arrived:
		case <-s.closed:
			t.Fatalf("the connection ended: %v", s.why)
		case <-late:
			t.Fatal("no answer")
		}
	}
	s.next = 2_000_000
	if m := s.request("ping", map[string]any{}); m.Result == nil {
		t.Errorf("ping afterwards: %+v", m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return unasked(s.others)
}

// unasked leaves notifications out.
func unasked(all []message) []message {
	return slices.DeleteFunc(slices.Clone(all), func(m message) bool { return strings.HasPrefix(m.Method, "notifications/") })
}

func TestWireOverWebSocket(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\n"+fmt.Sprintf("upstreams: {odd: {command: [%q, odd]}}\n", fixtureBin)))
	for _, c := range wireCases(t) {
		if c.Transport != "any" && c.Transport != "ws" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			sock := dial(t, g.Addr, "")
			if c.Setup.Session != "none" {
				sock.next = 1_000_000
				version := c.Setup.Protocol
				if version == "" {
					version = "2025-11-25"
				}
				sock.open(version)
			}
			kind := ws.MessageText
			if c.Frame == "binary" {
				kind = ws.MessageBinary
			}
			if err := sock.conn.Write(context.Background(), kind, c.bytes(t)); err != nil {
				t.Fatal(err)
			}
			if c.Expect.Kind == "close" {
				select {
				case <-sock.closed:
				case <-time.After(patience):
					t.Error("the connection was not closed")
				}
				return
			}
			want := 1
			if c.Expect.Kind == "none" {
				want = 0
			}
			if err := check(c.Expect, 0, nil, sock.take(t, want)); err != nil {
				if orClose(c.Expect) {
					return
				}
				t.Error(err)
			}
		})
	}
}

func orClose(e expectation) bool {
	for _, or := range e.Or {
		if or.Kind == "close" {
			return true
		}
	}
	return false
}

// TestSocketIdentity: the credential counts at the upgrade and as long as the connection lives.
func TestSocketIdentity(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	config := s.serveConfig("navra.yaml", "auth: {tokens: true}\nprincipals: {ann: {roles: [local-default]}}\n"+fmt.Sprintf("upstreams: {odd: {command: [%q, odd]}}\n", fixtureBin))
	g := s.serve(config)
	if _, err := tryDial(t, g.Addr, ""); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without a token: %v, want 401", err)
	}
	token, _ := s.runOut("token", "create", "ann", "--config", config)
	sock := dial(t, g.Addr, strings.TrimSpace(token)).open("2025-11-25")
	if m := sock.request("tools/call", map[string]any{"name": "odd__echo", "arguments": map[string]any{"text": "hi"}}); m.Error != nil {
		t.Fatal(m.Error)
	}
	for _, e := range s.entries() {
		if e.Method == "tools/call" && e.Principal != "ann" {
			t.Errorf("recorded for %q, want ann", e.Principal)
		}
	}
	list, _ := s.run("token", "list", "--config", config)
	id := tokenOf(list, "ann")
	if text, code := s.run("token", "revoke", id, "--config", config); code != 0 {
		t.Fatal(text)
	}
	sock.write(request(9, "tools/call", map[string]any{"name": "odd__echo", "arguments": map[string]any{}}))
	select {
	case <-sock.closed:
	case <-time.After(patience):
		t.Fatal("a revoked token keeps its connection")
	}
	if ws.CloseStatus(sock.why) != ws.StatusPolicyViolation {
		t.Errorf("closed with %v, want 1008", sock.why)
	}
}

// TestSocketHearsOfChanges: navra pushes over the socket, to both its directions' rules.
func TestSocketHearsOfChanges(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\nifc: {on_violation: observe}\n"+fmt.Sprintf("upstreams: {odd: {command: [%q, odd, -changed]}}\n", fixtureBin)))
	sock := dial(t, g.Addr, "").open("2025-11-25")
	sock.request("tools/call", map[string]any{"name": "odd__grow", "arguments": map[string]any{}})
	eventually(t, "the change is pushed", func() bool {
		sock.mu.Lock()
		defer sock.mu.Unlock()
		for _, m := range sock.others {
			if m.Method == "notifications/tools/list_changed" {
				return true
			}
		}
		return false
	})
}
