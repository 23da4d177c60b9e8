package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/mcp"
)

// A kind is one kind of question with an answer to it.
type kind struct {
	name, method, params, answer string
}

var kinds = []kind{
	{"sampling", mcp.Sampling, `{"messages":[{"role":"user","content":{"type":"text","text":"hé?"}}],"maxTokens":5,"x":[1,2.50]}`, `{"role":"assistant","model":"m","content":{"type":"text","text":"hô \"x\""},"stopReason":"endTurn","y":1.50}`},
	{"form", mcp.Elicit, `{"message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`, `{"action":"accept","content":{"name":"Änn","n":1.50}}`},
	{"url", mcp.Elicit, `{"mode":"url","message":"open","url":"https://example.org/a?b=c","elicitationId":"e1"}`, `{"action":"accept"}`},
	{"roots", mcp.RootsList, `{}`, `{"roots":[{"uri":"file:///a","name":"A"}]}`},
}

// cells runs f for each pair of eras and each wire to the upstream and from the client.
func cells(t *testing.T, f func(t *testing.T, c client, stateless bool, wire string)) {
	for _, modern := range []bool{false, true} {
		for _, upstream := range []bool{false, true} {
			for _, in := range []string{"connection", "http"} {
				for _, wire := range []string{"http", "ws"} {
					name := fmt.Sprintf("client %s over %s, upstream %s over %s", eraName(modern), in, eraName(upstream), wire)
					t.Run(name, func(t *testing.T) { f(t, client{stateless: modern, http: in == "http"}, upstream, wire) })
				}
			}
		}
	}
}

func eraName(stateless bool) string {
	if stateless {
		return "stateless"
	}
	return "stateful"
}

// answering makes a client that answers each kind.
func answering(method string, params json.RawMessage) (string, string, bool) {
	for _, k := range kinds {
		if k.method == method && strings.Contains(string(params), `"mode":"url"`) == (k.name == "url") {
			return k.answer, "", true
		}
	}
	return "", "", false
}

func kindNamed(name string) kind {
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	panic(name)
}

// asking plays a call that asks the kind that its argument names, and says what was answered.
func asking(c *callOf) {
	var p struct {
		Arguments struct{ Kind string }
	}
	_ = json.Unmarshal(c.in.Params, &p)
	k := kindNamed(p.Arguments.Kind)
	got, ok := c.ask(`"q-`+k.name+`"`, k.method, k.params)
	switch {
	case !ok:
	case got.Error != nil:
		c.say(fmt.Sprintf("error %d", got.Error.Code))
	default:
		c.say(string(got.Result))
	}
}

// MCP 2025-11-25, client/{sampling,elicitation,roots}; MCP 2026-07-28, basic/utilities §Multi-round requests.
func TestQuestionsAreAskedAndAnswered(t *testing.T) {
	cells(t, func(t *testing.T, c client, stateless bool, wire string) {
		s := newScript(stateless, asking)
		d := newDesk(t, s.url(t, wire), setting{})
		c.on = answering
		h := d.host(c, true)
		for _, k := range kinds {
			if got := text(h.call(`{"kind":"` + k.name + `"}`)); got != k.answer {
				t.Errorf("%s: the upstream got %s, want %s", k.name, got, k.answer)
			}
			if len(h.saw(k.method)) == 0 {
				t.Errorf("%s: the client was not asked", k.name)
			}
		}
		for _, m := range h.saw(mcp.Elicit) {
			raw, _ := m.Params.Get("message")
			if msg, _ := raw.Text(); !strings.HasPrefix(msg, "[up] ") {
				t.Errorf("the person is not told who asks: %s", m.Params)
			}
			_, has := m.Params.Get("elicitationId")
			if mode, _ := m.Params.Get("mode"); string(mode) == `"url"` && has == c.stateless {
				t.Errorf("elicitationId is there: %v: %s", has, m.Params)
			}
		}
		if n := len(d.find(blackbox.ClientAnswer, mcp.Sampling)) + len(d.find(blackbox.ClientAnswer, mcp.Elicit)) + len(d.find(blackbox.ClientAnswer, mcp.RootsList)); n != len(kinds) {
			t.Errorf("%d answers are recorded, want %d", n, len(kinds))
		}
		d.settled(0)
	})
}
