package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// parkedOn begins a call of a stateless client and returns its params and the result that asks.
func parkedOn(t *testing.T, h *host, kindName string) (params jsonrpc.Raw, asks jsonrpc.Message) {
	t.Helper()
	params = jsonrpc.Raw(askCall).With("arguments", jsonrpc.Raw(`{"kind":"`+kindName+`"}`))
	asks = h.request(mcp.ToolsCall, string(params))
	if kind, _ := asks.Result.Get("resultType"); string(kind) != `"input_required"` {
		t.Fatalf("the call was answered %s", text(asks))
	}
	return params, asks
}

func refusedState(t *testing.T, h *host, what string, m jsonrpc.Message) {
	t.Helper()
	if m.Error == nil || m.Error.Code != jsonrpc.CodeInvalidParams || h.status != http.StatusBadRequest {
		t.Errorf("%s: got %s with status %d, want -32602 and 400", what, text(m), h.status)
	}
}

// MCP 2026-07-28, basic/utilities §Multi-round requests: a state is good for the same call of the same principal, and a parked call for one claim.
func TestRequestStateIsBound(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		t.Run(eraName(stateless), func(t *testing.T) {
			s := newScript(stateless, asking)
			d := newDesk(t, s.url(t, "http"), setting{})
			ann := d.host(client{stateless: true, http: true, on: answering}, false)
			bob := d.host(client{who: "bob", stateless: true, http: true, on: answering}, false)
			params, asks := parkedOn(t, ann, "form")
			before := len(s.calls())
			good := ann.retry(params, asks)
			refusedState(t, bob, "another principal", bob.request(mcp.ToolsCall, string(good)))
			refusedState(t, ann, "other arguments", ann.request(mcp.ToolsCall, string(good.With("arguments", jsonrpc.Raw(`{"kind":"form","x":1}`)))))
			state, _ := good.Get("requestState")
			sealed, _ := state.Text()
			for _, bad := range []string{sealed[:len(sealed)-4] + "AAAA", "A" + sealed[1:], "", "x"} {
				refusedState(t, ann, "tampered", ann.request(mcp.ToolsCall, string(good.With("requestState", jsonrpc.Quote(bad)))))
			}
			refusedState(t, ann, "no string", ann.request(mcp.ToolsCall, string(good.With("requestState", jsonrpc.Raw("7")))))
			if n := len(s.calls()); n != before {
				t.Errorf("%d calls reached the upstream", n-before)
			}
			if got := text(ann.request(mcp.ToolsCall, string(good))); got != kindNamed("form").answer {
				t.Errorf("the retry is answered %s", got)
			}
			if !stateless {
				refusedState(t, ann, "claimed twice", ann.request(mcp.ToolsCall, string(good)))
			}
			d.settled(0)
		})
	}
}

func TestParkedCallIsAskedAgain(t *testing.T) {
	s := newScript(false, asking)
	d := newDesk(t, s.url(t, "ws"), setting{})
	h := d.host(client{stateless: true, on: answering}, true)
	params, asks := parkedOn(t, h, "form")
	first, _ := asks.Result.Get("inputRequests")
	for what, inputs := range map[string]string{"no answer": `{}`, "another key": `{"other":{"action":"accept"}}`, "no shape": `{"ask1":{"action":"maybe"}}`} {
		state, _ := asks.Result.Get("requestState")
		asks = h.request(mcp.ToolsCall, string(params.With("inputResponses", jsonrpc.Raw(inputs)).With("requestState", state)))
		if again, _ := asks.Result.Get("inputRequests"); string(again) != string(first) {
			t.Fatalf("%s: asked %s, want %s", what, again, first)
		}
	}
	if got := text(h.request(mcp.ToolsCall, string(h.retry(params, asks)))); got != kindNamed("form").answer {
		t.Errorf("got %s", got)
	}
	if n := len(s.calls()); n != 1 {
		t.Errorf("the upstream was called %d times", n)
	}
	d.settled(0)
}

// A call that nobody comes back for is cancelled, its questions are answered as by nobody, and what became of it is recorded.
func TestParkedCallExpires(t *testing.T) {
	for _, wire := range []string{"http", "ws"} {
		told := make(chan wireIn, 1)
		s := newScript(false, func(c *callOf) { got, _ := c.ask(`"q"`, mcp.Elicit, kindNamed("form").params); told <- got; <-c.gone })
		cancelled := make(chan bool, 10)
		s.hear = func(m wireIn) {
			if m.Method == mcp.Cancelled {
				cancelled <- true
			}
		}
		d := newDesk(t, s.url(t, wire), setting{parkLife: 50 * time.Millisecond})
		h := d.host(client{stateless: true, on: answering}, true)
		params, asks := parkedOn(t, h, "form")
		if got := <-told; string(got.Result) != `{"action":"cancel"}` {
			t.Errorf("%s: the upstream was told %s", wire, got.Result)
		}
		<-cancelled
		soon(t, "its end is recorded", func() bool { return len(d.find(blackbox.Answer, mcp.ToolsCall)) == 2 })
		if m := h.request(mcp.ToolsCall, string(h.retry(params, asks))); m.Error == nil || m.Error.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("%s: got %s, want -32602", wire, text(m))
		}
		if n := len(s.calls()); n != 1 {
			t.Errorf("%s: the upstream was called %d times", wire, n)
		}
		d.settled(1)
	}
}

// After a restart a parked call is not known, and nothing runs again by itself.
func TestParkedCallDoesNotOutliveTheProcess(t *testing.T) {
	s := newScript(false, asking)
	at := s.url(t, "ws")
	d := newDesk(t, at, setting{})
	h := d.host(client{stateless: true, on: answering}, true)
	params, asks := parkedOn(t, h, "form")
	retry := h.retry(params, asks)
	h.quit()
	d.Stop()
	d.settled(1)
	after := newDesk(t, at, setting{db: d.db, seal: &d.seal})
	again := after.host(client{stateless: true, on: answering}, true)
	if m := again.request(mcp.ToolsCall, string(retry)); m.Error == nil || m.Error.Code != jsonrpc.CodeInvalidParams {
		t.Errorf("got %s, want -32602", text(m))
	}
	if n := len(s.calls()); n != 1 {
		t.Errorf("the upstream was called %d times", n)
	}
}

// What goes with a retry beside the call itself is no part of what was judged; neither is the same call once more.
func TestRetryThatSaysMoreIsJudgedAnew(t *testing.T) {
	s := newScript(true, func(c *callOf) {
		if strings.Contains(string(c.in.Params), "taint") {
			c.say("secret data")
			return
		}
		asking(c)
	})
	for i, more := range []bool{false, true, false} {
		set := setting{strict: true, dirty: true}
		if i == 2 { // somebody watches spans: navra's own is another in each message
			set.spans = func(chokepoint.Span) {}
		}
		d := newDesk(t, s.url(t, "http"), set)
		h := d.host(client{stateless: true, http: true, on: answering}, false)
		params, asks := parkedOn(t, h, "form")
		h.request(mcp.ToolsCall, `{"name":"dirty__ask","arguments":{"taint":true}}`)
		retry := h.retry(params, asks)
		if more {
			retry = retry.With("_meta", jsonrpc.Raw(`{"example.org/note":"what was read"}`))
		}
		before := len(s.calls())
		got := text(h.request(mcp.ToolsCall, string(retry)))
		if sent := len(s.calls()) > before; sent == more {
			t.Errorf("with more said: %v; reached the upstream: %v; %s", more, sent, got)
		}
		before = len(s.calls())
		if got = text(h.request(mcp.ToolsCall, string(retry))); len(s.calls()) > before {
			t.Errorf("with more said: %v; it reached the upstream a second time: %s", more, got)
		}
	}
}

// An upstream that asks without end harms its own call alone.
func TestUpstreamThatAsksWithoutEnd(t *testing.T) {
	const n = 300
	for _, stateless := range []bool{false, true} {
		for _, wire := range []string{"http", "ws"} {
			t.Run(eraName(stateless)+" "+wire, func(t *testing.T) {
				s := newScript(false, func(c *callOf) {
					var told []chan wireIn
					for i := range n {
						told = append(told, c.begin(fmt.Sprint(i), mcp.Elicit, kindNamed("form").params))
					}
					refused := 0
					for refused < n-40 { // all but those that are open
						for i, ch := range told {
							select {
							case <-ch:
								refused++
								told[i] = nil
							default:
							}
						}
						select {
						case <-c.gone:
							return
						case <-time.After(5 * time.Millisecond):
						}
					}
					c.say("done")
				})
				d := newDesk(t, s.url(t, wire), setting{})
				h := d.host(client{stateless: stateless}, true)
				m := h.request(mcp.ToolsCall, askCall)
				if stateless {
					asks, _ := m.Result.Get("inputRequests")
					open := 0
					for range asks.Members() {
						open++
					}
					if open > 16 || open == 0 && text(m) != "done" {
						t.Errorf("%d questions are open: %s", open, text(m)[:min(len(text(m)), 200)])
					}
				} else if text(m) != "done" || len(h.saw(mcp.Elicit)) > 200 {
					t.Errorf("got %s, asked %d times", text(m), len(h.saw(mcp.Elicit)))
				}
			})
		}
	}
}

// A client of the stateless era that leaves while its call is asked has cancelled it.
func TestStatelessClientLeaves(t *testing.T) {
	hold := make(chan struct{})
	s := newScript(false, func(c *callOf) { <-hold; c.ask(`"q"`, mcp.Elicit, kindNamed("form").params) })
	d := newDesk(t, s.url(t, "ws"), setting{})
	h := d.host(client{stateless: true, on: answering}, true)
	ctx, leave := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.requestIn(ctx, &post{host: h}, mcp.ToolsCall, askCall)
	}()
	soon(t, "the call is there", func() bool { return len(s.calls()) == 1 })
	leave()
	<-done
	close(hold)
	d.settled(0)
}

// A retry that is refused for what it brings is recorded as a request that was not sent.
func TestRefusedRetryIsRecorded(t *testing.T) {
	s := newScript(true, asking)
	d := newDesk(t, s.url(t, "http"), setting{})
	h := d.host(client{stateless: true, http: true, on: answering}, false)
	params, asks := parkedOn(t, h, "form")
	state, _ := asks.Result.Get("requestState")
	many := new(jsonrpc.Object)
	for i := range 17 {
		many.Raw(fmt.Sprint(i), jsonrpc.Raw(`{"action":"accept"}`))
	}
	for what, bad := range map[string]jsonrpc.Raw{
		"no shape": params.With("inputResponses", jsonrpc.Raw(`{"q":{"action":"maybe"}}`)).With("requestState", state),
		"too many": params.With("inputResponses", many.Done()),
		"no map":   params.With("inputResponses", jsonrpc.Raw(`[]`)),
	} {
		before := len(d.find(blackbox.Request, mcp.ToolsCall))
		refusedState(t, h, what, h.request(mcp.ToolsCall, string(bad)))
		all := d.find(blackbox.Request, mcp.ToolsCall)
		if len(all) != before+1 || all[before].Verdict != "deny" || all[before].Outcome != "not-sent" {
			t.Errorf("%s: it is not recorded as refused", what)
		}
	}
	if n := len(s.calls()); n != 1 {
		t.Errorf("%d calls reached the upstream, want 1", n)
	}
}
