package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// openBatches opens a session of the one version that has batches.
func openBatches(t *testing.T, s *setup) *web {
	g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\n"+
		fmt.Sprintf("upstreams: {odd: {command: [%q, odd]}}\n", fixtureBin)))
	w := &web{t: t, addr: g.Addr, version: "2025-03-26"}
	return w.open()
}

func TestBatchElementsAreJudgedByThemselves(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	w := openBatches(t, s)
	status, _, got := w.post(`[
		{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"odd__echo","arguments":{"text":"one"}}},
		{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"odd__echo","arguments":{"text":"again"}}},
		{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"odd__no_such","arguments":{}}},
		{"jsonrpc":"2.0","id":3,"method":"initialize","params":{}},
		{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}},
		[{"jsonrpc":"2.0","id":4,"method":"ping"}]
	]`, nil)
	if status != 200 || len(got) != 1 {
		t.Fatalf("status %d, %+v", status, got)
	}
	codes := map[string][]int{}
	for _, m := range got[0].Batch {
		code := 0
		if m.Error != nil {
			code = m.Error.Code
		} else if !strings.Contains(string(m.Result), "one") {
			t.Errorf("answer %s", m.Result)
		}
		codes[string(m.ID)] = append(codes[string(m.ID)], code)
	}
	if len(got[0].Batch) != 5 || len(codes["1"]) != 2 || codes["1"][0]+codes["1"][1] != -32600 || codes["2"][0] != -32602 || codes["3"][0] != -32600 {
		t.Errorf("answers %v", codes)
	}
	calls := 0
	for _, e := range s.entries() {
		if e.Kind == "request" && e.Method == "tools/call" {
			calls++
		}
	}
	if calls != 3 {
		t.Errorf("%d calls recorded, want 3: each element by itself", calls)
	}
}

func TestBatchOfNotificationsIsAccepted(t *testing.T) {
	t.Parallel()
	w := openBatches(t, newSetup(t))
	status, _, got := w.post(`[{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}},{"jsonrpc":"2.0","id":5,"result":{}}]`, nil)
	if status != 202 || len(got) != 0 {
		t.Errorf("status %d, %+v; want 202 and nothing", status, got)
	}
}

func TestDefinitionsFitTheClientsVersion(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\n"+
		fmt.Sprintf("upstreams: {odd: {command: [%q, odd]}}\n", fixtureBin)))
	for version, has := range map[string]bool{"2025-03-26": false, "2025-06-18": true, "2025-11-25": true} {
		w := &web{t: t, addr: g.Addr, version: version}
		w.open()
		_, _, got := w.post(request(7, "tools/list", map[string]any{}), nil)
		if strings.Contains(string(got[0].Result), `"outputSchema"`) != has {
			t.Errorf("%s: outputSchema listed: %v, want %v", version, !has, has)
		}
		_, _, got = w.post(request(8, "tools/call", map[string]any{"name": "odd__typed", "arguments": map[string]any{"text": "x"}}), nil)
		if r := string(got[0].Result); strings.Contains(r, "structuredContent") != has || strings.Contains(r, "resource_link") != has || !strings.Contains(r, "note://1") {
			t.Errorf("%s: answered %s", version, r)
		}
	}
}
