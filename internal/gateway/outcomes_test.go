package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"navra/internal/mcp"
)

// TestWaitingForOutcomesIsBounded: requests that wait for what tasks come to do not pile up: the oldest of a principal gives way.
func TestWaitingForOutcomesIsBounded(t *testing.T) {
	d := &deaf{heard: make(chan struct{}, 1)}
	r := newRig(t, d, time.Hour)
	r.handle(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}}`, &sink{})
	made := &sink{}
	r.handle(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__bad","arguments":{},"task":{}}}`, made)
	id, _ := made.sent[0].Result.Get("task", "taskId")
	var waiting sync.WaitGroup
	begin := func(n int) tap {
		out := make(tap, 100)
		waiting.Go(func() {
			r.handle(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tasks/result","params":{"taskId":%s}}`, n, json.RawMessage(id)), out)
		})
		return out
	}
	first := begin(100)
	for m := range first {
		if m.Method == mcp.Elicit { // it waits
			break
		}
	}
	for n := range 64 {
		begin(101 + n)
	}
	for m := range first {
		if m.Method != "" {
			continue
		}
		if m.Error == nil || m.Error.Code != 403 || !strings.Contains(m.Error.Message, "goes on") {
			t.Errorf("the oldest is answered %s", m.Append(nil))
		}
		break
	}
	d.done.Store(true)
	waiting.Wait()
}
