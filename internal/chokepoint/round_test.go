package chokepoint_test

import (
	"errors"
	"strings"
	"testing"

	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// A call that cannot go on, because its client refuses what the upstream asks, ends with an error that is recorded like all that a client gets.
func TestARefusedRoundIsRecorded(t *testing.T) {
	b := newBench(t, permissive(), nil)
	from := call(t, b.ann, "files__read", "{}")
	from.Caps = mcp.CanListRoots
	m := b.admit(t, from)
	asks := jsonrpc.Message{ID: jsonrpc.IntID(1), Result: jsonrpc.Raw(`{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}`)}
	out, err := b.Release(t.Context(), m.Answer(asks, 0), from)
	if err != nil || !out.Rounds || len(out.Round) != 1 {
		t.Fatalf("Release = %+v, %v, want a round of one question", out, err)
	}
	no := jsonrpc.Message{Error: &jsonrpc.Error{Code: -1, Message: "no"}}
	_, err = b.AdmitRound(t.Context(), from, m, map[*chokepoint.Question]chokepoint.Reply{out.Round[0]: {From: from, Msg: no}})
	refusal := (*chokepoint.Refusal)(nil)
	if !errors.As(err, &refusal) || refusal.Msg.Error == nil || !strings.Contains(refusal.Msg.Error.Message, "asked for roots") {
		t.Fatalf("AdmitRound: %v, want the answer to the client", err)
	}
	all := b.entries(t)
	if last := all[len(all)-1]; last.Verdict != "deny" || last.Cause != 1 || !strings.Contains(last.Reason, "gave no answer") {
		t.Errorf("the last entry is %+v", last)
	}
}

// TestNamesOfQuestionsAreNoContent: what a question is called crosses unchanged, so it holds neither a secret nor a text, in either direction.
func TestNamesOfQuestionsAreNoContent(t *testing.T) {
	form := `{"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}`
	for name, ok := range map[string]bool{"confirm-1": true, strings.Repeat("k", 256): true, strings.Repeat("k", 257): false, "the key is " + aws(): false} {
		b := newTaskBench(t, mcp.V20260728)
		id := b.task(t, b.ann, mcp.V20260728, "up-1")
		from := peerOf(t, b.ann, mcp.V20260728, mcp.TasksGet, about(id))
		from.Caps |= mcp.CanElicit
		asked := b.answers(t, b.admit(t, from), from, `{"taskId":"up-1","status":"input_required","inputRequests":{"`+name+`":`+form+`}}`)
		if has := strings.Contains(string(asked.Append(nil)), name); has != ok {
			t.Errorf("%.20s: the client of a task is told %.300s", name, asked.Append(nil))
		}
		from = peerOf(t, b.ann, mcp.V20260728, mcp.ToolsCall, `{"name":"files__read","arguments":{}}`)
		from.Caps |= mcp.CanElicit
		asked = b.answers(t, b.admit(t, from), from, `{"resultType":"input_required","requestState":"s","inputRequests":{"`+name+`":`+form+`}}`)
		if has := strings.Contains(string(asked.Append(nil)), name); has != ok {
			t.Errorf("%.20s: the client of a call is told %.300s", name, asked.Append(nil))
		}
		from = peerOf(t, b.ann, mcp.V20260728, mcp.TasksUpdate, `{"taskId":"`+id+`","inputResponses":{"`+name+`":{"action":"decline"}}}`)
		m, _, err := b.Admit(t.Context(), from)
		if (err == nil) != ok || m.IsZero() == ok {
			t.Errorf("%.20s: the client's answer: %v", name, err)
		}
		if all := b.entries(t); !ok && (all[len(all)-1].Verdict != "deny" || strings.Contains(all[len(all)-1].RequestID, aws())) {
			t.Errorf("%.20s: recorded as %+v", name, all[len(all)-1])
		}
	}
}
