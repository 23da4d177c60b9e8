package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A gateway is a running `navra serve`.
type gateway struct {
	t      testing.TB
	Addr   string
	stderr *lockedBuffer
	cmd    *exec.Cmd
	read   chan struct{} // closed when stderr is read to its end
}

var listens = regexp.MustCompile(`listens on https?://([^/\s]+)/mcp`)

// serve runs navra serve on a configuration and waits until it listens.
func (s *setup) serve(config string, flags ...string) *gateway {
	s.t.Helper()
	g := &gateway{t: s.t, stderr: &lockedBuffer{}, cmd: exec.Command(navraBin, append([]string{"serve", "--config", config}, flags...)...)}
	g.cmd.Dir, g.cmd.Env = s.Dir, s.env()
	pipe, err := g.cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	addr := make(chan string, 1)
	g.read = make(chan struct{})
	go func() {
		defer close(g.read)
		for in := bufio.NewReader(pipe); ; {
			line, err := in.ReadString('\n')
			g.stderr.Write([]byte(line))
			if m := listens.FindStringSubmatch(line); m != nil && g.Addr == "" {
				g.Addr = m[1]
				addr <- m[1]
			}
			if err != nil {
				return
			}
		}
	}()
	s.t.Cleanup(func() { g.stop(); capture(g.stderr.String()) })
	select {
	case <-addr:
	case <-g.read:
		s.t.Fatalf("navra serve ended:\n%s", g.stderr)
	case <-time.After(patience):
		s.t.Fatalf("navra serve does not listen:\n%s", g.stderr)
	}
	return g
}

// stop ends the gateway as a service manager does.
func (g *gateway) stop() {
	if g.cmd.ProcessState != nil {
		return
	}
	g.cmd.Process.Signal(syscall.SIGTERM)
	g.wait()
	if g.t.Failed() || strings.Contains(g.stderr.String(), "DATA RACE") {
		g.t.Errorf("stderr of navra serve:\n%s", g.stderr)
	}
}

// wait waits for the gateway's end: first for that of its output, which Wait would throw away.
func (g *gateway) wait() error {
	late := time.AfterFunc(patience, func() { g.cmd.Process.Kill() })
	defer late.Stop()
	<-g.read
	return g.cmd.Wait()
}

// A web client speaks to navra over Streamable HTTP.
type web struct {
	t       testing.TB
	addr    string
	base    string       // "" for http at addr
	http    *http.Client // nil for the usual one
	token   string
	session string
	version string // of the stateful era; "" for 2025-11-25
	modern  bool
	mu      sync.Mutex
	next    int
}

// post sends a body and returns status, headers, and the JSON-RPC messages that came back, from JSON or SSE.
func (w *web) post(body string, head http.Header) (int, http.Header, []message) {
	w.t.Helper()
	base, via := w.base, w.http
	if base == "" {
		base = "http://" + w.addr
	}
	if via == nil {
		via = http.DefaultClient
	}
	req, err := http.NewRequest("POST", base+"/mcp", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	if w.session != "" && !w.modern {
		req.Header.Set("Mcp-Session-Id", w.session)
		if v := cmp.Or(w.version, "2025-11-25"); v != "2025-03-26" { // that one knows no such header
			req.Header.Set("MCP-Protocol-Version", v)
		}
	}
	for k, v := range head {
		req.Header[k] = v
	}
	resp, err := via.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, messages(w.t, resp.Header, b)
}

func messages(t testing.TB, head http.Header, b []byte) (out []message) {
	t.Helper()
	parts := [][]byte{b}
	if strings.HasPrefix(head.Get("Content-Type"), "text/event-stream") {
		parts = nil
		for _, line := range bytes.Split(b, []byte("\n")) {
			if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				parts = append(parts, data)
			}
		}
	}
	for _, p := range parts {
		if len(bytes.TrimSpace(p)) == 0 {
			continue
		}
		var m message
		if err := json.Unmarshal(p, &m); err != nil {
			t.Fatalf("not JSON: %q", p)
		}
		out = append(out, m)
	}
	return out
}

// open initializes a session of the stateful era.
func (w *web) open() *web {
	w.t.Helper()
	h := maps.Clone(hello)
	h["protocolVersion"] = cmp.Or(w.version, "2025-11-25")
	status, head, got := w.post(request(1, "initialize", h), nil)
	if status != 200 || len(got) != 1 || got[0].Error != nil {
		w.t.Fatalf("initialize: %d %+v", status, got)
	}
	w.session = head.Get("Mcp-Session-Id")
	if w.session == "" {
		w.t.Fatal("no session id")
	}
	if status, _, _ := w.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil); status != 202 {
		w.t.Fatalf("initialized: %d", status)
	}
	return w
}

func request(id any, method string, params any) string {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// request sends a request in the client's era and returns its answer.
func (w *web) request(method string, params map[string]any) message {
	w.t.Helper()
	return w.send(method, params, nil)
}

// send is request with headers of its own.
func (w *web) send(method string, params map[string]any, more map[string]string) message {
	w.t.Helper()
	id, _, got := w.raw(method, params, more)
	for _, m := range got {
		if string(m.ID) == id {
			return m
		}
	}
	w.t.Fatalf("%s: no answer in %+v", method, got)
	return message{}
}

// raw sends a request in the client's era and returns its id, the status and all that came.
func (w *web) raw(method string, params map[string]any, more map[string]string) (string, int, []message) {
	w.t.Helper()
	w.mu.Lock()
	w.next++
	id := w.next + 100
	w.mu.Unlock()
	head := http.Header{}
	for k, v := range more {
		head.Set(k, v)
	}
	if w.modern {
		p := maps.Clone(params)
		meta := modernMeta()
		if given, ok := p["_meta"].(map[string]any); ok {
			maps.Copy(meta, given)
		}
		p["_meta"], params = meta, p
		head.Set("MCP-Protocol-Version", "2026-07-28")
		head.Set("Mcp-Method", method)
		for _, k := range []string{"name", "uri", "taskId"} {
			if s, ok := params[k].(string); ok {
				head.Set("Mcp-Name", s)
			}
		}
	}
	status, _, got := w.post(request(id, method, params), head)
	return fmt.Sprint(id), status, got
}

func (w *web) call(tool string, args any) answer {
	w.t.Helper()
	return result(w.t, w.request("tools/call", map[string]any{"name": tool, "arguments": args}))
}

// rawHTTP sends exact bytes and reads one response.
func rawHTTP(t testing.TB, addr string, raw []byte) (int, http.Header, []message) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write(raw); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, messages(t, resp.Header, b)
}

// serveConfig writes a configuration with a listener on a free port and one upstream.
func (s *setup) serveConfig(name, rest string) string {
	config := filepath.Join(s.Dir, name)
	write(s.t, config, "listen: {address: \"127.0.0.1:0\", allowed_origins: [\"https://app.example\"]}\nstore: "+filepath.Join(s.Home, "state", "navra", "navra.db")+"\n"+rest)
	return config
}
