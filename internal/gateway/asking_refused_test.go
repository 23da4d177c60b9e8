package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// MCP 2026-07-28, basic/versioning §Missing capabilities; in the stateful era the code has no meaning.
func TestClientThatCannotBeAsked(t *testing.T) {
	cells(t, func(t *testing.T, c client, stateless bool, wire string) {
		s := newScript(stateless, func(c *callOf) {
			got, ok := c.ask(`"q"`, mcp.Sampling, kinds[0].params)
			if ok && got.Error != nil {
				c.result(`{"isError":true,"content":[{"type":"text","text":"not asked"}]}`)
			}
		})
		d := newDesk(t, s.url(t, wire), setting{})
		c.caps, c.on = `{"roots":{}}`, answering
		h := d.host(c, true)
		m := h.call(`{}`)
		switch {
		case c.stateless:
			need, _ := m.Error.Data.Get("requiredCapabilities", "sampling")
			if m.Error == nil || m.Error.Code != mcp.CodeMissingCapability || need == nil || h.status != http.StatusBadRequest {
				t.Errorf("got %s with status %d, want -32021 and 400", text(m), h.status)
			}
		case stateless:
			if m.Error == nil || m.Error.Code != jsonrpc.CodeInternal || !strings.Contains(string(m.Error.Data), "sampling") {
				t.Errorf("got %s, want -32603 that names sampling", text(m))
			}
		default:
			if text(m) != "not asked" {
				t.Errorf("got %s", text(m))
			}
		}
		if len(h.saw(mcp.Sampling)) != 0 {
			t.Error("the client was asked")
		}
		d.settled(0)
	})
}

func TestNoRuleLetsUpstreamsAsk(t *testing.T) {
	cells(t, func(t *testing.T, c client, stateless bool, wire string) {
		s := newScript(stateless, asking)
		d := newDesk(t, s.url(t, wire), setting{client: []string{"roots"}})
		c.on = answering
		h := d.host(c, true)
		if got := text(h.call(`{"kind":"sampling"}`)); !strings.Contains(got, "denied by navra") && got != "error -32601" {
			t.Errorf("got %s", got)
		}
		if len(h.saw(mcp.Sampling)) != 0 {
			t.Error("the client was asked")
		}
		if got := text(h.call(`{"kind":"roots"}`)); got != kindNamed("roots").answer {
			t.Errorf("roots: got %s", got)
		}
		d.settled(0)
	})
}

// A client of the stateful era refuses; MCP has a form for that only of elicitations.
func TestClientRefuses(t *testing.T) {
	const no = `{"code":-1,"message":"no"}`
	for _, row := range []struct {
		kind, result, failure string
		stateful, stateless   string
	}{
		{"sampling", "", no, "error -1", "got no answer"},
		{"roots", "", no, "error -1", "got no answer"},
		{"form", "", no, "error -1", `{"action":"cancel"}`},
		{"form", `{"action":"decline","content":{"a":1}}`, "", `{"action":"decline"}`, `{"action":"decline"}`},
		{"form", `{"action":"maybe"}`, "", "error -32603", "got no answer"},
		{"sampling", `{"text":"hi"}`, "", "error -32603", "got no answer"},
		{"roots", `{"roots":[{"uri":"https://example.org"}]}`, "", "error -32603", "got no answer"},
	} {
		for _, stateless := range []bool{false, true} {
			t.Run(row.kind+row.result+row.failure+eraName(stateless), func(t *testing.T) {
				s := newScript(stateless, asking)
				d := newDesk(t, s.url(t, "http"), setting{})
				h := d.host(client{on: func(string, json.RawMessage) (string, string, bool) { return row.result, row.failure, true }}, true)
				want := row.stateful
				if stateless {
					want = row.stateless
				}
				if got := text(h.call(`{"kind":"` + row.kind + `"}`)); !strings.Contains(got, want) {
					t.Errorf("got %s, want %s", got, want)
				}
				d.settled(0)
			})
		}
	}
}

// Nobody waits for a client that is gone: the upstream is told, the call ends, and both are recorded.
func TestClientIsGoneMidQuestion(t *testing.T) {
	for _, k := range kinds {
		for _, wire := range []string{"http", "ws"} {
			t.Run(k.name+" "+wire, func(t *testing.T) {
				told := make(chan bool, 1)
				s := newScript(false, func(c *callOf) { // it is answered in the client's place, or its session ends
					got, answered := c.ask(`"q"`, k.method, k.params)
					told <- !answered || got.Error != nil || string(got.Result) == `{"action":"cancel"}`
				})
				d := newDesk(t, s.url(t, wire), setting{})
				h := d.host(client{}, true)
				ended := make(chan jsonrpc.Message, 1)
				go func() { ended <- h.call(`{}`) }()
				soon(t, "the client is asked", func() bool { return len(h.saw(k.method)) == 1 })
				if err := d.Close(context.Background(), d.who["ann"], h.inbound()); err != nil {
					t.Fatal(err)
				}
				if !<-told {
					t.Error("the upstream got an answer that nobody gave")
				}
				<-ended
				if len(h.saw(mcp.Cancelled)) != 0 && len(h.saw(mcp.Cancelled)) != 1 {
					t.Error("the question was withdrawn more than once")
				}
				d.settled(0)
			})
		}
	}
}

// A question that its upstream withdraws, and one whose call has ended, is void for the client before it has the answer.
func TestQuestionsAreWithdrawn(t *testing.T) {
	for _, k := range []kind{kindNamed("form"), kindNamed("roots")} {
		for _, how := range []string{"cancelled", "answered", "given up"} {
			for _, wire := range []string{"http", "ws"} {
				t.Run(k.name+" "+how+" "+wire, func(t *testing.T) {
					goOn := make(chan struct{})
					s := newScript(false, func(c *callOf) {
						told := c.begin(`"q"`, k.method, k.params)
						<-goOn
						if how == "cancelled" {
							c.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`)
							<-told
						}
						c.say("done")
					})
					d := newDesk(t, s.url(t, wire), setting{})
					h := d.host(client{}, true)
					ended := make(chan jsonrpc.Message, 1)
					go func() { ended <- h.call(`{}`) }()
					soon(t, "the client is asked", func() bool { return len(h.saw(k.method)) == 1 })
					want := "done"
					if how == "given up" { // by the client
						want = ""
						h.notify(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, d.next.Load()))
					} else {
						close(goOn)
					}
					if got := text(<-ended); got != want {
						t.Errorf("got %s, want %s", got, want)
					}
					if how == "given up" {
						close(goOn)
					}
					void := h.saw(mcp.Cancelled)
					if len(void) != 1 {
						t.Fatalf("the client was told %d times, want once", len(void))
					}
					if id, _ := void[0].Params.Get("requestId"); string(id) != h.saw(k.method)[0].ID.String() {
						t.Errorf("%s is void, want %s", id, h.saw(k.method)[0].ID)
					}
					d.settled(0)
				})
			}
		}
	}
}

// A client that takes no stream is not asked, and no time is lost on it.
func TestClientWithoutStreamIsNotAsked(t *testing.T) {
	s := newScript(false, asking)
	d := newDesk(t, s.url(t, "http"), setting{})
	h := d.host(client{http: true}, false)
	m := h.requestIn(context.Background(), &post{host: h, deaf: true}, mcp.ToolsCall, `{"name":"up__ask","arguments":{"kind":"form"}}`)
	if got := text(m); got != `{"action":"cancel"}` {
		t.Errorf("the upstream was told %s", got)
	}
	d.settled(0)
}

func TestQuestionRunsOutOfTime(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		s := newScript(stateless, asking)
		d := newDesk(t, s.url(t, "ws"), setting{askLimit: 50 * time.Millisecond})
		h := d.host(client{}, true)
		if got := text(h.call(`{"kind":"form"}`)); got != `{"action":"cancel"}` {
			t.Errorf("%s: the upstream was told %s", eraName(stateless), got)
		}
		d.settled(0)
	}
}

// The time in which a client is asked does not count for its call, and counts again when the answer is there.
func TestCallWaitsWhileItsClientIsAsked(t *testing.T) {
	for _, wire := range []string{"http", "ws"} {
		s := newScript(false, func(c *callOf) {
			c.begin(`"same"`, mcp.Elicit, kindNamed("form").params)
			c.begin(`"same"`, mcp.Elicit, kindNamed("form").params) // under the same id
			<-c.gone                                                // and never answers
		})
		d := newDesk(t, s.url(t, wire), setting{call: 300 * time.Millisecond})
		h := d.host(client{}, true)
		ended := make(chan jsonrpc.Message, 1)
		go func() { ended <- h.call(`{}`) }()
		soon(t, "both are asked", func() bool { return len(h.saw(mcp.Elicit)) == 2 })
		select {
		case m := <-ended:
			t.Fatalf("%s: ended while its client was asked: %s", wire, text(m))
		case <-time.After(600 * time.Millisecond):
		}
		for _, q := range h.saw(mcp.Elicit) {
			h.reply(q.ID, `{"action":"accept"}`, "")
		}
		if m := <-ended; m.Error == nil || m.Error.Code != -32001 {
			t.Errorf("%s: got %s, want the deadline", wire, text(m))
		}
		d.settled(0)
	}
}

// What a client answers is looked through like arguments.
func TestAnswersAreFiltered(t *testing.T) {
	key := "AKIA" + "Q3EGRT5LX" + "WZ7NPKB"
	for _, row := range []struct{ name, kind, answer string }{
		{"secret in a sampling", "sampling", `{"role":"assistant","model":"m","content":{"type":"text","text":"` + key + `"}}`},
		{"secret in a form", "form", `{"action":"accept","content":{"name":"` + key + `"}}`},
		{"placeholder in a sampling", "sampling", `{"role":"assistant","model":"m","content":{"type":"text","text":"[secret:aws-key:1]"}}`},
		{"placeholder as an argument", "sampling", `{"role":"assistant","model":"m","content":{},"arguments":{"path":"/a","text":"[secret:aws-key:1]"}}`},
	} {
		cells(t, func(t *testing.T, c client, stateless bool, wire string) {
			if c.http || wire == "ws" {
				t.Skip("answers cross the chokepoint alike whatever the wire: one is enough")
			}
			s := newScript(stateless, asking)
			d := newDesk(t, s.url(t, wire), setting{strict: true})
			c.on = func(string, json.RawMessage) (string, string, bool) { return row.answer, "", true }
			h := d.host(c, true)
			got := text(h.call(`{"kind":"` + row.kind + `"}`))
			if strings.Contains(got, key) || strings.Contains(got, "secret:aws") || strings.HasPrefix(got, "{") && !strings.Contains(got, "denied") {
				t.Errorf("%s: got %s", row.name, got)
			}
			for _, e := range d.entries() {
				for _, p := range e.Payloads {
					if strings.Contains(string(p.Stored), key) {
						t.Errorf("%s: the secret is stored", row.name)
					}
				}
			}
			d.settled(0)
		})
	}
}

// A sampled text may hold what the model has read elsewhere; a person's answer is the person's. Answers to what is not known to have been
// asked are nobody's.
func TestAnswersAreFlows(t *testing.T) {
	cells(t, func(t *testing.T, c client, stateless bool, wire string) {
		s := newScript(stateless, func(c *callOf) {
			if strings.Contains(string(c.in.Params), "taint") {
				c.say("secret data")
				return
			}
			asking(c)
		})
		d := newDesk(t, s.url(t, wire), setting{strict: true, dirty: true})
		first := make(chan struct{})
		c.on = func(method string, params json.RawMessage) (string, string, bool) {
			select {
			case <-first:
			default: // while the question is open the conversation reads a secret
				close(first)
				taint := d.host(client{stateless: c.stateless, http: c.http}, false)
				if got := text(taint.request(mcp.ToolsCall, `{"name":"dirty__ask","arguments":{"taint":true}}`)); got != "secret data" {
					t.Errorf("taint: %s", got)
				}
			}
			return answering(method, params)
		}
		h := d.host(c, true)
		got := text(h.call(`{"kind":"sampling"}`))
		if strings.Contains(got, "assistant") {
			t.Errorf("the sampled text reached the upstream: %s", got)
		}
		d.settled(0)
		if len(d.find(blackbox.ClientAnswer, mcp.Sampling)) != 1 {
			t.Error("the answer is not recorded")
		}
	})
}
