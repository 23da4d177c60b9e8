package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var fixtureListens = regexp.MustCompile(`listens on (\w+://\S+)`)

// endpoint runs the fixture over HTTP and returns its URL and what ends it.
func (s *setup) endpoint(addr string, args ...string) (url string, end func()) {
	s.t.Helper()
	cmd := exec.Command(fixtureBin, append(args, "-http", addr)...)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	end = func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
	s.t.Cleanup(end)
	sc := bufio.NewScanner(pipe)
	for sc.Scan() {
		if m := fixtureListens.FindStringSubmatch(sc.Text()); m != nil {
			go func() {
				for sc.Scan() {
				}
			}()
			return m[1], end
		}
	}
	s.t.Fatal("the fixture does not listen")
	return "", nil
}

// calledLog reads what an upstream executed.
func calledLog(t *testing.T, path string) (out []map[string]any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// A cell is one way to have an upstream: over stdio or HTTP, of either era.
type cell struct {
	name string
	key  func(s *setup, args ...string) string // the configuration of the upstream
}

func cells() []cell {
	stdio := func(era string) func(*setup, ...string) string {
		return func(s *setup, args ...string) string {
			return fmt.Sprintf("command: [%q, %s]", fixtureBin, quoted(append(args, "-era", era)))
		}
	}
	http := func(era string, more ...string) func(*setup, ...string) string {
		return func(s *setup, args ...string) string {
			url, _ := s.endpoint("127.0.0.1:0", append(append(args, "-era", era), more...)...)
			return fmt.Sprintf("url: %q", url)
		}
	}
	return []cell{
		{"stdio stateful", stdio("stateful")}, {"stdio stateless", stdio("stateless")}, {"stdio silent", stdio("silent")}, {"stdio exits", stdio("exits")},
		{"http stateful", http("stateful")}, {"http stateless", http("stateless")},
		{"sse", http("stateful", "-way", "sse")}, {"websocket stateful", http("stateful", "-way", "ws")}, {"websocket stateless", http("stateless", "-way", "ws")},
		{"websocket silent", http("silent", "-way", "ws")},
	}
}

func quoted(args []string) string {
	var out []string
	for _, a := range args {
		out = append(out, fmt.Sprintf("%q", a))
	}
	return strings.Join(out, ", ")
}

// TestUpstreamCells drives clients of both eras against upstreams of both, over stdio and HTTP.
func TestUpstreamCells(t *testing.T) {
	t.Parallel()
	for _, c := range cells() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			log := filepath.Join(s.Dir, "calls.log")
			g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\nifc: {on_violation: observe}\n"+
				"upstreams: {odd: {"+c.key(s, "odd", "-log", log)+", tools: {regional: {class: read}}}}\n"))
			for _, modern := range []bool{false, true} {
				w := &web{t: t, addr: g.Addr, modern: modern}
				if !modern {
					w.open()
				}
				exerciseUpstream(t, w)
			}
			var regions []any
			for _, call := range calledLog(t, log) {
				if call["name"] == "regional" {
					regions = append(regions, call["arguments"].(map[string]any)["region"])
				}
			}
			if len(regions) != 2 || regions[0] != "eu ü" || regions[1] != "eu ü" {
				t.Errorf("the upstream executed regional for %v, want twice eu ü", regions)
			}
		})
	}
}

// exerciseUpstream lists, calls, takes progress and errors, and cancels.
func exerciseUpstream(t *testing.T, w *web) {
	t.Helper()
	m := w.send("tools/list", map[string]any{}, nil)
	if !strings.Contains(string(m.Result), `"odd__echo"`) {
		t.Fatalf("tools/list: %s %+v", m.Result, m.Error)
	}
	if has := strings.Contains(string(m.Result), "resultType"); has != w.modern {
		t.Errorf("tools/list has resultType: %v, modern client: %v", has, w.modern)
	}
	nonce := fmt.Sprintf("nonce-%d", time.Now().UnixNano())
	m = w.send("tools/call", map[string]any{"name": "odd__echo", "arguments": map[string]any{"text": nonce}}, nil)
	if !strings.Contains(string(m.Result), nonce) || strings.Contains(string(m.Result), "resultType") != w.modern {
		t.Errorf("echo: %s %+v", m.Result, m.Error)
	}
	m = w.send("tools/call", map[string]any{"name": "odd__regional", "arguments": map[string]any{"region": "eu ü"}}, map[string]string{"Mcp-Param-Region": "=?base64?ZXUgw7w=?="})
	if !strings.Contains(string(m.Result), "in eu ü") {
		t.Errorf("regional: %s %+v", m.Result, m.Error)
	}
	if w.modern {
		m = w.send("tools/call", map[string]any{"name": "odd__regional", "arguments": map[string]any{"region": "eu ü"}}, nil)
		if m.Error == nil || m.Error.Code != -32020 {
			t.Errorf("regional without its header: %s %+v, want -32020", m.Result, m.Error)
		}
	}
	_, _, all := w.raw("tools/call", map[string]any{"name": "odd__work", "arguments": map[string]any{"steps": 3, "ms": 5}, "_meta": map[string]any{"progressToken": "mine"}}, nil)
	progress := 0
	for _, m := range all {
		if m.Method == "notifications/progress" && strings.Contains(string(m.Params), `"mine"`) {
			progress++
		}
	}
	if progress != 3 || len(all) != 4 {
		t.Errorf("%d progress of %d messages, want 3 of 4: %+v", progress, len(all), all)
	}
}

// eventually waits for something to be so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came about that %s", what)
		}
	}
}

func (s *setup) webOn(upstream string, more ...string) *web {
	s.t.Helper()
	g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\nifc: {on_violation: observe}\n"+
		"upstreams:\n  odd: {"+upstream+"}\n"+strings.Join(more, "\n")))
	w := &web{t: s.t, addr: g.Addr}
	return w.open()
}

// TestCancelReachesHTTPUpstreams: in the stateful era as a notification, in the stateless one as the closed response.
func TestCancelReachesHTTPUpstreams(t *testing.T) {
	t.Parallel()
	for era, want := range map[string]string{"stateful": "cancelled", "stateless": "left"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			log := filepath.Join(s.Dir, "calls.log")
			url, _ := s.endpoint("127.0.0.1:0", "odd", "-era", era, "-log", log)
			w := s.webOn(fmt.Sprintf("url: %q", url))
			answered := make(chan message, 1)
			go func() {
				_, _, got := w.post(request(5, "tools/call", map[string]any{"name": "odd__work", "arguments": map[string]any{"steps": 1000, "ms": 20}}), nil)
				answered <- got[len(got)-1]
			}()
			eventually(t, "the call runs", func() bool { return len(calledLog(t, log)) > 0 })
			w.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"reason":"no secret"}}`, nil)
			m := <-answered
			if m.Error == nil || m.Error.Code != -32001 {
				t.Errorf("answered %s %+v, want -32001", m.Result, m.Error)
			}
			eventually(t, "the upstream hears of it", func() bool {
				for _, l := range calledLog(t, log) {
					if l["name"] == want {
						return true
					}
				}
				return false
			})
		})
	}
}

// TestReadsAreRepeated: what only reads survives the loss of its connection; that it was sent twice is recorded.
func TestReadsAreRepeated(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/plan.txt", []byte("ship it"), 0o600); err != nil {
		t.Fatal(err)
	}
	url, end := s.endpoint("127.0.0.1:0", "files", dir, "-no-stream") // whose end would tell navra, in time, that the session is lost
	w := s.webOn(fmt.Sprintf("url: %q", url))
	read := map[string]any{"uri": "file://" + dir + "/plan.txt"}
	if m := w.request("resources/read", read); m.Error != nil {
		t.Fatal(m.Error)
	}
	end()
	s.endpoint(strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp"), "files", dir, "-no-stream")
	if m := w.request("resources/read", read); m.Error != nil || !strings.Contains(string(m.Result), "ship it") {
		t.Errorf("a read that met a lost session: %s %+v", m.Result, m.Error)
	}
	if got := s.pick("list", "--json", "-n", "0"); strings.Count(got, "it is sent once more") != 1 {
		t.Errorf("recorded of it:\n%s", got)
	}
}

// TestHTTPUpstreamComesBack: an upstream that was restarted has lost its sessions. The call that meets that says that it did not run;
// the next one goes to a new session.
func TestHTTPUpstreamComesBack(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"stateful", "stateless"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			url, end := s.endpoint("127.0.0.1:0", "odd", "-era", era)
			w := s.webOn(fmt.Sprintf("url: %q", url))
			echo := map[string]any{"name": "odd__echo", "arguments": map[string]any{"text": "hi"}}
			if m := w.request("tools/call", echo); m.Error != nil {
				t.Fatal(m.Error)
			}
			end()
			m := w.request("tools/call", echo)
			if m.Error == nil || m.Error.Code != -32603 || strings.Contains(m.Error.Message, "127.0.0.1") {
				t.Errorf("with the upstream gone: %s %+v", m.Result, m.Error)
			}
			s.endpoint(strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp"), "odd", "-era", era)
			var errs []string
			eventually(t, "the upstream is reached again", func() bool {
				m := w.request("tools/call", echo)
				if m.Error != nil {
					errs = append(errs, m.Error.Message)
					time.Sleep(50 * time.Millisecond)
				}
				return m.Error == nil
			})
			for _, e := range errs {
				if !strings.Contains(e, "not-sent") {
					t.Errorf("a call to an upstream that lost its sessions says %q", e)
				}
			}
		})
	}
}

// TestHTTPUpstreamPushes: an upstream of the stateful era tells on its GET stream that a list has changed.
func TestHTTPUpstreamPushes(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	url, _ := s.endpoint("127.0.0.1:0", "odd", "-changed", "-ask")
	w := s.webOn(fmt.Sprintf("url: %q", url))
	if m := w.request("tools/call", map[string]any{"name": "odd__echo", "arguments": map[string]any{}}); !strings.Contains(string(m.Result), `roots {`) || !strings.Contains(string(m.Result), "-32601") {
		t.Errorf("what the upstream asks is not answered: %s %+v", m.Result, m.Error)
	}
	eventually(t, "the new tool is listed", func() bool {
		w.request("tools/call", map[string]any{"name": "odd__grow", "arguments": map[string]any{}})
		return strings.Contains(string(w.request("tools/list", map[string]any{}).Result), "odd__grown")
	})
}

// TestHTTPUpstreamCredentials: headers reach the upstream, are found in no output, and a refusal says what to do.
func TestHTTPUpstreamCredentials(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	secret := "s3cr3t-token-of-the-test"
	s.Env = append(s.Env, "UPSTREAM_TOKEN="+secret)
	url, _ := s.endpoint("127.0.0.1:0", "odd", "-bearer", secret)
	for name, header := range map[string]string{"right": `"Bearer ${env:UPSTREAM_TOKEN}"`, "wrong": "Bearer nothing"} {
		g := s.serve(s.serveConfig(name+".yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\nupstreams: {odd: {url: \""+url+"\", headers: {Authorization: "+header+"}}}\n"))
		w := (&web{t: t, addr: g.Addr}).open()
		m := w.request("tools/call", map[string]any{"name": "odd__echo", "arguments": map[string]any{"text": "hi"}})
		if (m.Error == nil) != (name == "right") {
			t.Errorf("%s credentials: %s %+v", name, m.Result, m.Error)
		}
		if name == "wrong" {
			eventually(t, "stderr says that the credentials are refused", func() bool { return strings.Contains(g.stderr.String(), "refuses navra's credentials") })
		}
		if strings.Contains(g.stderr.String(), secret) {
			t.Error("the secret stands in stderr")
		}
	}
}

// TestDeadUpstreamHarmsNobodyElse: one upstream refuses connections, one never answers; the third is as fast as ever.
func TestDeadUpstreamHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	good, _ := s.endpoint("127.0.0.1:0", "odd")
	mute, _ := s.endpoint("127.0.0.1:0", "odd", "-never")
	g := s.serve(s.serveConfig("navra.yaml", fmt.Sprintf("auth: none\nprincipals: {local: {roles: [local-default]}}\nifc: {on_violation: observe}\nupstreams:\n"+
		"  dead: {url: \"http://127.0.0.1:1/mcp\"}\n  mute: {url: %q, timeouts: {call: 1s}}\n  good: {url: %q}\n", mute, good)))
	w := (&web{t: t, addr: g.Addr}).open()
	hung := make(chan message, 1)
	go func() {
		w2 := (&web{t: t, addr: g.Addr}).open()
		hung <- w2.request("tools/call", map[string]any{"name": "mute__echo", "arguments": map[string]any{}})
	}()
	for range 20 {
		if m := w.request("tools/call", map[string]any{"name": "good__echo", "arguments": map[string]any{"text": "x"}}); m.Error != nil {
			t.Fatal(m.Error)
		}
	}
	if m := <-hung; m.Error == nil || m.Error.Code != -32001 || !strings.Contains(m.Error.Message, "unknown") {
		t.Errorf("the mute upstream: %s %+v", m.Result, m.Error)
	}
}

// TestTemplatesGiveAnOwner: a resource that is in no list is read from the upstream that has a template for it.
func TestTemplatesGiveAnOwner(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	dir := filepath.Join(s.Dir, "docs")
	write(t, filepath.Join(dir, "a.txt"), "alpha")
	w := s.webOn(fmt.Sprintf("command: [%q, files, %q]", fixtureBin, dir))
	if m := w.request("resources/templates/list", map[string]any{}); !strings.Contains(string(m.Result), "/{name}") {
		t.Fatalf("templates: %s %+v", m.Result, m.Error)
	}
	write(t, filepath.Join(dir, "later.txt"), "omega") // not listed
	if m := w.request("resources/read", map[string]any{"uri": "file://" + dir + "/later.txt"}); !strings.Contains(string(m.Result), "omega") {
		t.Errorf("read by template: %s %+v", m.Result, m.Error)
	}
	if m := w.request("resources/read", map[string]any{"uri": "file:///etc/hostname"}); m.Error == nil || m.Error.Code != -32002 {
		t.Errorf("what no template covers: %s %+v, want -32002", m.Result, m.Error)
	}
}
