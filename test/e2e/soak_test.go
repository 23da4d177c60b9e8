package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ws "github.com/coder/websocket"
)

// A crowd is many clients at once. Each uses request id 1 and the same progress token for all that it sends.
type crowd struct {
	t                    *testing.T
	http, sockets, stdio int
	stateful             bool // alone
	calls                int  // of each client

	answered, cancelled, foreign, lost atomic.Int64
}

// soakSize is a tenth of the whole; NAVRA_SOAK=full makes it whole.
func soakSize(t *testing.T) *crowd {
	if os.Getenv("NAVRA_SOAK") == "full" {
		return &crowd{t: t, http: 400, sockets: 80, stdio: 20, calls: 8}
	}
	return &crowd{t: t, http: 40, sockets: 8, stdio: 2, calls: 8}
}

const sameToken = "the same for all"

// TestSoakOverSharedHTTP and TestSoakOverChildren: nothing reaches the wrong client, and nothing is left behind.
func TestSoakOverSharedHTTP(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"stateful", "stateless"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			url, end := s.endpoint("127.0.0.1:0", "odd", "-era", era)
			soak(t, s, soakSize(t), fmt.Sprintf("url: %q, shared: true", url), end)
		})
	}
}

func TestSoakOverChildren(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	c := soakSize(t)
	c.http, c.sockets, c.stdio, c.stateful = 10, 4, 2, true // stateless clients keep their children
	soak(t, s, c, fmt.Sprintf("command: [%q, odd], max_children: {upstream: 16, principal: 16}", fixtureBin), func() {})
}

func soak(t *testing.T, s *setup, c *crowd, upstream string, end func()) {
	const principals = 5
	config := "auth: {tokens: true}\nifc: {on_violation: observe}\nupstreams: {odd: {" + upstream + ", tools: {nonce: {class: read}}}}\nprincipals:\n  local: {roles: [local-default]}\n"
	for i := range principals {
		config += fmt.Sprintf("  p%d: {roles: [local-default]}\n", i)
	}
	path := s.serveConfig("navra.yaml", config)
	g := s.serve(path)
	var tokens []string
	for i := range principals {
		token, _ := s.runOut("token", "create", fmt.Sprintf("p%d", i), "--config", path)
		tokens = append(tokens, strings.TrimSpace(token))
	}
	warm := (&web{t: t, addr: g.Addr, token: tokens[0]}).open() // so that what is kept for good is there before it is counted
	warm.request("tools/list", map[string]any{})
	warm.end()
	http.DefaultClient.CloseIdleConnections()
	time.Sleep(300 * time.Millisecond)
	before := descriptors(t, g.cmd.Process.Pid)

	var all sync.WaitGroup
	for i := range c.http {
		all.Go(func() { c.overHTTP(g.Addr, tokens[i%principals], i%2 == 1 && !c.stateful) })
	}
	for i := range c.sockets {
		all.Go(func() { c.overSocket(g.Addr, tokens[i%principals]) })
	}
	for range c.stdio {
		cl := s.startAs(navraBin, "stdio", "--config", path)
		all.Go(func() { c.overStdio(cl) })
	}
	all.Wait()
	t.Logf("%d clients: %d calls answered, %d cancelled, %d answered by another's, %d not answered", c.http+c.sockets+c.stdio, c.answered.Load(), c.cancelled.Load(), c.foreign.Load(), c.lost.Load())
	if c.foreign.Load() > 0 || c.lost.Load() > 0 || c.answered.Load() == 0 || c.cancelled.Load() == 0 {
		t.Error("something reached the wrong client, or nobody")
	}
	end() // connections to it are kept for a while otherwise
	left(t, g, before)
}

// left shows that the gateway holds no more than before.
func left(t *testing.T, g *gateway, before int) {
	t.Helper()
	pid := g.cmd.Process.Pid
	http.DefaultClient.CloseIdleConnections()
	for end := time.Now().Add(patience); descriptors(t, pid) > before+4 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	if n := descriptors(t, pid); n > before+4 {
		t.Errorf("%d descriptors, before it were %d:\n%s", n, before, strings.Join(open(pid), "\n"))
	}
	g.cmd.Process.Signal(syscall.SIGQUIT) // the runtime tells of all goroutines, and ends
	g.wait()
	dump := g.stderr.String()
	if n := len(regexp.MustCompile(`(?m)^goroutine \d+`).FindAllString(dump, -1)); n == 0 || n > 60 {
		t.Errorf("%d goroutines are left:\n%.6000s", n, dump)
	}
	g.stderr.reset()
}

func (l *lockedBuffer) reset() { l.mu.Lock(); defer l.mu.Unlock(); l.b.Reset() }

func open(pid int) (out []string) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join(dir, e.Name()))
		if strings.Contains(target, ":[") { // sockets, pipes and processes; the database's pool of files grows to its bound and stays
			out = append(out, target)
		}
	}
	return out
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list := open(pid)
	if len(list) == 0 {
		t.Fatal("navra is gone")
	}
	return len(list)
}

// nonceCall is a call with a nonce of its own.
func nonceCall(modern bool) (nonce, body string) {
	nonce = fmt.Sprintf("n%016x", rand.Uint64())
	p := map[string]any{"name": "odd__nonce", "arguments": map[string]any{"nonce": nonce, "ms": rand.IntN(40)}, "_meta": map[string]any{"progressToken": sameToken}}
	if modern {
		p = modernParams("2026-07-28", p)
	}
	return nonce, request(1, "tools/call", p)
}

// judge compares an answer, and the progress before it, with the nonce that was sent.
func (c *crowd) judge(nonce string, progress []message, m message, cancelled bool) {
	for _, p := range progress {
		if p.Method == "notifications/progress" && (!strings.Contains(string(p.Params), nonce) || !strings.Contains(string(p.Params), sameToken)) {
			c.foreign.Add(1)
			c.t.Errorf("progress %s for %s", p.Params, nonce)
		}
	}
	switch {
	case m.Error != nil && m.Error.Code == -32001 && cancelled:
		c.cancelled.Add(1)
	case string(m.ID) == "1" && strings.Contains(string(m.Result), `"text":"`+nonce+`"`):
		c.answered.Add(1)
	default:
		c.foreign.Add(1)
		c.t.Errorf("%s is answered %s %+v", nonce, m.Result, m.Error)
	}
}

func (c *crowd) overHTTP(addr, token string, modern bool) {
	w := &web{t: c.t, addr: addr, token: token, modern: modern}
	if !modern {
		w.open()
		defer w.end()
	}
	for range c.calls {
		nonce, body := nonceCall(modern)
		head := http.Header{}
		if modern {
			head = http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"odd__nonce"}}
		}
		cancel := !modern && rand.IntN(4) == 0
		cancelled := make(chan struct{})
		if cancel {
			go func() {
				defer close(cancelled)
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
				w.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, nil)
			}()
		}
		_, _, got := w.post(body, head)
		if len(got) == 0 {
			c.lost.Add(1)
			continue
		}
		c.judge(nonce, got[:len(got)-1], got[len(got)-1], cancel)
		if cancel {
			<-cancelled // it must not meet the next call
		}
	}
}

// end ends the session.
func (w *web) end() {
	req, _ := http.NewRequest("DELETE", "http://"+w.addr+"/mcp", nil)
	req.Header.Set("Mcp-Session-Id", w.session)
	req.Header.Set("Authorization", "Bearer "+w.token)
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
	}
}

// lineConn carries messages over what is no HTTP.
type lineConn struct {
	write func(string)
	read  chan message
}

// converse plays a client over a connection; a cancelled call is answered by nothing, so a ping tells where it ends.
func (c *crowd) converse(l lineConn) {
	wait := func(id string) (progress []message, m message, ok bool) {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		for {
			select {
			case m, ok := <-l.read:
				if !ok {
					return progress, m, false
				}
				if string(m.ID) == id && m.Method == "" {
					return progress, m, true
				}
				progress = append(progress, m)
			case <-timer.C:
				return progress, m, false
			}
		}
	}
	l.write(request(1, "initialize", greeting("2025-11-25")))
	if _, _, ok := wait("1"); !ok {
		c.lost.Add(1)
		return
	}
	l.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for range c.calls {
		nonce, body := nonceCall(false)
		l.write(body)
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			l.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
			l.write(request(2, "ping", map[string]any{}))
			before, _, ok := wait("2")
			if !ok {
				c.lost.Add(1)
				return
			}
			if n := len(before); n > 0 && before[n-1].Method == "" { // the answer was faster
				c.judge(nonce, before[:n-1], before[n-1], false)
			} else {
				c.cancelled.Add(1)
			}
			continue
		}
		progress, m, ok := wait("1")
		if !ok {
			c.lost.Add(1)
			return
		}
		c.judge(nonce, progress, m, false)
	}
}

func (c *crowd) overSocket(addr, token string) {
	ctx := context.Background()
	conn, _, err := ws.Dial(ctx, "ws://"+addr+"/ws", &ws.DialOptions{Subprotocols: []string{"mcp"}, HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	if err != nil {
		c.t.Error(err)
		c.lost.Add(1)
		return
	}
	var done atomic.Bool
	defer conn.Close(ws.StatusNormalClosure, "")
	defer done.Store(true)
	read := make(chan message, 64)
	go func() {
		defer close(read)
		for {
			_, b, err := conn.Read(ctx)
			if err != nil {
				if !done.Load() {
					c.t.Errorf("a connection ended: %v", err)
				}
				return
			}
			var m message
			json.Unmarshal(b, &m)
			read <- m
		}
	}()
	c.converse(lineConn{func(s string) { conn.Write(ctx, ws.MessageText, []byte(s)) }, read})
}

func (c *crowd) overStdio(cl *client) {
	read := make(chan message, 64)
	go func() {
		defer close(read)
		seen := 0
		for {
			cl.mu.Lock()
			var fresh []message
			fresh, seen = append(fresh, cl.notes[seen:]...), len(cl.notes)
			cl.mu.Unlock()
			for _, m := range fresh {
				read <- m
			}
			select {
			case <-cl.closed:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	c.converse(lineConn{func(s string) { cl.send(s) }, read})
	cl.close()
}
