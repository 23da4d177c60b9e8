package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// A teller is an upstream of 2026-07-28 over HTTP with resources that can be followed.
type teller struct {
	end func(uris []string) bool // a listen is ended at once; nil: none

	mu    sync.Mutex
	begun int
	open  map[int]*told // by listen
}

type told struct {
	id   json.RawMessage
	uris []string
	say  chan string
}

func (u *teller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Notifications struct{ ResourceSubscriptions []string }
		}
	}
	if json.NewDecoder(r.Body).Decode(&m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var list []string
	for i := range 12 {
		list = append(list, fmt.Sprintf(`{"uri":"note://%d","name":"n"}`, i))
	}
	results := map[string]string{
		mcp.Discover:      `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"resources":{"subscribe":true,"listChanged":true}},"ttlMs":0,"cacheScope":"private"}`,
		mcp.ResourcesList: `{"resultType":"complete","ttlMs":600000,"cacheScope":"private","resources":[` + strings.Join(list, ",") + `]}`,
		mcp.TemplatesList: `{"resultType":"complete","ttlMs":600000,"cacheScope":"private","resourceTemplates":[]}`,
	}
	if m.Method == mcp.Listen {
		u.listen(w, r, m.ID, m.Params.Notifications.ResourceSubscriptions)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, results[m.Method])
}

func (u *teller) listen(w http.ResponseWriter, r *http.Request, id json.RawMessage, uris []string) {
	w.Header().Set("Content-Type", "text/event-stream")
	t := &told{id: id, uris: uris, say: make(chan string, 10)}
	u.mu.Lock()
	u.begun++
	n := u.begun
	u.open[n] = t
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		delete(u.open, n)
		u.mu.Unlock()
	}()
	b, _ := json.Marshal(map[string]any{"resourcesListChanged": len(uris) == 0, "resourceSubscriptions": append([]string{}, uris...)})
	event(w, fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"notifications":%s,"_meta":{%q:%s}}}`, mcp.Acknowledged, b, mcp.SubscriptionID, id))
	if u.end != nil && u.end(uris) {
		event(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}`, id))
		return
	}
	for {
		select {
		case uri := <-t.say:
			event(w, fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"uri":%q,"_meta":{%q:%s}}}`, mcp.ResourceUpdated, uri, mcp.SubscriptionID, id))
		case <-r.Context().Done():
			return
		}
	}
}

// following returns the listens for resources that are open, and what they are for.
func (u *teller) following() (listens int, uris []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, t := range u.open {
		if len(t.uris) > 0 {
			listens++
			uris = append(uris, t.uris...)
		}
	}
	slices.Sort(uris)
	return listens, uris
}

// tell says that a resource has changed, to one who follows it.
func (u *teller) tell(uri string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, t := range u.open {
		if slices.Contains(t.uris, uri) {
			t.say <- uri
			return
		}
	}
}

// A heard is the sink of a listen.
type heard struct {
	mu   sync.Mutex
	sent []jsonrpc.Message
}

func (h *heard) Open(string)                           {}
func (h *heard) Refuse(_ int, m jsonrpc.Message) error { return h.Send(m) }
func (h *heard) Together([]jsonrpc.Message) error      { return nil }
func (h *heard) Send(m jsonrpc.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = append(h.sent, m)
	return nil
}

func (h *heard) methods() (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.sent {
		raw, _ := m.Params.Get("uri")
		out = append(out, strings.TrimSpace(m.Method+" "+string(raw)))
	}
	return out
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// listen begins a listen of a stateless client for one resource.
func (r *rig) listen(ctx context.Context, id int, uri string) (*heard, <-chan error) {
	out := &heard{}
	return out, r.listenTo(ctx, id, uri, out)
}

func (r *rig) listenTo(ctx context.Context, id int, uri string, out mcp.Sink) <-chan error {
	in := mcp.Inbound{Transport: mcp.WebSocket, Conn: "c"}
	in.Msg, in.Fault = jsonrpc.Parse([]byte(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[%q]},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, id, uri)))
	done := make(chan error, 1)
	go func() { done <- r.Handle(ctx, r.who, in, out) }()
	return done
}

// Resources that come to be wanted one by one are asked for one by one, and together when there are too many listens; each client is told
// of its own, and what nobody wants any more is not asked for.
func TestListensAreFewAndCoverAll(t *testing.T) {
	u := &teller{open: map[int]*told{}}
	r := newRig(t, u, time.Minute)
	var ends []context.CancelFunc
	var outs []*heard
	var dones []<-chan error
	for i := range 12 {
		ctx, end := context.WithCancel(t.Context())
		ends = append(ends, end)
		out, done := r.listen(ctx, i, fmt.Sprintf("note://%d", i))
		until(t, "the acknowledgement", func() bool { return len(out.methods()) > 0 })
		outs, dones = append(outs, out), append(dones, done)
	}
	until(t, "few listens for all", func() bool {
		n, uris := u.following()
		return n <= 9 && len(slices.Compact(uris)) == 12 && len(uris) == 12
	})
	u.tell("note://3")
	until(t, "the news", func() bool { return len(outs[3].methods()) == 2 })
	for i, out := range outs {
		want := []string{mcp.Acknowledged}
		if i == 3 {
			want = append(want, mcp.ResourceUpdated+` "note://3"`)
		}
		if got := out.methods(); !slices.Equal(got, want) {
			t.Errorf("client %d was told %v, want %v", i, got, want)
		}
	}
	for i, end := range ends {
		end()
		if err := <-dones[i]; err != nil {
			t.Errorf("listen %d: %v", i, err)
		}
	}
	until(t, "the end of what nobody wants", func() bool { n, _ := u.following(); return n == 0 })
	r.Stop()
}

// An upstream that ends what it has just begun is asked again with a growing pause.
func TestListensThatEndAtOnce(t *testing.T) {
	u := &teller{open: map[int]*told{}, end: func([]string) bool { return true }}
	r := newRig(t, u, time.Minute)
	ctx, stop := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer stop()
	_, done := r.listen(ctx, 1, "note://1")
	<-ctx.Done()
	<-done
	u.mu.Lock()
	n := u.begun
	u.mu.Unlock()
	if n < 2 || n > 10 {
		t.Errorf("%d listens in 2.5s, want 2 to 10: for lists and for the resource, each a few times", n)
	}
	r.Stop()
}

// A slow is a sink that is stuck in everything after the acknowledgement.
type slow struct {
	heard
	stuck chan struct{} // closed to let it go on
	here  chan struct{} // filled when it is stuck
}

func (s *slow) Send(m jsonrpc.Message) error {
	if m.Method != mcp.Acknowledged {
		select {
		case s.here <- struct{}{}:
		default:
		}
		<-s.stuck
	}
	return s.heard.Send(m)
}

// Who does not read disturbs nobody, and is told once of what changed often.
func TestSlowReaderDisturbsNobody(t *testing.T) {
	u := &teller{open: map[int]*told{}}
	r := newRig(t, u, time.Minute)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	out := &slow{stuck: make(chan struct{}), here: make(chan struct{}, 1)}
	done := r.listenTo(ctx, 1, "note://1", out)
	until(t, "the acknowledgement", func() bool { return len(out.methods()) == 1 })
	fast, fastDone := r.listen(ctx, 2, "note://1")
	until(t, "the other acknowledgement", func() bool { return len(fast.methods()) == 1 })
	for i := range 6 {
		u.tell("note://1")
		until(t, "news", func() bool { return len(fast.methods()) == 2+i })
		if i == 0 {
			<-out.here
		}
	}
	close(out.stuck)
	until(t, "what waited", func() bool { return len(out.methods()) == 3 })
	u.tell("note://1")
	until(t, "news at last", func() bool { return len(out.methods()) == 4 })
	end()
	<-done
	<-fastDone
	r.Stop()
}
