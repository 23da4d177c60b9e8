package gateway_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// What an upstream sends without a call goes to the session that its connection serves, in order, and to nobody else.
func TestUnaskedGoesToItsSession(t *testing.T) {
	for _, overHTTP := range []bool{false, true} {
		s := newScript(false, func(c *callOf) { c.say("hi") })
		s.caps = `,"logging":{}`
		d := newDesk(t, s.url(t, "ws"), setting{})
		var all []*host
		var writes []func(string)
		for _, who := range []string{"ann", "ann", "bob"} {
			h := d.host(client{who: who, http: overHTTP, on: answering}, true)
			h.request(mcp.ToolsCall, askCall)
			all = append(all, h)
			writes = append(writes, <-s.conns)
		}
		if m := all[1].request(mcp.SetLevel, `{"level":"error"}`); m.Error != nil {
			t.Fatalf("%+v", m.Error)
		}
		for i := range 20 {
			writes[1](fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":%d}}`, i))
			writes[1](fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"alert","data":%d}}`, i))
		}
		writes[1](`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}`)
		soon(t, "they arrive", func() bool { return len(all[1].saw(mcp.Elicited)) == 1 })
		logs := all[1].saw(mcp.Logging)
		for i, m := range logs {
			if want := fmt.Sprintf(`{"level":"alert","data":%d}`, i); string(m.Params) != want {
				t.Errorf("message %d is %s, want %s", i, m.Params, want)
			}
		}
		if len(logs) != 20 {
			t.Errorf("%d messages arrived, want 20", len(logs))
		}
		counted := ""
		for _, m := range []string{mcp.Logging, mcp.Elicited} {
			for _, e := range d.find(blackbox.FromUpstream, m) {
				if e.Verdict == "allow" {
					counted += fmt.Sprint(e.Session != "", e.Principal, e.Notes)
				}
			}
		}
		if want := fmt.Sprint("true", "ann", "[{notifications/message 1}]", "true", "ann", "[{notifications/message 10}]", "true", "ann", "[{notifications/elicitation/complete 1}]"); strings.ReplaceAll(counted, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("recorded %s, want %s", counted, want)
		}
		ch := make(chan wireIn, 1)
		s.mu.Lock()
		s.asked[`"u"`] = ch
		s.mu.Unlock()
		writes[1](`{"jsonrpc":"2.0","id":"u","method":"sampling/createMessage","params":` + kinds[0].params + `}`)
		if got := <-ch; string(got.Result) != kinds[0].answer {
			t.Errorf("the upstream got %s %+v", got.Result, got.Error)
		}
		for i, h := range all {
			if n := len(h.saw(mcp.Logging)) + len(h.saw(mcp.Elicited)) + len(h.saw(mcp.Sampling)); i != 1 && n != 0 {
				t.Errorf("session %d heard %d messages of another", i, n)
			}
		}
	}
}

// A question that nobody can be asked is answered, not left.
func TestUnaskedQuestionWithoutClient(t *testing.T) {
	s := newScript(false, func(c *callOf) { c.say("hi") })
	d := newDesk(t, s.url(t, "ws"), setting{shared: true})
	h := d.host(client{on: answering}, true)
	h.request(mcp.ToolsCall, askCall)
	write := <-s.conns
	ch := make(chan wireIn, 1)
	s.mu.Lock()
	s.asked[`"u"`] = ch
	s.mu.Unlock()
	write(`{"jsonrpc":"2.0","id":"u","method":"elicitation/create","params":` + kindNamed("form").params + `}`)
	if got := <-ch; got.Error == nil || got.Error.Code != jsonrpc.CodeMethodNotFound {
		t.Errorf("got %s", got.Result)
	}
}

// An upstream that several principals share asks none of them, even with one call under way: it may be about the call of another.
func TestSharedUpstreamAsksNobody(t *testing.T) {
	for _, wire := range []string{"http", "ws"} {
		for _, stateless := range []bool{false, true} {
			s := newScript(false, func(c *callOf) {
				c.write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"alert","data":"of another"}}`)
				asking(c)
			})
			d := newDesk(t, s.url(t, wire), setting{shared: true})
			h := d.host(client{stateless: stateless, on: answering}, true)
			if got := text(h.call(`{"kind":"form"}`)); got != "error -32601" {
				t.Errorf("%s: got %s", wire, got)
			}
			if len(h.saw(mcp.Elicit)) != 0 || wire == "ws" && len(h.saw(mcp.Logging)) != 0 {
				t.Errorf("%s: the client heard %v", wire, h.heard)
			}
		}
	}
}

// The id of a question is no key to it: only who was asked, in that session, answers it.
func TestAnotherSessionDoesNotAnswer(t *testing.T) {
	for _, overHTTP := range []bool{false, true} {
		s := newScript(false, asking)
		d := newDesk(t, s.url(t, "http"), setting{})
		ann := d.host(client{http: overHTTP}, true)
		others := []*host{
			d.host(client{http: overHTTP}, true), d.host(client{who: "bob", http: overHTTP}, true),
			d.host(client{who: "bob", stateless: true, http: overHTTP}, false),
		}
		ended := make(chan jsonrpc.Message, 1)
		go func() { ended <- ann.call(`{"kind":"form"}`) }()
		soon(t, "ann is asked", func() bool { return len(ann.saw(mcp.Elicit)) == 1 })
		id := ann.saw(mcp.Elicit)[0].ID
		for _, h := range others {
			h.reply(id, `{"action":"accept","content":{"by":"another"}}`, "")
		}
		if overHTTP { // with the session's id, but as somebody else
			thief := others[1]
			mine := thief.session
			thief.session = ann.session
			thief.reply(id, `{"action":"accept","content":{"by":"another"}}`, "")
			if thief.session = mine; thief.status != 404 {
				t.Errorf("the session of another is answered with %d, want 404", thief.status)
			}
		}
		ann.reply(id, `{"action":"accept","content":{"by":"ann"}}`, "")
		ann.reply(id, `{"action":"accept","content":{"by":"ann, again"}}`, "")
		if got := text(<-ended); got != `{"action":"accept","content":{"by":"ann"}}` {
			t.Errorf("the upstream got %s", got)
		}
		d.settled(0)
	}
}

// Many sessions at once: each answer reaches the call that it was asked for, and nothing is left behind.
func TestManySessionsAreAskedAtOnce(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("run", func(t *testing.T) {
		s := newScript(false, func(c *callOf) {
			raw := string(c.in.Params)
			got, ok := c.ask(string(c.in.ID)+"00", mcp.Elicit, `{"message":"`+between(raw, `"n":"`, `"`)+`","requestedSchema":{"type":"object","properties":{}}}`)
			if ok {
				c.say(string(got.Result))
			}
		})
		for _, wire := range []string{"http", "ws"} {
			d := newDesk(t, s.url(t, wire), setting{})
			var work sync.WaitGroup
			for i := range 20 {
				who := []string{"ann", "bob"}[i%2]
				h := d.host(client{who: who, stateless: i%4 >= 2 && wire == "http", http: i%3 == 0, on: func(_ string, params json.RawMessage) (string, string, bool) {
					return `{"action":"accept","content":{"n":"` + between(string(params), "[up] ", `"`) + `"}}`, "", true
				}}, true)
				work.Go(func() {
					for j := range 3 {
						n := fmt.Sprintf("%s-%d-%d", who, i, j)
						if got, want := text(h.call(`{"n":"`+n+`"}`)), `{"action":"accept","content":{"n":"`+n+`"}}`; got != want {
							t.Errorf("got %s, want %s", got, want)
						}
					}
				})
			}
			work.Wait()
			d.settled(0)
		}
	})
	soon(t, "what was started has ended", func() bool { return runtime.NumGoroutine() <= before+5 })
}

func between(s, a, b string) string {
	_, s, _ = strings.Cut(s, a)
	s, _, _ = strings.Cut(s, b)
	return s
}

// MCP 2025-11-25, client/elicitation §URL Elicitation Required.
func TestURLsThatMustBeOpened(t *testing.T) {
	const urls = `{"elicitations":[{"mode":"url","message":"log in","url":"https://example.org/login","elicitationId":"e"}]}`
	for _, row := range []struct {
		c    client
		want string
	}{
		{client{}, "error -32042"},
		{client{version: "2025-06-18"}, "error -32603"},
		{client{caps: `{"elicitation":{}}`}, "error -32603"},
		{client{stateless: true, on: answering}, "opened"},
		{client{stateless: true, caps: `{"elicitation":{}}`, on: answering}, "error -32021"},
		{client{stateless: true, on: func(string, json.RawMessage) (string, string, bool) { return `{"action":"decline"}`, "", true }}, "denied by navra"},
	} {
		n := 0
		s := newScript(false, func(c *callOf) {
			if n++; n > 1 {
				c.say("opened")
				return
			}
			c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"open","data":%s}}`, c.in.ID, urls))
		})
		d := newDesk(t, s.url(t, "http"), setting{})
		got := text(d.host(row.c, true).call(`{}`))
		if !strings.HasPrefix(got, row.want) {
			t.Errorf("%+v: got %s, want %s", row.c.version, got, row.want)
		}
		if shown := strings.Contains(got, "example.org"); shown != (row.want == "error -32042") {
			t.Errorf("%+v: the URL is shown: %v: %s", row.c.version, shown, got)
		}
		d.settled(0)
	}
}

func TestChangedRootsReachTheUpstream(t *testing.T) {
	for _, wire := range []string{"http", "ws"} {
		told := make(chan bool, 1)
		s := newScript(false, func(c *callOf) { c.say("hi") })
		s.hear = func(m wireIn) {
			if m.Method == mcp.RootsChanged {
				told <- true
			}
		}
		d := newDesk(t, s.url(t, wire), setting{})
		h := d.host(client{}, true)
		h.request(mcp.ToolsCall, askCall)
		h.notify(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
		select {
		case <-told:
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the upstream was not told", wire)
		}
	}
}

// The request of a stateless client says which log messages it wants.
func TestLogMessagesOfACall(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		for _, level := range []string{"", "warning"} {
			s := newScript(stateless, func(c *callOf) {
				for _, l := range []string{"debug", "warning", "alert"} {
					c.write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + l + `","data":"x"}}`)
				}
				c.say("hi")
			})
			d := newDesk(t, s.url(t, "http"), setting{})
			h := d.host(client{stateless: true}, true)
			params, want := askCall, 0
			if level != "" {
				params, want = `{"name":"up__ask","arguments":{},"_meta":{"io.modelcontextprotocol/logLevel":"warning"}}`, 2
			}
			h.request(mcp.ToolsCall, params)
			if n := len(h.saw(mcp.Logging)); n != want {
				t.Errorf("upstream %s, level %q: %d messages, want %d", eraName(stateless), level, n, want)
			}
		}
	}
}
