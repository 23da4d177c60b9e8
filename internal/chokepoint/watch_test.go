package chokepoint_test

import (
	"errors"
	"strings"
	"testing"

	"navra/internal/auth"
	"navra/internal/chokepoint"
	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// peerOf is a peer with a message of a version.
func subscriberOf(t *testing.T, who auth.Principal, v mcp.Version, method, params string) chokepoint.Peer {
	t.Helper()
	m, fault := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":"l","method":"` + method + `","params":` + params + `}`))
	if fault != nil {
		t.Fatal(fault)
	}
	return chokepoint.Peer{Who: who, In: mcp.Inbound{Msg: m, Transport: mcp.WebSocket}, Version: v}
}

func listener(t *testing.T, who auth.Principal) chokepoint.Peer {
	return subscriberOf(t, who, mcp.V20260728, mcp.Listen, `{"notifications":{}}`)
}

func watching(t *testing.T, b *bench, from chokepoint.Peer) chokepoint.Watch {
	t.Helper()
	w, ok := b.AdmitWatch(t.Context(), from, "note://read")
	if !ok {
		t.Fatal("AdmitWatch refused")
	}
	return w
}

func TestWatchIsJudgedAndRecorded(t *testing.T) {
	b := newBench(t, policy.Options{Roles: map[string]policy.Role{
		policy.LocalDefault: {Allow: []policy.Patterns{{Tools: []string{"*"}, Resources: []string{"note://r*"}}}, Clearance: ifc.PII},
	}, OnViolation: policy.Allow}, nil)
	from := listener(t, b.ann)
	watching(t, b, from)
	for _, uri := range []string{"note://send", "note://none", ""} {
		if _, ok := b.AdmitWatch(t.Context(), from, uri); ok {
			t.Errorf("%q may be followed", uri)
		}
	}
	if _, ok := b.AdmitWatch(t.Context(), subscriberOf(t, b.ann, mcp.V20251125, mcp.ToolsCall, `{}`), "note://read"); ok {
		t.Error("followed for a message that asks for no such thing")
	}
	var verdicts []string
	for _, e := range b.entries(t) {
		verdicts = append(verdicts, e.Target+" "+e.Verdict)
	}
	if got := strings.Join(verdicts, ", "); got != "note://read allow, note://send deny, note://none deny,  deny, note://read deny" {
		t.Errorf("recorded: %s", got)
	}
}

// What was not admitted here, or for somebody else, is neither asked for nor told of.
func TestWatchesOfOthers(t *testing.T) {
	here, there := newBench(t, permissive(), nil), newBench(t, permissive(), nil)
	ann, bob := listener(t, here.ann), listener(t, here.bob)
	mine, his, foreign := watching(t, here, ann), watching(t, here, bob), watching(t, there, listener(t, there.ann))
	for name, w := range map[string]chokepoint.Watch{"zero value": {}, "another chokepoint's": foreign} {
		if _, err := here.AdmitFollow(t.Context(), w); !errors.Is(err, chokepoint.ErrUncleared) {
			t.Errorf("%s: AdmitFollow = %v", name, err)
		}
		if _, err := here.AdmitListen(t.Context(), mine.Lane(), mcp.Wish{}, []chokepoint.Watch{w}); !errors.Is(err, chokepoint.ErrUncleared) {
			t.Errorf("%s: AdmitListen = %v", name, err)
		}
	}
	if _, err := here.AdmitListen(t.Context(), mine.Lane(), mcp.Wish{}, []chokepoint.Watch{his}); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("another lane's: AdmitListen = %v", err)
	}
	note := jsonrpc.Message{Method: mcp.ResourceUpdated, Params: jsonrpc.Raw(`{"uri":"note://read/part"}`)}
	news, ok := here.News(here.Unsolicited(mine.Lane(), note, 0))
	if !ok {
		t.Fatal("no news")
	}
	if _, ok := here.News(there.Unsolicited(mine.Lane(), note, 0)); ok {
		t.Error("another chokepoint's news was opened")
	}
	for name, tt := range map[string]struct {
		w  chokepoint.Watch
		to chokepoint.Peer
	}{"another principal": {mine, bob}, "another's watch": {his, bob}, "nobody": {mine, chokepoint.Peer{}}} {
		if m, err := here.Tell(t.Context(), news, tt.w, tt.to); !errors.Is(err, chokepoint.ErrUncleared) {
			t.Errorf("%s was told: %+v, %v", name, m, err)
		}
	}
	m, err := here.Tell(t.Context(), news, mine, ann)
	if err != nil || m.Drop || string(m.Msg.Params) != `{"uri":"note://read/part","_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}` {
		t.Errorf("Tell = %s %v, %v", m.Msg.Params, m.Drop, err)
	}
	entries := here.entries(t)
	last := entries[len(entries)-1]
	if last.Method != mcp.ResourceUpdated || last.Target != "note://read/part" || last.Principal != "ann" || last.After != "untrusted, files:sensitive" {
		t.Errorf("recorded %+v", last)
	}
}

// News is told to who may see it: what is above a role's clearance is not, and what a filter finds is not shown.
func TestNewsIsJudged(t *testing.T) {
	roles := map[string]policy.Role{policy.LocalDefault: {Clearance: ifc.Public, Allow: []policy.Patterns{{Resources: []string{"*"}}}}}
	b := newBench(t, policy.Options{Roles: roles, OnViolation: policy.Allow, Results: policy.Pseudonymise}, nil)
	from := listener(t, b.ann)
	if _, ok := b.AdmitWatch(t.Context(), from, "note://read"); ok {
		t.Error("what is above the clearance may be followed")
	}
	b = newBench(t, policy.Options{Roles: allRoles, OnViolation: policy.Allow, Results: policy.Pseudonymise}, nil)
	from = listener(t, b.ann)
	w := watching(t, b, from)
	news, _ := b.News(b.Unsolicited(w.Lane(), jsonrpc.Message{Method: mcp.ResourceUpdated, Params: jsonrpc.Raw(`{"uri":"note://read/` + aws() + `"}`)}, 0))
	m, err := b.Tell(t.Context(), news, w, from)
	if err != nil || strings.Contains(string(m.Msg.Params), aws()) {
		t.Errorf("Tell = %s, %v", m.Msg.Params, err)
	}
	for _, e := range b.entries(t) {
		if strings.Contains(e.Target, aws()) {
			t.Errorf("the entry holds the secret: %s", e.Target)
		}
	}
}
