package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An ear takes what comes to one client unasked, in order.
type ear struct {
	t    *testing.T
	name string
	ch   chan message
	end  func()
}

// next returns the next message that fits; what comes before and does not is handed to other, where there is one.
func (e *ear) next(what string, fits func(message) bool, other func(message)) message {
	e.t.Helper()
	late := time.After(patience)
	for {
		select {
		case m, ok := <-e.ch:
			switch {
			case !ok:
				e.t.Fatalf("%s: the stream ended before %s", e.name, what)
			case fits(m):
				return m
			case other != nil:
				other(m)
			}
		case <-late:
			e.t.Fatalf("%s: waited in vain for %s", e.name, what)
		}
	}
}

func (e *ear) method(method string) message {
	e.t.Helper()
	return e.next(method, func(m message) bool { return m.Method == method }, nil)
}

// updated waits for the news of a resource, and returns the id of the listen it came for.
func (e *ear) updated(uri string, other func(message)) string {
	e.t.Helper()
	m := e.next("the news of "+uri, func(m message) bool {
		return m.Method == "notifications/resources/updated" && strings.Contains(string(m.Params), fmt.Sprintf(`"uri":%q`, uri))
	}, other)
	return listenID(m.Params)
}

func listenID(b json.RawMessage) string {
	var p struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	json.Unmarshal(b, &p)
	return string(p.Meta["io.modelcontextprotocol/subscriptionId"])
}

// stream sends a request whose answer is an event stream, and returns what hears it.
func (w *web) stream(t *testing.T, name, method, body string, head http.Header) *ear {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+w.addr+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = head
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || kind != "text/event-stream" {
		t.Fatalf("%s: %d %s", name, resp.StatusCode, kind)
	}
	e := &ear{t: t, name: name, ch: make(chan message, 1000), end: func() { resp.Body.Close() }}
	t.Cleanup(e.end)
	go func() {
		defer close(e.ch)
		for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
			if data, ok := bytes.CutPrefix(sc.Bytes(), []byte("data:")); ok {
				var m message
				if json.Unmarshal(data, &m) == nil {
					e.ch <- m
				}
			}
		}
	}()
	return e
}

// hear opens the stream of a session.
func (w *web) hear(t *testing.T, name string) *ear {
	return w.stream(t, name, "GET", "", http.Header{"Mcp-Session-Id": {w.session}, "Mcp-Protocol-Version": {"2025-11-25"}})
}

func listenRequest(id any, wish map[string]any) string {
	return request(id, "subscriptions/listen", map[string]any{"_meta": modernMeta(), "notifications": wish})
}

func (w *web) listen(t *testing.T, name string, id any, wish map[string]any) *ear {
	return w.stream(t, name, "POST", listenRequest(id, wish), http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}})
}

// hear returns what hears what the socket gets unasked, from now on.
func (s *socket) hear(t *testing.T, name string) *ear {
	e := &ear{t: t, name: name, ch: make(chan message, 1000)}
	go pour(e, s.arrived, s.closed, func(i int) message {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.others[i]
	})
	return e
}

func (c *client) hear(t *testing.T, name string) *ear {
	e := &ear{t: t, name: name, ch: make(chan message, 1000)}
	go pour(e, c.arrived, c.closed, func(i int) message {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.notes[i]
	})
	return e
}

func pour(e *ear, arrived, closed <-chan struct{}, at func(int) message) {
	defer close(e.ch)
	for i := 0; ; i++ {
		select {
		case <-arrived:
		case <-closed:
			select {
			case <-arrived:
			default:
				return
			}
		}
		e.ch <- at(i)
	}
}

// A follower is a client of one kind that has subscribed to note://a and asked to be told of tools.
type follower struct {
	*ear
	id   string // of its listen; "" in the stateful era
	call func(method string, params map[string]any) message
}

func (f *follower) touch(uri string) {
	f.t.Helper()
	m := f.call("tools/call", map[string]any{"name": "odd__touch", "arguments": map[string]any{"uri": uri}})
	if m.Error != nil {
		f.t.Fatalf("%s: touch: %+v", f.name, m.Error)
	}
}

// follow has clients of both eras subscribe, over HTTP and WebSocket.
func follow(t *testing.T, addr string) (all []*follower) {
	wish := map[string]any{"toolsListChanged": true, "resourceSubscriptions": []string{"note://a", "note://refused", "note://none"}}
	modern := func(f func(string, map[string]any) message) func(string, map[string]any) message {
		return func(method string, params map[string]any) message {
			params["_meta"] = modernMeta()
			return f(method, params)
		}
	}
	old := (&web{t: t, addr: addr}).open()
	all = append(all, &follower{old.hear(t, "stateful HTTP"), "", old.request})
	new := &web{t: t, addr: addr, modern: true}
	all = append(all, &follower{new.listen(t, "stateless HTTP", 7, wish), "7", new.request})
	ws := dial(t, addr, "").open("2025-11-25")
	all = append(all, &follower{ws.hear(t, "stateful WebSocket"), "", func(m string, p map[string]any) message { return ws.request(m, p) }})
	ws2 := dial(t, addr, "")
	ws2.write(listenRequest("seven", wish))
	all = append(all, &follower{ws2.hear(t, "stateless WebSocket"), `"seven"`, modern(func(m string, p map[string]any) message { return ws2.request(m, p) })})
	for _, f := range all {
		if f.id == "" {
			subscribeAll(f)
			continue
		}
		m := <-f.ch
		if m.Method != "notifications/subscriptions/acknowledged" || listenID(m.Params) != f.id || !strings.Contains(string(m.Params), `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["note://a"]}`) {
			t.Fatalf("%s: first %s %s, want what of it is granted", f.name, m.Method, m.Params)
		}
	}
	return all
}

func subscribeAll(f *follower) {
	f.t.Helper()
	for uri, code := range map[string]int{"note://a": 0, "note://refused": -32602, "note://none": -32002} {
		m := f.call("resources/subscribe", map[string]any{"uri": uri})
		got := 0
		if m.Error != nil {
			got = m.Error.Code
		}
		if got != code || code == 0 && string(m.Result) != "{}" {
			f.t.Fatalf("%s: subscribing to %s: %s %+v, want code %d", f.name, uri, m.Result, m.Error, code)
		}
	}
}

// TestSubscriptions subscribes in both eras, over HTTP and WebSocket, to upstreams of both eras over each way to them.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	for _, c := range cells() {
		if strings.Contains(c.name, "silent") || strings.Contains(c.name, "exits") {
			continue // stateful, after a while
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			log := filepath.Join(s.Dir, "calls.log")
			g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\nifc: {on_violation: observe}\nupstreams: {odd: {"+c.key(s, "odd", "-watch", "-changed", "-log", log)+"}}\n"))
			all := follow(t, g.Addr)
			for i, f := range all {
				f.touch("note://b")
				uri := fmt.Sprintf("note://a/%d", i)
				f.touch(uri)
				id := f.updated(uri, func(m message) {
					if strings.Contains(string(m.Params), "note://b") {
						t.Errorf("%s was told of what it does not follow: %s", f.name, m.Params)
					}
				})
				if id != f.id {
					t.Errorf("%s: the news is of listen %s, want %s", f.name, id, f.id)
				}
			}
			socket := all[2]
			if m := socket.call("resources/unsubscribe", map[string]any{"uri": "note://a"}); string(m.Result) != "{}" {
				t.Fatalf("unsubscribe: %+v", m)
			}
			socket.touch("note://a/gone")
			socket.call("tools/call", map[string]any{"name": "odd__grow", "arguments": map[string]any{}})
			for _, f := range all {
				m := f.next("a changed list", func(m message) bool { return m.Method == "notifications/tools/list_changed" }, func(m message) {
					if f == socket && strings.Contains(string(m.Params), "gone") {
						t.Errorf("told of what was unsubscribed: %s", m.Params)
					}
				})
				if id := listenID(m.Params); id != f.id {
					t.Errorf("%s: the list's change is of listen %s, want %s", f.name, id, f.id)
				}
				if list := f.call("tools/list", map[string]any{}); !strings.Contains(string(list.Result), "odd__grown") && !strings.HasPrefix(c.name, "stdio") { // there each session has a process of its own
					t.Errorf("%s was told before the list was read", f.name)
				}
			}
			var asked int
			for _, call := range calledLog(t, log) {
				if name := call["name"]; (name == "resources/subscribe" || name == "subscriptions/listen") && strings.Contains(fmt.Sprint(call["arguments"]), "note://a") {
					asked++
				}
			}
			if asked != 3 {
				t.Errorf("upstreams were asked %d times, want 3: once for each session, and once for both listens", asked)
			}
		})
	}
}

// TestSubscriptionsOverStdio has both eras on one connection.
func TestSubscriptionsOverStdio(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"stateful", "stateless"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			c := s.start(navraBin, "wrap", "--name", "odd", "--", fixtureBin, "odd", "-watch", "-changed", "-era", era).open()
			e := c.hear(t, "stdio")
			if m := c.request("resources/subscribe", map[string]any{"uri": "note://a"}); string(m.Result) != "{}" {
				t.Fatalf("subscribe: %+v %+v", m.Result, m.Error)
			}
			c.send(listenRequest("l1", map[string]any{"resourceSubscriptions": []string{"note://b"}}))
			if m := e.method("notifications/subscriptions/acknowledged"); listenID(m.Params) != `"l1"` {
				t.Errorf("acknowledged %s", m.Params)
			}
			c.send(listenRequest(900, map[string]any{"resourceSubscriptions": []string{"note://b", "note://a"}, "promptsListChanged": true}))
			if m := e.method("notifications/subscriptions/acknowledged"); listenID(m.Params) != "900" || strings.Contains(string(m.Params), "prompts") {
				t.Errorf("acknowledged %s", m.Params)
			}
			// Modern requests share the lane of the listens, the session has its own.
			touch := func(uri string) {
				if m := c.request("tools/call", map[string]any{"name": "touch", "arguments": map[string]any{"uri": uri}, "_meta": modernMeta()}); m.Error != nil {
					t.Fatalf("touch: %+v", m.Error)
				}
			}
			touch("note://b")
			ids := []string{e.updated("note://b", nil), e.updated("note://b", nil)}
			slices.Sort(ids)
			if ids[0] != `"l1"` || ids[1] != "900" {
				t.Errorf("the news came for %v", ids)
			}
			c.notify("notifications/cancelled", map[string]any{"requestId": "l1"})
			c.request("ping", nil)
			touch("note://b/2")
			if id := e.updated("note://b/2", nil); id != "900" {
				t.Errorf("after a cancellation the news came for %s", id)
			}
			if m := c.request("tools/call", map[string]any{"name": "touch", "arguments": map[string]any{"uri": "note://a"}}); m.Error != nil {
				t.Fatalf("touch: %+v", m.Error)
			}
			if id := e.updated("note://a", func(m message) { t.Errorf("before it came %+v", m) }); id != "" {
				t.Errorf("the session's news names a listen: %s", id)
			}
		})
	}
}

// A listen ends with its result when navra drains, which does not wait for it.
func TestListenEndsWithAResult(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	config := s.listenConfig("navra.yaml", "{address: 127.0.0.1:0, drain_timeout: 10m}", "none", "")
	g := s.serve(config)
	w := &web{t: t, addr: g.Addr, modern: true}
	e := w.listen(t, "listen", "x", map[string]any{"toolsListChanged": true})
	e.method("notifications/subscriptions/acknowledged")
	left := w.listen(t, "left", 2, map[string]any{"toolsListChanged": true})
	left.end()
	g.cmd.Process.Signal(syscall.SIGTERM)
	m := e.next("the result", func(m message) bool { return m.Method == "" }, nil)
	if string(m.ID) != `"x"` || listenID(m.Result) != `"x"` || !strings.Contains(string(m.Result), `"resultType":"complete"`) {
		t.Errorf("the result is %s %s", m.ID, m.Result)
	}
	if err := g.wait(); err != nil {
		t.Errorf("navra serve: %v", err)
	}
	s.verify(config)
}

// tokenOf makes a token of a principal.
func (s *setup) tokenOf(config, who string) string {
	s.t.Helper()
	token, code := s.runOut("token", "create", who, "--config", config)
	if code != 0 {
		s.t.Fatalf("token create: %s", token)
	}
	return strings.TrimSpace(token)
}

// TestNewsIsJudgedForEach has two principals follow over one shared connection: each is told what its role lets it read.
func TestNewsIsJudgedForEach(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"stateful", "stateless"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			url, _ := s.endpoint("127.0.0.1:0", "odd", "-watch", "-era", era)
			config := s.serveConfig("navra.yaml", `auth: {tokens: true}
principals: {ann: {roles: [all]}, bob: {roles: [some]}}
roles:
  all: {clearance: secret, rules: [{allow: {tools: ["*"], resources: ["*"]}}]}
  some: {clearance: secret, rules: [{allow: {tools: ["*"], resources: ["note://b"]}}]}
ifc: {on_violation: observe}
filters: {secrets: {arguments: record}}
upstreams: {odd: {url: "`+url+`", shared: true}}
`)
			ann, bob := s.tokenOf(config, "ann"), s.tokenOf(config, "bob")
			g := s.serve(config)
			wish := map[string]any{"resourceSubscriptions": []string{"note://a", "note://b"}}
			a := (&web{t: t, addr: g.Addr, token: ann}).listen(t, "ann", 1, wish)
			b := (&web{t: t, addr: g.Addr, token: bob}).listen(t, "bob", 1, wish)
			for e, want := range map[*ear]string{a: `["note://a","note://b"]`, b: `["note://b"]`} {
				if m := e.method("notifications/subscriptions/acknowledged"); !strings.Contains(string(m.Params), want) {
					t.Fatalf("%s: acknowledged %s, want %s", e.name, m.Params, want)
				}
			}
			w := &web{t: t, addr: g.Addr, token: ann, modern: true}
			secret := "note://a/" + awsKey()
			for _, uri := range []string{"note://a", "note://b/beneath", secret, "note://b"} {
				w.call("odd__touch", map[string]any{"uri": uri})
			}
			seen := ""
			a.updated("note://b", func(m message) { seen += string(m.Params) })
			if !strings.Contains(seen, "note://b/beneath") || strings.Contains(seen, awsKey()) || !strings.Contains(seen, "note://a/[secret:") {
				t.Errorf("ann was told %s", seen)
			}
			b.updated("note://b", func(m message) { t.Errorf("bob was told %s", m.Params) })
			denied := 0
			for _, e := range s.entries() {
				if e.Method == "notifications/resources/updated" && e.Verdict == "deny" && e.Principal == "bob" {
					denied++
				}
			}
			if denied != 1 {
				t.Errorf("%d entries say that bob was not told, want 1", denied)
			}
		})
	}
}

// TestSubscriptionsOutliveTheUpstream restarts an upstream: it is asked again, without a call.
func TestSubscriptionsOutliveTheUpstream(t *testing.T) {
	t.Parallel()
	for _, kind := range [][]string{{"-era", "stateful"}, {"-era", "stateless"}, {"-era", "stateless", "-way", "ws"}, {"-era", "stateful", "-way", "sse"}} {
		t.Run(strings.Join(kind, " "), func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			args := append([]string{"odd", "-watch", "-log", s.log()}, kind...)
			url, end := s.endpoint("127.0.0.1:0", args...)
			g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\nifc: {on_violation: observe}\nupstreams: {odd: {url: \""+url+"\"}}\n"))
			w := &web{t: t, addr: g.Addr, modern: true}
			e := w.listen(t, "listen", 1, map[string]any{"resourceSubscriptions": []string{"note://a"}})
			e.method("notifications/subscriptions/acknowledged")
			end()
			addr := strings.TrimSuffix(url[strings.Index(url, "//")+2:], "/mcp")
			s.endpoint(addr, args...)
			e.updated("note://a", nil) // what may have been missed meanwhile
			w.call("odd__touch", map[string]any{"uri": "note://a/later"})
			e.updated("note://a/later", nil)
		})
	}
}

// TestNewsWaitsForAStream keeps what a session is to be told, once, until it has a stream.
func TestNewsWaitsForAStream(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	log := filepath.Join(s.Dir, "heard.log")
	url, _ := s.endpoint("127.0.0.1:0", "odd", "-watch", "-changed", "-heard", log)
	g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\nifc: {on_violation: observe}\nupstreams: {odd: {url: \""+url+"\"}}\n"))
	w := (&web{t: t, addr: g.Addr}).open()
	if m := w.request("resources/subscribe", map[string]any{"uri": "note://a"}); string(m.Result) != "{}" {
		t.Fatalf("subscribe: %+v", m.Error)
	}
	// arrived has the upstream say, on the stream that its news is on, that its tools are others: navra has read the news when it asks for them.
	arrived := func() {
		lists := func() int {
			return len(slices.DeleteFunc(heardBy(t, log), func(h heard) bool { return h.Method != "tools/list" }))
		}
		before := lists()
		w.call("odd__grow", map[string]any{})
		eventually(t, "navra asks for the tools", func() bool { return lists() > before })
	}
	news := func(m message) bool { return m.Method == "notifications/resources/updated" }
	for range 3 {
		w.call("odd__touch", map[string]any{"uri": "note://a"})
	}
	w.call("odd__touch", map[string]any{"uri": "note://b"})
	arrived()
	e := w.hear(t, "late")
	e.updated("note://a", nil)
	w.call("odd__touch", map[string]any{"uri": "note://a/more"})
	e.updated("note://a/more", func(m message) {
		if news(m) {
			t.Errorf("told again: %s", m.Params)
		}
	})
	e.end()

	// What is beneath is told of singly up to a bound, and then as the whole.
	for i := range 40 {
		w.call("odd__touch", map[string]any{"uri": fmt.Sprintf("note://a/many/%d", i)})
	}
	arrived()
	e = w.hear(t, "later")
	n := 0
	e.updated("note://a", func(m message) {
		if news(m) {
			n++
		}
	})
	if n == 0 || n > 33 {
		t.Errorf("told of %d resources before the one that holds them, want 32, and that whose telling was cut off", n)
	}
}

// A process that ends is started again for those who follow, and asked again.
func TestSubscriptionsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"stateful", "stateless"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			c := s.start(navraBin, "wrap", "--name", "odd", "--", fixtureBin, "odd", "-watch", "-die-after", "1", "-era", era).open()
			e := c.hear(t, "stdio")
			if m := c.request("resources/subscribe", map[string]any{"uri": "note://a"}); string(m.Result) != "{}" {
				t.Fatalf("subscribe: %s %+v", m.Result, m.Error)
			}
			for i := range 2 {
				uri := fmt.Sprintf("note://a/%d", i)
				c.call("touch", map[string]any{"uri": uri})
				e.updated(uri, nil)
				e.updated("note://a", nil) // of the process that has taken its place
			}
		})
	}
}
