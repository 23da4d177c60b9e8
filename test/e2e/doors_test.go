package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestWithoutAStream: GET and HEAD where no stream is to be had are refused at once, and nobody is sent to log in.
func TestWithoutAStream(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\n"+fmt.Sprintf("upstreams: {odd: {command: [%q, odd]}}\n", fixtureBin)))
	url := "http://" + g.Addr + "/mcp"
	for _, tt := range []struct {
		method string
		head   http.Header
	}{
		{"GET", http.Header{"Accept": {"text/event-stream"}}},
		{"GET", http.Header{"Accept": {"text/event-stream"}, "Mcp-Protocol-Version": {"2026-07-28"}}},
		{"HEAD", nil},
		{"HEAD", http.Header{"Accept": {"text/event-stream"}}},
		{"PATCH", nil},
	} {
		resp, body := ask(t, http.DefaultClient, tt.method, url, tt.head)
		if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") == "" || resp.Header.Get("WWW-Authenticate") != "" {
			t.Errorf("%s %v: %d %v %s", tt.method, tt.head, resp.StatusCode, resp.Header, body)
		}
	}
	w := (&web{t: t, addr: g.Addr}).open()
	req, _ := http.NewRequest("GET", url, nil)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", w.session)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if h := resp.Header; resp.StatusCode != 200 || h.Get("X-Accel-Buffering") != "no" || !strings.Contains(h.Get("Cache-Control"), "no-cache") {
		t.Errorf("a session's stream: %d %v", resp.StatusCode, h)
	}
	first, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || strings.HasPrefix(first, ":") { // a comment comes after a while alone
		t.Errorf("a session's stream begins with %q, %v", first, err)
	}
}

// TestReboundNames: where navra listens on loopback, a name that was rebound to it reaches no message of MCP's, on no route and before any credential is looked at.
func TestReboundNames(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\n"+fmt.Sprintf("upstreams: {odd: {command: [%q, odd]}}\n", fixtureBin)))
	_, port, _ := strings.Cut(g.Addr, ":")
	for _, tt := range []struct{ method, path string }{{"POST", "/mcp"}, {"GET", "/mcp"}, {"DELETE", "/mcp"}, {"GET", "/ws"}} {
		for host, refused := range map[string]bool{"rebind.attacker.example:" + port: true, "localhost.attacker.example": true, "127.0.0.1.attacker.example:" + port: true, "localhost:1": false, "[::1]:" + port: false, "127.0.0.1": false} {
			resp, _ := ask(t, http.DefaultClient, tt.method, "http://"+g.Addr+tt.path, http.Header{"Host": {host}})
			if (resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusMisdirectedRequest) != refused {
				t.Errorf("%s %s for %s: %d", tt.method, tt.path, host, resp.StatusCode)
			}
		}
	}
}
