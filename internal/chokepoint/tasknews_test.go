package chokepoint_test

import (
	"errors"
	"strings"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

const listens = `{"notifications":{"taskIds":["x"]}}`

// TestTaskWatches: only a principal's own tasks are followed, by a client that knows tasks; what the upstream is asked names its own ids.
func TestTaskWatches(t *testing.T) {
	v := mcp.V20260728
	b := newTaskBench(t, v)
	id := b.task(t, b.ann, v, "up-1")
	ann := peerOf(t, b.ann, v, mcp.Listen, listens)
	w, ok := b.AdmitTaskWatch(t.Context(), ann, id)
	if !ok || !w.IsTask() || !w.In(mcp.Wish{Tasks: []string{"up-1"}}) || w.In(mcp.Wish{URIs: []string{"up-1"}}) {
		t.Fatalf("watch: %v %+v", ok, w)
	}
	undeclared := ann
	undeclared.Caps = 0
	for what, tt := range map[string]struct {
		from chokepoint.Peer
		id   string
	}{
		"another principal": {peerOf(t, b.bob, v, mcp.Listen, listens), id}, "altered": {ann, "A" + id[1:]}, "the upstream's": {ann, "up-1"}, "undeclared": {undeclared, id},
		"no listen": {peerOf(t, b.ann, v, mcp.TasksGet, about(id)), id},
	} {
		if _, ok := b.AdmitTaskWatch(t.Context(), tt.from, tt.id); ok {
			t.Errorf("%s: the task is followed", what)
		}
	}
	if _, _, err := b.Admit(t.Context(), undeclared); err == nil || !strings.Contains(err.Error(), "client capability") {
		t.Errorf("a listen of a client that knows no tasks: %v", err)
	}
	m, err := b.AdmitListen(t.Context(), w.Lane(), mcp.Wish{}, []chokepoint.Watch{w})
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.Spend(b.Chokepoint)
	if text := string(c.Bytes(v)); err != nil || !strings.Contains(text, `"notifications":{"taskIds":["up-1"]}`) || !strings.Contains(text, mcp.TaskExtension) {
		t.Errorf("the upstream is sent %s, %v", text, err)
	}
	if _, err := b.AdmitFollow(t.Context(), w); !errors.Is(err, chokepoint.ErrUnfollowed) {
		t.Errorf("an upstream that has no such listen: %v", err)
	}
}

// TestTaskNewsIsJudged: who listens is told how the task stands when it is told, judged like what a client asks for, under its own id.
func TestTaskNewsIsJudged(t *testing.T) {
	v := mcp.V20260728
	b := newTaskBenchWith(t, v, policy.Options{Roles: allRoles, OnViolation: policy.Allow, Results: policy.Pseudonymise})
	id := b.task(t, b.ann, v, "up-1")
	ann, bob := peerOf(t, b.ann, v, mcp.Listen, listens), peerOf(t, b.bob, v, mcp.Listen, listens)
	w, ok := b.AdmitTaskWatch(t.Context(), ann, id)
	if !ok {
		t.Fatal("not followed")
	}
	note := jsonrpc.Message{Method: mcp.TaskNews, Params: jsonrpc.Raw(`{"taskId":"up-1","status":"working","statusMessage":"what is said unasked"}`)}
	news, ok := b.News(b.Unsolicited(w.Lane(), note, 0))
	if !ok || !news.Under(w) || news != w.Missed() {
		t.Fatalf("news: %v %+v", ok, news)
	}
	if _, err := b.Tell(t.Context(), news, w, ann); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("told as of a resource: %v", err)
	}
	if _, err := b.AdmitTaskNews(t.Context(), news, w, bob); err == nil {
		t.Error("bob is told of ann's task")
	}
	ask := func() chokepoint.ToUpstream {
		m, err := b.AdmitTaskNews(t.Context(), news, w, ann)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := m.Spend(b.Chokepoint); err != nil || c.Method != mcp.TasksGet || !strings.Contains(string(c.Bytes(v)), `"taskId":"up-1"`) {
			t.Fatalf("the upstream is sent %s, %v", c.Bytes(v), err)
		}
		return m
	}
	m := ask()
	said := jsonrpc.Message{Result: jsonrpc.Raw(`{"resultType":"complete","taskId":"up-1","status":"completed","result":{"content":[{"type":"text","text":"k ` + aws() + `"}]}}`)}
	if out, err := b.TellTask(t.Context(), m.Answer(said, 0), bob); err == nil {
		t.Errorf("bob is told %s", out.Msg.Params)
	}
	out, err := b.TellTask(t.Context(), m.Answer(said, 0), ann)
	text := string(out.Msg.Params)
	if err != nil || out.Drop || out.Msg.Method != mcp.TaskNews || !out.Msg.ID.IsZero() || strings.Contains(text, aws()) || strings.Contains(text, "up-1") || strings.Contains(text, "unasked") {
		t.Errorf("told: %s %s %v", out.Msg.Method, text, err)
	}
	for _, want := range []string{`"taskId":"` + id + `"`, `"status":"completed"`, "[secret:", `"_meta":{"io.modelcontextprotocol/subscriptionId":7}`} {
		if !strings.Contains(text, want) {
			t.Errorf("told: %s, want %s", text, want)
		}
	}
	entries := b.entries(t)
	if e := entries[len(entries)-1]; e.Method != mcp.TaskNews || e.Kind != blackbox.Notification || e.Target != "files/read" || !strings.Contains(e.After, "files:sensitive") {
		t.Errorf("recorded: %+v", e)
	}
	m = ask()
	gone := m.Answer(jsonrpc.Message{Error: &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no task"}}, 0)
	if out, err := b.TellTask(t.Context(), gone, ann); err != nil || !out.Drop {
		t.Errorf("a task that is gone: %s %v", out.Msg.Params, err)
	}
	plain := b.admit(t, peerOf(t, b.ann, v, mcp.TasksGet, about(id)))
	if _, err := b.TellTask(t.Context(), plain.Answer(said, 0), ann); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("another answer is told: %v", err)
	}
}
