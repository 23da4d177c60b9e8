package e2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	ws "github.com/coder/websocket"

	"navra/test/postgres"
)

// A staff is two gateways on one configuration, and tokens of ann and bob.
type staff struct {
	*setup
	config   string
	a, b     *gateway
	ann, bob string
}

func newStaff(t *testing.T, store string) *staff {
	s := &staff{setup: newSetup(t)}
	if store == "" {
		store = s.db()
	}
	s.config = filepath.Join(s.Dir, "team.yaml")
	write(t, s.config, fmt.Sprintf("listen: 127.0.0.1:0\nauth: {tokens: true}\nstore: %q\nprincipals: {ann: {roles: [local-default]}, bob: {roles: [local-default]}}\nifc: {on_violation: observe}\n"+
		"upstreams:\n  odd: {command: [%q, odd, -log, %q]}\n  two: {command: [%q, odd]}\n", store, fixtureBin, s.log(), fixtureBin))
	s.a, s.b = s.serve(s.config), s.serve(s.config)
	s.ann, s.bob = s.token("ann"), s.token("bob")
	return s
}

func (s *staff) token(who string) string {
	s.t.Helper()
	text, code := s.runOut("token", "create", who, "--config", s.config)
	if code != 0 {
		s.t.Fatal("no token")
	}
	return strings.TrimSpace(text)
}

func (s *staff) must(args ...string) string {
	s.t.Helper()
	out, code := s.run(append(args, "--config", s.config)...)
	if code != 0 {
		s.t.Fatalf("%v = %d\n%s", args, code, out)
	}
	return out
}

// long begins a call of ten minutes, and returns where its answer comes once the upstream works on it.
func (s *staff) long(w *web, nonce string) chan message {
	s.t.Helper()
	got := make(chan message, 1)
	go func() {
		got <- w.request("tools/call", map[string]any{"name": "odd__nonce", "arguments": map[string]any{"nonce": nonce, "ms": 600_000}})
	}()
	waitFor(s.t.(*testing.T), "the call to reach its server", func() bool { return strings.Contains(strings.Join(s.reached(), "\n"), nonce) })
	return got
}

// stopped checks how a call was answered that an operator has stopped.
func (s *staff) stopped(what, reason string, got chan message) {
	s.t.Helper()
	select {
	case m := <-got:
		var data struct{ Reason, Outcome string }
		if m.Error != nil {
			json.Unmarshal(m.Error.Data, &data)
		}
		if m.Error == nil || m.Error.Code != -32001 || data.Reason != reason || data.Outcome != "unknown" {
			s.t.Errorf("%s: %s %+v, want -32001, reason %s, outcome unknown", what, m.Result, m.Error, reason)
		}
	case <-time.After(patience):
		s.t.Fatalf("%s goes on", what)
	}
}

// cancelled counts the calls that upstreams were told to end.
func (s *staff) cancelled() (n int) {
	for _, e := range s.entriesOf(s.config) {
		if e.Kind == "own" && e.Method == "notifications/cancelled" && e.Upstream == "odd" {
			n++
		}
	}
	return n
}

func echo(w *web, upstream string) answer {
	return w.call(upstream+"__echo", map[string]any{"text": "hi"})
}

func TestPause(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		testPause(t, "")
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		testPause(t, postgres.New(t).URL())
	})
}

func testPause(t *testing.T, store string) {
	s := newStaff(t, store)
	onA, onB := (&web{t: t, addr: s.a.Addr, token: s.ann}).open(), (&web{t: t, addr: s.b.Addr, token: s.ann}).open()
	modern := &web{t: t, addr: s.b.Addr, token: s.ann, modern: true}
	bob := (&web{t: t, addr: s.b.Addr, token: s.bob}).open()
	first, second, third := s.long(onA, "nonce-a"), s.long(onB, "nonce-b"), s.long(modern, "nonce-c")
	others := s.long(bob, "nonce-d")
	sock := dial(t, s.a.Addr, s.ann).open("2025-11-25")
	overSocket := sock.begin("90", "tools/call", map[string]any{"name": "odd__nonce", "arguments": map[string]any{"nonce": "nonce-e", "ms": 600_000}})
	waitFor(t, "the call over the socket", func() bool { return strings.Contains(strings.Join(s.reached(), "\n"), "nonce-e") })

	out := s.must("pause", "--principal", "ann", "--why", "reads too much, key AKIA"+"Q3EGRT5LXWZ7NPKB")
	if !strings.Contains(out, "paused: principal ann (entry ") || !strings.Contains(out, " of the database of "+s.config+")") {
		t.Error(out)
	}
	s.stopped("a call on A", "paused", first)
	s.stopped("a call on B", "paused", second)
	s.stopped("a stateless call on B", "paused", third)
	s.stopped("a call over the socket", "paused", overSocket)
	eventually(t, "the server is told of all four", func() bool { return s.cancelled() == 4 })
	if m := sock.request("tools/call", map[string]any{"name": "two__echo", "arguments": map[string]any{"text": "hi"}}); !strings.Contains(string(m.Result), "an operator has this agent paused") {
		t.Errorf("a new call over the socket: %s %+v", m.Result, m.Error)
	}
	for _, w := range []*web{onA, onB, modern} {
		got := echo(w, "odd")
		var denied struct{ Stage, Outcome string }
		json.Unmarshal(got.Meta["dev.navra/denied"], &denied)
		if !got.IsError || !strings.HasPrefix(got.text(), "denied by navra: ") || !strings.Contains(got.text(), "paused") || denied.Stage != "pause" || denied.Outcome != "not-sent" {
			t.Errorf("a new call: %+v", got)
		}
		if m := w.request("tools/list", map[string]any{}); m.Error != nil || !strings.Contains(string(m.Result), "odd__echo") {
			t.Errorf("a list: %s %+v", m.Result, m.Error)
		}
		if m := w.request("prompts/get", map[string]any{"name": "odd__greeting"}); m.Error == nil {
			t.Errorf("a prompt: %s", m.Result)
		}
	}
	(&web{t: t, addr: s.a.Addr, token: s.ann}).open() // a handshake
	if got := echo(bob, "odd"); got.IsError {
		t.Errorf("bob is denied: %s", got.text())
	}

	s.must("pause", "--upstream", "odd")
	s.stopped("bob's call to a paused upstream", "paused", others)
	if got := echo(bob, "odd"); !got.IsError || !strings.Contains(got.text(), "paused") {
		t.Errorf("bob at a paused upstream: %+v", got)
	}
	if got := echo(bob, "two"); got.IsError {
		t.Errorf("bob at another upstream: %s", got.text())
	}
	list, _ := s.runOut("pause", "--list", "--json", "--config", s.config)
	var pauses []struct{ Principal, Upstream, Why, By string }
	if err := json.Unmarshal([]byte(list), &pauses); err != nil || len(pauses) != 2 || pauses[0].Principal != "ann" || pauses[1].Upstream != "odd" || pauses[0].By != fmt.Sprintf("uid:%d", os.Getuid()) ||
		pauses[0].Why != "reads too much, key [aws-access-key]" {
		t.Errorf("--list: %v\n%s", err, list)
	}
	if out := s.must("pause", "--list"); !strings.Contains(out, "principal ann") || !strings.Contains(out, "upstream odd") {
		t.Errorf("--list:\n%s", out)
	}
	s.must("resume", "--upstream", "odd")
	s.must("resume", "--principal", "ann")
	for _, w := range []*web{onA, onB, modern, bob} {
		if got := echo(w, "odd"); got.IsError {
			t.Errorf("after resumption: %s", got.text())
		}
	}
	if out := s.must("pause", "--list"); out != "nothing is paused\n" {
		t.Errorf("--list:\n%s", out)
	}
	s.recorded("pause", "paused principal ann", "resumed principal ann", "ann")
	s.must("blackbox", "verify")
}

// recorded checks that what was said is in the chain, and that between the two entries nothing of a principal is permitted.
func (s *staff) recorded(stage, from, to, who string) {
	s.t.Helper()
	begun, ended := 0, 0
	for _, e := range s.entriesOf(s.config) {
		switch {
		case e.Kind == "event" && e.Stage == stage && strings.HasPrefix(e.Reason, from):
			begun = e.Seq
		case e.Kind == "event" && e.Stage == stage && to != "" && strings.HasPrefix(e.Reason, to):
			ended = e.Seq
		case e.Kind == "request" && e.Method == "tools/call" && e.Principal == who && e.Verdict == "allow" && begun > 0 && ended == 0:
			s.t.Errorf("entry %d permits a call behind entry %d", e.Seq, begun)
		}
	}
	if begun == 0 || to != "" && ended == 0 {
		s.t.Errorf("entries of %q and %q: %d, %d", from, to, begun, ended)
	}
}

func TestPauseUsage(t *testing.T) {
	t.Parallel()
	s := newStaff(t, "")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"pause", "--principal", "eve"}, 1, `names no principal "eve"`},
		{[]string{"pause", "--upstream", "three"}, 1, `names no upstream "three"`},
		{[]string{"pause", "--list", "--principal", "ann"}, 2, "--list goes with none of"},
		{[]string{"pause", "--why", strings.Repeat("x", 1025)}, 2, "--why has more than"},
		{[]string{"pause", "ann"}, 2, "unknown command"},
		{[]string{"resume", "--principal", "ann"}, 1, "principal ann is not paused"},
		{[]string{"token", "revoke", "none"}, 1, `there is no token "none"`},
	} {
		if out, code := s.run(append(tt.args, "--config", s.config)...); code != tt.code || !strings.Contains(out, tt.want) {
			t.Errorf("%v = %d\n%s, want %d and %q", tt.args, code, out, tt.code, tt.want)
		}
	}
	for _, command := range []string{"pause", "resume"} {
		if out, code := s.run(command, "--help"); code != 0 || !strings.Contains(out, "Examples:\n  navra "+command) {
			t.Errorf("%s --help = %d\n%s", command, code, out)
		}
	}
	everything, _ := s.runOut("pause", "--store", s.db(), "--json")
	if !strings.Contains(everything, `"done": "paused"`) {
		t.Error(everything)
	}
	if got := echo((&web{t: t, addr: s.a.Addr, token: s.bob}).open(), "two"); !got.IsError || !strings.Contains(got.text(), "all calls paused") {
		t.Errorf("everything is paused: %+v", got)
	}
}

// TestPauseEndsParkedCalls: a question that a client was asked is of no use any more, and its call is cancelled.
func TestPauseEndsParkedCalls(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	config := s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\nifc: {on_violation: observe}\n"+fmt.Sprintf("upstreams: {odd: {command: [%q, odd, -ask]}}\n", fixtureBin))
	g := s.serve(config)
	w := &web{t: t, addr: g.Addr, modern: true}
	params := map[string]any{"name": "odd__echo", "arguments": map[string]any{}, "_meta": map[string]any{
		"io.modelcontextprotocol/clientCapabilities": map[string]any{"roots": map[string]any{}},
	}}
	m := w.request("tools/call", params)
	if !strings.Contains(string(m.Result), "input_required") {
		t.Fatalf("the server does not ask: %s %+v", m.Result, m.Error)
	}
	sock := dial(t, g.Addr, "")
	sock.request("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{"roots": map[string]any{}}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
	sock.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	asked := sock.begin("90", "tools/call", map[string]any{"name": "odd__echo", "arguments": map[string]any{}})
	heard := func(method string) func() bool {
		return func() bool {
			sock.mu.Lock()
			defer sock.mu.Unlock()
			return slices.ContainsFunc(sock.others, func(m message) bool { return m.Method == method })
		}
	}
	waitFor(t, "the question", heard("roots/list"))
	if out, code := s.run("pause", "--upstream", "odd", "--config", config); code != 0 {
		t.Fatal(out)
	}
	(&staff{setup: s}).stopped("a call whose client was asked", "paused", asked)
	waitFor(t, "the question to be withdrawn", heard("notifications/cancelled"))
	eventually(t, "the parked call has ended", func() bool {
		for _, e := range s.entriesOf(config) {
			if e.Kind == "answer" && e.Method == "tools/call" && strings.HasPrefix(e.Reason, "paused") {
				return true
			}
		}
		return false
	})
}

// TestRevokedToken: what runs under a token ends when it is revoked, in every process, however quiet its streams are.
func TestRevokedToken(t *testing.T) {
	t.Parallel()
	s := newStaff(t, "")
	w := (&web{t: t, addr: s.a.Addr, token: s.ann}).open()
	other := (&web{t: t, addr: s.a.Addr, token: s.token("bob")}).open()
	running, others := s.long(w, "nonce-a"), s.long(other, "nonce-b")
	sock := dial(t, s.b.Addr, s.ann).open("2025-11-25")
	streamed := make(chan error, 1)
	req, _ := http.NewRequest("GET", "http://"+s.a.Addr+"/mcp", nil)
	for k, v := range map[string]string{"Accept": "text/event-stream", "Authorization": "Bearer " + s.ann, "Mcp-Session-Id": w.session, "MCP-Protocol-Version": "2025-11-25"} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(err, resp)
	}
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		streamed <- err
	}()

	s.must("token", "revoke", tokenOf(s.must("token", "list"), "ann"))
	s.stopped("a call under the token", "revoked", running)
	select {
	case <-sock.closed:
	case <-time.After(patience):
		t.Fatal("the socket stays open")
	}
	if ws.CloseStatus(sock.why) != ws.StatusPolicyViolation {
		t.Errorf("the socket was closed with %v, want 1008", sock.why)
	}
	select {
	case err := <-streamed:
		if err != nil {
			t.Errorf("the stream ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the stream stays open")
	}
	if status, _, _ := w.post(request(9, "tools/list", map[string]any{}), nil); status != 401 {
		t.Errorf("a new request: %d, want 401", status)
	}
	select {
	case m := <-others:
		t.Errorf("another token's call has ended: %s %+v", m.Result, m.Error)
	default:
	}
	s.recorded("auth", "revoked token", "", "ann")
	s.must("pause")
	s.stopped("the other's call", "paused", others)
}

// TestRevokedTokenOverStdio: the token of a stdio gateway counts for each call.
func TestRevokedTokenOverStdio(t *testing.T) {
	t.Parallel()
	s := newStaff(t, "")
	s.Env = append(s.Env, "NAVRA_TOKEN="+s.ann)
	c := s.start(navraBin, "stdio", "--config", s.config).open()
	if got := c.call("two__echo", map[string]any{"text": "hi"}); got.IsError {
		t.Fatal(got.text())
	}
	s.must("token", "revoke", tokenOf(s.must("token", "list"), "ann"))
	if got := c.call("two__echo", map[string]any{"text": "hi"}); !got.IsError || !strings.Contains(got.text(), "the token was revoked") {
		t.Errorf("after revocation: %+v", got)
	}
}

// rewrite replaces text in the configuration, as an editor does.
func (s *staff) rewrite(from, to string) {
	s.t.Helper()
	was := read(s.t.(*testing.T), s.config)
	now := strings.Replace(was, from, to, 1)
	if was == now {
		s.t.Fatalf("%q is not in the configuration", from)
	}
	replace(s.t, s.config, []byte(now))
}

func (s *staff) ready(g *gateway) string {
	_, body := ask(s.t, http.DefaultClient, "GET", "http://"+g.Addr+"/readyz", nil)
	return body
}

// TestReload: roles that are changed in the file count for the next call, in serve and stdio, without a new connection.
func TestReload(t *testing.T) {
	t.Parallel()
	s := newStaff(t, "")
	w := (&web{t: t, addr: s.a.Addr, token: s.ann}).open()
	sock := dial(t, s.b.Addr, s.ann).open("2025-11-25")
	s.Env = append(s.Env, "NAVRA_TOKEN="+s.ann)
	c := s.start(navraBin, "stdio", "--config", s.config).open()
	try := func() (denied int) {
		m := sock.request("tools/call", map[string]any{"name": "two__echo", "arguments": map[string]any{"text": "hi"}})
		stdio := c.request("tools/call", map[string]any{"name": "two__echo", "arguments": map[string]any{"text": "hi"}})
		for _, m := range []message{w.request("tools/call", map[string]any{"name": "two__echo", "arguments": map[string]any{"text": "hi"}}), m, stdio} {
			if m.Error != nil && strings.Contains(m.Error.Message, "Unknown tool") {
				denied++
			}
		}
		return denied
	}
	if n := try(); n != 0 {
		t.Fatalf("%d are denied at first", n)
	}
	s.rewrite("ann: {roles: [local-default]}", "ann: {roles: [narrow]}")
	write(t, s.config, read(t, s.config)+"roles: {narrow: {rules: [{allow: {tools: [\"odd/*\"]}}]}}\n")
	eventually(t, "all take up the new role", func() bool { return try() == 3 })
	if m := w.request("tools/list", map[string]any{}); strings.Contains(string(m.Result), "two__echo") || !strings.Contains(string(m.Result), "odd__echo") {
		t.Errorf("the list: %s", m.Result)
	}
	eventually(t, "the clients are told that their lists are others", func() bool {
		sock.mu.Lock()
		defer sock.mu.Unlock()
		return slices.ContainsFunc(sock.others, func(m message) bool { return m.Method == "notifications/tools/list_changed" })
	})
	if got := echo(w, "odd"); got.IsError {
		t.Errorf("what the new role allows: %s", got.text())
	}
	before := s.changes()

	s.rewrite("roles: {narrow:", "roles: {narrow: {clearance: nonsense},")
	eventually(t, "a bad file is told of", func() bool {
		return strings.Contains(s.a.stderr.String(), "the configuration was not reloaded") && strings.Contains(s.ready(s.a), `"status":"degraded"`) && strings.Contains(s.ready(s.a), `"configuration","ok":false`)
	})
	if n := try(); n != 3 || s.changes() != before {
		t.Errorf("%d are denied under a bad file, and %d policies are recorded, want what was in force", n, s.changes()-before)
	}
	s.rewrite("roles: {narrow: {clearance: nonsense},", "roles: {narrow:")
	eventually(t, "the good file again", func() bool { return strings.Contains(s.ready(s.a), `"status":"ready"`) })

	s.rewrite("listen: 127.0.0.1:0", "listen: 127.0.0.2:0")
	s.rewrite("ann: {roles: [narrow]}", "ann: {roles: [local-default]}")
	s.a.cmd.Process.Signal(syscall.SIGHUP)
	eventually(t, "the role of before", func() bool { return try() == 0 })
	eventually(t, "what needs a restart is named", func() bool {
		return strings.Contains(s.a.stderr.String(), "needs a restart") && strings.Contains(s.a.stderr.String(), "sections=listen")
	})
	if n := s.changes(); n != before+1 {
		t.Errorf("%d entries of policies, want %d", n, before+1)
	}
	s.must("blackbox", "verify")
}

// changes counts the entries that tell of a changed policy.
func (s *staff) changes() (n int) {
	for _, e := range s.entries() {
		if e.Kind == "event" && e.Stage == "policy" && strings.Contains(e.Reason, s.config+": from ") {
			n++
		}
	}
	return n
}

// TestNewerPolicyElsewhere: a gateway whose file does not hold the policy that another process has taken up denies and is not ready, until its file is
// changed too, or the other goes back.
func TestNewerPolicyElsewhere(t *testing.T) {
	t.Parallel()
	s := newStaff(t, "")
	s.b.stop()
	w := (&web{t: t, addr: s.a.Addr, token: s.ann}).open()
	elsewhere := func(change func(policies map[string]string)) {
		t.Helper()
		db, err := sql.Open("sqlite", "file:"+s.db()+"?_txlock=immediate&_pragma=busy_timeout(10000)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var b []byte
		if err := db.QueryRow("SELECT value FROM kept WHERE key = 'controls'").Scan(&b); err != nil {
			t.Fatal(err)
		}
		var controls struct {
			Policies map[string]string `json:"policies"`
		}
		if err := json.Unmarshal(b, &controls); err != nil || controls.Policies[s.config] == "" {
			t.Fatalf("%v: %s, want the policy of %s", err, b, s.config)
		}
		change(controls.Policies)
		b, _ = json.Marshal(controls)
		if _, err := db.Exec("UPDATE kept SET value = CASE key WHEN 'controls' THEN ? ELSE CAST(CAST(CAST(value AS TEXT) AS INTEGER) + 1 AS BLOB) END WHERE key IN ('controls', 'generation')", b); err != nil {
			t.Fatal(err)
		}
	}
	mine := ""
	elsewhere(func(p map[string]string) { mine, p[s.config] = p[s.config], "another" })
	denied := func() bool {
		got := echo(w, "two")
		return got.IsError && strings.Contains(got.text(), "the policy was changed")
	}
	if !denied() {
		t.Error("a call is permitted under an older policy")
	}
	if body := s.ready(s.a); !strings.Contains(body, `"status":"not ready"`) || !strings.Contains(body, "another process has taken up a newer policy") {
		t.Errorf("readyz: %s", body)
	}
	if m := w.request("tools/list", map[string]any{}); m.Error != nil {
		t.Errorf("a list: %+v", m.Error)
	}
	elsewhere(func(p map[string]string) { p[s.config] = mine })
	eventually(t, "it is ready once the other goes back, though nobody calls", func() bool { return strings.Contains(s.ready(s.a), `"status":"ready"`) })
	if got := echo(w, "two"); got.IsError {
		t.Errorf("after that: %s", got.text())
	}
	elsewhere(func(p map[string]string) { p[s.config] = "another" })
	if !denied() {
		t.Error("a call is permitted under an older policy again")
	}
	s.rewrite("on_violation: observe", "on_violation: deny")
	eventually(t, "it goes on with a file that was changed later", func() bool { return !denied() && strings.Contains(s.ready(s.a), `"status":"ready"`) })
}
