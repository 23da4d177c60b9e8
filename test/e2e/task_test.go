package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"navra/internal/mcp"
)

// TestCoreTasks: tasks of 2025-11-25 between a client and an upstream that both know them, over every transport.
func TestCoreTasks(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	for tr, p := range s.taskPeers(t, s.taskConfig("stateful"), mcp.V20251125) {
		t.Run(string(tr), func(t *testing.T) {
			p.t = t
			tools := string(p.request("tools/list", map[string]any{}).Result)
			if !strings.Contains(tools, `"execution":{"taskSupport":"optional"}`) {
				t.Errorf("tools do not say that they can be called as tasks: %s", tools)
			}
			made := p.request("tools/call", map[string]any{"name": "odd__slow_compute", "arguments": map[string]any{"seconds": 0.3, "label": "x"}, "task": map[string]any{"ttl": 1234567}})
			if !strings.Contains(string(made.Result), `"ttl":1234567`) || !strings.Contains(string(made.Result), "it is on its way") {
				t.Errorf("made: %s %+v", made.Result, made.Error)
			}
			id := p.said(made).TaskID
			if got := p.said(p.about("tasks/get", id)); got.TaskID != id || got.Status != "working" && got.Status != "completed" {
				t.Errorf("tasks/get: %+v", got)
			}
			result := p.about("tasks/result", id) // waits
			related := p.said(result).Meta[mcp.RelatedTask]
			if !strings.Contains(string(result.Result), "computed x for 0.3 s") || string(related) != fmt.Sprintf(`{"taskId":%q}`, id) {
				t.Errorf("tasks/result: %s %+v", result.Result, result.Error)
			}
			p.until(id, "completed")
			p.refuses("cancel of what has ended", p.about("tasks/cancel", id), -32602, "has ended")
			slow := p.begin("slow_compute", map[string]any{"seconds": 600})
			if got := p.said(p.about("tasks/cancel", slow)); got.Status != "cancelled" || got.TaskID != slow {
				t.Errorf("tasks/cancel: %+v", got)
			}
			if m := p.about("tasks/result", p.begin("secret_job", nil)); !strings.Contains(string(m.Result), "[secret:aws-access-key") {
				t.Errorf("a secret in a result: %s %+v", m.Result, m.Error)
			}
			if m := p.about("tasks/result", p.begin("failing_job", nil)); !strings.Contains(string(m.Result), `"isError":true`) {
				t.Errorf("a job that fails: %s", m.Result)
			}
			p.refuses("an error of the call", p.about("tasks/result", p.begin("protocol_error_job", nil)), -32603, "broken while")
			p.refuses("a tool that is not called as a task", p.request("tools/call", map[string]any{"name": "odd__greet", "arguments": map[string]any{}, "task": map[string]any{}}), -32601, "not called as a task")
			p.refuses("a tool that is called only so", p.request("tools/call", map[string]any{"name": "odd__slow_only", "arguments": map[string]any{}}), -32601, "as a task only")
			p.refuses("a task that is no object", p.request("tools/call", map[string]any{"name": "odd__slow_compute", "arguments": map[string]any{}, "task": 1}), -32602, "ttl")
			p.foreign("an altered id", altered(id), "tasks/get", "tasks/result", "tasks/cancel")
			p.foreign("no id at all", "upstream-job-1", "tasks/get", "tasks/result", "tasks/cancel")
			p.refuses("a method of the other era", p.request("tasks/update", map[string]any{"taskId": id, "inputResponses": map[string]any{}}), -32601, "")
			list := string(p.request("tasks/list", map[string]any{}).Result)
			if n := strings.Count(list, `"taskId"`); n != 5 || !strings.Contains(list, id) || !strings.Contains(list, `"status":"cancelled"`) {
				t.Errorf("tasks/list has %d tasks, want the 5 of this session alone: %s", n, list)
			}
			p.refuses("a foreign cursor", p.request("tasks/list", map[string]any{"cursor": id}), -32602, "cursor")
			p.leaks()
		})
	}
	var seen []string
	for _, e := range s.entries() {
		if strings.HasPrefix(e.Method, "tasks/") && e.Verdict == "allow" && e.Target == "odd/slow_compute" {
			seen = append(seen, e.Method+" "+e.Kind)
		}
	}
	for _, want := range []string{"tasks/get request", "tasks/get answer", "tasks/result request", "tasks/result answer", "tasks/cancel request", "tasks/cancel answer"} {
		if !slices.Contains(seen, want) {
			t.Errorf("no entry %s in %v", want, seen)
		}
	}
}

// TestTaskPages: a list of tasks comes in pages, whose cursors are good for its session alone.
func TestTaskPages(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	p := s.taskPeers(t, s.taskConfig("stateful"), mcp.V20251125)[mcp.WebSocket]
	for range 25 {
		p.begin("slow_compute", map[string]any{"seconds": 0})
	}
	var page struct {
		Tasks      []taskSaid
		NextCursor string
	}
	json.Unmarshal(p.request("tasks/list", map[string]any{}).Result, &page)
	if len(page.Tasks) != 20 || page.NextCursor == "" {
		t.Fatalf("first page: %d tasks, cursor %q", len(page.Tasks), page.NextCursor)
	}
	cursor := page.NextCursor
	page.NextCursor = ""
	json.Unmarshal(p.request("tasks/list", map[string]any{"cursor": cursor}).Result, &page)
	if len(page.Tasks) != 5 || page.NextCursor != "" {
		t.Errorf("second page: %d tasks, cursor %q", len(page.Tasks), page.NextCursor)
	}
	p.leaks()
}

// TestExtensionTasks: tasks of 2026-07-28, over every transport.
func TestExtensionTasks(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	for tr, p := range s.taskPeers(t, s.taskConfig("stateless"), mcp.V20260728) {
		t.Run(string(tr), func(t *testing.T) {
			p.t = t
			if m := p.request("server/discover", map[string]any{}); !strings.Contains(string(m.Result), `"extensions":{"io.modelcontextprotocol/tasks":{}}`) {
				t.Errorf("discovery: %s", m.Result)
			}
			made := p.request("tools/call", map[string]any{"name": "odd__slow_compute", "arguments": map[string]any{"seconds": 0.2, "label": "x"}, "task": map[string]any{}})
			id := p.said(made).TaskID
			if got := p.said(made); got.ResultType != "task" || got.Status != "working" {
				t.Errorf("made: %s", made.Result)
			}
			if got := p.until(id, "completed"); !strings.Contains(string(got.Result), "computed x") || got.ResultType != "complete" {
				t.Errorf("completed: %+v", got)
			}
			slow := p.begin("slow_compute", map[string]any{"seconds": 600})
			if got := p.said(p.about("tasks/cancel", slow)); got.ResultType != "complete" || got.TaskID != "" {
				t.Errorf("tasks/cancel: %+v", got)
			}
			p.until(slow, "cancelled")
			if got := p.until(p.begin("secret_job", nil), "completed"); !strings.Contains(string(got.Result), "[secret:aws-access-key") {
				t.Errorf("a secret in a result: %s", got.Result)
			}
			p.until(p.begin("protocol_error_job", nil), "failed")

			asked := p.begin("confirm_delete", nil)
			got := p.until(asked, "input_required")
			answers := map[string]any{"none such": map[string]any{"action": "accept"}}
			for key, q := range got.InputRequests {
				if !strings.Contains(string(q), "[odd] Delete it?") {
					t.Errorf("the question does not say who asks: %s", q)
				}
				answers[key] = map[string]any{"action": "accept", "content": map[string]any{"confirm": "yes"}}
			}
			if got := p.said(p.request("tasks/update", map[string]any{"taskId": asked, "inputResponses": answers})); got.ResultType != "complete" || got.Status != "" {
				t.Errorf("tasks/update: %+v", got)
			}
			if got := p.until(asked, "completed"); !strings.Contains(string(got.Result), `\"confirm\":\"yes\"`) || strings.Contains(string(got.Result), "none such") {
				t.Errorf("answered: %s", got.Result)
			}

			undeclared := map[string]any{"io.modelcontextprotocol/clientCapabilities": map[string]any{}}
			m := p.request("tasks/get", map[string]any{"taskId": id, "_meta": undeclared})
			if p.refuses("undeclared", m, -32021, ""); m.Error != nil && !strings.Contains(string(m.Error.Data), `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`) {
				t.Errorf("undeclared: %s", m.Error.Data)
			}
			if m := p.request("tools/call", map[string]any{"name": "odd__slow_compute", "arguments": map[string]any{}, "_meta": undeclared}); !strings.Contains(string(m.Result), "at once") {
				t.Errorf("a call of a client that knows no tasks: %s", m.Result)
			}
			for _, gone := range []string{"tasks/result", "tasks/list"} {
				p.refuses(gone, p.about(gone, id), -32601, "")
			}
			p.foreign("an altered id", altered(id), "tasks/get", "tasks/cancel", "tasks/update")
			p.leaks()
		})
	}
}

// TestTasksBelongToTheirPrincipal: to anybody else a task is unknown, and stays as it is.
func TestTasksBelongToTheirPrincipal(t *testing.T) {
	t.Parallel()
	for _, pair := range []struct {
		era string
		v   mcp.Version
	}{{"stateful", mcp.V20251125}, {"stateless", mcp.V20260728}, {"stateless", mcp.V20251125}} {
		era, v := pair.era, pair.v
		t.Run(era+" "+string(v), func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			url, _ := s.endpoint("127.0.0.1:0", "odd", "-tasks", "-era", era)
			config := s.serveConfig("navra.yaml", fmt.Sprintf("auth: {tokens: true}\nprincipals: {ann: {roles: [tester]}, bob: {roles: [tester]}}\nroles: {tester: {rules: [{allow: {tools: [\"*\"]}}]}}\nupstreams:\n  odd: {url: %q}\n", url))
			tokens := map[string]string{}
			for _, name := range []string{"ann", "bob"} {
				token, code := s.runOut("token", "create", name, "--config", config)
				if code != 0 {
					t.Fatal(token)
				}
				tokens[name] = strings.TrimSpace(token)
			}
			g := s.serve(config)
			peer := func(name string) taskPeer {
				w := &web{t: t, addr: g.Addr, token: tokens[name], modern: v.Stateless(), version: string(v)}
				if !v.Stateless() {
					w.open()
				}
				return taskPeer{t: t, v: v, ask: w.request, heard: new([]string)}
			}
			ann, bob := peer("ann"), peer("bob")
			id := ann.begin("slow_compute", map[string]any{"seconds": 600})
			methods := []string{"tasks/get", "tasks/cancel"}
			if v.Stateless() {
				methods = append(methods, "tasks/update")
			} else {
				methods = append(methods, "tasks/result")
				if m := bob.request("tasks/list", map[string]any{}); era == "stateless" {
					bob.refuses("tasks/list", m, -32601, "")
				} else if string(m.Result) != `{"tasks":[]}` {
					t.Errorf("bob is shown %s", m.Result)
				}
			}
			bob.foreign("ann's task", id, methods...)
			if got := ann.said(ann.about("tasks/get", id)); got.Status != "working" {
				t.Errorf("ann's task after bob: %+v", got)
			}
		})
	}
}

// TestTasksOutliveNavra: a task's id says all that is needed to ask for it again; what the upstream has lost is lost.
func TestTasksOutliveNavra(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	url, end := s.endpoint("127.0.0.1:0", "odd", "-tasks", "-era", "stateless")
	config := s.serveConfig("navra.yaml", fmt.Sprintf("auth: none\nprincipals: {local: {roles: [tester]}}\nupstreams:\n  odd: {url: %q}\nroles: {tester: {rules: [{allow: {tools: [\"*\"]}}]}}\n", url))
	peer := func(g *gateway) taskPeer {
		w := &web{t: t, addr: g.Addr, modern: true}
		return taskPeer{t: t, v: mcp.V20260728, ask: w.request, heard: new([]string)}
	}
	g := s.serve(config)
	id := peer(g).begin("slow_compute", map[string]any{"seconds": 0.1, "label": "kept"})
	g.cmd.Process.Kill()
	g.wait()
	p := peer(s.serve(config))
	if got := p.until(id, "completed"); !strings.Contains(string(got.Result), "computed kept") {
		t.Errorf("after a restart of navra: %+v", got)
	}
	end()
	s.endpoint(strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp"), "odd", "-tasks", "-era", "stateless")
	var m message
	eventually(t, "the upstream is reached again", func() bool {
		m = p.about("tasks/get", id)
		return m.Error != nil && m.Error.Code != -32603
	})
	p.refuses("after a restart of the upstream", m, -32602, "no task "+id)
	p.leaks()
	write(t, config, strings.Replace(read(t, config), "rules: [", "rules: [{deny: {tools: [\"odd/slow_compute\"]}}, ", 1))
	g.stop()
	peer(s.serve(config)).foreign("a task of a tool that is not permitted any more", id, "tasks/get", "tasks/cancel", "tasks/update")
}

// TestTasksEndWithTheirSession: where the upstream's session is the client's, its tasks are unknown in another, which is said.
func TestTasksEndWithTheirSession(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"stateful", "stateless"} {
		t.Run(era, func(t *testing.T) { t.Parallel(); endWithTheirSession(t, era) })
	}
}

func endWithTheirSession(t *testing.T, era string) {
	s := newSetup(t)
	g := s.serve(s.taskConfig(era))
	peer := func() (taskPeer, *socket) {
		sock := dial(t, g.Addr, "").open("2025-11-25")
		return taskPeer{t: t, v: mcp.V20251125, ask: func(m string, p map[string]any) message { return sock.request(m, p) }, heard: new([]string)}, sock
	}
	first, sock := peer()
	id := first.begin("slow_compute", map[string]any{"seconds": 600})
	sock.conn.CloseNow()
	second, _ := peer()
	second.foreign("a task of an earlier session", id, "tasks/get", "tasks/result", "tasks/cancel")
	second.refuses("a task of an earlier session", second.about("tasks/get", id), -32602, "a session that is over")
	if m := second.request("tasks/list", map[string]any{}); era == "stateful" && string(m.Result) != `{"tasks":[]}` {
		t.Errorf("the second session is shown %s", m.Result)
	}
}

// TestTaskAsksItsSession: what an upstream asks during a task goes to the task's session, under the client's id, and it hears of the end.
func TestTaskAsksItsSession(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"stdio", "streamable", "ws"} {
		t.Run("upstream over "+way, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			config := s.taskConfig("stateful")
			if way != "stdio" {
				url, _ := s.endpoint("127.0.0.1:0", "odd", "-tasks", "-way", way)
				write(t, config, regexp.MustCompile(`command: \[.*\]`).ReplaceAllString(read(t, config), fmt.Sprintf("url: %q", url)))
			}
			asksItsSession(t, s, config)
		})
	}
}

func asksItsSession(t *testing.T, s *setup, config string) {
	g := s.serve(config)
	stdio := s.startAs(navraBin, "stdio", "--config", config)
	sock := dial(t, g.Addr, "")
	for tr, c := range map[mcp.Transport]struct {
		begin func(id, method string, p map[string]any) chan message
		send  func(string)
		notes func() []message
	}{
		mcp.Stdio: {func(id, m string, p map[string]any) chan message { _, ch := stdio.begin(m, p); return ch }, stdio.send,
			func() []message { stdio.mu.Lock(); defer stdio.mu.Unlock(); return slices.Clone(stdio.notes) }},
		mcp.WebSocket: {func(id, m string, p map[string]any) chan message { return sock.begin(id, m, p) }, sock.write,
			func() []message { sock.mu.Lock(); defer sock.mu.Unlock(); return slices.Clone(sock.others) }},
	} {
		t.Run(string(tr), func(t *testing.T) {
			n := 0
			begin := func(m string, p map[string]any) chan message { n++; return c.begin(fmt.Sprint(n), m, p) }
			p := taskPeer{t: t, v: mcp.V20251125, heard: new([]string), ask: func(m string, p map[string]any) message { return <-begin(m, p) }}
			h := greeting(mcp.V20251125)
			h["capabilities"] = map[string]any{"elicitation": map[string]any{}}
			if m := p.request("initialize", h); !strings.Contains(string(m.Result), `"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`) {
				t.Errorf("initialize: %s", m.Result)
			}
			c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			id := p.begin("confirm_delete", nil)
			p.until(id, "input_required")
			done := begin("tasks/result", map[string]any{"taskId": id})
			find := func(method string) (got message) {
				eventually(t, method+" comes", func() bool {
					for _, m := range c.notes() {
						if m.Method == method {
							got = m
						}
					}
					return got.Method != ""
				})
				return got
			}
			question := find("elicitation/create")
			if !strings.Contains(string(question.Params), fmt.Sprintf(`"io.modelcontextprotocol/related-task":{"taskId":%q}`, id)) {
				t.Errorf("asked: %s", question.Params)
			}
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"confirm":"yes"},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":%q}}}}`, question.ID, id))
			if m := <-done; !strings.Contains(string(m.Result), `\"confirm\":\"yes\"`) || strings.Contains(string(m.Result), id+`\"`) {
				t.Errorf("result: %s %+v", m.Result, m.Error)
			}
			p.request("tools/call", map[string]any{"name": "odd__slow_compute", "arguments": map[string]any{"seconds": 0.3}, "task": map[string]any{}, "_meta": map[string]any{"progressToken": "mine"}})
			if progress := find(mcp.Progress); !strings.Contains(string(progress.Params), `"progressToken":"mine"`) || !strings.Contains(string(progress.Params), "all but done") {
				t.Errorf("progress of a task: %s", progress.Params)
			}
			if status := find("notifications/tasks/status"); !strings.Contains(string(status.Params), `"taskId":"`) || strings.Contains(string(status.Params), "upstream-job-") {
				t.Errorf("status: %s", status.Params)
			}
		})
	}
}

// TestTaskOnlyToolsForOthers: a tool that is only called as a task is there for clients that know none, or only those of the other era.
func TestTaskOnlyToolsForOthers(t *testing.T) {
	t.Parallel()
	for _, v := range []mcp.Version{mcp.V20250326, mcp.V20250618, mcp.V20260728} {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			for tr, p := range s.taskPeers(t, s.taskConfig("stateful"), v) {
				if tools := string(p.request("tools/list", map[string]any{}).Result); strings.Contains(tools, "execution") || !strings.Contains(tools, "slow_only") {
					t.Errorf("%s: tools are %s", tr, tools)
				}
				m := p.request("tools/call", map[string]any{"name": "odd__slow_only", "arguments": map[string]any{"seconds": 0.2, "label": "x"}})
				if !strings.Contains(string(m.Result), "computed x") || strings.Contains(string(m.Result), "related-task") {
					t.Errorf("%s: %s %+v", tr, m.Result, m.Error)
				}
				p.refuses(string(tr), p.about("tasks/get", "x"), -32601, "")
				p.leaks()
			}
		})
	}
}

// TestLeftTaskIsCancelled: where a client no longer wants the call that navra made a task of, the task is cancelled.
func TestLeftTaskIsCancelled(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	c := s.startAs(navraBin, "stdio", "--config", s.taskConfig("stateful"))
	if m := c.request("initialize", greeting(mcp.V20250618)); m.Error != nil {
		t.Fatal(m.Error)
	}
	c.notify("notifications/initialized", map[string]any{})
	id, _ := c.begin("tools/call", map[string]any{"name": "odd__slow_only", "arguments": map[string]any{"seconds": 600}, "_meta": map[string]any{"progressToken": "p"}})
	did := func(method string) func() bool {
		return func() bool {
			return slices.ContainsFunc(calledLog(t, s.log()), func(m map[string]any) bool { return m["name"] == method })
		}
	}
	eventually(t, "the task is asked for", did("tasks/get"))
	c.notify("notifications/cancelled", map[string]any{"requestId": jsonNumber(id)})
	eventually(t, "the task is cancelled", did("tasks/cancel"))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.ContainsFunc(c.notes, func(m message) bool { return m.Method == mcp.Progress }) {
		t.Errorf("the client was told of no progress: %+v", c.notes)
	}
}

// TestExtensionStaysOff: an upstream of the stateless era is not told of tasks for a client that has not said that it knows them.
func TestExtensionStaysOff(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	wire := filepath.Join(s.Dir, "wire")
	config := s.serveConfig("navra.yaml", fmt.Sprintf("auth: none\nprincipals: {local: {roles: [local-default]}}\nupstreams:\n  odd: {command: [%q, odd, -tasks, -era, stateless, -wire, %q]}\n", fixtureBin, wire))
	w := (&web{t: t, addr: s.serve(config).Addr, version: "2025-06-18"}).open()
	m := w.request("tools/call", map[string]any{"name": "odd__slow_compute", "arguments": map[string]any{}, "task": map[string]any{}})
	if !strings.Contains(string(m.Result), "at once") {
		t.Errorf("call: %s %+v", m.Result, m.Error)
	}
	if m := w.request("tools/call", map[string]any{"name": "odd__failing_job", "arguments": map[string]any{}}); m.Error == nil || m.Error.Code != -32603 || !strings.Contains(m.Error.Message, mcp.TaskExtension) {
		t.Errorf("a tool that needs tasks: %s %+v", m.Result, m.Error)
	}
	if m := w.request("tasks/get", map[string]any{"taskId": "x"}); m.Error == nil || m.Error.Code != -32601 {
		t.Errorf("tasks/get: %s %+v", m.Result, m.Error)
	}
	if text := read(t, wire); strings.Contains(text, mcp.TaskExtension) || !strings.Contains(text, "slow_compute") {
		t.Errorf("the upstream was sent %s", text)
	}
}

// TestTaskOnlyToolsAskOthers: what the upstream asks during a task that navra made of a call, the call's client is asked.
func TestTaskOnlyToolsAskOthers(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	for tr, p := range s.taskPeers(t, s.taskConfig("stateful"), mcp.V20260728) {
		call := map[string]any{"name": "odd__confirm_only", "arguments": map[string]any{}}
		m := p.request("tools/call", call)
		var asked struct {
			RequestState  string
			InputRequests map[string]json.RawMessage
		}
		json.Unmarshal(m.Result, &asked)
		if len(asked.InputRequests) != 1 || strings.Contains(string(m.Result), "related-task") {
			t.Fatalf("%s: %s %+v", tr, m.Result, m.Error)
		}
		answers := map[string]any{}
		for key := range asked.InputRequests {
			answers[key] = map[string]any{"action": "accept", "content": map[string]any{"confirm": "yes"}}
		}
		call["requestState"], call["inputResponses"] = asked.RequestState, answers
		if m := p.request("tools/call", call); !strings.Contains(string(m.Result), `\"confirm\":\"yes\"`) {
			t.Errorf("%s: %s %+v", tr, m.Result, m.Error)
		}
		p.leaks()
	}
}

// TestCoreTasksEndWithTheirUpstream: an upstream that was started anew knows none of the tasks from before; the session is told so, and lists them no more.
func TestCoreTasksEndWithTheirUpstream(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	url, end := s.endpoint("127.0.0.1:0", "odd", "-tasks")
	w := s.webOn(fmt.Sprintf("url: %q", url))
	p := taskPeer{t: t, v: mcp.V20251125, ask: w.request, heard: new([]string)}
	id := p.begin("slow_compute", map[string]any{"seconds": 600})
	end()
	s.endpoint(strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp"), "odd", "-tasks")
	var m message
	eventually(t, "the upstream is reached again", func() bool {
		m = p.about("tasks/get", id)
		return m.Error != nil && m.Error.Code != -32603
	})
	p.refuses("a task of before", m, -32602, "no task "+id)
	if m := p.request("tasks/list", map[string]any{}); string(m.Result) != `{"tasks":[]}` {
		t.Errorf("listed: %s", m.Result)
	}
	made := p.begin("slow_compute", map[string]any{"seconds": 0})
	p.until(made, "completed")
	p.leaks()
}
