package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// everything starts the Go SDK's server over HTTP, in one era, and returns its URL.
func everything(t *testing.T, server, stateless string) string {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		url, log := tryEverything(t, server, stateless)
		if url != "" {
			return url
		}
		if time.Now().After(end) {
			t.Fatalf("the server does not listen:\n%s", log)
		}
	}
}

// tryEverything tries a port that is free now, and may be somebody else's before the server has it: then url is "".
func tryEverything(t *testing.T, server, stateless string) (url string, log *lockedBuffer) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	log = &lockedBuffer{}
	cmd := exec.Command(server, "-http="+addr, "-stateless="+stateless)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() { cmd.Process.Kill(); <-ended })
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		select {
		case <-ended:
			return "", log
		default:
		}
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return "http://" + addr + "/mcp", log
		}
	}
	return "", log
}

// The official Go SDK on both sides: servers of both eras over HTTP and one over stdio ask clients of both eras over HTTP and stdio.
func TestOfficialPeersAskAndAnswer(t *testing.T) {
	t.Parallel()
	sdk := goClients(t)
	server := filepath.Join(sdk, "everything-server")
	s := newSetup(t)
	config := s.serveConfig("navra.yaml", fmt.Sprintf(`auth: {tokens: true}
principals: {ann: {roles: [asked]}, local: {roles: [asked]}}
roles: {asked: {rules: [{allow: {tools: ["*"], client: [sampling, elicitation, roots]}}]}}
upstreams:
  old: {url: %q, label: {integrity: trusted, confidentiality: public}}
  new: {url: %q, label: {integrity: trusted, confidentiality: public}}
  pipe: {command: [%q], label: {integrity: trusted, confidentiality: public}}
`, everything(t, server, "false"), everything(t, server, "true"), server))
	token, code := s.runOut("token", "create", "ann", "--config", config)
	if code != 0 {
		t.Fatal("no token")
	}
	g := s.serve(config)
	for over, target := range map[string][]string{
		"http":  {"http://" + g.Addr + "/mcp", strings.TrimSpace(token)},
		"stdio": {"--", navraBin, "stdio", "--config", config},
	} {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(era+" "+over, func(t *testing.T) {
				checks(t, s, s.Dir, append([]string{filepath.Join(sdk, "clients"), era + "-asked"}, target...)...)
			})
		}
	}
	g.stop()
	s.verify(config)
}

// Over WebSocket, before a process and servers over each wire: what is asked comes over the socket, answers go back over it, and the id says whose
// they are. A connection that ends mid-question leaves nobody waiting.
func TestSocketIsAsked(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	sse, _ := s.endpoint("127.0.0.1:0", "odd", "-ask", "-way", "sse")
	sock, _ := s.endpoint("127.0.0.1:0", "odd", "-ask", "-way", "ws")
	config := s.serveConfig("navra.yaml", fmt.Sprintf(`auth: {tokens: true}
principals: {ann: {roles: [asked]}}
roles: {asked: {rules: [{allow: {tools: ["*"], client: [sampling, roots]}}]}}
upstreams:
  child: {command: [%q, odd, -ask], label: {integrity: trusted, confidentiality: public}}
  sse: {url: %q, label: {integrity: trusted, confidentiality: public}}
  sock: {url: %q, label: {integrity: trusted, confidentiality: public}}
`, fixtureBin, sse, sock))
	token, code := s.runOut("token", "create", "ann", "--config", config)
	if code != 0 {
		t.Fatal("no token")
	}
	g := s.serve(config)
	open := func() *socket {
		c := dial(t, g.Addr, strings.TrimSpace(token))
		c.request("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{"roots": map[string]any{}, "sampling": map[string]any{}}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
		c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		return c
	}
	next := func(c *socket, n int) (m message) {
		eventually(t, "the client is asked", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			asked := slices.DeleteFunc(slices.Clone(c.others), func(m message) bool { return m.ID == nil }) // it may be told of a changed list, too
			if len(asked) > n {
				m = asked[n]
			}
			return len(asked) > n
		})
		return m
	}
	for _, upstream := range []string{"child", "sse", "sock"} {
		c := open()
		done := c.begin("77", "tools/call", map[string]any{"name": upstream + "__echo", "arguments": map[string]any{}})
		for n, want := range []string{"roots/list", "sampling/createMessage"} {
			m := next(c, n)
			if m.Method != want {
				t.Fatalf("%s: asked %s, want %s", upstream, m.Method, want)
			}
			result := map[string]string{"roots/list": `{"roots":[{"uri":"file:///of-the-client"}]}`, "sampling/createMessage": `{"role":"assistant","model":"m","content":{"type":"text","text":"sampled"}}`}[want]
			c.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`)
		}
		if got := result(t, <-done).text(); !strings.Contains(got, "file:///of-the-client") || !strings.Contains(got, `"sampled"`) {
			t.Errorf("%s: the upstream got %s", upstream, got)
		}
		gone := open()
		gone.begin("78", "tools/call", map[string]any{"name": upstream + "__echo", "arguments": map[string]any{}})
		next(gone, 0)
		gone.conn.CloseNow()
	}
	ended := func() bool {
		return len(objects[json.RawMessage](t, s.pick("list", "--config", config, "--json", "-n", "0", "--kind", "answer", "--method", "tools/call"))) == 6
	}
	eventually(t, "each call has an outcome", ended)
	g.stop()
	s.verify(config)
}
