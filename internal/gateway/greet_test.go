package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// A scripted is an upstream that answers what a table says, keeps which methods it was sent, and can push on a GET stream.
type scripted struct {
	answers map[string][]string // by method, one after the other; the last again and again
	push    chan string         // what the GET stream brings; nil: there is none
	call    func(id json.RawMessage) string
	opened  atomic.Int64  // GET streams
	first   chan struct{} // closed when there is one

	mu    sync.Mutex
	heard []string       // guarded by mu, like what follows
	nth   map[string]int // answers given
}

func (u *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		if r.Method != http.MethodGet || u.push == nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		push := u.push
		if u.opened.Add(1) == 1 { // that of the rig's own session
			push = nil
			close(u.first)
		}
		for {
			select {
			case m := <-push:
				event(w, "%s", m)
			case <-r.Context().Done():
				return
			}
		}
	}
	b, _ := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.Unmarshal(b, &m)
	u.mu.Lock()
	u.heard = append(u.heard, m.Method)
	if u.nth == nil {
		u.nth = map[string]int{}
	}
	list, n := u.answers[m.Method], u.nth[m.Method]
	u.nth[m.Method]++
	u.mu.Unlock()
	if m.ID == nil || m.Method == "" || list == nil && m.Method != "tools/call" {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if m.Method == "tools/call" && list == nil {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, u.call(m.ID))
		return
	}
	said := list[min(n, len(list)-1)]
	if strings.HasPrefix(said, `"error"`) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, said)
		return
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, said)
}

func (u *scripted) count(method string) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, m := range u.heard {
		if m == method {
			n++
		}
	}
	return n
}

const (
	stateful  = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"told","version":"1"}}`
	stateless = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
	oneTool   = `{"tools":[{"name":"bad","inputSchema":{"type":"object"}}]}`
	wrong     = `"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"2026-07-28"}}`
)

// What an upstream answers to the probe says how it is greeted. MCP 2026-07-28, basic/versioning §Detection.
func TestGreetings(t *testing.T) {
	for name, c := range map[string]struct {
		discover                []string
		probes, hellos, offered int
	}{
		"an empty result is no answer of the stateless era":  {[]string{`{}`}, 1, 1, 1},
		"a list of stateful versions asks for the handshake": {[]string{`{"supportedVersions":["2025-11-25"]}`}, 1, 1, 1},
		"a refused version is tried once more":               {[]string{wrong, stateless}, 2, 0, 1},
		"but not for ever":                                   {[]string{wrong}, 2, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			u := &scripted{answers: map[string][]string{"server/discover": c.discover, "initialize": {stateful}, "tools/list": {oneTool}}}
			r := newRig(t, u, time.Minute)
			out := &sink{}
			if err := r.handle(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, out); err != nil {
				t.Fatal(err)
			}
			n := strings.Count(string(out.sent[0].Result), `"up__bad"`)
			if u.count("server/discover") < c.probes || u.count("server/discover") > 2*c.probes || min(u.count("initialize"), 1) != c.hellos || n != c.offered {
				t.Errorf("upstream heard %v, client is offered %d tools; want %d probes, %d handshakes, %d tools", u.heard, n, c.probes, c.hellos, c.offered)
			}
		})
	}
}

// A server that was replaced by one of the other era refuses the version of a call. It is greeted anew, and the call, which has not run, sent again.
func TestUpstreamChangesItsEra(t *testing.T) {
	u := &scripted{answers: map[string][]string{
		"server/discover": {stateless, `{}`}, "initialize": {stateful}, "tools/list": {oneTool},
		"tools/call": {`"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"],"requested":"2026-07-28"}}`, `{"content":[{"type":"text","text":"done"}]}`},
	}}
	r, out := newRig(t, u, time.Minute), &sink{}
	if err := r.handle(badCall, out); err != nil {
		t.Fatal(err)
	}
	if n := len(out.sent); n != 1 || !strings.Contains(string(out.sent[0].Result), "done") || u.count("initialize") != 1 || u.count("tools/call") != 2 {
		t.Errorf("client got %+v, upstream heard %v; want the second answer over a new handshake", out.sent, u.heard)
	}
}

// A level that a client sets while its upstream's lists are being read is told before the first call.
func TestLevelSetWhileOpening(t *testing.T) {
	var hold atomic.Bool
	lists, reading := make(chan struct{}), make(chan struct{})
	u := &scripted{answers: map[string][]string{"server/discover": {`{}`}, "initialize": {stateful}, "tools/list": {oneTool}, "logging/setLevel": {"{}"}}}
	u.call = func(json.RawMessage) string { return `{"content":[]}` }
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(b)))
		if strings.Contains(string(b), `"tools/list"`) && hold.Load() {
			close(reading)
			<-lists
		}
		u.ServeHTTP(w, r)
	}), time.Minute)
	hold.Store(true)
	second := func(message string) { // another session: what there is, is known by now
		m, fault := jsonrpc.Parse([]byte(message))
		if fault != nil {
			t.Fatal(fault)
		}
		if err := r.Handle(t.Context(), r.who, mcp.Inbound{Msg: m, Transport: mcp.WebSocket, Conn: "d"}, &sink{}); err != nil {
			t.Fatal(err)
		}
	}
	second(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
	<-reading
	second(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`)
	close(lists)
	second(badCall)
	u.mu.Lock()
	defer u.mu.Unlock()
	level, call := slices.Index(u.heard, "logging/setLevel"), slices.Index(u.heard, "tools/call")
	if level < 0 || call < level {
		t.Errorf("upstream heard %v, want logging/setLevel before tools/call", u.heard)
	}
}

// A server may ask on the stream that it pushes on. The question belongs to the only call under way; with two there is none to give it to.
func TestQuestionOnThePushedStream(t *testing.T) {
	for calls, want := range map[int]string{1: "input_required", 2: "complete"} {
		t.Run(want, func(t *testing.T) {
			u := &scripted{push: make(chan string), first: make(chan struct{}), answers: map[string][]string{"server/discover": {`{}`}, "initialize": {stateful}, "tools/list": {oneTool}}}
			var under sync.WaitGroup
			under.Add(calls)
			refused := make(chan struct{})
			u.call = func(json.RawMessage) string {
				under.Done()
				<-refused
				return `{"content":[]}`
			}
			r := newRig(t, u, time.Minute)
			<-u.first
			outs := []*sink{{}, {}}
			var done sync.WaitGroup
			for i := range calls {
				done.Go(func() { r.stateless(i, outs[i]) })
			}
			under.Wait()
			u.push <- `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}`
			if calls == 2 {
				for u.count("") == 0 {
					time.Sleep(time.Millisecond)
				}
				close(refused)
			} else {
				defer close(refused)
			}
			done.Wait()
			kind, _ := outs[0].sent[0].Result.Get("resultType")
			if s, _ := kind.Text(); s != want {
				t.Errorf("the call was answered %s, want %s", outs[0].sent[0].Result, want)
			}
		})
	}
}

// stateless makes a call of a client of the stateless era that can be asked.
func (r *rig) stateless(id int, out mcp.Sink) {
	m, fault := jsonrpc.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"up__bad","arguments":{},"_meta":{
		"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`, id))
	if fault != nil {
		r.t.Error(fault)
		return
	}
	if err := r.Handle(r.t.Context(), r.who, mcp.Inbound{Msg: m, Transport: mcp.WebSocket, Conn: "c"}, out); err != nil {
		r.t.Error(err)
	}
}
