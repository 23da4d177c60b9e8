package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// wire reads what arrived at a fixture that keeps it.
func wireOf(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

// TestNoiseOfAChild: what a child prints beside the protocol reaches no client. The log has the first line of it, harmless and short, and
// how many there were; the child is not started again for it.
func TestNoiseOfAChild(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	c := s.start(navraBin, "wrap", "-v", "--name", "odd", "--", fixtureBin, "odd", "-garbage", "-noise", "\x1b[31m\x07listening with "+awsKey()+" "+strings.Repeat("long ", 2000)).open()
	for range 3 {
		if a := c.call("echo", map[string]any{"text": "x"}); a.text() != "x" {
			t.Errorf("echo: %+v", a)
		}
	}
	c.close()
	for _, line := range c.raw {
		if !json.Valid([]byte(line)) || strings.Contains(line, "banner") {
			t.Errorf("the client sees %q", line)
		}
	}
	log := c.stderr.String()
	for want, n := range map[string]int{"lines that are no messages": 1, "Demo server banner line 0": 1, "upstream started": 1, "lines that were no messages": 1} {
		if got := strings.Count(log, want); got != n {
			t.Errorf("%q stands %d times in the log, want %d", want, got, n)
		}
	}
	if n := regexp.MustCompile(`were no messages" upstream=odd lines=(\d+)`).FindStringSubmatch(log); n == nil || len(n[1]) < 2 {
		t.Errorf("the log does not say how many lines there were")
	}
	quiet := s.start(navraBin, "wrap", "--", fixtureBin, "odd", "-noise", "\x1b[31m\x07listening with "+awsKey()+" "+strings.Repeat("long ", 2000)).open()
	quiet.call("echo", map[string]any{"text": "x"})
	quiet.close()
	log = quiet.stderr.String()
	if !strings.Contains(log, `\x1b[31m\alistening with [`) || strings.ContainsAny(log, "\x1b\x07") || strings.Contains(log, awsKey()) || strings.Contains(log, strings.Repeat("long ", 100)) {
		t.Errorf("the log shows the line otherwise than escaped, redacted and short:\n%s", log)
	}
}

// TestLineEnds: CR LF is understood from both sides, and never written.
func TestLineEnds(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	wire := filepath.Join(s.Dir, "wire")
	c := s.odd("-crlf", "-wire", wire)
	m := make(chan message, 1)
	c.waiting["1"] = m
	c.send(request(1, "initialize", hello) + "\r\n\r")
	c.await("initialize", m)
	c.next = 1
	c.send("\r\n\r\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\r")
	c.waiting["7"] = m
	c.send(request(7, "tools/call", map[string]any{"name": "echo", "arguments": map[string]any{"text": "ends\r\n"}}) + "\r")
	if a := result(t, c.await("echo", m)); a.text() != "ends\r\n" {
		t.Errorf("echo: %q", a.text())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := slices.DeleteFunc(slices.Clone(c.raw), func(line string) bool { return strings.Contains(line, "list_changed") }) // pushed where the server was slow to start
	if out := strings.Join(c.raw, ""); strings.Contains(out, "\r") || len(answers) != 2 {
		t.Errorf("the client got %q", c.raw)
	}
	if in := wireOf(t, wire); strings.Contains(in, "\r") || strings.Contains(in, "\n\n") || !strings.HasSuffix(in, "\n") {
		t.Errorf("the server got %q", in)
	}
	if strings.Contains(c.stderr.String(), "no messages") {
		t.Error("empty lines count as noise")
	}
}

// TestSeparatorsInStrings: only LF ends a message, whatever else is a line's end to somebody.
func TestSeparatorsInStrings(t *testing.T) {
	t.Parallel()
	const text = "a\u2028b\u2029c\u0085d\v\fe"
	s := newSetup(t)
	wire := filepath.Join(s.Dir, "wire")
	c := s.odd("-as-is", "-wire", wire).open()
	m := make(chan message, 1)
	c.waiting["77"] = m
	c.send(`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + strings.NewReplacer("\v", `\u000b`, "\f", `\f`).Replace(text) + `"}}}`)
	if a := result(t, c.await("echo", m)); a.text() != text {
		t.Errorf("the client got %q", a.text())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if raw := strings.Join(c.raw, ""); !strings.Contains(raw, "a\u2028b\u2029c\u0085d") {
		t.Errorf("the client got %q, altered", raw)
	}
	if !strings.Contains(wireOf(t, wire), "a\u2028b\u2029c\u0085d") {
		t.Error("the server got it altered")
	}
}

// TestLocaleOfChildren: children write UTF-8 where nobody has said what they shall write.
func TestLocaleOfChildren(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	config := filepath.Join(s.Dir, "navra.yaml")
	write(t, config, fmt.Sprintf("store: s.db\nupstreams: {odd: {command: [%q, odd, -env], prefix: none}}\n", fixtureBin))
	for _, args := range [][]string{{"wrap", "--", fixtureBin, "odd", "-env"}, {"stdio", "--config", config}} {
		c := s.start(append([]string{"env", "-u", "LANG", navraBin}, args...)...).open()
		if env := c.call("env", nil).text(); !strings.Contains(env, "LANG=C.UTF-8") {
			t.Errorf("%s: the child has:\n%s", args[0], env)
		}
	}
}

// TestWhatReachesAnUpstream: what navra sends on is made anew from the one form that was judged, and what it refuses is recorded.
func TestWhatReachesAnUpstream(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	wire := filepath.Join(s.Dir, "wire")
	c := s.odd("-wire", wire).open()
	c.request("tools/list", nil)
	calls := func() (out []string) {
		for line := range strings.Lines(wireOf(t, wire)) {
			if strings.Contains(line, `"tools/call"`) {
				out = append(out, line)
			}
		}
		return out
	}
	for i, tt := range []struct {
		name, rest string
		args       string // that arrive; "" where nothing may
		code       int
	}{
		{"absent arguments", `"method":"tools/call","params":{"name":"echo"}`, `"arguments":{}`, 0},
		{"empty arguments", `"method":"tools/call","params":{"name":"echo","arguments":{}}`, `"arguments":{}`, 0},
		{"an unknown member", `"method":"tools/call","extra":{"a":1},"params":{"name":"echo","arguments":{"text":"kept"}}`, `"arguments":{"text":"kept"}`, 0},
		{"a method in another case", `"method":"tools/list","Method":"tools/call","params":{"name":"echo"}`, "", -32600},
		{"params with a long s", `"method":"tools/list","param` + "\u017f" + `":{"name":"echo"}`, "", -32600},
		{"an argument twice", `"method":"tools/call","params":{"name":"echo","arguments":{"text":"/srv/ok","text":"/etc/shadow"}}`, "", -32600},
		{"an argument twice, once escaped", `"method":"tools/call","params":{"name":"echo","arguments":{"text":"/srv/ok","t\u0065xt":"/etc/shadow"}}`, "", -32600},
		{"a name twice", `"method":"tools/call","params":{"name":"echo","name":"work"}`, "", -32600},
		{"a deep name twice", `"method":"tools/call","params":{"name":"echo","arguments":{"a":[{"b":{"c":1,"c":2}}]}}`, "", -32600},
	} {
		before, id, m := len(calls()), fmt.Sprint(500+i), make(chan message, 1)
		c.mu.Lock()
		if c.waiting[id] = m; tt.code != 0 {
			c.waiting[""] = m // the answer to an invalid request need not have its id
		}
		c.mu.Unlock()
		refusals := len(refusalsOf(s))
		c.send(`{"jsonrpc":"2.0","id":` + id + `,` + tt.rest + `}`)
		got := c.await(tt.name, m)
		if tt.code == 0 {
			if got.Error != nil {
				t.Errorf("%s: %+v", tt.name, got.Error)
			}
			if now := calls(); len(now) != before+1 || !strings.Contains(now[before], tt.args) || strings.Contains(now[before], "null") || strings.Contains(now[before], "extra") {
				t.Errorf("%s: the server got %q", tt.name, now[before:])
			}
			continue
		}
		if got.Error == nil || got.Error.Code != tt.code {
			t.Errorf("%s: %s %+v, want %d", tt.name, got.Result, got.Error, tt.code)
		}
		if now := calls(); len(now) != before {
			t.Errorf("%s: the server got %q", tt.name, now[before:])
		}
		if len(refusalsOf(s)) != refusals+1 {
			t.Errorf("%s: the refusal is not recorded", tt.name)
		}
	}
	for name, params := range map[string]string{"absent": "", "empty": `,"params":{}`, "null": `,"params":null`} {
		m := make(chan message, 1)
		c.mu.Lock()
		c.waiting[`"list"`] = m
		c.mu.Unlock()
		c.send(`{"jsonrpc":"2.0","id":"list","method":"tools/list"` + params + `}`)
		if got := c.await(name, m); !strings.Contains(string(got.Result), `"echo"`) {
			t.Errorf("tools/list with %s params: %s %+v", name, got.Result, got.Error)
		}
	}
	if strings.Contains(wireOf(t, wire), `"params":null`) {
		t.Error("null params were sent on")
	}
}

func refusalsOf(s *setup) []recorded {
	return slices.DeleteFunc(s.entries(), func(e recorded) bool { return e.Verdict != "deny" })
}

// TestStormOfChanges: however often an upstream says that its lists have changed, they are read and told of once a second.
func TestStormOfChanges(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	wire := filepath.Join(s.Dir, "wire")
	began := time.Now()
	c := s.odd("-restless", "-wire", wire).open()
	c.request("tools/list", nil)
	eventually(t, "the lists are read again", func() bool { return strings.Count(wireOf(t, wire), `"tools/list"`) >= 4 })
	read := strings.Count(wireOf(t, wire), `"tools/list"`)
	told := 0
	eventually(t, "the client is told", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		told = 0
		for _, n := range c.notes {
			if n.Method == "notifications/tools/list_changed" {
				told++
			}
		}
		return told > 0
	})
	took := time.Since(began) // a stall makes it longer, and the counts no greater
	if most := int(took/time.Second) + 3; read > most || told > most {
		t.Errorf("in %s the lists were read %d times and the client was told %d times", took, read, told)
	}
}

// publicTools lists the names of the tools that a client sees.
func publicTools(t testing.TB, m message) (out []string) {
	t.Helper()
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(m.Result, &list); err != nil {
		t.Fatalf("tools/list: %v: %s %+v", err, m.Result, m.Error)
	}
	for _, tool := range list.Tools {
		out = append(out, tool.Name)
	}
	return out
}

// TestAwkwardNames: each tool has one name that hosts take, which leads to it alone and is the same after a restart.
func TestAwkwardNames(t *testing.T) {
	t.Parallel()
	legal := regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	s := newSetup(t)
	config := filepath.Join(s.Dir, "navra.yaml")
	write(t, config, fmt.Sprintf("store: s.db\nifc: {on_violation: observe}\nupstreams: {customer_internal_jira_onprem: {command: [%q, odd, -names]}}\n", fixtureBin))
	var before []string
	for range 2 {
		c := s.start(navraBin, "stdio", "--config", config).open()
		public := publicTools(t, c.request("tools/list", nil))
		if before != nil && !slices.Equal(before, public) {
			t.Errorf("after a restart the names are %q, before they were %q", public, before)
		}
		before = public
		leads := map[string]string{}
		for _, name := range public {
			if !legal.MatchString(name) {
				t.Errorf("%q is no name for a host", name)
			}
			to := c.call(name, map[string]any{}).text()
			if other, twice := leads[to]; twice {
				t.Errorf("%s and %s both lead to %.40q", name, other, to)
			}
			leads[to] = name
		}
		for _, name := range []string{"coding.start", "coding_start", "a/b", "a b", "a_b", "名", "字", strings.Repeat("n", 300), strings.Repeat("n", 299) + "m", "a_tool_of_exactly_fifty_characters_in_all_its_name", "navra_verify", "echo"} {
			if leads["this is "+name] == "" {
				t.Errorf("nothing leads to %.40q", name)
			}
		}
		if leads["this is "] != "" {
			t.Error("a tool without a name is shown")
		}
		if log := c.stderr.String(); !strings.Contains(log, "definition left out") || !strings.Contains(log, "it has no name") {
			t.Errorf("the log does not say what is left out:\n%s", log)
		}
		c.close()
	}
}

// TestSameToolOnTwoUpstreams: a call goes to the upstream that is named; where none is, to the one that stands first, and the log says who is held back.
func TestSameToolOnTwoUpstreams(t *testing.T) {
	t.Parallel()
	for prefix, calls := range map[string]map[string]string{
		"":               {"first__echo": "first", "second__echo": "second"},
		", prefix: none": {"echo": "first"},
	} {
		s := newSetup(t)
		config, logs := filepath.Join(s.Dir, "navra.yaml"), map[string]string{}
		text := "store: s.db\nifc: {on_violation: observe}\nupstreams:\n"
		for _, name := range []string{"first", "second"} {
			logs[name] = filepath.Join(s.Dir, name+".log")
			text += fmt.Sprintf("  %s: {command: [%q, odd, -log, %q]%s}\n", name, fixtureBin, logs[name], prefix)
		}
		write(t, config, text)
		c := s.start(navraBin, "stdio", "--config", config).open()
		public := publicTools(t, c.request("tools/list", nil))
		n := 0
		for _, name := range public {
			if strings.HasSuffix(name, "echo") {
				n++
			}
		}
		if n != len(calls) {
			t.Errorf("prefix %q: clients see %q", prefix, public)
		}
		for name, to := range calls {
			nonce := "for " + to + " by " + name
			if a := c.call(name, map[string]any{"text": nonce}); a.text() != nonce {
				t.Errorf("%s: %+v", name, a)
			}
			for upstream, log := range logs {
				if reached := strings.Contains(wireOf(t, log), nonce); reached != (upstream == to) {
					t.Errorf("%s reached %s: %v", name, upstream, reached)
				}
			}
		}
		if said := strings.Contains(c.stderr.String(), "is taken by first/echo"); said != (prefix != "") {
			t.Errorf("prefix %q: the log speaks of a collision: %v\n%s", prefix, said, c.stderr)
		}
	}
}

// TestAllPagesAreCallable: what stands on the upstream's second page can be called, over stdio and HTTP; cursors of the upstream's are foreign.
func TestAllPagesAreCallable(t *testing.T) {
	t.Parallel()
	for _, c := range cells() {
		if strings.HasSuffix(c.name, "silent") || strings.HasSuffix(c.name, "exits") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			log := filepath.Join(s.Dir, "calls.log")
			w := s.webOn(c.key(s, "odd", "-pages", "-log", log))
			public := publicTools(t, w.request("tools/list", map[string]any{}))
			if len(public) != 14 {
				t.Fatalf("clients see %q", public)
			}
			for i, name := range public {
				if m := w.request("tools/call", map[string]any{"name": name, "arguments": map[string]any{}}); m.Error != nil {
					t.Errorf("%s: %+v", name, m.Error)
				}
				got := slices.DeleteFunc(calledLog(t, log), func(l map[string]any) bool { return l["name"] == "left" }) // who has read the answer may leave
				if len(got) != i+1 || "odd__"+fmt.Sprint(got[i]["name"]) != name {
					t.Errorf("%s: the upstream executed %v", name, got)
				}
			}
			for _, method := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
				for _, cursor := range []any{"page two", "", 7} {
					if m := w.request(method, map[string]any{"cursor": cursor}); m.Error == nil || m.Error.Code != -32602 {
						t.Errorf("%s with the cursor %v: %s %+v", method, cursor, m.Result, m.Error)
					}
				}
			}
		})
	}
}

// TestDescriptorsOfChildren: a child has its own three streams, and nothing of navra's or of what the host left open to navra.
func TestDescriptorsOfChildren(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("this system has no /proc")
	}
	s := newSetup(t)
	write(t, filepath.Join(s.Dir, "of the host"), "x")
	f, err := os.Open(filepath.Join(s.Dir, "of the host"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(navraBin, "wrap", "--", fixtureBin, "odd", "-open-files")
	cmd.Dir, cmd.Env, cmd.ExtraFiles = s.Dir, s.env(), []*os.File{f}
	if got := connect(t, cmd).open().call("descriptors", map[string]any{}).text(); got != "" {
		t.Errorf("the child has open:\n%s", got)
	}
}

// TestStderrInTheLog: what a child says on stderr before it fails is shown without its secrets and without control characters.
func TestStderrInTheLog(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	script := filepath.Join(s.Dir, "server.sh")
	write(t, script, `printf 'no licence \033[31m\007 for `+awsKey()+`, really' >&2; exit 3`)
	c := s.start(navraBin, "wrap", "--", "sh", script).open()
	c.request("tools/list", nil)
	waitFor(t, "the log to say why", func() bool { return strings.Contains(c.stderr.String(), "no licence") })
	if log := c.stderr.String(); strings.ContainsAny(log, "\x1b\x07") || strings.Contains(log, awsKey()) || !strings.Contains(log, `\x1b[31m\a for [`) || !strings.Contains(log, "really") {
		t.Errorf("the log:\n%s", log)
	}
}

// TestManySessions: sessions that nobody ends cost the gateway neither children nor descriptors, and no request is turned away.
func TestManySessions(t *testing.T) {
	t.Parallel()
	const sessions = 1500
	s := newSetup(t)
	g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\nifc: {on_violation: observe}\n"+fmt.Sprintf("upstreams: {odd: {command: [%q, odd]}}\n", fixtureBin)))
	first := (&web{t: t, addr: g.Addr}).open()
	first.call("odd__echo", map[string]any{"text": "x"})
	running := make(chan message, 1)
	go func() {
		running <- first.request("tools/call", map[string]any{"name": "odd__work", "arguments": map[string]any{"steps": 100, "ms": 20}})
	}()
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range sessions / 10 {
				status, head, got := (&web{t: t, addr: g.Addr}).post(request(1, "initialize", hello), nil)
				if status != 200 || head.Get("Mcp-Session-Id") == "" || len(got) != 1 || got[0].Error != nil {
					t.Errorf("initialize: %d %+v", status, got)
					return
				}
			}
		})
	}
	all.Wait()
	if a := result(t, <-running); a.text() != "done" {
		t.Errorf("the call that ran meanwhile: %+v", a)
	}
	if n := len(childrenOf(t, g.cmd.Process.Pid)); n > 9 {
		t.Errorf("navra has %d children", n)
	}
	http.DefaultClient.CloseIdleConnections()
	eventually(t, "the connections are closed", func() bool { return descriptors(t, g.cmd.Process.Pid) < 100 })
	last := (&web{t: t, addr: g.Addr}).open()
	if a := last.call("odd__echo", map[string]any{"text": "still"}); a.text() != "still" {
		t.Errorf("afterwards: %+v", a)
	}
	for _, invented := range []string{"invented", strings.Repeat("A", 200), last.session + "A"} {
		w := &web{t: t, addr: g.Addr, session: invented}
		for range 2 { // the first makes no session for the second
			if status, _, _ := w.post(request(1, "ping", nil), nil); status != http.StatusNotFound {
				t.Errorf("the session %.20q: %d, want 404", invented, status)
			}
		}
	}
}

// TestEndOfASession: the children of a session that a client ends are gone, with what they started, and waited for.
func TestEndOfASession(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	mark := "MARK=" + filepath.Base(s.Home)
	s.Env = append(s.Env, "TERM="+mark) // one that children get
	w := s.webOn(fmt.Sprintf("command: [sh, -c, %q]", fixtureBin+" odd -ignore-term"))
	w.call("odd__echo", map[string]any{"text": "x"})
	waitFor(t, "all to run", func() bool { return len(withEnv(t, "TERM="+mark)) >= 4 })
	w.end()
	waitFor(t, "the session's processes to end", func() bool { return len(withEnv(t, "TERM="+mark)) == 1 }) // navra alone is left
	navra := withEnv(t, "TERM="+mark)[0]
	waitFor(t, "them to be waited for", func() bool {
		stats, _ := filepath.Glob("/proc/[0-9]*/stat")
		return !slices.ContainsFunc(stats, func(path string) bool {
			b, _ := os.ReadFile(path)
			return strings.Contains(string(b), fmt.Sprintf(") Z %d ", navra))
		})
	})
}
