package chokepoint_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"navra/internal/auth"
	"navra/internal/catalogue"
	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// newTaskBench is a bench whose upstream files has tasks in the form of the version.
func newTaskBench(t testing.TB, v mcp.Version) *bench {
	return newTaskBenchWith(t, v, permissive())
}

func newTaskBenchWith(t testing.TB, v mcp.Version, o policy.Options) *bench {
	return newBenchWith(t, o, nil, func(co *chokepoint.Options) { listTasks(co, v) })
}

// listTasks has the upstream files have tasks in the form of the version.
func listTasks(co *chokepoint.Options, v mcp.Version) {
	caps := jsonrpc.Raw(`{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}`)
	if v.Stateless() {
		caps = jsonrpc.Raw(`{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
	}
	for _, who := range []string{"ann", "bob", "low"} {
		l := catalogue.Listing{Version: v, Capabilities: caps}
		for _, tool := range []string{"read", "only"} {
			support := map[string]string{"read": "optional", "only": "required"}[tool]
			l.Tools = append(l.Tools, jsonrpc.Raw(fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},"execution":{"taskSupport":%q}}`, tool, support)))
		}
		co.Catalogue.Install(who, "files", l)
	}
}

// peerOf is a request of a client that knows tasks in the form of the version.
func peerOf(t testing.TB, who auth.Principal, v mcp.Version, method, params string) chokepoint.Peer {
	t.Helper()
	m, fault := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":` + params + `}`))
	if fault != nil {
		t.Fatal(fault)
	}
	p := chokepoint.Peer{Who: who, In: mcp.Inbound{Msg: m, Transport: mcp.HTTP}, Version: v, Session: "s"}
	if v.Stateless() {
		p.Session, p.Caps = "", mcp.CanTask
	}
	return p
}

// answers sends m and releases what the upstream answers.
func (b *bench) answers(t testing.TB, m chokepoint.ToUpstream, from chokepoint.Peer, result string) jsonrpc.Message {
	t.Helper()
	if _, err := m.Spend(b.Chokepoint); err != nil {
		t.Fatal(err)
	}
	out, err := b.Release(t.Context(), m.Answer(jsonrpc.Message{Result: jsonrpc.Raw(result)}, 0), from)
	if err != nil {
		t.Fatal(err)
	}
	return out.Msg
}

// task makes a task of a call and returns the client's id of it.
func (b *bench) task(t testing.TB, who auth.Principal, v mcp.Version, id string) string {
	t.Helper()
	params, made, at := `{"name":"files__read","arguments":{},"task":{"ttl":5}}`, `{"task":{"taskId":"%s","status":"working"}}`, []string{"task", "taskId"}
	if v.Stateless() {
		made, at = `{"resultType":"task","taskId":"%s","status":"working"}`, at[1:]
	}
	from := peerOf(t, who, v, mcp.ToolsCall, params)
	m := b.answers(t, b.admit(t, from), from, fmt.Sprintf(made, id))
	raw, _ := m.Result.Get(at...)
	public, _ := raw.Text()
	if public == "" || public == id {
		t.Fatalf("the client is told %s %+v", m.Result, m.Error)
	}
	return public
}

func about(id string) string { return `{"taskId":"` + id + `"}` }

// TestTaskIDsAreBound: an id opens for whom it was made for, in its session, and altered for nobody.
func TestTaskIDsAreBound(t *testing.T) {
	for _, v := range []mcp.Version{mcp.V20251125, mcp.V20260728} {
		b := newTaskBench(t, v)
		id := b.task(t, b.ann, v, "up-1")
		from := peerOf(t, b.ann, v, mcp.TasksGet, about(id))
		m := b.admit(t, from)
		c, err := m.Spend(b.Chokepoint)
		if err != nil || !strings.Contains(string(c.Bytes(v)), `"taskId":"up-1"`) || strings.Contains(string(c.Bytes(v)), id) {
			t.Errorf("%s: the upstream is sent %s, %v", v, c.Bytes(v), err)
		}
		if head := c.Header(v).Get(mcp.HeaderName); v.Stateless() && head != "up-1" {
			t.Errorf("%s: Mcp-Name is %q", v, head)
		}
		other := peerOf(t, b.ann, v, mcp.TasksGet, about(id))
		other.Session = "another"
		older := peerOf(t, b.ann, mcp.V20250618, mcp.TasksGet, about(id))
		for what, from := range map[string]chokepoint.Peer{
			"another principal": peerOf(t, b.bob, v, mcp.TasksGet, about(id)), "altered": peerOf(t, b.ann, v, mcp.TasksGet, about("A"+id[1:])),
			"cut": peerOf(t, b.ann, v, mcp.TasksGet, about(id[:len(id)-1])), "the upstream's": peerOf(t, b.ann, v, mcp.TasksGet, about("up-1")),
			"empty": peerOf(t, b.ann, v, mcp.TasksGet, about("")), "another session": other, "an older version": older,
		} {
			_, _, err := b.Admit(t.Context(), from)
			refusal := (*chokepoint.Refusal)(nil)
			want := map[string]int{"an older version": jsonrpc.CodeMethodNotFound}[what]
			if want == 0 {
				want = jsonrpc.CodeInvalidParams
			}
			if what == "another session" && v.Stateless() {
				continue // there is none
			}
			if !errors.As(err, &refusal) || refusal.Msg.Error == nil || refusal.Msg.Error.Code != want {
				t.Errorf("%s, %s: %v", v, what, err)
			}
		}
	}
}

// TestBadTasksAreNotReleased: a task that is none fails the call, and one that was not asked about the question.
func TestBadTasksAreNotReleased(t *testing.T) {
	v := mcp.V20260728
	b := newTaskBench(t, v)
	for _, bad := range []string{
		`{"resultType":"task"}`, `{"resultType":"task","taskId":"","status":"working"}`, `{"resultType":"task","taskId":7,"status":"working"}`,
		`{"resultType":"task","taskId":"x","status":"busy"}`, `{"resultType":"task","taskId":"` + strings.Repeat("x", 2000) + `","status":"working"}`,
	} {
		from := peerOf(t, b.ann, v, mcp.ToolsCall, `{"name":"files__read","arguments":{}}`)
		if m := b.answers(t, b.admit(t, from), from, bad); m.Error == nil || m.Error.Code != jsonrpc.CodeInternal {
			t.Errorf("%.60s is released as %s", bad, m.Result)
		}
	}
	id := b.task(t, b.ann, v, "up-1")
	from := peerOf(t, b.ann, v, mcp.TasksGet, about(id))
	if m := b.answers(t, b.admit(t, from), from, `{"taskId":"up-2","status":"completed","result":{"content":[]}}`); m.Error == nil {
		t.Errorf("another task is released as %s", m.Result)
	}
	undeclared := peerOf(t, b.ann, v, mcp.ToolsCall, `{"name":"files__read","arguments":{}}`)
	undeclared.Caps = 0
	if m := b.answers(t, b.admit(t, undeclared), undeclared, `{"resultType":"task","taskId":"up-3","status":"working"}`); m.Error == nil {
		t.Errorf("a task is released to a client that knows none: %s", m.Result)
	}
}

// TestTaskResultsAreJudged: what a task comes to taints the scope before it is released, and is withheld from who may not read it.
func TestTaskResultsAreJudged(t *testing.T) {
	v := mcp.V20251125
	b := newTaskBench(t, v)
	id := b.task(t, b.ann, v, "up-1")
	from := peerOf(t, b.ann, v, mcp.TasksResult, about(id))
	m := b.answers(t, b.admit(t, from), from, `{"content":[{"type":"text","text":"plan"}],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"up-1"}}}`)
	if raw, _ := m.Result.Get("_meta", mcp.RelatedTask, "taskId"); string(raw) != `"`+id+`"` || strings.Contains(string(m.Result), "up-1") {
		t.Errorf("released: %s", m.Result)
	}
	entries := b.entries(t)
	if e := entries[len(entries)-1]; e.Method != mcp.TasksResult || e.Outcome != string(chokepoint.Ran) || !strings.Contains(e.After, "files:sensitive") || e.Target != "files/read" {
		t.Errorf("recorded: %+v", e)
	}
	strict := permissive()
	strict.Results = policy.DenyResult
	b = newTaskBenchWith(t, v, strict)
	from = peerOf(t, b.ann, v, mcp.TasksResult, about(b.task(t, b.ann, v, "up-1")))
	m = b.answers(t, b.admit(t, from), from, `{"content":[{"type":"text","text":"k `+aws()+`"}]}`)
	if wrong, _ := m.Result.Get("isError"); string(wrong) != "true" || strings.Contains(string(m.Result), aws()) {
		t.Errorf("a result with a secret is released: %s", m.Result)
	}
}

// TestKeptTasksAreBounded: what is remembered for lists does not grow with what a session does.
func TestKeptTasksAreBounded(t *testing.T) {
	v := mcp.V20251125
	b := newTaskBench(t, v)
	first := b.task(t, b.ann, v, "up-0")
	for i := range 256 {
		b.task(t, b.ann, v, fmt.Sprintf("up-%d", i+1))
	}
	from := peerOf(t, b.ann, v, mcp.TasksList, "{}")
	ids := b.Tasks(from)
	if len(ids) != 256 || ids[0] == first {
		t.Errorf("%d are remembered, the first is forgotten: %t", len(ids), ids[0] != first)
	}
	b.admit(t, peerOf(t, b.ann, v, mcp.TasksGet, about(first))) // it can be asked for all the same
	get := peerOf(t, b.ann, v, mcp.TasksGet, about(ids[0]))
	m := b.admit(t, get)
	if _, err := m.Spend(b.Chokepoint); err != nil {
		t.Fatal(err)
	}
	gone := m.Answer(jsonrpc.Message{Error: &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no task up-1"}}, 0)
	if out, err := b.Release(t.Context(), gone, get); err != nil || strings.Contains(out.Msg.Error.Message, "up-1") || len(b.Tasks(from)) != 255 {
		t.Errorf("a task that its upstream has dropped: %+v, %v, %d are left", out.Msg.Error, err, len(b.Tasks(from)))
	}
	if from.Session = "another"; len(b.Tasks(from)) != 0 {
		t.Error("another session sees them")
	}
}

// TestOwnTasksStayInside: what belongs to a task of navra's own is released as the call's answer alone, once.
func TestOwnTasksStayInside(t *testing.T) {
	b := newTaskBench(t, mcp.V20251125)
	call := func() (chokepoint.Peer, chokepoint.ToUpstream) {
		from := peerOf(t, b.ann, mcp.V20250618, mcp.ToolsCall, `{"name":"files__only","arguments":{}}`)
		m := b.admit(t, from)
		if _, err := m.Spend(b.Chokepoint); err != nil || !m.Waits() {
			t.Fatal(err, m.Waits())
		}
		return from, m
	}
	from, m := call()
	made := m.Answer(jsonrpc.Message{Result: jsonrpc.Raw(`{"task":{"taskId":"up-1","status":"working","pollInterval":10}}`)}, 0)
	task := b.TaskMade(t.Context(), made)
	if task == nil || task.Over || task.Wait <= 0 {
		t.Fatalf("made: %+v", task)
	}
	if _, err := task.Ask(t.Context(), mcp.ToolsCall); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("a call is made of a task: %v", err)
	}
	get, err := task.Ask(t.Context(), mcp.TasksGet)
	if err != nil {
		t.Fatal(err)
	}
	said := get.Answer(jsonrpc.Message{Result: jsonrpc.Raw(`{"taskId":"up-1","status":"completed"}`)}, 0)
	if _, err := b.Release(t.Context(), said, from); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("an answer to navra itself is released: %v", err)
	}
	if err := task.Learn(t.Context(), said); err != nil || !task.Over {
		t.Errorf("learnt: %v, over %t", err, task.Over)
	}
	if err := task.Learn(t.Context(), said); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("learnt twice: %v", err)
	}
	_, other := call()
	if f := task.As(t.Context(), other.Answer(jsonrpc.Message{Result: jsonrpc.Raw(`{"content":[]}`)}, 0)); !f.IsZero() {
		t.Error("another call's answer becomes this one's")
	}
	result, err := task.Ask(t.Context(), mcp.TasksResult)
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.Release(t.Context(), task.As(t.Context(), result.Answer(jsonrpc.Message{Result: jsonrpc.Raw(`{"content":[{"type":"text","text":"done"}]}`)}, 0)), from)
	if err != nil || !strings.Contains(string(out.Msg.Result), "done") || out.Msg.ID != from.In.Msg.ID {
		t.Errorf("released: %s %v", out.Msg.Result, err)
	}
	if bare, err := b.Release(t.Context(), made, from); err == nil {
		t.Errorf("the task itself is released: %s", bare.Msg.Result)
	}
}

// TestTaskResultsKeepTheirPromise: what a task came to is held against its tool's outputSchema like the answer to a call, however it is fetched.
func TestTaskResultsKeepTheirPromise(t *testing.T) {
	o := permissive()
	o.Results = policy.Pseudonymise
	listed := func(caps string, v mcp.Version) func(*chokepoint.Options) {
		tool := `{"name":"read","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"},"outputSchema":{"type":"object","properties":{"key":{"type":"string","maxLength":20}},"required":["key"]}}`
		return func(co *chokepoint.Options) {
			co.Catalogue.Install("ann", "files", catalogue.Listing{Version: v, Capabilities: jsonrpc.Raw(caps), Tools: []jsonrpc.Raw{jsonrpc.Raw(tool)}})
		}
	}
	core := newBenchWith(t, o, nil, listed(`{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}`, mcp.V20251125))
	extended := newBenchWith(t, o, nil, listed(`{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`, mcp.V20260728))
	for result, want := range map[string]string{
		`{"content":[],"structuredContent":{"key":"` + aws() + `"}}`: "was taken out of the structuredContent",
		`{"content":[]}`: "left out the structuredContent",
		`{"content":[],"structuredContent":{"key":"k"}}`: `"structuredContent":{"key":"k"}`,
		`{"content":[],"isError":true}`:                  `"isError":true`,
	} {
		check := func(how string, b *bench, from chokepoint.Peer, answer string) {
			t.Helper()
			text := string(b.answers(t, b.admit(t, from), from, answer).Append(nil))
			if !strings.Contains(text, want) || strings.Contains(text, aws()) || strings.Contains(text, `"isError":true`) != !strings.Contains(result, `"k"`) {
				t.Errorf("%s: %s is released as %s", how, result, text)
			}
		}
		id := core.task(t, core.ann, mcp.V20251125, "up-1")
		check("tasks/result", core, peerOf(t, core.ann, mcp.V20251125, mcp.TasksResult, about(id)), result)
		id = extended.task(t, extended.ann, mcp.V20260728, "up-1")
		check("tasks/get", extended, peerOf(t, extended.ann, mcp.V20260728, mcp.TasksGet, about(id)), `{"taskId":"up-1","status":"completed","result":`+result+`}`)
		kept := publicID(t, extended.mappedCall(t, extended.ann, result))
		from, m := extended.request(t, mcp.TasksResult, kept)
		f, _ := extended.Held(m)
		if text := string(extended.release(t, f, from).Append(nil)); !strings.Contains(text, want) || strings.Contains(text, aws()) {
			t.Errorf("kept: %s is released as %s", result, text)
		}
	}
}
