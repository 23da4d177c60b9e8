package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// team is a served configuration with two principals: ann may use all, guest may not mail.
func team(t *testing.T) (s *setup, config string, g *gateway, ann, guest *web) {
	s, office := office(t)
	config = filepath.Join(s.Dir, "team.yaml")
	upstreams := read(t, office)
	write(t, config, "listen: 127.0.0.1:0\nauth: {tokens: true}\nprincipals: {ann: {roles: [local-default]}, guest: {roles: [reader]}}\nroles: {reader: {rules: [{allow: {tools: [\"*\"]}}, {deny: {tools: [\"mail/*\"]}}]}}\n"+upstreams)
	g = s.serve(config)
	client := func(who string) *web {
		token, code := s.runOut("token", "create", who, "--config", config)
		if code != 0 {
			t.Fatalf("no token for %s", who)
		}
		return &web{t: t, addr: g.Addr, token: strings.TrimSpace(token)}
	}
	return s, config, g, client("ann"), client("guest")
}

func TestAttacksOverHTTP(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(s *setup, config string, g *gateway, w *web) *web{
		"the same session": func(_ *setup, _ string, _ *gateway, w *web) *web { return w },
		"a new session": func(_ *setup, _ string, _ *gateway, w *web) *web {
			return (&web{t: w.t, addr: w.addr, token: w.token}).open()
		},
		"the other era": func(_ *setup, _ string, _ *gateway, w *web) *web {
			return &web{t: w.t, addr: w.addr, token: w.token, modern: true}
		},
		"another token of the principal": func(s *setup, config string, _ *gateway, w *web) *web {
			token, _ := s.runOut("token", "create", "ann", "--config", config)
			return (&web{t: w.t, addr: w.addr, token: strings.TrimSpace(token)}).open()
		},
		"after a restart": func(s *setup, config string, g *gateway, w *web) *web {
			g.stop()
			return (&web{t: w.t, addr: s.serve(config).Addr, token: w.token}).open()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, config, g, ann, guest := team(t)
			if a := ann.open().call("files__read_file", map[string]any{"path": "plan.txt"}); a.IsError {
				t.Fatal(a.text())
			}
			a := again(s, config, g, ann).call("mail__send_mail", mail("x").args)
			if !a.IsError || !strings.HasPrefix(a.text(), "denied by navra:") {
				t.Errorf("passed: %s", a.text())
			}
			if s.everReached("send_mail") {
				t.Error("it reached the upstream")
			}
			if name == "the same session" { // the other principal is not tainted by it
				if a := guest.open().call("web__fetch", fetch("https://example.com/").args); a.IsError {
					t.Errorf("guest: %s", a.text())
				}
			}
			s.verify(config)
		})
	}
}

func TestDeniedByNameIsUnknown(t *testing.T) {
	t.Parallel()
	s, _, _, _, guest := team(t)
	for _, modern := range []bool{false, true} {
		w := &web{t: t, addr: guest.addr, token: guest.token, modern: modern}
		if !modern {
			w.open()
		}
		if m := w.request("tools/list", map[string]any{}); strings.Contains(string(m.Result), "mail__") || !strings.Contains(string(m.Result), "files__read_file") {
			t.Errorf("the guest sees %s", m.Result)
		}
		denied := w.request("tools/call", map[string]any{"name": "mail__send_mail", "arguments": map[string]any{}})
		unknown := w.request("tools/call", map[string]any{"name": "mail__send_post", "arguments": map[string]any{}})
		if denied.Error == nil || unknown.Error == nil {
			t.Fatalf("denied %s, unknown %s", denied.Result, unknown.Result)
		}
		if d, u := *denied.Error, *unknown.Error; d.Code != u.Code || strings.ReplaceAll(d.Message, "mail__send_mail", "X") != strings.ReplaceAll(u.Message, "mail__send_post", "X") || string(d.Data) != string(u.Data) {
			t.Errorf("a denied name is told from an unknown one: %+v, %+v", d, u)
		}
	}
	if s.everReached("send_mail") {
		t.Error("it reached the upstream")
	}
}

func TestSessionsBelongToTheirPrincipal(t *testing.T) {
	t.Parallel()
	_, config, g, ann, guest := team(t)
	ann.open()
	status := func(w *web, method, session string) int {
		req, _ := http.NewRequest(method, "http://"+g.Addr+"/mcp", nil)
		if method == "POST" {
			req, _ = http.NewRequest(method, "http://"+g.Addr+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		}
		req.Header.Set("Authorization", "Bearer "+w.token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Mcp-Session-Id", session)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, method := range []string{"POST", "GET", "DELETE"} {
		for what, session := range map[string]string{"ann's session": ann.session, "an invented one": "invented", "an altered one": altered(ann.session)} {
			if got := status(guest, method, session); got != http.StatusNotFound {
				t.Errorf("%s of %s by another: %d, want 404", method, what, got)
			}
		}
	}
	if got := status(ann, "POST", ann.session); got != http.StatusOK {
		t.Errorf("ann's own session after that: %d", got)
	}
	if got := status(ann, "DELETE", ann.session); got != http.StatusNoContent {
		t.Errorf("DELETE: %d, want 204", got)
	}
	if got := status(ann, "POST", ann.session); got != http.StatusNotFound {
		t.Errorf("after DELETE: %d, want 404", got)
	}
	s := ann.open()
	old := s.session
	g.stop()
	g = (&setup{t: t, Home: filepath.Dir(filepath.Dir(filepath.Dir(storeOf(t, config)))), Dir: filepath.Dir(config)}).serve(config)
	if got := status(ann, "POST", old); got != http.StatusOK {
		t.Errorf("the session after a restart of navra: %d, want 200", got)
	}
}

func storeOf(t *testing.T, config string) string {
	for _, line := range strings.Split(read(t, config), "\n") {
		if p, ok := strings.CutPrefix(line, "store: "); ok {
			return p
		}
	}
	t.Fatal("no store")
	return ""
}

// tokenOf finds the id of a principal's token in what token list prints.
func tokenOf(list, who string) string {
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == who {
			return f[0]
		}
	}
	return ""
}

func TestTokens(t *testing.T) {
	t.Parallel()
	s, config, _, ann, _ := team(t)
	ann.open()
	list, _ := s.run("token", "list", "--config", config)
	if strings.Contains(list, ann.token) || !strings.Contains(list, "ann") {
		t.Errorf("token list:\n%s", list)
	}
	id := tokenOf(list, "ann")
	if out, code := s.run("token", "revoke", id, "--config", config); code != 0 {
		t.Fatal(out)
	}
	if status, head, _ := ann.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, nil); status != 401 || head.Get("WWW-Authenticate") == "" {
		t.Errorf("a revoked token while the gateway runs: %d", status)
	}
	if out, code := s.run("token", "create", "nobody", "--config", config); code == 0 || !strings.Contains(out, "nobody") {
		t.Errorf("a token for a principal that is not configured: %s", out)
	}
	s.noSecretOnDisk(ann.token)
}

// A call that takes longer than two seconds becomes a stream; cancelling it ends the open POST with -32001.
func TestLongCallsOverHTTP(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	config := s.serveConfig("navra.yaml", fmt.Sprintf("auth: none\nprincipals: {local: {roles: [local-default]}}\nupstreams: {odd: {command: [%q, odd, -changed, -log, %q]}}\n", fixtureBin, s.log()))
	g := s.serve(config)
	w := (&web{t: t, addr: g.Addr}).open()
	head := http.Header{}
	begin := func(id int, steps int) (*http.Response, error) {
		req, _ := http.NewRequest("POST", "http://"+g.Addr+"/mcp", strings.NewReader(request(id, "tools/call", map[string]any{"name": "odd__work", "arguments": map[string]any{"steps": steps, "ms": 50}})))
		req.Header = head.Clone()
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Mcp-Session-Id", w.session)
		return http.DefaultClient.Do(req)
	}
	resp, err := begin(1, 60)
	if err != nil {
		t.Fatal(err)
	}
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Errorf("a call of three seconds comes as %q", ct)
	}
	found := false
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		found = found || strings.HasPrefix(sc.Text(), "data:") && strings.Contains(sc.Text(), "done")
	}
	resp.Body.Close()
	if !found {
		t.Error("no answer in the stream")
	}
	resp, err = begin(2, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if status, _, _ := w.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`, nil); status != 202 {
		t.Errorf("cancelled: %d", status)
	}
	var last message
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		if data, ok := strings.CutPrefix(sc.Text(), "data:"); ok && strings.TrimSpace(data) != "" { // the first event has none
			if err := json.Unmarshal([]byte(data), &last); err != nil {
				t.Fatal(err)
			}
		}
	}
	if last.Error == nil || last.Error.Code != -32001 {
		t.Errorf("the cancelled POST ends with %+v", last)
	}
	waitFor(t, "the cancellation to reach the server", func() bool { return s.everReached("cancelled") })

	// list_changed arrives on the GET stream.
	req, _ := http.NewRequest("GET", "http://"+g.Addr+"/mcp", nil)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", w.session)
	stream, err := http.DefaultClient.Do(req)
	if err != nil || stream.StatusCode != 200 {
		t.Fatalf("GET: %v %v", stream, err)
	}
	defer stream.Body.Close()
	heard := make(chan string, 1)
	go func() {
		defer close(heard)
		for sc := bufio.NewScanner(stream.Body); sc.Scan(); {
			if strings.Contains(sc.Text(), "list_changed") {
				heard <- sc.Text()
				return
			}
		}
	}()
	w.call("odd__grow", map[string]any{})
	select {
	case text, ok := <-heard:
		if !ok || text == "" {
			t.Error("the GET stream ended without list_changed")
		}
	case <-time.After(patience):
		t.Error("no list_changed on the GET stream")
	}
	end, _ := http.NewRequest("DELETE", "http://"+g.Addr+"/mcp", nil)
	end.Header.Set("Mcp-Session-Id", w.session)
	if resp, err := http.DefaultClient.Do(end); err != nil || resp.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %v, %v", resp, err)
	}
	if _, err := io.Copy(io.Discard, stream.Body); err != nil { // it ends with its session
		t.Errorf("the stream of an ended session: %v", err)
	}
}

// A second start answers from what was kept, while the server still starts.
func TestSecondStartDoesNotWait(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	ready := filepath.Join(s.Dir, "ready")
	write(t, ready, "")
	args := []string{navraBin, "wrap", "--name", "odd", "--", fixtureBin, "odd", "-start-when", ready}
	first := s.start(args...).open()
	if m := first.request("tools/list", nil); !strings.Contains(string(m.Result), "echo") {
		t.Fatalf("the first start: %s", m.Result)
	}
	first.close()
	if err := os.Remove(ready); err != nil {
		t.Fatal(err)
	}
	c := s.start(args...).open()
	if m := c.request("tools/list", nil); !strings.Contains(string(m.Result), "echo") {
		t.Errorf("before the server has started: %s", m.Result)
	}
	write(t, ready, "")
	if a := c.call("echo", map[string]any{"text": "x"}); a.text() != "x" {
		t.Errorf("echo: %+v", a)
	}
}

// SIGTERM lets a call that is under way finish.
func TestShutdownDrains(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	config := s.serveConfig("navra.yaml", fmt.Sprintf("auth: none\nprincipals: {local: {roles: [local-default]}}\nupstreams: {odd: {command: [%q, odd, -log, %q]}}\n", fixtureBin, s.log()))
	g := s.serve(config)
	w := (&web{t: t, addr: g.Addr}).open()
	done := make(chan answer, 1)
	go func() { done <- w.call("odd__work", map[string]any{"steps": 20, "ms": 50}) }()
	waitFor(t, "the call to reach the server", func() bool { return s.everReached("work") })
	g.stop()
	if a := <-done; a.text() != "done" {
		t.Errorf("the call that was under way: %+v", a)
	}
	s.verify(config)
}
