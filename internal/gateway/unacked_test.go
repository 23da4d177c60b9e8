package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// A deaf is an upstream of 2026-07-28 whose one task asks a question, and that does not acknowledge what it is answered.
type deaf struct {
	heard chan struct{} // an answer came
	done  atomic.Bool   // the task has ended all the same
}

func (d *deaf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.NewDecoder(r.Body).Decode(&m)
	state := `"status":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}}`
	if d.done.Load() {
		state = `"status":"completed","result":{"content":[{"type":"text","text":"the outcome"}]}`
	}
	result := map[string]string{
		"server/discover": `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"` + mcp.TaskExtension + `":{}}}}`,
		"tools/list":      `{"tools":[{"name":"bad","inputSchema":{"type":"object"}}]}`,
		"tools/call":      `{"resultType":"task","taskId":"t1","status":"working","ttlMs":null}`,
		"tasks/get":       `{"resultType":"complete","taskId":"t1","ttlMs":null,"pollIntervalMs":50,` + state + `}`,
	}[m.Method]
	if m.Method == "tasks/update" {
		select {
		case d.heard <- struct{}{}:
		default: // nobody asks
		}
		<-r.Context().Done()
		return
	}
	if result == "" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// A tap hands on what is sent.
type tap chan jsonrpc.Message

func (t tap) Open(string) {}
func (t tap) Send(m jsonrpc.Message) error {
	t <- m
	return nil
}
func (t tap) Together([]jsonrpc.Message) error      { return nil }
func (t tap) Refuse(_ int, m jsonrpc.Message) error { return t.Send(m) }

// TestUnheardAnswersHoldNothingUp: an upstream that does not say that it has heard an answer keeps nobody waiting who waits no more for its task.
func TestUnheardAnswersHoldNothingUp(t *testing.T) {
	for name, end := range map[string]func(*deaf, *rig){
		"the task ends": func(d *deaf, _ *rig) { d.done.Store(true) },
		"the client cancels": func(_ *deaf, r *rig) {
			r.handle(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`, &sink{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &deaf{heard: make(chan struct{}, 1)}
			r := newRig(t, d, time.Hour)
			r.handle(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}}`, &sink{})
			made := &sink{}
			r.handle(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__bad","arguments":{},"task":{}}}`, made)
			raw, _ := made.sent[0].Result.Get("task", "taskId")
			if raw == nil {
				t.Fatalf("the client is told %+v", made.sent)
			}
			out, over := make(tap, 100), make(chan struct{})
			go func() {
				defer close(over)
				r.handle(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":%s}}`, raw), out)
			}()
			var question jsonrpc.Message
			for question.Method != mcp.Elicit {
				question = <-out
			}
			r.handle(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{}}}`, question.ID.Raw()), &sink{})
			<-d.heard
			end(d, r)
			select {
			case <-over:
			case <-time.After(30 * time.Second):
				t.Fatal("the request waits for the upstream to acknowledge the answer")
			}
			told := ""
			for len(out) > 0 {
				m := <-out
				told += string(m.Append(nil))
			}
			if name == "the task ends" && !strings.Contains(told, "the outcome") {
				t.Errorf("the client is told %s", told)
			}
		})
	}
}
