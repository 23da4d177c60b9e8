package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"navra/internal/mcp"
)

// TestMappedTasks: a client that knows tasks of 2025-11-25 has those of an upstream that has the extension, over every transport.
func TestMappedTasks(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	for tr, p := range s.taskPeers(t, s.taskConfig("stateless"), mcp.V20251125) {
		t.Run(string(tr), func(t *testing.T) {
			p.t = t
			tools := string(p.request("tools/list", map[string]any{}).Result)
			if n := strings.Count(tools, `"execution":{"taskSupport":"optional"}`); n != strings.Count(tools, `"inputSchema"`) || n < 5 {
				t.Errorf("tools do not say that they can be called as tasks: %s", tools)
			}
			made := p.request("tools/call", map[string]any{"name": "odd__slow_compute", "arguments": map[string]any{"seconds": 0.3, "label": "x"}, "task": map[string]any{"ttl": 1234567}})
			if text := string(made.Result); !strings.HasPrefix(text, `{"task":{`) || !strings.Contains(text, `"ttl":60000`) || !strings.Contains(text, `"pollInterval":50`) || strings.Contains(text, `Ms":`) || strings.Contains(text, "resultType") {
				t.Errorf("made: %s %+v", made.Result, made.Error)
			}
			id := p.said(made).TaskID
			result := p.about("tasks/result", id) // waits
			related := p.said(result).Meta[mcp.RelatedTask]
			if !strings.Contains(string(result.Result), "computed x for 0.3 s") || string(related) != fmt.Sprintf(`{"taskId":%q}`, id) || strings.Contains(string(result.Result), "resultType") {
				t.Errorf("tasks/result: %s %+v", result.Result, result.Error)
			}
			if got := p.about("tasks/get", id); strings.Contains(string(got.Result), "computed") || !strings.Contains(string(got.Result), `"ttl":60000`) || p.said(got).Status != "completed" {
				t.Errorf("tasks/get: %s %+v", got.Result, got.Error)
			}
			p.refuses("cancel of what has ended", p.about("tasks/cancel", id), -32602, "has ended")
			if m := p.about("tasks/result", p.begin("secret_job", nil)); !strings.Contains(string(m.Result), "[secret:aws-access-key") {
				t.Errorf("a secret in a result: %s %+v", m.Result, m.Error)
			}
			bad := p.begin("failing_job", nil)
			if m := p.about("tasks/result", bad); !strings.Contains(string(m.Result), `"isError":true`) {
				t.Errorf("a job that fails: %s", m.Result)
			}
			p.until(bad, "failed")
			broken := p.begin("protocol_error_job", nil)
			p.refuses("an error of the call", p.about("tasks/result", broken), -32603, "broken while "+broken)
			p.until(broken, "failed")
			for _, job := range []string{"slow_compute", "stubborn_job"} { // the latter's upstream goes on with it
				id := p.begin(job, map[string]any{"seconds": 600})
				if got := p.said(p.about("tasks/cancel", id)); got.Status != "cancelled" || got.TaskID != id {
					t.Errorf("tasks/cancel of %s: %+v", job, got)
				}
				if got := p.said(p.about("tasks/get", id)); got.Status != "cancelled" {
					t.Errorf("%s after it was cancelled: %+v", job, got)
				}
				p.refuses("cancelled twice", p.about("tasks/cancel", id), -32602, "has ended")
				p.refuses("the result of a cancelled task", p.about("tasks/result", id), -32603, "was cancelled")
			}
			p.foreign("an altered id", altered(id), "tasks/get", "tasks/result", "tasks/cancel")
			p.foreign("no id at all", "upstream-job-1", "tasks/get", "tasks/result", "tasks/cancel")
			p.refuses("tasks/update", p.request("tasks/update", map[string]any{"taskId": id, "inputResponses": map[string]any{}}), -32601, "")
			p.refuses("tasks/list", p.request("tasks/list", map[string]any{}), -32601, "")
			p.refuses("a task that is no object", p.request("tools/call", map[string]any{"name": "odd__slow_compute", "arguments": map[string]any{}, "task": 1}), -32602, "ttl")
			if m := p.request("tools/call", map[string]any{"name": "odd__slow_compute", "arguments": map[string]any{}}); !strings.Contains(string(m.Result), "at once") {
				t.Errorf("a call without a task: %s %+v", m.Result, m.Error)
			}
			p.leaks()
		})
	}
	var seen []string
	for _, e := range s.entries() {
		if strings.HasPrefix(e.Method, "tasks/") && e.Verdict == "allow" && e.Target == "odd/slow_compute" {
			seen = append(seen, e.Method+" "+e.Kind)
		}
	}
	for _, want := range []string{"tasks/get request", "tasks/get answer", "tasks/result request", "tasks/result answer", "tasks/cancel request", "tasks/cancel answer", "tasks/get own", "tasks/cancel own"} {
		if !slices.Contains(seen, want) {
			t.Errorf("no entry %s in %v", want, seen)
		}
	}
}

// TestMappedTaskEndsAtOnce: an upstream need not make a task where it is asked to. Its answer is kept until it is fetched.
func TestMappedTaskEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	for tr, p := range s.taskPeers(t, s.taskConfig("stateless"), mcp.V20251125) {
		made := p.request("tools/call", map[string]any{"name": "odd__greet", "arguments": map[string]any{"name": "all"}, "task": map[string]any{"ttl": 5000000000}})
		id := p.said(made).TaskID
		if text := string(made.Result); p.said(made).Status != "completed" || !strings.Contains(text, `"ttl":3600000`) || strings.Contains(text, "Hello") {
			t.Fatalf("%s: made: %s %+v", tr, made.Result, made.Error)
		}
		p.until(id, "completed")
		for range 2 {
			if m := p.about("tasks/result", id); !strings.Contains(string(m.Result), "Hello, ") || string(p.said(m).Meta[mcp.RelatedTask]) != fmt.Sprintf(`{"taskId":%q}`, id) {
				t.Errorf("%s: tasks/result: %s %+v", tr, m.Result, m.Error)
			}
		}
		p.refuses("cancel of what has ended", p.about("tasks/cancel", id), -32602, "has ended")
		gone := p.request("tools/call", map[string]any{"name": "odd__greet", "arguments": map[string]any{}, "task": map[string]any{"ttl": 0}})
		eventually(t, "its time is over", func() bool { return p.about("tasks/get", p.said(gone).TaskID).Error != nil })
		p.foreign("a task whose time is over", p.said(gone).TaskID, "tasks/get", "tasks/result", "tasks/cancel")
		p.leaks()
	}
}

// A talker is a client of 2025-11-25 that can be asked.
type talker struct {
	taskPeer
	begin func(method string, p map[string]any) (heard *ear, done func() message)
	send  func(string)
}

// talkers connects a client that can be asked for elicitation over each transport.
func (s *setup) talkers(t *testing.T, config string) map[mcp.Transport]talker {
	t.Helper()
	g := s.serve(config)
	h := greeting(mcp.V20251125)
	h["capabilities"] = map[string]any{"elicitation": map[string]any{}}
	opened := `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	check := func(m message) {
		if !strings.Contains(string(m.Result), `"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}`) {
			t.Errorf("initialize: %s %+v", m.Result, m.Error)
		}
	}
	stdio := s.startAs(navraBin, "stdio", "--config", config)
	check(stdio.request("initialize", h))
	stdio.send(opened)
	pipe := stdio.hear(t, "stdio")
	sock := dial(t, g.Addr, "")
	check(sock.request("initialize", h))
	sock.write(opened)
	plug := sock.hear(t, "websocket")
	w := &web{t: t, addr: g.Addr}
	_, head, got := w.post(request(1, "initialize", h), nil)
	check(got[0])
	w.session = head.Get("Mcp-Session-Id")
	w.post(opened, nil)
	n := 1000
	return map[mcp.Transport]talker{
		mcp.Stdio: {taskPeer{t: t, v: mcp.V20251125, ask: func(m string, p map[string]any) message { return stdio.request(m, p) }, heard: new([]string)},
			func(m string, p map[string]any) (*ear, func() message) {
				_, ch := stdio.begin(m, p)
				return pipe, func() message { return <-ch }
			}, stdio.send},
		mcp.WebSocket: {taskPeer{t: t, v: mcp.V20251125, ask: func(m string, p map[string]any) message { return sock.request(m, p) }, heard: new([]string)},
			func(m string, p map[string]any) (*ear, func() message) {
				n++
				ch := sock.begin(fmt.Sprint(n), m, p)
				return plug, func() message { return <-ch }
			}, sock.write},
		mcp.HTTP: {taskPeer{t: t, v: mcp.V20251125, ask: w.request, heard: new([]string)},
			func(m string, p map[string]any) (*ear, func() message) {
				n++
				id := fmt.Sprint(n)
				e := w.stream(t, "http", "POST", request(n, m, p), http.Header{"Mcp-Session-Id": {w.session}, "Mcp-Protocol-Version": {"2025-11-25"}})
				return e, func() message {
					return e.next("the answer", func(m message) bool { return m.Method == "" && string(m.ID) == id }, nil)
				}
			}, func(text string) { w.post(text, nil) }},
	}
}

// accept answers a question.
func (p talker) accept(question message, field string) {
	p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{%q:"yes"}}}`, question.ID, field))
}

// TestMappedTaskAsks: what an upstream needs during a task it has the client asked for while that waits for the result, by upstreams over each wire.
func TestMappedTaskAsks(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"stdio", "streamable"} {
		s := newSetup(t)
		config := s.taskConfig("stateless")
		if way != "stdio" {
			url, _ := s.endpoint("127.0.0.1:0", "odd", "-tasks", "-era", "stateless")
			write(t, config, regexp.MustCompile(`command: \[.*\]`).ReplaceAllString(read(t, config), fmt.Sprintf("url: %q", url)))
		}
		for tr, p := range s.talkers(t, config) {
			t.Run(way+" "+string(tr), func(t *testing.T) {
				p.t = t
				id := p.taskPeer.begin("multi_input", nil)
				if got := p.until(id, "input_required"); got.InputRequests != nil {
					t.Errorf("tasks/get: %+v", got)
				}
				heard, done := p.begin("tasks/result", map[string]any{"taskId": id, "_meta": map[string]any{"progressToken": "mine"}})
				if m := heard.method(mcp.Progress); !strings.Contains(string(m.Params), `"progressToken":"mine"`) {
					t.Errorf("progress: %s", m.Params)
				}
				for range 2 {
					q := heard.method("elicitation/create")
					if text := string(q.Params); !strings.Contains(text, fmt.Sprintf(`"io.modelcontextprotocol/related-task":{"taskId":%q}`, id)) || !strings.Contains(text, "[odd] ") {
						t.Errorf("asked: %s", text)
					}
					p.accept(q, map[bool]string{true: "confirm", false: "name"}[strings.Contains(string(q.Params), "Delete it?")])
				}
				if m := done(); !strings.Contains(string(m.Result), `\"confirm\":\"yes\"`) || !strings.Contains(string(m.Result), `\"name\":\"yes\"`) {
					t.Errorf("result: %s %+v", m.Result, m.Error)
				}

				id = p.taskPeer.begin("confirm_delete", nil)
				heard, done = p.begin("tasks/result", map[string]any{"taskId": id})
				p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"no"}}`, heard.method("elicitation/create").ID))
				if m := done(); !strings.Contains(string(m.Result), `{\"confirm-1\":{\"action\":\"cancel\"}}`) {
					t.Errorf("an error for an answer: %s %+v", m.Result, m.Error)
				}

				id = p.taskPeer.begin("confirm_delete", nil)
				heard, done = p.begin("tasks/result", map[string]any{"taskId": id})
				q := heard.method("elicitation/create")
				if got := p.said(p.about("tasks/cancel", id)); got.Status != "cancelled" {
					t.Errorf("cancelled while it asks: %+v", got)
				}
				if m := heard.method(mcp.Cancelled); !strings.Contains(string(m.Params), `"requestId":`+string(q.ID)) {
					t.Errorf("withdrawn: %s", m.Params)
				}
				p.refuses("cancelled while it asks", done(), -32603, "was cancelled")

				heard, done = p.begin("tools/call", map[string]any{"name": "odd__test_tool_with_task", "arguments": map[string]any{}, "task": map[string]any{}})
				p.accept(heard.method("elicitation/create"), "name")
				id = p.said(done()).TaskID
				if m := p.about("tasks/result", id); !strings.Contains(string(m.Result), `\"name\":\"yes\"`) {
					t.Errorf("a task that begins with a question: %s %+v", m.Result, m.Error)
				}
				p.leaks()
			})
		}
		s.verify(config)
	}
}

// TestMappedTaskCannotAsk: where the client cannot be asked what a task needs, its result is not waited for in vain.
func TestMappedTaskCannotAsk(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	for tr, p := range s.taskPeers(t, s.taskConfig("stateless"), mcp.V20251125) {
		id := p.begin("confirm_delete", nil)
		p.refuses(string(tr), p.about("tasks/result", id), -32603, "it asked for elicitation, and got no answer")
		if got := p.said(p.about("tasks/cancel", id)); got.Status != "cancelled" {
			t.Errorf("%s: %+v", tr, got)
		}
	}
}

// TestMappedTasksBesideOthers: a client that has upstreams of both eras lists the tasks of both.
func TestMappedTasksBesideOthers(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	config := s.taskConfig("stateless")
	write(t, config, read(t, config)+fmt.Sprintf("  old: {command: [%q, odd, -tasks]}\n", fixtureBin))
	w := (&web{t: t, addr: s.serve(config).Addr}).open()
	p := taskPeer{t: t, v: mcp.V20251125, ask: w.request, heard: new([]string)}
	ids := []string{p.begin("slow_compute", map[string]any{"seconds": 600}), p.begin("greet", nil)}
	made := p.request("tools/call", map[string]any{"name": "old__slow_compute", "arguments": map[string]any{"seconds": 600}, "task": map[string]any{}})
	ids = append(ids, p.said(made).TaskID)
	var page struct{ Tasks []taskSaid }
	json.Unmarshal(p.request("tasks/list", map[string]any{}).Result, &page)
	var listed []string
	for _, task := range page.Tasks {
		listed = append(listed, task.TaskID)
	}
	slices.Sort(listed)
	slices.Sort(ids)
	if !slices.Equal(ids, listed) {
		t.Errorf("listed %v, want %v", listed, ids)
	}
	p.leaks()
}

// TestMappedTasksOutliveNavra: what an upstream keeps can be asked for after a restart, on a connection that principals share, too; what navra kept is gone.
func TestMappedTasksOutliveNavra(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	url, _ := s.endpoint("127.0.0.1:0", "odd", "-tasks", "-era", "stateless")
	config := s.serveConfig("navra.yaml", fmt.Sprintf("auth: none\nprincipals: {local: {roles: [tester]}}\nupstreams:\n  odd: {url: %q, shared: true}\nroles: {tester: {rules: [{allow: {tools: [\"*\"]}}]}}\n", url))
	g := s.serve(config)
	w := (&web{t: t, addr: g.Addr}).open()
	p := taskPeer{t: t, v: mcp.V20251125, ask: w.request, heard: new([]string)}
	id, kept := p.begin("slow_compute", map[string]any{"seconds": 0.1, "label": "kept"}), p.begin("greet", nil)
	if m := p.about("tasks/result", kept); !strings.Contains(string(m.Result), "Hello, ") {
		t.Errorf("before: %s %+v", m.Result, m.Error)
	}
	g.cmd.Process.Kill()
	g.cmd.Wait()
	w.addr = s.serve(config).Addr
	if m := p.about("tasks/result", id); !strings.Contains(string(m.Result), "computed kept") {
		t.Errorf("after a restart: %s %+v", m.Result, m.Error)
	}
	p.foreign("what navra kept", kept, "tasks/get", "tasks/result", "tasks/cancel")
	p.leaks()
}

// TestMappedResultEndsWithItsToken: who waits for a task's result when its credential is withdrawn, in any process, waits no more, and the upstream is asked
// no more for it.
func TestMappedResultEndsWithItsToken(t *testing.T) {
	t.Parallel()
	s := &staff{setup: newSetup(t)}
	url, _ := s.endpoint("127.0.0.1:0", "odd", "-tasks", "-era", "stateless")
	s.config = s.serveConfig("navra.yaml", fmt.Sprintf("auth: {tokens: true}\nprincipals: {ann: {roles: [tester]}, bob: {roles: [tester]}}\nupstreams:\n  odd: {url: %q, shared: true}\nroles: {tester: {rules: [{allow: {tools: [\"*\"]}}]}}\n", url))
	s.a, s.b = s.serve(s.config), s.serve(s.config)
	s.ann, s.bob = s.token("ann"), s.token("bob")
	peer := func(ask func(string, map[string]any) message) taskPeer {
		return taskPeer{t: t, v: mcp.V20251125, ask: ask, heard: new([]string)}
	}
	waits := map[string]taskPeer{
		"HTTP":                    peer((&web{t: t, addr: s.a.Addr, token: s.ann}).open().request),
		"HTTP, the other process": peer((&web{t: t, addr: s.b.Addr, token: s.ann}).open().request),
	}
	answers := make(chan string, len(waits))
	for name, p := range waits {
		id := p.begin("slow_compute", map[string]any{"seconds": 600, "label": name})
		go func() {
			m := p.about("tasks/result", id)
			answers <- fmt.Sprintf("%s: %s %+v", name, m.Result, m.Error)
		}()
	}
	asked := func() (results, polls int) {
		for _, e := range s.entriesOf(s.config) {
			switch {
			case e.Principal == "ann" && e.Method == "tasks/result" && e.Kind == "request" && e.Verdict == "allow":
				results++
			case e.Target == "odd/slow_compute" && e.Method == "tasks/get" && e.Kind == "own":
				polls++
			}
		}
		return results, polls
	}
	eventually(t, "all wait", func() bool { results, polls := asked(); return results == len(waits) && polls > 2*len(waits) })
	s.must("token", "revoke", tokenOf(s.must("token", "list"), "ann"))
	for range waits {
		if got := <-answers; !strings.Contains(got, "revoked") {
			t.Errorf("%s, want it refused as revoked", got)
		}
	}
	_, before := asked()
	bob := peer((&web{t: t, addr: s.a.Addr, token: s.bob}).open().request)
	if m := bob.about("tasks/result", bob.begin("secret_job", nil)); !strings.Contains(string(m.Result), "the key is ") {
		t.Errorf("bob: %s %+v", m.Result, m.Error)
	}
	if _, after := asked(); after != before {
		t.Errorf("the upstream was asked about ann's tasks %d times more", after-before)
	}
}
