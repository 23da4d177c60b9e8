package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

const form = `{"message":"who?","mode":"form","requestedSchema":{"type":"object","properties":{"name":{"type":"string","maxLength":4},"n":{"type":"integer","maximum":9},` +
	`"size":{"type":"string","enum":["s","l"]},"tags":{"type":"array","items":{"type":"string"}}},"required":["name"]}}`

// onForm plays a call that asks with a form and says what was answered.
func onForm(c *callOf) {
	switch got, ok := c.ask(`"q"`, mcp.Elicit, form); {
	case !ok:
	case got.Error != nil:
		c.say(fmt.Sprintf("error %d", got.Error.Code))
	default:
		c.say(string(got.Result))
	}
}

// TestAnswersFitTheForm: what a client answers to a form goes on if it fits; else the upstream hears that the form was closed, or the client of the
// stateless era, which can be told, is asked again.
func TestAnswersFitTheForm(t *testing.T) {
	const good = `{"action":"accept","content":{"name":"Änn","n":9,"size":"s","tags":["a"]}}`
	bad := map[string]string{
		"left out":     `{"action":"accept","content":{"n":1}}`,
		"nothing":      `{"action":"accept"}`,
		"null":         `{"action":"accept","content":{"name":null}}`,
		"another type": `{"action":"accept","content":{"name":"x","n":"1"}}`,
		"too long":     `{"action":"accept","content":{"name":"xxxxx"}}`,
		"no choice":    `{"action":"accept","content":{"name":"x","size":"m"}}`,
		"nested":       `{"action":"accept","content":{"name":"x","more":{"a":1}}}`,
		"nested list":  `{"action":"accept","content":{"name":"x","more":[["a"]]}}`,
	}
	cells(t, func(t *testing.T, c client, stateless bool, wire string) {
		var answer atomic.Value
		c.on = func(string, json.RawMessage) (string, string, bool) { return answer.Load().(string), "", true }
		s := newScript(stateless, onForm)
		d := newDesk(t, s.url(t, wire), setting{})
		h := d.host(c, true)
		denied := 0
		for what, content := range bad {
			answer.Store(content)
			if !c.stateless {
				if got := text(h.call(`{}`)); got != `{"action":"cancel"}` {
					t.Errorf("%s: the upstream got %s, want that the form was closed", what, got)
				}
			} else {
				asks := h.request(mcp.ToolsCall, askCall)
				first, _ := asks.Result.Get("inputRequests")
				m := h.request(mcp.ToolsCall, string(h.retry(jsonrpc.Raw(askCall), asks)))
				again, _ := m.Result.Get("inputRequests")
				switch {
				case !stateless && string(again) != string(first):
					t.Errorf("%s: got %s, want to be asked again", what, text(m))
				case stateless && (m.Error == nil || m.Error.Code != jsonrpc.CodeInvalidParams || !strings.Contains(m.Error.Message, "does not fit the form") || h.status != http.StatusBadRequest):
					t.Errorf("%s: got %s with status %d, want -32602 and 400", what, text(m), h.status)
				}
				if m.Error == nil { // the state is another one now
					asks = m
				}
				answer.Store(good)
				if got := text(h.request(mcp.ToolsCall, string(h.retry(jsonrpc.Raw(askCall), asks)))); got != good {
					t.Errorf("%s: after that the upstream got %s", what, got)
				}
			}
			denied++
			if n := len(misfits(d)); n != denied {
				t.Fatalf("%s: %d entries deny it, want %d", what, n, denied)
			}
		}
		for _, fits := range []string{good, `{"action":"accept","content":{"name":"","n":null}}`, `{"action":"decline"}`, `{"action":"cancel"}`} {
			answer.Store(fits)
			if got := text(h.call(`{}`)); got != fits {
				t.Errorf("the upstream got %s, want %s", got, fits)
			}
		}
		if n := len(misfits(d)); n != denied {
			t.Errorf("%d entries deny answers, want %d", n, denied)
		}
		d.settled(0)
	})
}

// misfits are the entries of answers that fit no form.
func misfits(d *desk) (out []blackbox.Entry) {
	for _, e := range d.find(blackbox.ClientAnswer, mcp.Elicit) {
		if e.Verdict == "deny" && e.Stage == "schema" && strings.HasPrefix(e.Reason, "the answer does not fit the form: ") {
			out = append(out, e)
		}
	}
	return out
}

// TestFormsThatCannotBeUsed: nobody is asked with a form that an answer cannot be held against.
func TestFormsThatCannotBeUsed(t *testing.T) {
	for what, params := range map[string]string{
		"no schema":    `{"message":"?","requestedSchema":{"type":"nothing"}}`,
		"elsewhere":    `{"message":"?","requestedSchema":{"$ref":"https://example.org/x"}}`,
		"out of bound": `{"message":"?","requestedSchema":{"type":"object","properties":{"a":{"type":"string","title":"` + strings.Repeat("x", 24<<10) + `"}}}}`,
	} {
		t.Run(what, func(t *testing.T) {
			s := newScript(false, func(c *callOf) {
				if got, ok := c.ask(`"q"`, mcp.Elicit, params); ok && got.Error != nil {
					c.say("not asked")
				}
			})
			d := newDesk(t, s.url(t, "http"), setting{})
			h := d.host(client{on: answering}, true)
			if got := text(h.call(`{}`)); got != "not asked" || len(h.saw(mcp.Elicit)) != 0 {
				t.Errorf("got %s, the client was asked %d times", got, len(h.saw(mcp.Elicit)))
			}
			d.settled(0)
		})
	}
}
