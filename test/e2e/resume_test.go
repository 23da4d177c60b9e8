package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// An events is a stream over a connection of its own, which a test can cut.
type events struct {
	t      testing.TB
	conn   net.Conn
	status int
	head   http.Header
	body   *bufio.Reader
	last   string // id of the last event that had one
	ids    int
}

// dial sends a request of w's session on a new connection.
func (w *web) dial(method, body string, head http.Header) *events {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	req, err := http.NewRequest(method, "http://"+w.addr+"/mcp", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	if !w.modern {
		req.Header.Set("Mcp-Session-Id", w.session)
	}
	for k, v := range head {
		req.Header[k] = v
	}
	if err := req.Write(conn); err != nil {
		w.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return &events{t: w.t, conn: conn, status: resp.StatusCode, head: resp.Header, body: bufio.NewReader(resp.Body)}
}

// resume goes on with a stream after an event.
func (w *web) resume(last string) *events {
	w.t.Helper()
	return w.dial("GET", "", http.Header{"Last-Event-Id": {last}})
}

// next returns the data of the next event that is no comment; more is false at the end.
func (e *events) next() (data string, more bool) {
	e.t.Helper()
	seen := false
	for {
		line, err := e.body.ReadString('\n')
		if err != nil {
			return data, false
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case name == "id":
			e.last, e.ids = value, e.ids+1
		case name == "data":
			data, seen = value, true
		case line == "\n" && seen:
			return data, true
		}
	}
}

// cut ends the connection, so that the other end is told or, with the reset, learns of it at its next write.
func (e *events) cut(reset bool) {
	if reset {
		e.conn.(*net.TCPConn).SetLinger(0)
	}
	e.conn.Close()
}

// resuming is a gateway before an odd server, with n sessions' room.
func resuming(t *testing.T, listen string) (*setup, string, *gateway) {
	s := newSetup(t)
	config := filepath.Join(s.Dir, "navra.yaml")
	write(t, config, fmt.Sprintf("listen: %s\nauth: {tokens: true}\nstore: %s\nprincipals: {ann: {roles: [local-default]}, bob: {roles: [local-default]}}\nupstreams: {odd: {command: [%q, odd, -log, %q], max_children: {upstream: 40, principal: 40}}}\n",
		listen, s.db(), fixtureBin, s.log()))
	return s, config, s.serve(config)
}

func (s *setup) user(who, config string, g *gateway) *web {
	s.t.Helper()
	token, code := s.runOut("token", "create", who, "--config", config)
	if code != 0 {
		s.t.Fatalf("no token for %s", who)
	}
	return &web{t: s.t, addr: g.Addr, token: strings.TrimSpace(token)}
}

func work(id, steps, ms int) string {
	return request(id, "tools/call", map[string]any{
		"name": "odd__work", "arguments": map[string]any{"steps": steps, "ms": ms}, "_meta": map[string]any{"progressToken": fmt.Sprint("token ", id)},
	})
}

// steps reads progress up to step last, and fails where one is missing, is there twice or is another's.
func (e *events) steps(token string, at *int, last int) {
	for *at < last {
		data, more := e.next()
		if !more {
			e.t.Fatalf("the stream ended after step %d", *at)
		}
		if data == "" {
			continue
		}
		if want := fmt.Sprintf(`"progress":%d,`, *at+1); !strings.Contains(data, want) || !strings.Contains(data, token) {
			e.t.Fatalf("after step %d of %q: %s", *at, token, data)
		}
		*at++
	}
}

// Twenty sessions lose their connections twice in the middle of a call, and each gets just what it missed.
func TestResumeOverSockets(t *testing.T) {
	t.Parallel()
	s, config, g := resuming(t, "127.0.0.1:0")
	users := []*web{s.user("ann", config, g), s.user("bob", config, g)}
	var all sync.WaitGroup
	ids := make([]string, 20)
	sessions := make([]*web, 20)
	for i := range 20 {
		w := &web{t: t, addr: g.Addr, token: users[i%2].token, version: []string{"2025-03-26", "2025-06-18", "2025-11-25"}[i%3]}
		sessions[i] = w.open()
		all.Go(func() {
			at, token := 0, fmt.Sprintf(`"token %d"`, i+100)
			e := w.dial("POST", work(i+100, 60, 50), nil)
			e.steps(token, &at, 10)
			e.cut(i%4 < 2)
			ids[i] = e.last
			e = w.resume(e.last)
			e.steps(token, &at, 20)
			e.cut(i%4 >= 2)
			e = w.resume(e.last)
			e.steps(token, &at, 60)
			if data, more := e.next(); !more || !strings.Contains(data, `"done"`) || !strings.Contains(data, fmt.Sprintf(`"id":%d,`, i+100)) {
				t.Errorf("session %d: answer %q", i, data)
			}
			if data, more := e.next(); more {
				t.Errorf("session %d: after the answer %q", i, data)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for i, w := range sessions { // of another session of the same principal, and of another principal
		for _, other := range []int{(i + 2) % 20, (i + 1) % 20} {
			data, _ := w.resume(ids[other]).next()
			if strings.Contains(data, `"done"`) || strings.Contains(data, `"progress"`) || !strings.Contains(data, `"outcome":"unknown"`) {
				t.Fatalf("session %d resumes the stream of session %d: %s", i, other, data)
			}
		}
	}
	w := sessions[0]
	if status, _, _ := w.delete(); status != 204 {
		t.Fatalf("DELETE: %d", status)
	}
	if e := w.resume(ids[0]); e.status != 404 {
		t.Errorf("after the session's end: %d", e.status)
	}
	g.stop()
	s.verify(config)
}

func (w *web) delete() (int, http.Header, string) {
	w.t.Helper()
	resp, body := ask(w.t, http.DefaultClient, "DELETE", "http://"+w.addr+"/mcp", http.Header{"Mcp-Session-Id": {w.session}, "Authorization": {"Bearer " + w.token}})
	return resp.StatusCode, resp.Header, body
}

// A client that never comes back does not stop its call; a restart forgets what was kept, and the session goes on.
func TestCallOutlivesItsClient(t *testing.T) {
	t.Parallel()
	s, config, g := resuming(t, "127.0.0.1:0")
	w := s.user("ann", config, g).open()
	e := w.dial("POST", work(7, 30, 50), nil)
	if data, _ := e.next(); data != "" || e.last == "" {
		t.Errorf("the first event has the data %q and the id %q", data, e.last)
	}
	at := 0
	e.steps("token 7", &at, 1)
	e.cut(true)
	recordedAnswer := func() (out string) {
		for _, r := range s.entries() {
			if r.Kind == "answer" && r.Target == "odd/work" {
				out = r.Outcome
			}
		}
		return out
	}
	waitFor(t, "the answer to be recorded", func() bool { return recordedAnswer() != "" })
	if got := recordedAnswer(); got != "ran" {
		t.Errorf("outcome %q, want ran", got)
	}
	g.stop()
	g = s.serve(config)
	w.addr = g.Addr
	r := w.resume(e.last)
	if data, _ := r.next(); r.status != 200 || !strings.Contains(data, `"id":7,"error"`) || !strings.Contains(data, `"outcome":"unknown"`) {
		t.Errorf("after a restart: %d %s", r.status, data)
	}
	if a := w.call("odd__echo", map[string]any{"text": "the session goes on"}); a.text() != "the session goes on" {
		t.Errorf("after a restart: %+v", a)
	}
}

// What is pushed waits while no stream is read. All streams end with the session.
func TestPushWaitsForItsClient(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	config := filepath.Join(s.Dir, "navra.yaml")
	write(t, config, fmt.Sprintf("listen: 127.0.0.1:0\nauth: {tokens: true}\nstore: %s\nprincipals: {ann: {roles: [local-default]}}\nupstreams: {odd: {command: [%q, odd, -changed]}}\n", s.db(), fixtureBin))
	g := s.serve(config)
	w := s.user("ann", config, g).open()
	lost := w.dial("GET", "", nil)
	lost.next()
	lost.cut(false)
	if a := w.call("odd__grow", map[string]any{}); a.text() != "grown" {
		t.Fatalf("%+v", a)
	}
	first := w.resume(lost.last)
	first.next()
	if data, more := first.next(); !more || !strings.Contains(data, "notifications/tools/list_changed") {
		t.Errorf("pushed while the connection was lost: %q", data)
	}
	again := w.dial("GET", "", nil)
	again.next()
	if status, _, _ := w.delete(); status != 204 {
		t.Errorf("DELETE: %d", status)
	}
	for name, e := range map[string]*events{"the first stream": first, "the last stream": again} {
		if data, more := e.next(); more {
			t.Errorf("%s: %q after the end of the session", name, data)
		}
	}
	if e := w.resume(again.last); e.status != 404 {
		t.Errorf("after the session's end: %d", e.status)
	}
}

// In the stateless era nothing has an id, and a client that goes away cancels.
func TestStatelessIsNotResumed(t *testing.T) {
	t.Parallel()
	s, config, g := resuming(t, "127.0.0.1:0")
	w := s.user("ann", config, g)
	w.modern = true
	body := request(7, "tools/call", map[string]any{
		"name": "odd__work", "arguments": map[string]any{"steps": 2000, "ms": 50}, "_meta": func() map[string]any {
			m := modernMeta()
			m["progressToken"] = "token 7"
			return m
		}(),
	})
	e := w.dial("POST", body, http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"odd__work"}})
	at := 0
	e.steps("token 7", &at, 3)
	if e.ids > 0 {
		t.Error("events have ids")
	}
	e.cut(false)
	waitFor(t, "the call to be cancelled", func() bool {
		for _, r := range s.entries() {
			if r.Kind == "answer" && r.Target == "odd/work" {
				return r.Outcome == "unknown"
			}
		}
		return false
	})
	r := w.dial("GET", "", http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Last-Event-Id": {"pAAAAAAAAAAAAAAAAAAAAAAAAAA.0"}})
	if r.status != 405 {
		t.Errorf("GET: %d, want 405", r.status)
	}
}

// A cutter stands between a client and navra. It resets a connection in the middle of the event that reports each tenth step, once.
type cutter struct {
	l    net.Listener
	to   string
	work sync.WaitGroup

	most int // cuts

	mu   sync.Mutex
	cuts int
}

func newCutter(t *testing.T, to string, most int) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{l: l, to: to, most: most}
	c.work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			c.work.Go(func() { c.relay(in) })
		}
	})
	t.Cleanup(func() { l.Close() })
	return c
}

func (c *cutter) relay(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := in.Read(buf)
			out.Write(buf[:n])
			if err != nil {
				out.Close()
				return
			}
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := out.Read(buf)
		if at := c.cut(buf[:n]); at > 0 {
			in.Write(buf[:at])
			in.(*net.TCPConn).SetLinger(0)
			out.(*net.TCPConn).SetLinger(0)
			return
		}
		in.Write(buf[:n])
		if err != nil {
			return
		}
	}
}

// cut returns where to cut, 0 for nowhere.
func (c *cutter) cut(b []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := bytes.Index(b, fmt.Appendf(nil, `"progress":%d,`, 10*(c.cuts+1)))
	if at <= 0 || c.cuts == c.most {
		return 0
	}
	c.cuts++
	return at
}

// The official clients come back by themselves: with connections that break off, and with streams that navra ends so that they poll.
func TestOfficialClientsResume(t *testing.T) {
	t.Parallel()
	folder, err := js()
	installed(t, err)
	sdk := goClients(t)
	for _, poll := range []bool{false, true} {
		listen := "127.0.0.1:0"
		if poll {
			listen = "{address: 127.0.0.1:0, poll_after: 1s}"
		}
		t.Run(fmt.Sprintf("poll %v", poll), func(t *testing.T) {
			t.Parallel()
			s, config, g := resuming(t, listen)
			ann := s.user("ann", config, g)
			clients := map[string]func(t *testing.T, url string){
				"TypeScript v1": func(t *testing.T, url string) { official(t, s, folder, "v1", "resume", "legacy", url, ann.token) },
				"TypeScript v2": func(t *testing.T, url string) { official(t, s, folder, "v2", "resume", "legacy", url, ann.token) },
				"Go": func(t *testing.T, url string) {
					checks(t, s, s.Dir, filepath.Join(sdk, "clients"), "resume", url, ann.token)
				},
				"Python": func(t *testing.T, url string) {
					if err := exec.Command("python3", "-c", "import venv, ensurepip").Run(); err != nil {
						t.Skip("there is no python3 with venv")
					}
					folder, err := python()
					installed(t, err)
					checks(t, s, s.Dir, filepath.Join(folder, "venv", "bin", "python"), absolute(t, clients+"/python/client.py"), "resume", url, ann.token)
				},
			}
			t.Run("clients", func(t *testing.T) {
				for name, run := range clients {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						most := 3
						switch {
						case poll:
							most = 0
						case name == "Python":
							most = 1 // after another one it goes on from before the first, and after the third not at all
						}
						c := newCutter(t, g.Addr, most)
						run(t, "http://"+c.l.Addr().String()+"/mcp")
						c.mu.Lock()
						defer c.mu.Unlock()
						if c.cuts != most {
							t.Errorf("%d cuts, want %d", c.cuts, most)
						}
					})
				}
			})
			g.stop()
			s.verify(config)
		})
	}
}
