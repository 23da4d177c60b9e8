package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A poller is an upstream of 2025-11-25 that ends the stream of each call after every event, so that its client polls: ten steps of
// progress, then the answer.
type poller struct {
	mu    sync.Mutex
	call  message
	token json.RawMessage
	gets  int
}

func (p *poller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method == http.MethodGet {
		after, err := strconv.Atoi(r.Header.Get("Last-Event-Id"))
		if err != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		p.gets++
		p.event(w, after+1)
		return
	}
	var m message
	if json.NewDecoder(r.Body).Decode(&m) != nil || m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result := `{}`
	switch m.Method {
	case "server/discover":
		w.WriteHeader(http.StatusBadRequest)
		return
	case "initialize":
		w.Header().Set("Mcp-Session-Id", "poller")
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"poller","version":"1"}}`
	case "tools/list":
		result = `{"tools":[{"name":"test_reconnection","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		var about struct {
			Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
		}
		json.Unmarshal(m.Params, &about)
		p.call, p.token = m, about.Meta.ProgressToken
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: 0\nretry: 200\ndata: \n\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

func (p *poller) event(w http.ResponseWriter, n int) {
	w.Header().Set("Content-Type", "text/event-stream")
	data := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":10}}`, p.token, n)
	if n > 10 {
		data = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}]}}`, p.call.ID)
	}
	fmt.Fprintf(w, "id: %d\ndata: %s\n\n", n, data)
}

// Both ends poll: the upstream ends its streams after each event, and navra ends its client's each second.
func TestPollingThroughBothEnds(t *testing.T) {
	t.Parallel()
	up := &poller{}
	srv := httptest.NewServer(up)
	defer srv.Close()
	s := newSetup(t)
	config := filepath.Join(s.Dir, "navra.yaml")
	write(t, config, fmt.Sprintf("listen: {address: 127.0.0.1:0, poll_after: 1s}\nauth: {tokens: true}\nstore: %s\nprincipals: {ann: {roles: [local-default]}}\nupstreams: {p: {url: %q}}\n", s.db(), srv.URL))
	g := s.serve(config)
	w := s.user("ann", config, g).open()
	body := request(7, "tools/call", map[string]any{"name": "p__test_reconnection", "arguments": map[string]any{}, "_meta": map[string]any{"progressToken": "token 7"}})
	e, began := w.dial("POST", body, nil), time.Now()
	at, streams, answer := 0, 1, ""
	for answer == "" {
		if time.Since(began) > patience {
			t.Fatal("no answer")
		}
		data, more := e.next()
		switch {
		case !more:
			e = w.resume(e.last)
			streams++
		case strings.Contains(data, `"progress":`):
			if at++; !strings.Contains(data, fmt.Sprintf(`"progress":%d,`, at)) {
				t.Fatalf("step %d: %s", at, data)
			}
		case data != "":
			answer = data
		}
	}
	if !strings.Contains(answer, `"done"`) || at != 10 || streams < 2 || up.gets != 11 {
		t.Errorf("%d steps over %d streams (the upstream was asked %d times), then %s", at, streams, up.gets, answer)
	}
	g.stop()
	s.verify(config)
}
