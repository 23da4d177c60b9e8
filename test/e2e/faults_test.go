package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// odd starts navra before the odd fixture.
func (s *setup) odd(flags ...string) *client {
	return s.start(append([]string{navraBin, "wrap", "--name", "odd", "--", fixtureBin, "odd", "-log", s.log()}, flags...)...)
}

func TestOddUpstreams(t *testing.T) {
	t.Parallel()
	t.Run("banner lines are skipped", func(t *testing.T) {
		t.Parallel()
		c := newSetup(t).odd("-garbage").open()
		if a := c.call("echo", map[string]any{"text": "x"}); a.text() != "x" {
			t.Errorf("echo: %+v", a)
		}
	})
	t.Run("bytes that are no UTF-8 fail one call", func(t *testing.T) {
		t.Parallel()
		c := newSetup(t).odd("-invalid-utf8").open()
		m := c.request("tools/call", map[string]any{"name": "echo"})
		if m.Error == nil || m.Error.Code != -32603 || !strings.Contains(string(m.Error.Data), `"outcome":"ran"`) {
			t.Errorf("answer: %s %+v", m.Result, m.Error)
		}
		if m := c.request("ping", nil); m.Error != nil {
			t.Error("the connection is not usable afterwards")
		}
	})
	t.Run("doubled members fail one call", func(t *testing.T) {
		t.Parallel()
		c := newSetup(t).odd("-dup-members").open()
		if m := c.request("tools/call", map[string]any{"name": "echo"}); m.Error == nil || m.Error.Code != -32603 {
			t.Errorf("answer: %s %+v", m.Result, m.Error)
		}
	})
	t.Run("a server that dies fails its calls at once, and is started again", func(t *testing.T) {
		t.Parallel()
		s := newSetup(t)
		s.Env = []string{"DIES=" + s.Home}
		c := s.odd("-die-after", "1").open()
		if a := c.call("echo", map[string]any{"text": "last words"}); a.text() != "last words" {
			t.Errorf("the answer that was written before it died: %+v", a)
		}
		gone := func() bool { return len(withEnv(t, "DIES="+s.Home)) == 1 } // navra alone is left
		waitFor(t, "the server to be gone", gone)
		if a := c.call("echo", map[string]any{"text": "again"}); a.text() != "again" {
			t.Errorf("after the restart: %+v", a)
		}
		waitFor(t, "the server to be gone", gone)
		_, slow := c.begin("tools/call", map[string]any{"name": "work", "arguments": map[string]any{"steps": 1000, "ms": 10}})
		waitFor(t, "the call to reach the server", func() bool { return s.everReached("work") })
		c.call("echo", map[string]any{"text": "x"})
		if m := c.await("work", slow); m.Error == nil || !strings.Contains(string(m.Error.Data), `"outcome":"unknown"`) || !strings.Contains(m.Error.Message, "not known") {
			t.Errorf("the call that was cut off: %s %+v", m.Result, m.Error)
		}
	})
	t.Run("a server that never answers is cut off by the time-out", func(t *testing.T) {
		t.Parallel()
		s := newSetup(t)
		config := filepath.Join(s.Dir, "navra.yaml")
		write(t, config, fmt.Sprintf("store: s.db\nupstreams: {odd: {command: [%q, odd, -never, -log, %q], timeouts: {call: 1s}}}\n", fixtureBin, s.log()))
		c := s.start(navraBin, "stdio", "--config", config).open()
		m := c.request("tools/call", map[string]any{"name": "odd__echo"})
		if m.Error == nil || m.Error.Code != -32001 || !strings.Contains(string(m.Error.Data), `"reason":"deadline"`) {
			t.Errorf("answer: %s %+v", m.Result, m.Error)
		}
		waitFor(t, "the cancellation to reach the server", func() bool { return s.everReached("cancelled") })
	})
	t.Run("a server that cannot be started", func(t *testing.T) {
		t.Parallel()
		for _, argv := range [][]string{{"/no/such/program"}, {fixtureBin, "odd", "-exit-at-start"}} {
			s := newSetup(t)
			c := s.start(append([]string{navraBin, "wrap", "--"}, argv...)...)
			if m := c.request("initialize", hello); m.Error != nil {
				t.Errorf("%v: initialize: %+v", argv, m.Error)
			}
			if m := c.request("tools/list", nil); m.Error != nil || string(m.Result) != `{"tools":[]}` {
				t.Errorf("%v: list: %s %+v", argv, m.Result, m.Error)
			}
			if !strings.Contains(c.stderr.String(), "did not start") {
				waitFor(t, "the log to say why", func() bool { return strings.Contains(c.stderr.String(), filepath.Base(argv[0])) })
			}
		}
	})
	t.Run("a flood on stderr stops nothing", func(t *testing.T) {
		t.Parallel()
		c := newSetup(t).odd("-stderr-flood", "300000").open()
		if a := c.call("echo", map[string]any{"text": "x"}); a.text() != "x" {
			t.Errorf("echo: %+v", a)
		}
	})
	t.Run("too large an answer fails its call", func(t *testing.T) {
		t.Parallel()
		c := newSetup(t).odd("-big", "18000000").open()
		m := c.request("tools/call", map[string]any{"name": "echo"})
		if m.Error == nil || m.Error.Code != -32002 || !strings.Contains(string(m.Error.Data), `"limit":16777216`) || !strings.Contains(string(m.Error.Data), `"outcome":"ran"`) {
			t.Errorf("answer: %.100s %+v", m.Result, m.Error)
		}
		if a := c.call("work", map[string]any{"steps": 1, "ms": 1}); a.text() != "done" {
			t.Errorf("afterwards: %+v", a)
		}
	})
	t.Run("all pages are read", func(t *testing.T) {
		t.Parallel()
		c := newSetup(t).odd("-pages").open()
		m := c.request("tools/list", nil)
		if n := strings.Count(string(m.Result), `"inputSchema"`); n != 14 {
			t.Errorf("%d tools, want 14", n)
		}
		if m := c.request("tools/list", map[string]any{"cursor": "page two"}); m.Error == nil || m.Error.Code != -32602 {
			t.Errorf("the upstream's own cursor is taken: %s", m.Result)
		}
	})
	t.Run("a changed list is told and shown", func(t *testing.T) {
		t.Parallel()
		c := newSetup(t).odd("-changed").open()
		c.call("grow", map[string]any{})
		waitFor(t, "list_changed", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, n := range c.notes {
				if n.Method == "notifications/tools/list_changed" {
					return true
				}
			}
			return false
		})
		if m := c.request("tools/list", nil); !strings.Contains(string(m.Result), "grown") {
			t.Errorf("list: %s", m.Result)
		}
	})
	t.Run("what a server asks is answered by navra", func(t *testing.T) {
		t.Parallel()
		a := newSetup(t).odd("-ask").open().call("echo", map[string]any{})
		for _, want := range []string{`ping {"id":"ask-1","result":{}}`, `roots {"id":"ask-2","error":{"code":-32601`, `sampling {"id":"ask-3","error":{"code":-32601`} {
			if !strings.Contains(a.text(), want) {
				t.Errorf("want %s in:\n%s", want, a.text())
			}
		}
	})
	t.Run("answers out of order find their calls", func(t *testing.T) {
		t.Parallel()
		c := newSetup(t).odd("-reorder").open()
		chans := map[string]chan message{}
		for i := range 40 {
			text := fmt.Sprint("nonce ", i)
			_, chans[text] = c.begin("tools/call", map[string]any{"name": "echo", "arguments": map[string]any{"text": text}})
		}
		for text, ch := range chans {
			if a := result(t, c.await(text, ch)); a.text() != text {
				t.Errorf("%s got %s", text, a.text())
			}
		}
	})
	t.Run("progress comes under the client's token", func(t *testing.T) {
		t.Parallel()
		c := newSetup(t).odd().open()
		c.request("tools/call", map[string]any{"name": "work", "arguments": map[string]any{"steps": 3, "ms": 5}, "_meta": map[string]any{"progressToken": "mine"}})
		c.mu.Lock()
		defer c.mu.Unlock()
		n := 0
		for _, note := range c.notes {
			if note.Method == "notifications/progress" && strings.Contains(string(note.Params), `"progressToken":"mine"`) {
				n++
			}
		}
		if n != 3 {
			t.Errorf("%d progress notifications, want 3: %v", n, c.raw)
		}
	})
	t.Run("a cancelled call gets nothing more", func(t *testing.T) {
		t.Parallel()
		s := newSetup(t)
		c := s.odd().open()
		id, ch := c.begin("tools/call", map[string]any{"name": "work", "arguments": map[string]any{"steps": 1000, "ms": 10}})
		waitFor(t, "the call to reach the server", func() bool { return s.everReached("work") })
		c.notify("notifications/cancelled", map[string]any{"requestId": jsonNumber(id), "reason": "private reason"})
		waitFor(t, "the cancellation to reach the server", func() bool { return s.everReached("cancelled") })
		c.request("ping", nil)
		select {
		case m := <-ch:
			t.Errorf("answered: %+v", m)
		default:
		}
	})
}

func TestChildrenEndWithNavra(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"end of input", "SIGTERM"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			mark := "NAVRA_TEST_MARK=" + filepath.Base(s.Home)
			c := s.start("env", "MARK_"+mark, navraBin, "wrap", "--", "sh", "-c", fixtureBin+" odd -ignore-term").open()
			waitFor(t, "all to run", func() bool { return len(withEnv(t, "MARK_"+mark)) >= 3 })
			start := time.Now()
			if how == "SIGTERM" {
				c.cmd.Process.Signal(os.Signal(sigterm))
				<-c.closed
			}
			c.close()
			t.Logf("ended after %s", time.Since(start)) // hosts kill after 100 ms
			waitFor(t, "all processes to end", func() bool { return len(withEnv(t, "MARK_"+mark)) == 0 })
		})
	}
}

func TestEnvironmentOfChildren(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.Env = []string{"NAVRA_SIGNING_KEY=" + "s3cr3t", "ANTHROPIC_API_KEY=" + "k3y", "HOST_SAYS=this"}
	wrapped := s.odd("-env").open().call("env", nil).text()
	if strings.Contains(wrapped, "s3cr3t") || strings.Contains(wrapped, "k3y") || !strings.Contains(wrapped, "HOST_SAYS=this") {
		t.Errorf("wrap's child has:\n%s", wrapped)
	}
	config := filepath.Join(s.Dir, "navra.yaml")
	write(t, config, fmt.Sprintf("store: s.db\nupstreams: {odd: {command: [%q, odd, -env], env: {NAMED: \"${env:HOST_SAYS}!\"}}}\n", fixtureBin))
	named := s.start(navraBin, "stdio", "--config", config).open().call("odd__env", nil).text()
	if strings.Contains(named, "s3cr3t") || strings.Contains(named, "k3y") || strings.Contains(named, "HOST_SAYS") || !strings.Contains(named, "NAMED=this!") || !strings.Contains(named, "PATH=") {
		t.Errorf("stdio's child has:\n%s", named)
	}
}

func TestBadStarts(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	bad := filepath.Join(s.Dir, "bad.yaml")
	write(t, bad, "upstreams:\n  files:\n    comand: [x]\nlissten: x\n")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	up := fmt.Sprintf("upstreams: {odd: {command: [%q, odd]}}\n", fixtureBin)
	taken, open, garbage := filepath.Join(s.Dir, "taken.yaml"), filepath.Join(s.Dir, "open.yaml"), filepath.Join(s.Dir, "garbage.yaml")
	write(t, taken, "store: s.db\nlisten: "+ln.Addr().String()+"\nauth: none\n"+up)
	write(t, open, "store: s.db\nlisten: 0.0.0.0:0\nauth: none\n"+up)
	write(t, garbage, "store: garbage.db\nlisten: 127.0.0.1:0\nauth: none\n"+up)
	write(t, filepath.Join(s.Dir, "garbage.db"), strings.Repeat("this is no database ", 500))
	for _, tt := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"bad keys", []string{"serve", "-c", bad}, 1, []string{bad + ":3", `"comand"`, `"command"`, bad + ":4", `"listen"`}},
		{"checked", []string{"check", "-c", bad}, 1, []string{bad + ":3"}},
		{"no file", []string{"serve", "-c", "none.yaml"}, 1, []string{"none.yaml", "--config"}},
		{"taken port", []string{"serve", "-c", taken}, 1, []string{ln.Addr().String(), "in use"}},
		{"open to the world", []string{"serve", "-c", open}, 1, []string{"loopback"}},
		{"store is garbage", []string{"serve", "-c", garbage}, 1, []string{"garbage.db", "database"}},
		{"unknown command", []string{"srve"}, 2, []string{"srve"}},
		{"unknown command below another", []string{"blackbox", "verfy"}, 2, []string{"verfy"}},
		{"unknown flag", []string{"serve", "--what"}, 2, []string{"--what", "--help"}},
		{"no command to wrap", []string{"wrap"}, 2, []string{"command is missing", "wrap --"}},
		{"bad expiry", []string{"token", "create", "ann", "--expires", "soon"}, 2, []string{"soon", "90d"}},
		{"a pause of the default database", []string{"pause"}, 0, []string{"paused: everything (entry ", s.db() + "; --config names another database)"}},
		{"a token that is not there", []string{"token", "revoke", "ffff", "--store", filepath.Join(s.Dir, "t.db")}, 1, []string{"ffff", "token list"}},
	} {
		out, code := s.run(tt.args...)
		if code != tt.code {
			t.Errorf("%s: exit %d, want %d\n%s", tt.name, code, tt.code, out)
		}
		for _, w := range tt.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in:\n%s", tt.name, w, out)
			}
		}
	}
}

// A principal without a role finds an empty gateway; who started it is told why.
func TestWithoutARole(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	const says = "principal local has no role"
	named, none := filepath.Join(s.Dir, "named.yaml"), filepath.Join(s.Dir, "none.yaml")
	up := fmt.Sprintf("listen: 127.0.0.1:0\nauth: none\nstore: s.db\nupstreams: {odd: {command: [%q, odd]}}\n", fixtureBin)
	write(t, named, up+"principals: {ann: {roles: [local-default]}}\n")
	write(t, none, up)
	if out, code := s.run("stdio", "-c", named); code != 0 || !strings.Contains(out, says) || !strings.Contains(out, "NAVRA_TOKEN") {
		t.Errorf("stdio, where others are named: exit %d, %s", code, out)
	}
	if out, code := s.run("stdio", "-c", none); code != 0 || strings.Contains(out, says) {
		t.Errorf("stdio, where nobody is named: exit %d, %s", code, out)
	}
	s.Env = append(s.Env, "NAVRA_TOKEN=nvr_none")
	if out, code := s.run("stdio", "-c", named); code != 1 || !strings.Contains(out, "NAVRA_TOKEN: credential not accepted: it is no token") || !strings.Contains(out, "navra token list") {
		t.Errorf("stdio, with a token that is none: exit %d, %s", code, out)
	}
	g := s.serve(named)
	waitFor(t, "the warning of serve", func() bool { return strings.Contains(g.stderr.String(), says) })
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(5 * time.Millisecond) // polls another process
	}
}
