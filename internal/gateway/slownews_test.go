package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"navra/internal/mcp"
)

// A mute is an upstream of 2026-07-28 that tells that its tasks have changed, and does not say how they stand.
type mute struct {
	push  chan string  // notifications, written to the listen for tasks
	lists chan string  // the same, to the listen for lists
	made  atomic.Int32 // tasks
	tools atomic.Int32 // how often they were listed
	asked chan string  // the tasks that were asked for
}

func (u *mute) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			TaskID        string
			Notifications json.RawMessage
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&m)
	result := ""
	switch m.Method {
	case "server/discover":
		result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"extensions":{"` + mcp.TaskExtension + `":{}}}}`
	case "tools/list":
		result = fmt.Sprintf(`{"tools":[{"name":"bad","description":"%d","inputSchema":{"type":"object"}}]}`, u.tools.Add(1))
	case "tools/call":
		result = fmt.Sprintf(`{"resultType":"task","taskId":"t%d","status":"working","ttlMs":null}`, u.made.Add(1))
	case "tasks/get":
		u.asked <- m.Params.TaskID
		<-r.Context().Done()
		return
	case mcp.Listen:
		from := u.lists
		if strings.Contains(string(m.Params.Notifications), "taskIds") {
			from = u.push
		}
		about := fmt.Sprintf(`"_meta":{%q:%s}`, mcp.SubscriptionID, m.ID)
		w.Header().Set("Content-Type", "text/event-stream")
		event(w, `{"jsonrpc":"2.0","method":%q,"params":{"notifications":%s,%s}}`, mcp.Acknowledged, m.Params.Notifications, about)
		for {
			select {
			case text := <-from:
				event(w, "%s", strings.ReplaceAll(text, "ABOUT", about))
			case <-r.Context().Done():
				return
			}
		}
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// TestMuteUpstreamsHoldNoNewsUp: what else there is to tell a client does not wait for each task of an upstream that does not say how they stand.
func TestMuteUpstreamsHoldNoNewsUp(t *testing.T) {
	u := &mute{push: make(chan string, 9), lists: make(chan string, 9), asked: make(chan string, 9)}
	r := newRig(t, u, 2*time.Second)
	meta := fmt.Sprintf(`"_meta":{"%[1]sprotocolVersion":"2026-07-28","%[1]sclientInfo":{"name":"t","version":"1"},"%[1]sclientCapabilities":{"extensions":{%[2]q:{}}}}`, mcp.Meta, mcp.TaskExtension)
	var ids []string
	for n := range 4 {
		made := &sink{}
		r.handle(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"up__bad","arguments":{},%s}}`, n+1, meta), made)
		raw, _ := made.sent[0].Result.Get("taskId")
		if raw == nil {
			t.Fatalf("the client is told %+v", made.sent)
		}
		ids = append(ids, string(raw))
	}
	out := make(tap, 100)
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.handle(fmt.Sprintf(`{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"taskIds":[%s]},%s}}`, strings.Join(ids, ","), meta), out)
	}()
	if m := <-out; m.Method != mcp.Acknowledged || strings.Count(string(m.Params), ",") < 4 {
		t.Fatalf("acknowledged: %s %s", m.Method, m.Append(nil))
	}
	changed := func(n int) {
		u.push <- fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t%d","status":"working",ABOUT}}`, n)
	}
	changed(1)
	<-u.asked
	for n := range 3 { // they are told of together, after the first
		changed(n + 2)
	}
	<-u.asked
	u.lists <- `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{ABOUT}}`
	if m := <-out; m.Method != "notifications/tools/list_changed" {
		t.Fatalf("told: %s", m.Append(nil))
	}
	if n := len(u.asked); n > 1 {
		t.Errorf("%d more tasks were asked for in vain before the list was told of", n)
	}
	r.handle(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9,`+meta+`}}`, &sink{})
	<-over
}
