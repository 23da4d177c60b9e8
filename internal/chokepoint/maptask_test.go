package chokepoint_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"navra/internal/auth"
	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// mappedCall makes a call of a client of 2025-11-25 that asks for a task, answers it, and returns what the client is told.
func (b *bench) mappedCall(t testing.TB, who auth.Principal, answer string) jsonrpc.Message {
	t.Helper()
	from := peerOf(t, who, mcp.V20251125, mcp.ToolsCall, `{"name":"files__read","arguments":{},"task":{"ttl":60000}}`)
	return b.answers(t, b.admit(t, from), from, answer)
}

func publicID(t testing.TB, m jsonrpc.Message) string {
	t.Helper()
	raw, _ := m.Result.Get("task", "taskId")
	id, _ := raw.Text()
	if id == "" {
		t.Fatalf("the client is told %s %+v", m.Result, m.Error)
	}
	return id
}

const working = `{"resultType":"task","taskId":"up-1","status":"working","ttlMs":9,"pollIntervalMs":10}`

// request admits a request of ann's about a task.
func (b *bench) request(t testing.TB, method, id string) (chokepoint.Peer, chokepoint.ToUpstream) {
	t.Helper()
	from := peerOf(t, b.ann, mcp.V20251125, method, about(id))
	return from, b.admit(t, from)
}

// release releases what came for a request.
func (b *bench) release(t testing.TB, f chokepoint.FromUpstream, from chokepoint.Peer) jsonrpc.Message {
	t.Helper()
	out, err := b.Release(t.Context(), f, from)
	if err != nil {
		t.Fatal(err)
	}
	return out.Msg
}

// learn answers one of navra's own requests about a task.
func (b *bench) learn(t testing.TB, task *chokepoint.OwnTask, method, answer string) {
	t.Helper()
	m, err := task.Ask(t.Context(), method)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Learn(t.Context(), m.Answer(jsonrpc.Message{Result: jsonrpc.Raw(answer)}, 0)); err != nil {
		t.Fatal(err)
	}
}

// TestMappedCallDeclaresTheExtension: an upstream is told of tasks only where its client asked for one; the client's own member does not cross.
func TestMappedCallDeclaresTheExtension(t *testing.T) {
	b := newTaskBench(t, mcp.V20260728)
	for params, want := range map[string]bool{`{"name":"files__read","arguments":{},"task":{"ttl":5}}`: true, `{"name":"files__read","arguments":{}}`: false} {
		c, err := b.admit(t, peerOf(t, b.ann, mcp.V20251125, mcp.ToolsCall, params)).Spend(b.Chokepoint)
		if text := string(c.Bytes(mcp.V20260728)); err != nil || strings.Contains(text, mcp.TaskExtension) != want || strings.Contains(text, `"task"`) {
			t.Errorf("%s: the upstream is sent %s, %v", params, text, err)
		}
	}
	from, m := b.request(t, mcp.TasksGet, publicID(t, b.mappedCall(t, b.ann, working)))
	c, err := m.Spend(b.Chokepoint)
	if text := string(c.Bytes(mcp.V20260728)); err != nil || !strings.Contains(text, mcp.TaskExtension) || !strings.Contains(text, `"taskId":"up-1"`) || c.Header(mcp.V20260728).Get(mcp.HeaderName) != "up-1" {
		t.Errorf("tasks/get: the upstream is sent %s, %v", text, err)
	}
	got := b.release(t, m.Answer(jsonrpc.Message{Result: jsonrpc.Raw(`{"taskId":"up-1","status":"completed","ttlMs":null,"result":{"content":[{"type":"text","text":"plan"}],"isError":true},"inputRequests":{"a":{}}}`)}, 0), from)
	if text := string(got.Result); strings.Contains(text, "plan") || strings.Contains(text, "inputRequests") || !strings.Contains(text, `"status":"failed"`) || !strings.Contains(text, `"ttl":null`) {
		t.Errorf("tasks/get: %s %+v", got.Result, got.Error)
	}
}

// TestMappedIDsAreBound: an id made for a client of one form is none for another form, and of another principal none at all.
func TestMappedIDsAreBound(t *testing.T) {
	b := newTaskBench(t, mcp.V20260728)
	handle, kept := publicID(t, b.mappedCall(t, b.ann, working)), publicID(t, b.mappedCall(t, b.ann, `{"content":[]}`))
	other := b.task(t, b.ann, mcp.V20260728, "up-2")
	for what, from := range map[string]chokepoint.Peer{
		"the extension's to a client of 2025-11-25":   peerOf(t, b.ann, mcp.V20251125, mcp.TasksGet, about(other)),
		"that of 2025-11-25 to the extension's":       peerOf(t, b.ann, mcp.V20260728, mcp.TasksGet, about(handle)),
		"a kept one to the extension's":               peerOf(t, b.ann, mcp.V20260728, mcp.TasksGet, about(kept)),
		"another principal's":                         peerOf(t, b.bob, mcp.V20251125, mcp.TasksResult, about(handle)),
		"another principal's, kept":                   peerOf(t, b.bob, mcp.V20251125, mcp.TasksResult, about(kept)),
		"another principal's, to be cancelled":        peerOf(t, b.bob, mcp.V20251125, mcp.TasksCancel, about(handle)),
		"the kept one's altered":                      peerOf(t, b.ann, mcp.V20251125, mcp.TasksResult, about("A"+kept[1:])),
		"the upstream's, which this client is not at": peerOf(t, b.ann, mcp.V20251125, mcp.TasksGet, about("up-1")),
	} {
		_, _, err := b.Admit(t.Context(), from)
		refusal := (*chokepoint.Refusal)(nil)
		if !errors.As(err, &refusal) || refusal.Msg.Error == nil || !strings.Contains(refusal.Msg.Error.Message, "unknown task") {
			t.Errorf("%s: %v", what, err)
		}
	}
	session := peerOf(t, b.ann, mcp.V20251125, mcp.TasksResult, about(kept))
	b.ForgetKept(b.Lanes(session))
	if _, _, err := b.Admit(t.Context(), session); err == nil {
		t.Error("a kept result outlives its session")
	}
}

// TestKeptResultIsJudgedWhenFetched: a result that is kept reaches nobody, and taints nothing, before it is asked for; then it is judged like any other.
func TestKeptResultIsJudgedWhenFetched(t *testing.T) {
	strict := permissive()
	strict.Results = policy.DenyResult
	for _, o := range []policy.Options{permissive(), strict} {
		b := newTaskBenchWith(t, mcp.V20260728, o)
		denies := o.Results == policy.DenyResult
		text := map[bool]string{true: "k " + aws(), false: "plan"}[denies]
		made := b.mappedCall(t, b.ann, `{"resultType":"complete","content":[{"type":"text","text":"`+text+`"}]}`)
		if strings.Contains(string(made.Result), "content") || !strings.Contains(string(made.Result), `"status":"completed"`) {
			t.Errorf("made: %s", made.Result)
		}
		entries := b.entries(t)
		if e := entries[len(entries)-1]; e.Method != mcp.ToolsCall || e.Outcome != string(chokepoint.Ran) || strings.Contains(e.After, "files:sensitive") {
			t.Errorf("the call's answer is recorded as %+v", e)
		}
		from, m := b.request(t, mcp.TasksResult, publicID(t, made))
		f, ok := b.Held(m)
		if !ok {
			t.Fatal("the upstream is to be asked for what navra keeps")
		}
		if _, err := m.Spend(b.Chokepoint); err == nil {
			t.Error("a request that navra answers is sent, too")
		}
		got := b.release(t, f, from)
		if wrong, _ := got.Result.Get("isError"); strings.Contains(string(got.Result), text) == denies || (string(wrong) == "true") != denies || strings.Contains(string(got.Result), "resultType") {
			t.Errorf("released: %s %+v", got.Result, got.Error)
		}
		entries = b.entries(t)
		if e := entries[len(entries)-1]; e.Method != mcp.TasksResult || strings.Contains(e.After, "files:sensitive") == denies {
			t.Errorf("the result is recorded as %+v", e)
		}
	}
}

// TestKeptResultsAreBounded: what is kept of one principal does not grow with its calls, nor push out what is another's.
func TestKeptResultsAreBounded(t *testing.T) {
	b := newTaskBench(t, mcp.V20260728)
	bobs := publicID(t, b.mappedCall(t, b.bob, `{"content":[]}`))
	big := `{"content":[{"type":"text","text":"` + strings.Repeat("x", 12<<20) + `"}]}`
	var ids []string
	for range 3 { // 32 MiB are kept
		ids = append(ids, publicID(t, b.mappedCall(t, b.ann, big)))
	}
	known := func(who auth.Principal, id string) bool {
		_, _, err := b.Admit(t.Context(), peerOf(t, who, mcp.V20251125, mcp.TasksGet, about(id)))
		return err == nil
	}
	if known(b.ann, ids[0]) || !known(b.ann, ids[1]) || !known(b.ann, ids[2]) || !known(b.bob, bobs) {
		t.Error("by bytes: the oldest of the principal's own is to go, and nothing else")
	}
	for range 256 {
		ids = append(ids, publicID(t, b.mappedCall(t, b.ann, `{"content":[]}`)))
	}
	if known(b.ann, ids[2]) || !known(b.ann, ids[3]) || !known(b.bob, bobs) {
		t.Error("by number: the oldest of the principal's own is to go, and nothing else")
	}
}

// TestCancelledTaskStaysCancelled: what a client has cancelled is cancelled to it, whatever the upstream makes of that.
func TestCancelledTaskStaysCancelled(t *testing.T) {
	b := newTaskBench(t, mcp.V20260728)
	id := publicID(t, b.mappedCall(t, b.ann, working))
	from, m := b.request(t, mcp.TasksCancel, id)
	if _, held := b.Held(m); held {
		t.Fatal("navra speaks for a task that the upstream has")
	}
	task, err := b.MapTask(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.MapTask(m); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("mapped twice: %v", err)
	}
	b.learn(t, task, mcp.TasksGet, `{"taskId":"up-1","status":"working","statusMessage":"busy with up-1","ttlMs":9}`)
	b.learn(t, task, mcp.TasksCancel, `{}`)
	if got := b.release(t, task.Latch(), from); !strings.Contains(string(got.Result), `"status":"cancelled"`) || !strings.Contains(string(got.Result), id) || strings.Contains(string(got.Result), "busy") {
		t.Errorf("tasks/cancel: %s %+v", got.Result, got.Error)
	}
	for method, want := range map[string]string{mcp.TasksGet: `"status":"cancelled"`, mcp.TasksResult: "was cancelled", mcp.TasksCancel: "has ended"} {
		from, m := b.request(t, method, id)
		f, held := b.Held(m)
		if !held {
			t.Fatalf("%s: the upstream is asked", method)
		}
		if text := string(b.release(t, f, from).Append(nil)); !strings.Contains(text, want) || strings.Contains(text, "up-1") {
			t.Errorf("%s: %s", method, text)
		}
	}
	another := publicID(t, b.mappedCall(t, b.ann, working)) // of an upstream that counts from the beginning again
	if _, m := b.request(t, mcp.TasksGet, another); another == id || m.IsZero() {
		t.Fatal("no other task")
	} else if _, held := b.Held(m); held {
		t.Error("a task is cancelled with an earlier one that had its id")
	}
	id = publicID(t, b.mappedCall(t, b.ann, strings.ReplaceAll(working, "up-1", "up-2")))
	from, m = b.request(t, mcp.TasksResult, id)
	waits, err := b.MapTask(m)
	if err != nil {
		t.Fatal(err)
	}
	_, next := waits.Latched()
	_, m = b.request(t, mcp.TasksCancel, id)
	task, _ = b.MapTask(m)
	b.learn(t, task, mcp.TasksGet, `{"taskId":"up-2","status":"working"}`)
	task.Latch()
	<-next // who waits for it hears of that
	b.learn(t, waits, mcp.TasksGet, `{"taskId":"up-2","status":"completed","result":{"content":[{"type":"text","text":"plan"}]}}`)
	if got := b.release(t, waits.Outcome(), from); got.Error == nil || !strings.Contains(got.Error.Message, "was cancelled") {
		t.Errorf("tasks/result: %s %+v", got.Result, got.Error)
	}
}

// TestMappedOutcomes: what a task came to is released like the answer to its call.
func TestMappedOutcomes(t *testing.T) {
	b := newTaskBench(t, mcp.V20260728)
	for said, want := range map[string]string{
		`"status":"completed","result":{"resultType":"complete","content":[{"type":"text","text":"plan"}]}`: "plan",
		`"status":"failed","error":{"code":-32603,"message":"broken while up-1"}`:                           `"message":"broken while `,
		`"status":"cancelled"`:                           "was cancelled",
		`"status":"completed"`:                           "not valid",
		`"status":"completed","result":7`:                "not valid",
		`"status":"failed","error":"no object"`:          "not valid",
		`"status":"failed","result":{"content":["out"]}`: "not valid",
	} {
		from, m := b.request(t, mcp.TasksResult, publicID(t, b.mappedCall(t, b.ann, working)))
		task, err := b.MapTask(m)
		if err != nil {
			t.Fatal(err)
		}
		b.learn(t, task, mcp.TasksGet, `{"taskId":"up-1",`+said+`}`)
		text := string(b.release(t, task.Outcome(), from).Append(nil))
		if !task.Over || !strings.Contains(text, want) || strings.Contains(text, "up-1") || strings.Contains(text, "resultType") {
			t.Errorf("%s is released as %s", said, text)
		}
	}
	_, m := b.request(t, mcp.TasksResult, publicID(t, b.mappedCall(t, b.ann, working)))
	task, _ := b.MapTask(m)
	for answer, want := range map[string]error{`{"taskId":"up-9","status":"working"}`: chokepoint.ErrBadAnswer, `{}`: chokepoint.ErrBadAnswer} {
		get, _ := task.Ask(t.Context(), mcp.TasksGet)
		if err := task.Learn(t.Context(), get.Answer(jsonrpc.Message{Result: jsonrpc.Raw(answer)}, 0)); !errors.Is(err, want) {
			t.Errorf("%s: %v", answer, err)
		}
	}
	get, _ := task.Ask(t.Context(), mcp.TasksGet)
	gone := jsonrpc.Message{Error: &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no task"}}
	if err := task.Learn(t.Context(), get.Answer(gone, 0)); !errors.Is(err, chokepoint.ErrNoTask) {
		t.Errorf("a task that its upstream has lost: %v", err)
	}
}

// TestEagerUpstreamsAreAskedLess: an upstream cannot have itself asked, and that recorded, without end at its own pace.
func TestEagerUpstreamsAreAskedLess(t *testing.T) {
	b := newTaskBench(t, mcp.V20260728)
	_, m := b.request(t, mcp.TasksResult, publicID(t, b.mappedCall(t, b.ann, working)))
	task, err := b.MapTask(m)
	if err != nil {
		t.Fatal(err)
	}
	var waits []time.Duration
	for range 60 {
		b.learn(t, task, mcp.TasksGet, `{"taskId":"up-1","status":"working","pollIntervalMs":0}`)
		waits = append(waits, task.Wait)
	}
	if waits[0] > 100*time.Millisecond || waits[0] >= waits[1] || waits[59] != time.Second {
		t.Errorf("waits: %v", waits)
	}
	b.learn(t, task, mcp.TasksGet, `{"taskId":"up-1","status":"working","pollIntervalMs":7000}`)
	if task.Wait != 7*time.Second {
		t.Errorf("waits %v where the upstream says 7 s", task.Wait)
	}
}

// TestMappedQuestions: what an upstream asks during a task is asked once, judged, and its answer goes to the task alone.
func TestMappedQuestions(t *testing.T) {
	b := newTaskBench(t, mcp.V20260728)
	id := publicID(t, b.mappedCall(t, b.ann, working))
	start := func(caps mcp.Capabilities) (chokepoint.Peer, *chokepoint.OwnTask) {
		from := peerOf(t, b.ann, mcp.V20251125, mcp.TasksResult, about(id))
		from.Caps = caps
		task, err := b.MapTask(b.admit(t, from))
		if err != nil {
			t.Fatal(err)
		}
		b.learn(t, task, mcp.TasksGet, `{"taskId":"up-1","status":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"sure?","mode":"form","requestedSchema":{"type":"object","properties":{}}}}}}`)
		return from, task
	}
	_, task := start(0)
	if asks, err := task.Asks(t.Context()); len(asks) > 0 || !errors.As(err, new(chokepoint.Unanswered)) {
		t.Errorf("a client that cannot be asked: %d questions, %v", len(asks), err)
	}
	from, task := start(mcp.CanElicit)
	asks, err := task.Asks(t.Context())
	if err != nil || len(asks) != 1 {
		t.Fatal(len(asks), err)
	}
	if again, err := task.Asks(t.Context()); len(again) > 0 || err != nil {
		t.Errorf("asked twice: %v %v", again, err)
	}
	params := asks[0].Request().Params
	if raw, _ := params.Get("_meta", mcp.RelatedTask, "taskId"); string(raw) != `"`+id+`"` {
		t.Errorf("asked: %s", params)
	}
	yes := jsonrpc.Message{Result: jsonrpc.Raw(`{"action":"accept","content":{"a":"b"},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"` + id + `"}}}`)}
	bob := from
	bob.Who = b.bob
	if _, err := task.Update(t.Context(), bob, asks[0], yes); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("bob answers ann's question: %v", err)
	}
	m, err := task.Update(t.Context(), from, asks[0], yes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := task.Update(t.Context(), from, asks[0], yes); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("answered twice: %v", err)
	}
	c, err := m.Spend(b.Chokepoint)
	if text := string(c.Bytes(mcp.V20260728)); err != nil || !strings.Contains(text, `"inputResponses":{"k":{"action":"accept","content":{"a":"b"}}}`) || !strings.Contains(text, `"taskId":"up-1"`) || strings.Contains(text, id) {
		t.Errorf("the upstream is sent %s, %v", text, err)
	}
	if err := task.Learn(t.Context(), m.Answer(jsonrpc.Message{Result: jsonrpc.Raw(`{}`)}, 0)); err != nil {
		t.Error(err)
	}
	var methods []string
	for _, e := range b.entries(t) {
		methods = append(methods, e.Method+" "+string(e.Kind))
	}
	if all := strings.Join(methods, ", "); !strings.Contains(all, "elicitation/create from-upstream, elicitation/create client-answer, tasks/update own, tasks/update own-answer") {
		t.Errorf("recorded: %s", all)
	}
	_, task = start(mcp.CanElicit)
	asks, _ = task.Asks(t.Context())
	m, err = task.Update(t.Context(), from, asks[0], jsonrpc.Message{Error: &jsonrpc.Error{Code: -1, Message: "no"}})
	if c, bad := m.Spend(b.Chokepoint); err != nil || bad != nil || !strings.Contains(string(c.Bytes(mcp.V20260728)), `{"k":{"action":"cancel"}}`) {
		t.Errorf("an error for an answer: %v %v", err, bad)
	}
	_, task = start(mcp.CanElicit)
	asks, _ = task.Asks(t.Context())
	m, err = task.Update(t.Context(), from, asks[0], jsonrpc.Message{Result: jsonrpc.Raw(`{"action":"accept","content":{"a":{"not":"flat"}}}`)})
	if c, bad := m.Spend(b.Chokepoint); err != nil || bad != nil || !strings.Contains(string(c.Bytes(mcp.V20260728)), `{"k":{"action":"cancel"}}`) {
		t.Errorf("an answer that does not fit the form: %v %v", err, bad)
	}
}

// TestTaskAsksTooMuch: an upstream that asks without end ends the request.
func TestTaskAsksTooMuch(t *testing.T) {
	b := newTaskBench(t, mcp.V20260728)
	from := peerOf(t, b.ann, mcp.V20251125, mcp.TasksResult, about(publicID(t, b.mappedCall(t, b.ann, working))))
	from.Caps = mcp.CanElicit
	task, err := b.MapTask(b.admit(t, from))
	if err != nil {
		t.Fatal(err)
	}
	var asks []string
	for i := range 17 {
		asks = append(asks, fmt.Sprintf(`"k%d":{"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}`, i))
	}
	b.learn(t, task, mcp.TasksGet, `{"taskId":"up-1","status":"input_required","inputRequests":{`+strings.Join(asks, ",")+`}}`)
	if _, err := task.Asks(t.Context()); !errors.Is(err, chokepoint.ErrBadAnswer) {
		t.Errorf("17 questions at once: %v", err)
	}
}

// TestNamingATaskOftenCostsLittle: an upstream whose id is one sign cannot make a short text a long one.
func TestNamingATaskOftenCostsLittle(t *testing.T) {
	b := newTaskBench(t, mcp.V20260728)
	for _, v := range []mcp.Version{mcp.V20251125, mcp.V20260728} {
		id := ""
		if v.Stateless() {
			id = b.task(t, b.ann, v, "#")
		} else {
			id = publicID(t, b.mappedCall(t, b.ann, strings.ReplaceAll(working, "up-1", "#")))
		}
		many := strings.Repeat("#", 100_000)
		for what, m := range map[string]jsonrpc.Message{
			"a status":        {Result: jsonrpc.Raw(`{"taskId":"#","status":"working","statusMessage":"` + many + `"}`)},
			"an error inside": {Result: jsonrpc.Raw(`{"taskId":"#","status":"failed","error":{"code":1,"message":"` + many + `"}}`)},
			"an error":        {Error: &jsonrpc.Error{Code: -32603, Message: many}},
		} {
			from := peerOf(t, b.ann, v, mcp.TasksGet, about(id))
			got := b.release(t, b.admit(t, from).Answer(m, 0), from)
			if text := string(got.Append(nil)); len(text) > 10_000 || strings.Contains(text, "##") {
				t.Errorf("%s, %s: %d bytes: %.200s", v, what, len(text), text)
			}
		}
	}
}

// TestWhatIsKeptOutlivesAPolicy: a policy by which clients may be asked for something else changes nothing about what navra keeps of a session's tasks,
// nor that it ends with the session.
func TestWhatIsKeptOutlivesAPolicy(t *testing.T) {
	b := newTaskBench(t, mcp.V20260728)
	asked := func(method, params string) chokepoint.Peer {
		from := peerOf(t, b.ann, mcp.V20251125, method, params)
		from.Caps = mcp.CanElicit
		return from
	}
	call := asked(mcp.ToolsCall, `{"name":"files__read","arguments":{},"task":{"ttl":60000}}`)
	kept := publicID(t, b.answers(t, b.admit(t, call), call, `{"content":[]}`))
	running := publicID(t, b.answers(t, b.admit(t, call), call, working))
	cancel := asked(mcp.TasksCancel, about(running))
	task, err := b.MapTask(b.admit(t, cancel))
	if err != nil {
		t.Fatal(err)
	}
	b.learn(t, task, mcp.TasksGet, `{"taskId":"up-1","status":"working"}`)
	b.release(t, task.Latch(), cancel)
	silent := permissive()
	silent.Roles = map[string]policy.Role{}
	for name, r := range permissive().Roles {
		r.Allow = []policy.Patterns{{Tools: []string{"*"}}}
		silent.Roles[name] = r
	}
	pol, err := policy.New(silent)
	if err != nil {
		t.Fatal(err)
	}
	b.Use(pol)
	for what, id := range map[string]string{"a kept result": kept, "a cancelled task": running} {
		m, _, err := b.Admit(t.Context(), asked(mcp.TasksResult, about(id)))
		if err != nil {
			t.Errorf("%s: %v", what, err)
		} else if _, held := b.Held(m); !held {
			t.Errorf("%s is asked of the upstream", what)
		}
	}
	b.ForgetKept(b.Lanes(asked(mcp.TasksGet, about(kept))))
	if _, _, err := b.Admit(t.Context(), asked(mcp.TasksGet, about(kept))); err == nil {
		t.Error("a kept result outlives its session")
	}
}

// TestWaitingEndsWithTheRight: who waits for a result of a tool that it may not call any more does not get it, and the upstream is asked no more.
func TestWaitingEndsWithTheRight(t *testing.T) {
	forbidding, nobody := permissive(), permissive()
	forbidding.Roles, nobody.Roles = map[string]policy.Role{}, map[string]policy.Role{"another": policy.DefaultRole()}
	for name, r := range permissive().Roles {
		r.Deny = []policy.Patterns{{Tools: []string{"files/read"}}}
		forbidding.Roles[name] = r
	}
	for what, o := range map[string]policy.Options{"the tool is forbidden": forbidding, "the role is gone": nobody} {
		b := newTaskBench(t, mcp.V20260728)
		from, m := b.request(t, mcp.TasksResult, publicID(t, b.mappedCall(t, b.ann, working)))
		task, err := b.MapTask(m)
		if err != nil {
			t.Fatal(err)
		}
		b.learn(t, task, mcp.TasksGet, `{"taskId":"up-1","status":"working"}`)
		pol, err := policy.New(o)
		if err != nil {
			t.Fatal(err)
		}
		b.Use(pol)
		_, err = task.Ask(t.Context(), mcp.TasksGet)
		if !errors.Is(err, chokepoint.ErrForbidden) {
			t.Fatalf("%s: %v", what, err)
		}
		if got := b.release(t, task.Failed(chokepoint.Unknown, err), from); got.Error == nil || got.Error.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("%s: %s", what, got.Append(nil))
		}
	}
}
