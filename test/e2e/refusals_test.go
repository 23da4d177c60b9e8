package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// TestUnreadRefusalsAreRecorded: what a principal is refused before its method is known is recorded, in sums: a flood makes an entry a second, not one each.
func TestUnreadRefusalsAreRecorded(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	config := s.listenConfig("navra.yaml", "127.0.0.1:0", "{tokens: true}", "")
	g := s.serve(config)
	token := s.tokenOf(config, "local")
	send := func(want int, path, method, body string, head ...string) {
		t.Helper()
		req, err := http.NewRequest(method, "http://"+g.Addr+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		for i := 0; i < len(head); i += 2 {
			req.Header.Add(head[i], head[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s %s %v: %d, want %d", method, path, head, resp.StatusCode, want)
		}
	}
	const asJSON = "application/json"
	call := request(1, "tools/call", map[string]any{})
	send(405, "/mcp", "PUT", "")
	send(400, "/mcp", "POST", call, "Mcp-Session-Id", "a", "Mcp-Session-Id", "b")
	send(415, "/mcp", "POST", call, "Content-Type", "text/plain")
	send(406, "/mcp", "POST", call, "Content-Type", asJSON, "Accept", "text/html")
	send(406, "/mcp", "POST", listenRequest(1, map[string]any{}), "Content-Type", asJSON, "Accept", asJSON)
	send(406, "/mcp", "GET", "", "Accept", asJSON)
	send(405, "/mcp", "GET", "", "Accept", "text/event-stream")
	send(404, "/mcp", "GET", "", "Accept", "text/event-stream", "Mcp-Session-Id", "none", "Mcp-Protocol-Version", "2025-11-25")
	send(404, "/mcp", "GET", "", "Accept", "text/event-stream", "Mcp-Session-Id", "none", "Last-Event-Id", "pNONE.1.MQ")
	session := (&web{t: t, addr: g.Addr, token: token}).open().session
	send(200, "/mcp", "GET", "", "Accept", "text/event-stream", "Mcp-Session-Id", session, "Mcp-Protocol-Version", "2025-11-25", "Last-Event-Id", "pNONE.1.MQ")
	send(404, "/mcp", "DELETE", "", "Mcp-Session-Id", "none")
	send(405, "/ws", "POST", "")
	send(426, "/ws", "GET", "")
	send(400, "/ws", "GET", "", "Connection", "Upgrade", "Upgrade", "websocket")
	send(400, "/ws", "GET", "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Protocol", "mcp", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "x")
	for range 500 {
		send(415, "/mcp", "POST", call, "Content-Type", "text/plain")
	}
	want := map[string]int64{
		"http 400 the Mcp-Session-Id header is given twice": 1, "http 415 Content-Type must be application/json": 501, "http 406 Accept must allow application/json or text/event-stream": 1,
		"http 406 Accept must allow text/event-stream": 2, "http 405 the method must be one of GET, POST, DELETE": 1, "http 405 no stream is offered without a session": 1, "http 404 Session not found": 3,
		"http 200 what a stream's client missed is not kept any more": 1,
		"websocket 405 the method must be GET":                        1, "websocket 426 this endpoint speaks WebSocket alone": 1, "websocket 400 Sec-WebSocket-Protocol must offer mcp": 1, "websocket 400 the upgrade is not valid": 1,
	}
	entries, got := 0, map[string]int64{}
	eventually(t, "the refusals are recorded", func() bool {
		entries, got = 0, map[string]int64{}
		text, _ := s.runOut("blackbox", "list", "--json", "-n", "0", "--config", config)
		for dec := json.NewDecoder(strings.NewReader(text)); dec.More(); {
			var e struct {
				Principal, Auth, Transport, Verdict, Reason string
				Notes                                       []struct {
					Name string
					N    int64
				}
			}
			if err := dec.Decode(&e); err != nil {
				t.Fatal(err)
			}
			if e.Reason != "refused before the method was known" || e.Principal != "local" || e.Auth != "token" || e.Verdict != "deny" {
				continue
			}
			entries++
			for _, n := range e.Notes {
				got[e.Transport+" "+n.Name] += n.N
			}
		}
		return maps.Equal(got, want)
	})
	if !maps.Equal(got, want) || entries > 20 {
		t.Errorf("%d entries, which say %v, want %v", entries, got, want)
	}
	s.verify(config)
}
