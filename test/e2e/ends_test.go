package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	ws "github.com/coder/websocket"
)

// A tie is one way in which ann is told of changes: a listen of the stateless era, or a session of the stateful one.
type tie struct {
	*ear
	listen string  // the id of the listen; "" for a session
	sock   *socket // where it is over one
	lasts  bool    // it is a connection that navra does not close
}

// result waits for the listen's answer.
func (l tie) result() {
	l.t.Helper()
	m := l.next("its result", func(m message) bool { return m.Method == "" && string(m.ID) == l.listen }, nil)
	if m.Error == nil && listenID(m.Result) != l.listen {
		l.t.Errorf("%s: the result is %s", l.name, m.Result)
	}
}

// ended waits until nothing more can come.
func (l tie) ended() {
	l.t.Helper()
	if l.listen != "" && l.sock == nil {
		l.result()
	}
	if l.lasts {
		return
	}
	for m := range l.ch {
		if m.Method == "notifications/resources/updated" {
			l.t.Errorf("%s: it is told of %s", l.name, m.Params)
		}
	}
	if l.sock != nil && ws.CloseStatus(l.sock.why) != ws.StatusPolicyViolation {
		l.t.Errorf("%s: closed with %v, want 1008", l.name, l.sock.why)
	}
}

// shared is a staff whose upstream tells both principals of what bob changes.
func shared(t *testing.T) (*staff, *web) {
	s := &staff{setup: newSetup(t)}
	url, _ := s.endpoint("127.0.0.1:0", "odd", "-watch")
	s.config = filepath.Join(s.Dir, "team.yaml")
	write(t, s.config, fmt.Sprintf("listen: 127.0.0.1:0\nauth: {tokens: true}\nstore: %q\nprincipals: {ann: {roles: [local-default]}, bob: {roles: [local-default]}}\nifc: {on_violation: observe}\n"+
		"upstreams: {odd: {url: %q, shared: true}}\n", s.db(), url))
	s.a, s.b = s.serve(s.config), s.serve(s.config)
	s.ann, s.bob = s.token("ann"), s.token("bob")
	return s, &web{t: t, addr: s.a.Addr, token: s.bob, modern: true}
}

// ties has ann follow note://a in each era over each transport, on both gateways and on a third process.
func (s *staff) ties(t *testing.T) (all []tie) {
	wish, note := map[string]any{"resourceSubscriptions": []string{"note://a"}}, map[string]any{"uri": "note://a"}
	modern := &web{t: t, addr: s.a.Addr, token: s.ann, modern: true}
	old := (&web{t: t, addr: s.b.Addr, token: s.ann}).open()
	over, session := dial(t, s.b.Addr, s.ann), dial(t, s.a.Addr, s.ann).open("2025-11-25")
	s.Env = append(s.Env, "NAVRA_TOKEN="+s.ann)
	c, both := s.start(navraBin, "stdio", "--config", s.config), s.start(navraBin, "stdio", "--config", s.config).open()
	all = []tie{
		{ear: modern.listen(t, "a listen over HTTP", 1, wish), listen: "1"},
		{ear: over.hear(t, "a listen over WebSocket"), listen: "2", sock: over},
		{ear: c.hear(t, "a listen over stdio"), listen: "3", lasts: true},
		{ear: old.hear(t, "a GET stream")},
		{ear: session.hear(t, "a session over WebSocket"), sock: session},
		{ear: both.hear(t, "a session over stdio"), lasts: true},
	}
	over.write(listenRequest(2, wish))
	c.send(listenRequest(3, wish))
	for _, l := range all[:3] {
		if m := l.method("notifications/subscriptions/acknowledged"); !strings.Contains(string(m.Params), "note://a") {
			t.Fatalf("%s: acknowledged %s", l.name, m.Params)
		}
	}
	for _, m := range []message{old.request("resources/subscribe", note), session.request("resources/subscribe", note), both.request("resources/subscribe", note)} {
		if string(m.Result) != "{}" {
			t.Fatalf("subscribe: %s %+v", m.Result, m.Error)
		}
	}
	return all
}

// touch has bob change a resource, and returns when bob was told.
func (s *staff) touch(bob *web, hears *ear, uri string) {
	s.t.Helper()
	bob.call("odd__touch", map[string]any{"uri": uri})
	hears.updated(uri, nil)
}

// untold checks that behind the event ann is told of nothing until the end.
func (s *staff) untold(event, until string) {
	s.t.Helper()
	behind := false
	for _, e := range s.entriesOf(s.config) {
		switch {
		case e.Kind == "event" && strings.Contains(e.Reason, event):
			behind = true
		case e.Kind == "event" && until != "" && strings.HasPrefix(e.Reason, until):
			return
		case behind && e.Kind == "notification" && e.Method == "notifications/resources/updated" && e.Principal == "ann" && e.Verdict == "allow":
			s.t.Errorf("entry %d tells ann of a resource behind %q", e.Seq, event)
		}
	}
	if !behind || until != "" {
		s.t.Errorf("there is no event %q, or none %q", event, until)
	}
}

// TestStreamsEnd: whoever is not let in any more is told nothing more, over each transport, in each era and process.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		event string
		end   func(*staff)
	}{
		"the token is revoked":           {"revoked token", func(s *staff) { s.must("token", "revoke", tokenOf(s.must("token", "list"), "ann")) }},
		"the principal is named no more": {"team.yaml: from ", func(s *staff) { s.rewrite("ann: {roles: [local-default]}, ", "") }},
	} {
		t.Run(name, func(t *testing.T) {
			s, bob := shared(t)
			all := s.ties(t)
			hears := bob.listen(t, "bob", 9, map[string]any{"resourceSubscriptions": []string{"note://a"}})
			hears.method("notifications/subscriptions/acknowledged")
			s.touch(bob, hears, "note://a/before")
			for _, l := range all {
				l.updated("note://a/before", nil)
			}
			tt.end(s)
			for _, l := range all {
				l.ended()
			}
			s.touch(bob, hears, "note://a/after")
			s.untold(tt.event, "")
			for _, l := range all {
				if !l.lasts {
					continue
				}
				select {
				case m := <-l.ch:
					if strings.Contains(string(m.Params), "note://a/after") {
						t.Errorf("%s: told of what came afterwards", l.name)
					}
				default:
				}
			}
			s.must("blackbox", "verify")
		})
	}
}

// TestStreamsWhilePaused: a listen that follows what is paused ends, so that its client knows; a session stays, is told nothing meanwhile, and once of
// what it follows when that goes on.
func TestStreamsWhilePaused(t *testing.T) {
	t.Parallel()
	for _, what := range [][]string{{"--principal", "ann"}, {"--upstream", "odd", "--principal", "ann"}} {
		t.Run(strings.Join(what, " "), func(t *testing.T) {
			s, bob := shared(t)
			all := s.ties(t)
			hears := bob.listen(t, "bob", 9, map[string]any{"resourceSubscriptions": []string{"note://a"}})
			hears.method("notifications/subscriptions/acknowledged")
			s.must(append([]string{"pause"}, what...)...)
			for _, l := range all[:3] {
				l.result()
			}
			s.touch(bob, hears, "note://a/paused")
			s.must(append([]string{"resume"}, what...)...)
			for _, l := range all[3:] {
				l.updated("note://a", func(m message) { t.Errorf("%s: told of %s %s", l.name, m.Method, m.Params) })
			}
			s.touch(bob, hears, "note://a/resumed")
			for _, l := range all[3:] {
				l.updated("note://a/resumed", nil)
			}
			s.untold("paused", "resumed")
			s.must("blackbox", "verify")
		})
	}
}
