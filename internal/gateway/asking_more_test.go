package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// Questions that come together are asked together.
func TestTwoQuestionsAtOnce(t *testing.T) {
	cells(t, func(t *testing.T, c client, stateless bool, wire string) {
		form, roots := kindNamed("form"), kindNamed("roots")
		want := form.answer + roots.answer
		s := newScript(stateless, func(c *callOf) {
			if stateless {
				if raw := string(c.in.Params); strings.Contains(raw, "inputResponses") {
					c.say(between(raw, `"a":`, `,"b":`) + between(raw, `"b":`, `},"requestState"`))
					return
				}
				c.result(fmt.Sprintf(`{"resultType":"input_required","inputRequests":{"a":{"method":%q,"params":%s},"b":{"method":%q}},"requestState":"s"}`, form.method, form.params, roots.method))
				return
			}
			a, b := c.begin(`1`, form.method, form.params), c.begin(`"1"`, roots.method, roots.params) // ids of two types
			c.say(string((<-a).Result) + string((<-b).Result))
		})
		d := newDesk(t, s.url(t, wire), setting{})
		c.on = answering
		h := d.host(c, true)
		if got := text(h.call(`{}`)); got != want {
			t.Errorf("the upstream got %s, want %s", got, want)
		}
		if c.stateless && !stateless && len(d.find(blackbox.Request, mcp.ToolsCall)) != 2 {
			t.Errorf("it took %d requests, want 2", len(d.find(blackbox.Request, mcp.ToolsCall)))
		}
		d.settled(0)
	})
}

// A shutdown ends what waits for a client, asked or parked, and records it.
func TestStopWhileClientsAreAsked(t *testing.T) {
	for _, wire := range []string{"http", "ws"} {
		s := newScript(false, asking)
		d := newDesk(t, s.url(t, wire), setting{})
		asked := d.host(client{}, true)
		ended := make(chan jsonrpc.Message, 1)
		go func() { ended <- asked.call(`{"kind":"form"}`) }()
		soon(t, "it is asked", func() bool { return len(asked.saw(mcp.Elicit)) == 1 })
		parkedOn(t, d.host(client{stateless: true, on: answering}, true), "form")
		done := make(chan struct{})
		go func() { defer close(done); d.Stop() }()
		select {
		case <-done:
		case <-time.After(15 * time.Second):
			t.Fatalf("%s: Stop does not return", wire)
		}
		<-ended
		d.settled(1)
	}
}

// Clients of the stateless era share a connection without streams: a call that may be asked back waits until the one before has ended, and a
// question that may be about a call that was given up is not put to the next.
func TestCallsThatMayBeAskedTakeTurns(t *testing.T) {
	s := newScript(false, asking)
	d := newDesk(t, s.url(t, "ws"), setting{})
	h := d.host(client{stateless: true, on: answering}, true)
	params, asks := parkedOn(t, h, "form")
	second := make(chan jsonrpc.Message, 1)
	go func() { second <- h.call(`{"kind":"sampling"}`) }()
	soon(t, "the second is admitted", func() bool { return len(d.find(blackbox.Request, mcp.ToolsCall)) == 2 })
	if n := len(s.calls()); n != 1 {
		t.Errorf("%d calls are under way, want 1", n)
	}
	if got := text(h.request(mcp.ToolsCall, string(h.retry(params, asks)))); got != kindNamed("form").answer {
		t.Errorf("the first got %s", got)
	}
	if got := text(<-second); got != kindNamed("sampling").answer {
		t.Errorf("the second got %s", got)
	}
	d.settled(0)
}

func TestQuestionOfACallThatWasGivenUp(t *testing.T) {
	first := make(chan *callOf, 1)
	s := newScript(false, func(c *callOf) {
		if strings.Contains(string(c.in.Params), "first") {
			first <- c
			return
		}
		late := (<-first).begin(`"late"`, mcp.Elicit, kindNamed("form").params)
		if got := <-late; got.Error == nil {
			c.say("answered " + string(got.Result))
			return
		}
		c.say("not asked")
	})
	d := newDesk(t, s.url(t, "ws"), setting{})
	h := d.host(client{stateless: true, on: answering}, true)
	ctx, leave := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		h.requestIn(ctx, &post{host: h}, mcp.ToolsCall, `{"name":"up__ask","arguments":{"first":1}}`)
	}()
	soon(t, "the first is there", func() bool { return len(s.calls()) == 1 })
	leave()
	<-gone
	if got := text(h.call(`{}`)); got != "not asked" {
		t.Errorf("got %s", got)
	}
	d.settled(0)
}

// MCP 2025-03-26 has batches: a call in one is asked like any other.
func TestCallInABatchIsAsked(t *testing.T) {
	s := newScript(false, asking)
	d := newDesk(t, s.url(t, "http"), setting{})
	h := d.host(client{version: "2025-03-26", on: answering}, true)
	raw := fmt.Sprintf(`[{"jsonrpc":"2.0","id":1001,"method":"tools/call","params":%s},{"jsonrpc":"2.0","id":1002,"method":"tools/call","params":%s}]`,
		jsonrpc.Raw(askCall).With("arguments", jsonrpc.Raw(`{"kind":"sampling"}`)), jsonrpc.Raw(askCall).With("arguments", jsonrpc.Raw(`{"kind":"roots"}`)))
	in := h.inbound()
	in.Msg, in.Fault = jsonrpc.Parse([]byte(raw))
	out := &post{host: h}
	if err := d.Handle(context.Background(), d.who["ann"], in, out); err != nil {
		t.Fatal(err)
	}
	if len(out.together) != 2 {
		t.Fatalf("%d answers", len(out.together))
	}
	for _, m := range out.together {
		want := map[string]string{"1001": kindNamed("sampling").answer, "1002": kindNamed("roots").answer}[m.ID.String()]
		if got := text(m); got != want {
			t.Errorf("%s: got %s, want %s", m.ID, got, want)
		}
	}
	d.settled(0)
}

// What an upstream sends to a session without end harms that session alone: others hear theirs meanwhile.
func TestSessionWithoutEndOfMessages(t *testing.T) {
	s := newScript(false, func(c *callOf) { c.say("hi") })
	d := newDesk(t, s.url(t, "ws"), setting{})
	flooded, other := d.host(client{}, true), d.host(client{who: "bob"}, true)
	flooded.request(mcp.ToolsCall, askCall)
	flood := <-s.conns
	other.request(mcp.ToolsCall, askCall)
	write := <-s.conns
	for i := range 300 {
		flood(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":%s}`, i, kindNamed("form").params))
	}
	write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"alert","data":"x"}}`)
	soon(t, "the other hears its message", func() bool { return len(other.saw(mcp.Logging)) == 1 })
	soon(t, "some are asked", func() bool { return len(flooded.saw(mcp.Elicit)) > 0 })
	if n := len(flooded.saw(mcp.Elicit)); n > 32 {
		t.Errorf("%d questions are open, want at most 32", n)
	}
}
