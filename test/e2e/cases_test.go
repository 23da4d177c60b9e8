package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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

// A site is an MCP endpoint of the stateful era in the test's own process, which keeps what arrives.
type site struct {
	URL string

	mu    sync.Mutex
	posts []posted
	gets  []time.Time
}

type posted struct {
	head   http.Header
	method string
	body   string
}

func (s *site) count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.posts {
		if p.method == method {
			n++
		}
	}
	return n
}

// newSite serves: call answers tools/call, get answers GET; nil for the usual.
func newSite(t *testing.T, call, get http.HandlerFunc) *site {
	s := &site{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var m message
		if r.Method == http.MethodPost && json.Unmarshal(b, &m) != nil {
			t.Errorf("the upstream got %q", b)
		}
		s.mu.Lock()
		if r.Method == http.MethodPost {
			s.posts = append(s.posts, posted{r.Header.Clone(), m.Method, string(b)})
		} else {
			s.gets = append(s.gets, time.Now())
		}
		s.mu.Unlock()
		reply := func(result string) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		}
		switch {
		case r.Method == http.MethodGet && get != nil:
			get(w, r)
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "s1")
			reply(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"site","version":"1"}}`)
		case m.Method == "tools/list":
			reply(`{"tools":[{"name":"act","inputSchema":{"type":"object"}}]}`)
		case m.Method == "tools/call" && call != nil:
			call(w, r)
		case m.Method == "tools/call":
			reply(`{"content":[{"type":"text","text":"done"}]}`)
		default:
			w.WriteHeader(http.StatusBadRequest) // it knows no other era
		}
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	s.URL = srv.URL
	return s
}

func (s *site) act(w *web) message {
	return w.request("tools/call", map[string]any{"name": "odd__act", "arguments": map[string]any{}})
}

// TestHeadersOfThisHop: an upstream gets the headers of navra's own request, and none of the client's.
func TestHeadersOfThisHop(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	up := newSite(t, nil, nil)
	w := s.webOn(fmt.Sprintf("url: %q", up.URL))
	head := http.Header{"Content-Type": {`Application/JSON; Charset="UTF-8"`}, "Cookie": {"a=b"}, "Traceparent": {"00-x"}, "Authorization": {"Bearer client"}, "Origin": {"https://app.example"}, "X-Forwarded-For": {"192.0.2.1"}}
	if status, _, got := w.post(request(5, "tools/call", map[string]any{"name": "odd__act", "arguments": map[string]any{}}), head); status != 200 || len(got) != 1 || got[0].Error != nil {
		t.Fatalf("%d %+v", status, got)
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	for _, p := range up.posts {
		if got := p.head["Content-Type"]; len(got) != 1 || got[0] != "application/json" {
			t.Errorf("%s came with Content-Type %q", p.method, got)
		}
		for _, name := range []string{"Cookie", "Traceparent", "Authorization", "Origin", "X-Forwarded-For"} {
			if p.head.Get(name) != "" {
				t.Errorf("%s came with the client's %s", p.method, name)
			}
		}
	}
	if last := up.posts[len(up.posts)-1]; last.method != "tools/call" || last.head.Get("Mcp-Session-Id") != "s1" || last.head.Get("Mcp-Protocol-Version") != "2025-11-25" {
		t.Errorf("the call came as %+v", last)
	}
}

// TestCallsAreNotRepeated: a call that may have been executed is not sent again, and its client is told that nobody knows.
func TestCallsAreNotRepeated(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]http.HandlerFunc{
		"the connection breaks": func(w http.ResponseWriter, _ *http.Request) {
			if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
				conn.Close()
			}
		},
		"the stream breaks off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, ": soon\n\n")
		},
		"an empty answer": func(http.ResponseWriter, *http.Request) {},
		"empty JSON":      func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "application/json") },
		"a bad gateway":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			up := newSite(t, call, nil)
			w := s.webOn(fmt.Sprintf("url: %q", up.URL))
			w.request("tools/list", map[string]any{}) // so that the connection is in use already
			m := up.act(w)
			if m.Error == nil {
				t.Fatalf("answered %s", m.Result)
			}
			var data struct{ Outcome string }
			json.Unmarshal(m.Error.Data, &data)
			if want := map[bool]string{true: "ran", false: "unknown"}[name == "empty JSON"]; data.Outcome != want {
				t.Errorf("outcome %q (%s), want %q", data.Outcome, m.Error.Message, want)
			}
			if n := up.count("tools/call"); n != 1 {
				t.Errorf("the upstream got the call %d times", n)
			}
			recorded := 0
			for _, e := range s.entries() {
				if e.Kind == "answer" && e.Method == "tools/call" && e.Outcome == data.Outcome {
					recorded++
				}
			}
			if recorded != 1 {
				t.Errorf("%d entries have the outcome %q, want 1: %+v", recorded, data.Outcome, s.entries())
			}
			for range 99 {
				up.act(w)
			}
			if n := up.count("tools/call"); n > 100 {
				t.Errorf("100 calls reached the upstream as %d", n)
			}
			if n := up.count("initialize"); n > 110 {
				t.Errorf("the upstream was greeted %d times", n)
			}
		})
	}
}

// TestPushStreamThatEnds: a stream that brings nothing is opened again ever more slowly, whatever time the upstream asks for.
func TestPushStreamThatEnds(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"at once": "", "with a retry time": "retry: 1\n\n", "with a comment": ": hello\n\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			up := newSite(t, nil, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, body)
			})
			w := s.webOn(fmt.Sprintf("url: %q", up.URL))
			up.act(w)
			opened := func() []time.Time {
				up.mu.Lock()
				defer up.mu.Unlock()
				return slices.Clone(up.gets)
			}
			n, least := 4, 500*time.Millisecond // half of a second before it is opened again, and twice as long each time
			if strings.HasPrefix(body, "retry") {
				n, least = 6, 50*time.Millisecond // half of the least that an upstream may ask for
			}
			eventually(t, "it is opened again and again", func() bool { return len(opened()) >= n })
			gets := opened()
			for i := range n - 1 { // a stall makes the next come later, and never sooner
				if pause := gets[i+1].Sub(gets[i]); pause < least<<i {
					t.Errorf("it was opened again after %s, for the %d. time", pause, i+1)
				}
			}
		})
	}
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

// TestWithoutAStream: GET and HEAD where no stream is to be had are refused at once, and nobody is sent to log in.
func TestWithoutAStream(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\n"+fmt.Sprintf("upstreams: {odd: {command: [%q, odd]}}\n", fixtureBin)))
	url := "http://" + g.Addr + "/mcp"
	for _, tt := range []struct {
		method string
		head   http.Header
	}{
		{"GET", http.Header{"Accept": {"text/event-stream"}}},
		{"GET", http.Header{"Accept": {"text/event-stream"}, "Mcp-Protocol-Version": {"2026-07-28"}}},
		{"HEAD", nil},
		{"HEAD", http.Header{"Accept": {"text/event-stream"}}},
		{"PATCH", nil},
	} {
		resp, body := ask(t, http.DefaultClient, tt.method, url, tt.head)
		if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") == "" || resp.Header.Get("WWW-Authenticate") != "" {
			t.Errorf("%s %v: %d %v %s", tt.method, tt.head, resp.StatusCode, resp.Header, body)
		}
	}
	w := (&web{t: t, addr: g.Addr}).open()
	req, _ := http.NewRequest("GET", url, nil)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", w.session)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if h := resp.Header; resp.StatusCode != 200 || h.Get("X-Accel-Buffering") != "no" || !strings.Contains(h.Get("Cache-Control"), "no-cache") {
		t.Errorf("a session's stream: %d %v", resp.StatusCode, h)
	}
	first, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || strings.HasPrefix(first, ":") { // a comment comes after a while alone
		t.Errorf("a session's stream begins with %q, %v", first, err)
	}
}

// TestReboundNames: where navra listens on loopback, a name that was rebound to it reaches no message of MCP's, on no route and before any credential is looked at.
func TestReboundNames(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\n"+fmt.Sprintf("upstreams: {odd: {command: [%q, odd]}}\n", fixtureBin)))
	_, port, _ := strings.Cut(g.Addr, ":")
	for _, tt := range []struct{ method, path string }{{"POST", "/mcp"}, {"GET", "/mcp"}, {"DELETE", "/mcp"}, {"GET", "/ws"}} {
		for host, refused := range map[string]bool{"rebind.attacker.example:" + port: true, "localhost.attacker.example": true, "127.0.0.1.attacker.example:" + port: true, "localhost:1": false, "[::1]:" + port: false, "127.0.0.1": false} {
			resp, _ := ask(t, http.DefaultClient, tt.method, "http://"+g.Addr+tt.path, http.Header{"Host": {host}})
			if (resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusMisdirectedRequest) != refused {
				t.Errorf("%s %s for %s: %d", tt.method, tt.path, host, resp.StatusCode)
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
