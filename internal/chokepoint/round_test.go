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
	_, err = b.AdmitRound(t.Context(), from, m, map[*chokepoint.Question]jsonrpc.Message{out.Round[0]: no})
	refusal := (*chokepoint.Refusal)(nil)
	if !errors.As(err, &refusal) || refusal.Msg.Error == nil || !strings.Contains(refusal.Msg.Error.Message, "asked for roots") {
		t.Fatalf("AdmitRound: %v, want the answer to the client", err)
	}
	all := b.entries(t)
	if last := all[len(all)-1]; last.Verdict != "deny" || last.Cause != 1 || !strings.Contains(last.Reason, "gave no answer") {
		t.Errorf("the last entry is %+v", last)
	}
}
