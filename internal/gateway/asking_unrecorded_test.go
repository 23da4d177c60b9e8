package gateway_test

import (
	"testing"

	"navra/internal/blackbox"
	"navra/internal/mcp"
)

// A question that cannot be recorded is not asked, and its call ends at once: with an answer, which is recorded.
func TestUnrecordedQuestionEndsItsCall(t *testing.T) {
	for _, wire := range []string{"http", "ws"} {
		for _, stateless := range []bool{false, true} {
			s := newScript(false, func(c *callOf) {
				c.ask(`1`, mcp.Elicit, kindNamed("form").params)
				<-c.gone
			})
			d := newDesk(t, s.url(t, wire), setting{refuses: func(e blackbox.Entry) bool { return e.Method == mcp.Elicit }})
			h := d.host(client{stateless: stateless, on: answering}, true)
			m := h.call(`{}`)
			if m.Error == nil || len(h.saw(mcp.Elicit)) != 0 {
				t.Errorf("%s: the client got %s, and was asked %d times", wire, m.Result, len(h.saw(mcp.Elicit)))
			}
			if got := d.find(blackbox.Answer, mcp.ToolsCall); len(got) != 1 || got[0].Outcome != "unknown" {
				t.Errorf("%s: its end is recorded as %+v", wire, got)
			}
			d.settled(0)
		}
	}
}
