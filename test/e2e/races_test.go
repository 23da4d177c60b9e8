package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"navra/test/postgres"
)

// TestSoakRacingGateways serves one store twice. What a principal reads through one gateway is known to the other before the answer is there; and
// where both are asked at the same moment, the chain says who was first, and each permit was judged on all that was raised before it.
func TestSoakRacingGateways(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		s := newSetup(t)
		racingGateways(t, s, s.db())
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		racingGateways(t, newSetup(t), postgres.New(t).URL())
	})
}

func racingGateways(t *testing.T, s *setup, store string) {
	races := kills(10, 200) // each with a principal of its own, whose scope is clean
	write(t, s.Dir+"/plan.txt", "private plan\n")
	files, _ := s.endpoint("127.0.0.1:0", "files", s.Dir)
	post, _ := s.endpoint("127.0.0.1:0", "mail")
	config := fmt.Sprintf("listen: 127.0.0.1:0\nauth: {tokens: true}\nstore: %q\nupstreams:\n"+
		"  files: {url: %q, shared: true, tools: {read_file: {class: read}}}\n  mail: {url: %q, shared: true, tools: {send_mail: {class: egress}}}\nprincipals:\n", store, files, post)
	for i := range races {
		config += fmt.Sprintf("  p%d: {roles: [local-default]}\n", i)
	}
	path := s.Dir + "/navra.yaml"
	write(t, path, config)
	a, b := s.serve(path), s.serve(path)
	passed := 0
	for i := range races {
		token, code := s.runOut("token", "create", fmt.Sprint("p", i), "--config", path)
		if code != 0 {
			t.Fatal("no token")
		}
		client := func(g *gateway) *web { return (&web{t: t, addr: g.Addr, token: strings.TrimSpace(token)}).open() }
		reader, sender := client(a), client(b)
		var both sync.WaitGroup
		if i%2 == 0 {
			both.Go(func() {
				if got := sender.call("mail__send_mail", mail("x").args); !got.IsError {
					passed++ // it was first
				}
			})
		}
		if got := reader.call("files__read_file", map[string]any{"path": "plan.txt"}); got.IsError {
			t.Fatal(got.text())
		}
		both.Wait()
		if got := sender.call("mail__send_mail", mail("x").args); !got.IsError || !strings.HasPrefix(got.text(), "denied by navra:") {
			t.Errorf("race %d: what one gateway had answered did not taint the call on the other: %s", i, got.text())
		}
	}
	t.Logf("%d races: of the mails sent at the same moment %d were before the read", races, passed)
	k := &crash{setup: s, t: t, config: path, labels: map[string]label{}}
	sent := 0
	for _, e := range objects[recorded](t, s.pick("list", "--json", "-n", "0", "--config", path)) {
		k.judged(e)
		if e.Kind == "request" && e.Target == "mail/send_mail" && e.Verdict == "allow" {
			if sent++; strings.Contains(e.Before, "files:") {
				t.Errorf("entry %d permits a mail under the label %q", e.Seq, e.Before)
			}
		}
	}
	if sent != passed {
		t.Errorf("%d mails are permitted, and %d were sent", sent, passed)
	}
	s.verify(path)
}
