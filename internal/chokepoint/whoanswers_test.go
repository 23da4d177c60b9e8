package chokepoint_test

import (
	"errors"
	"strings"
	"testing"

	"navra/internal/auth"
	"navra/internal/blackbox"
	"navra/internal/chokepoint"
	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/store"
)

// TestTheTokenOfWhoAnswers: who answers a question is held against its own token, not that of who was asked: the principal may have two.
func TestTheTokenOfWhoAnswers(t *testing.T) {
	for _, asked := range []bool{false, true} { // the revoked token is that of who was asked
		b := turn(t, mcp.V20251125, somebody(), somebody())
		other := prove(t, b.db, "ann", policy.LocalDefault)
		from := call(t, b.ann, "files__read", "{}")
		from.Caps = mcp.CanListRoots
		m := b.admit(t, from)
		out, err := b.Release(t.Context(), m.Question(jsonrpc.Message{ID: jsonrpc.IntID(5), Method: mcp.RootsList}, 0), from)
		if err != nil || out.Question == nil {
			t.Fatalf("Release = %+v, %v", out, err)
		}
		b.med.kind, b.med.meddle = blackbox.ClientAnswer, func() {
			who := other
			if asked {
				who = b.ann
			}
			b.say(t, store.Change{Revoke: strings.TrimPrefix(who.Subject(), "token:")}, nil)
		}
		second := call(t, other, "files__read", "{}")
		second.Caps = from.Caps
		up, err := b.AdmitAnswer(t.Context(), second, out.Question, jsonrpc.Message{Result: jsonrpc.Raw(`{"roots":[{"uri":"file:///plan"}]}`)})
		if err != nil || b.med.meddle != nil {
			t.Fatal(err)
		}
		c, _ := up.Spend(b.Chokepoint)
		if got := string(c.Bytes(mcp.V20251125)); strings.Contains(got, "file:///plan") != asked {
			t.Errorf("%v: the upstream is told %s", asked, got)
		}
	}
}

// TestAParkedCallIsItsRetrys: a parked call goes on for the token and the role of the request that came back for it.
func TestAParkedCallIsItsRetrys(t *testing.T) {
	parkedAnswer := func(two policy.Options, meddle func(*turning, auth.Principal)) string {
		one := somebody()
		one.Roles = map[string]policy.Role{policy.LocalDefault: {Clearance: ifc.Secret, Allow: []policy.Patterns{{Tools: []string{"*"}, Client: []string{"elicitation", "roots"}}}}}
		b := turn(t, mcp.V20260728, one, two)
		other := prove(t, b.db, "ann", policy.LocalDefault)
		from := peerOf(t, b.ann, mcp.V20260728, mcp.ToolsCall, `{"name":"files__read","arguments":{}}`)
		from.Caps |= mcp.CanListRoots
		m := b.admit(t, from)
		out, err := b.Release(t.Context(), m.Question(jsonrpc.Message{ID: jsonrpc.IntID(5), Method: mcp.RootsList}, 0), from)
		if err != nil || out.Question == nil {
			t.Fatalf("Release = %+v, %v", out, err)
		}
		out.Question.Key("ask1")
		parked, err := b.Park(t.Context(), m, "handle", []*chokepoint.Question{out.Question})
		if err != nil {
			t.Fatal(err)
		}
		state, _ := parked.Msg.Result.Get("requestState")
		if len(two.Roles) == 1 {
			b.told(t)
		}
		again := peerOf(t, other, mcp.V20260728, mcp.ToolsCall, `{"name":"files__read","arguments":{},"inputResponses":{"ask1":{"roots":[]}},"requestState":`+string(state)+`}`)
		again.Caps = from.Caps
		if err := b.Resume(b.admit(t, again), m); err != nil {
			t.Fatal(err)
		}
		meddle(b, other)
		answer := jsonrpc.Message{Result: jsonrpc.Raw(`{"content":[{"type":"text","text":"the plan ` + aws() + `"}]}`)}
		if out, err = b.Release(t.Context(), m.Answer(answer, 0), again); err != nil {
			t.Fatal(err)
		}
		return string(out.Msg.Append(nil))
	}
	got := parkedAnswer(somebody(), func(b *turning, other auth.Principal) {
		b.med.kind, b.med.meddle = blackbox.Answer, func() { b.say(t, store.Change{Revoke: strings.TrimPrefix(other.Subject(), "token:")}, nil) }
	})
	if strings.Contains(got, "the plan") {
		t.Errorf("the token of the retry was revoked: %s", got)
	}
	got = parkedAnswer(somebody(), func(b *turning, _ auth.Principal) {
		b.med.kind, b.med.meddle = blackbox.Answer, func() { b.say(t, store.Change{Revoke: strings.TrimPrefix(b.ann.Subject(), "token:")}, nil) }
	})
	if !strings.Contains(got, "the plan") {
		t.Errorf("the token of the first request was revoked: %s", got)
	}
	low := permissive()
	low.Principals = auth.Directory{"ann": {"sensitive"}}
	low.Roles = map[string]policy.Role{"sensitive": {Clearance: ifc.Sensitive, Allow: []policy.Patterns{{Tools: []string{"*"}, Client: []string{"roots"}}}}}
	got = parkedAnswer(low, func(*turning, auth.Principal) {})
	if strings.Contains(got, "the plan") || !strings.Contains(got, "above the clearance of role \\\"sensitive\\\"") {
		t.Errorf("the role of the retry: %s", got)
	}
}

// TestTheTokenOfWhoAnswersARound: the same for what a call's result asks for.
func TestTheTokenOfWhoAnswersARound(t *testing.T) {
	b := turn(t, mcp.V20251125, somebody(), somebody())
	other := prove(t, b.db, "ann", policy.LocalDefault)
	from := call(t, b.ann, "files__read", "{}")
	from.Caps = mcp.CanListRoots
	m := b.admit(t, from)
	asks := jsonrpc.Message{ID: jsonrpc.IntID(1), Result: jsonrpc.Raw(`{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}`)}
	out, err := b.Release(t.Context(), m.Answer(asks, 0), from)
	if err != nil || len(out.Round) != 1 {
		t.Fatalf("Release = %+v, %v", out, err)
	}
	second := call(t, other, "files__read", "{}")
	b.say(t, store.Change{Revoke: strings.TrimPrefix(other.Subject(), "token:")}, nil)
	roots := jsonrpc.Message{Result: jsonrpc.Raw(`{"roots":[]}`)}
	next, err := b.AdmitRound(t.Context(), from, m, map[*chokepoint.Question]chokepoint.Reply{out.Round[0]: {From: second, Msg: roots}})
	if err == nil {
		c, _ := next.Spend(b.Chokepoint)
		t.Errorf("the upstream is sent %s", c.Bytes(mcp.V20260728))
	}
}

// TestOpenQuestionsUnderTheNextPolicy: what a parked call asks is not asked again where no rule lets an upstream ask for it any more.
func TestOpenQuestionsUnderTheNextPolicy(t *testing.T) {
	two := somebody()
	two.Roles = map[string]policy.Role{policy.LocalDefault: {Clearance: ifc.PII, Allow: []policy.Patterns{{Tools: []string{"*"}}}}}
	b := turn(t, mcp.V20260728, somebody(), two)
	from := peerOf(t, b.ann, mcp.V20260728, mcp.ToolsCall, `{"name":"files__read","arguments":{}}`)
	from.Caps |= mcp.CanListRoots
	out, err := b.Release(t.Context(), b.admit(t, from).Question(jsonrpc.Message{ID: jsonrpc.IntID(5), Method: mcp.RootsList}, 0), from)
	if err != nil || out.Question == nil || !out.Question.Suits(from) {
		t.Fatalf("Release = %+v, %v", out, err)
	}
	b.told(t)
	b.admit(t, from)
	if out.Question.Suits(from) {
		t.Error("it can be asked again")
	}
}

// TestParkedQuestionsOfWhoIsGone: questions wait a moment until the request of a call is answered with them. Who may not be asked by then is not.
func TestParkedQuestionsOfWhoIsGone(t *testing.T) {
	gone := permissive()
	gone.Principals = auth.Directory{"bob": {policy.LocalDefault}}
	for what, meddle := range map[string]func(*turning){
		"a policy": func(b *turning) { b.told(t) }, "a pause": func(b *turning) { b.pause(t, store.Pause{}) },
		"a revocation": func(b *turning) { b.say(t, store.Change{Revoke: strings.TrimPrefix(b.ann.Subject(), "token:")}, nil) },
	} {
		b := turn(t, mcp.V20260728, somebody(), gone)
		from := peerOf(t, b.ann, mcp.V20260728, mcp.ToolsCall, `{"name":"files__read","arguments":{}}`)
		from.Caps |= mcp.CanElicit
		m := b.admit(t, from)
		ask := jsonrpc.Message{ID: jsonrpc.IntID(5), Method: "elicitation/create", Params: jsonrpc.Raw(`{"message":"the plan?","requestedSchema":{"type":"object","properties":{}}}`)}
		out, err := b.Release(t.Context(), m.Question(ask, 0), from)
		if err != nil || out.Question == nil {
			t.Fatalf("Release = %+v, %v", out, err)
		}
		out.Question.Key("ask1")
		b.med.kind, b.med.meddle = blackbox.Answer, func() { meddle(b) }
		parked, err := b.Park(t.Context(), m, "handle", []*chokepoint.Question{out.Question})
		if got := string(parked.Msg.Append(nil)); b.med.meddle != nil || !errors.Is(err, chokepoint.ErrWithheld) || strings.Contains(got, "the plan") || !strings.Contains(got, `"outcome":"unknown"`) {
			t.Errorf("%s: the client is answered %s, %v", what, got, err)
		}
	}
}
