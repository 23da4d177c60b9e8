package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"navra/internal/mcp"
)

// listenFor is a subscriptions/listen for tasks.
func listenFor(ids ...string) map[string]any {
	meta := modernMeta()
	maps.Copy(meta, declares)
	return map[string]any{"_meta": meta, "notifications": map[string]any{"taskIds": ids}}
}

// TestTaskNews: who listens for its tasks is told how they stand when that changes, over every transport, by upstreams over each wire.
func TestTaskNews(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"stdio", "streamable"} {
		s := newSetup(t)
		config := s.taskConfig("stateless")
		if way != "stdio" {
			url, _ := s.endpoint("127.0.0.1:0", "odd", "-tasks", "-era", "stateless")
			write(t, config, regexp.MustCompile(`command: \[.*\]`).ReplaceAllString(read(t, config), fmt.Sprintf("url: %q", url)))
		}
		g := s.serve(config)
		stdio := s.startAs(navraBin, "stdio", "--config", config)
		sock := dial(t, g.Addr, "")
		w := &web{t: t, addr: g.Addr, modern: true}
		v := mcp.V20260728
		peer := func(ask func(string, map[string]any) message) taskPeer {
			return taskPeer{t: t, v: v, ask: ask, heard: new([]string)}
		}
		for tr, c := range map[mcp.Transport]struct {
			taskPeer
			listen func(map[string]any) (heard *ear, id string)
		}{
			mcp.Stdio: {peer(func(m string, p map[string]any) message { return stdio.request(m, modernParams(v, p)) }), func(p map[string]any) (*ear, string) {
				id, _ := stdio.begin("subscriptions/listen", p)
				return stdio.hear(t, "stdio"), id
			}},
			mcp.WebSocket: {peer(func(m string, p map[string]any) message { return sock.request(m, modernParams(v, p)) }), func(p map[string]any) (*ear, string) {
				sock.begin(`"news"`, "subscriptions/listen", p)
				return sock.hear(t, "websocket"), `"news"`
			}},
			mcp.HTTP: {peer(w.request), func(p map[string]any) (*ear, string) {
				return w.stream(t, "http", "POST", request("n", "subscriptions/listen", p), http.Header{"Mcp-Protocol-Version": {string(v)}, "Mcp-Method": {"subscriptions/listen"}}), `"n"`
			}},
		} {
			t.Run(way+" "+string(tr), func(t *testing.T) { newsOfTasks(t, c.taskPeer, c.listen) })
		}
		seen := map[string]bool{}
		for _, e := range s.entries() {
			if e.Verdict == "allow" {
				seen[e.Method+" "+e.Kind+" "+e.Target] = true
			}
		}
		for _, want := range []string{"notifications/tasks notification odd/confirm_delete", "tasks/get request odd/confirm_delete", "subscriptions/listen own "} {
			if !seen[want] {
				t.Errorf("no entry %s", want)
			}
		}
		g.stop()
		s.verify(config)
	}
}

func newsOfTasks(t *testing.T, p taskPeer, listen func(map[string]any) (*ear, string)) {
	p.t = t
	id, slow, other := p.begin("confirm_delete", nil), p.begin("slow_compute", map[string]any{"seconds": 600}), p.begin("confirm_delete", nil)
	asked := p.until(id, "input_required")
	p.until(other, "input_required")
	heard, listenedAs := listen(listenFor(id, slow, altered(id), "upstream-job-1"))
	ack := heard.method(mcp.Acknowledged)
	if text := string(ack.Params); !strings.Contains(text, fmt.Sprintf(`{"taskIds":[%q,%q]}`, id, slow)) || listenID(ack.Params) != listenedAs {
		t.Errorf("acknowledged: %s", text)
	}
	ended := func(id, status string) (got taskSaid) {
		m := heard.next("the end of "+status, func(m message) bool {
			*p.heard = append(*p.heard, normal(m))
			json.Unmarshal(m.Params, &got)
			if got.TaskID == other {
				t.Errorf("told of what is not listened for: %s", m.Params)
			}
			return m.Method == mcp.TaskNews && got.TaskID == id && got.Status == status
		}, nil)
		if listenID(m.Params) != listenedAs || strings.Contains(string(m.Params), "serverInfo") {
			t.Errorf("told: %s", m.Params)
		}
		return got
	}
	answers := map[string]any{}
	for key := range asked.InputRequests {
		answers[key] = map[string]any{"action": "accept", "content": map[string]any{"confirm": "yes"}}
	}
	for _, task := range []string{other, id} {
		p.request("tasks/update", map[string]any{"taskId": task, "inputResponses": answers})
	}
	if got := ended(id, "completed"); !strings.Contains(string(got.Result), `\"confirm\":\"yes\"`) {
		t.Errorf("completed: %+v", got)
	}
	p.about("tasks/cancel", slow)
	ended(slow, "cancelled")
	p.leaks()
}

// TestTaskNewsBelongsToItsPrincipal: nobody listens for the tasks of another, nor without saying that it knows tasks.
func TestTaskNewsBelongsToItsPrincipal(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	url, _ := s.endpoint("127.0.0.1:0", "odd", "-tasks", "-era", "stateless")
	config := s.serveConfig("navra.yaml", fmt.Sprintf("auth: {tokens: true}\nprincipals: {ann: {roles: [tester]}, bob: {roles: [tester]}}\nroles: {tester: {rules: [{allow: {tools: [\"*\"]}}]}}\nupstreams:\n  odd: {url: %q, shared: true}\n", url))
	peer := func(name string) *web {
		token, code := s.runOut("token", "create", name, "--config", config)
		if code != 0 {
			t.Fatal(token)
		}
		return &web{t: t, token: strings.TrimSpace(token), modern: true}
	}
	ann, bob := peer("ann"), peer("bob")
	g := s.serve(config)
	ann.addr, bob.addr = g.Addr, g.Addr
	p := taskPeer{t: t, v: mcp.V20260728, ask: ann.request, heard: new([]string)}
	id := p.begin("slow_compute", map[string]any{"seconds": 600})
	head := func() http.Header {
		return http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}}
	}
	heard := bob.stream(t, "bob", "POST", request(1, "subscriptions/listen", listenFor(id)), head())
	if ack := heard.method(mcp.Acknowledged); strings.Contains(string(ack.Params), "taskIds") {
		t.Errorf("bob listens for ann's task: %s", ack.Params)
	}
	undeclared := listenFor(id)
	undeclared["_meta"] = modernMeta()
	status, _, got := ann.post(request(2, "subscriptions/listen", undeclared), head())
	if status != 400 || len(got) != 1 || got[0].Error == nil || got[0].Error.Code != -32021 {
		t.Errorf("undeclared: %d %+v", status, got)
	}
	heard = ann.stream(t, "ann", "POST", request(3, "subscriptions/listen", listenFor(id)), head())
	if ack := heard.method(mcp.Acknowledged); !strings.Contains(string(ack.Params), id) {
		t.Errorf("ann listens for her task on a shared connection: %s", ack.Params)
	}
	p.about("tasks/cancel", id)
	if m := heard.method(mcp.TaskNews); !strings.Contains(string(m.Params), `"status":"cancelled"`) || !strings.Contains(string(m.Params), id) {
		t.Errorf("told: %s", m.Params)
	}
}
