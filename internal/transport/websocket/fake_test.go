package websocket

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	ws "github.com/coder/websocket"
	"go.uber.org/goleak"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

// A guard proves who has a token, as long as it says so.
type guard struct {
	mu    sync.Mutex
	proof func() (auth.Principal, error)
}

func principal(name string, roles ...string) auth.Principal {
	return auth.Directory{name: roles}.Prove(name, "token:1", "token")
}

func (g *guard) set(who auth.Principal, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.proof = func() (auth.Principal, error) { return who, err }
}

func (g *guard) Authenticate(r *http.Request) (auth.Principal, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch token := r.Header.Get("Authorization"); token {
	case "Bearer good":
		return g.proof()
	case "Bearer other":
		return principal("other"), nil
	case "Bearer store down":
		return auth.Principal{}, errDown
	case "Bearer panic":
		panic("secret")
	case "":
		return auth.Principal{}, auth.ErrNoCredential
	}
	return auth.Principal{}, auth.ErrBadCredential
}

var errDown = errors.New("store: no answer")

// A fake is a handler that does what the method says.
type fake struct {
	push    chan mcp.Sink // gets each connection's
	held    chan string   // gets the ids of what is held
	ended   chan string   // gets the ids of what was held, once it is cancelled
	release chan struct{} // lets what is held go on

	mu     sync.Mutex
	in     []mcp.Inbound
	roles  [][]string
	closed []mcp.Inbound
}

func newFake() *fake {
	return &fake{push: make(chan mcp.Sink, 2000), held: make(chan string, 2000), ended: make(chan string, 2000), release: make(chan struct{})}
}

func (f *fake) Handle(ctx context.Context, who auth.Principal, in mcp.Inbound, out mcp.Sink) error {
	f.mu.Lock()
	f.in, f.roles = append(f.in, in), append(f.roles, who.Roles())
	f.mu.Unlock()
	if in.Fault != nil {
		return out.Refuse(http.StatusBadRequest, jsonrpc.Message{ID: in.Fault.ID, Error: &in.Fault.Err})
	}
	id := in.Msg.ID
	if in.Registered != nil {
		in.Registered()
	}
	switch in.Msg.Method {
	case "hold", "big":
		f.held <- id.String()
		select {
		case <-f.release:
		case <-ctx.Done():
			f.ended <- id.String()
			return out.Send(jsonrpc.Message{ID: id, Error: &jsonrpc.Error{Code: 1, Message: context.Cause(ctx).Error()}})
		}
	}
	result := jsonrpc.Raw("{}")
	if in.Msg.Method == "big" {
		result = jsonrpc.Quote(strings.Repeat("x", 1<<20))
	}
	if in.Msg.Kind() != jsonrpc.Request {
		return nil
	}
	return out.Send(jsonrpc.Message{ID: id, Result: result})
}

func (f *fake) Listen(ctx context.Context, _ auth.Principal, _ mcp.Inbound, push mcp.Sink) error {
	f.push <- push
	<-ctx.Done()
	return nil
}

func (f *fake) Close(_ context.Context, _ auth.Principal, in mcp.Inbound) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = append(f.closed, in)
	return nil
}

// A site is a running endpoint.
type site struct {
	*fake
	guard  *guard
	server *Server
	url    string
	stop   context.CancelCauseFunc // ends Base
	client *http.Client
}

func start(t *testing.T, change func(*Options)) *site {
	t.Helper()
	base, stop := context.WithCancelCause(context.Background())
	s := &site{fake: newFake(), guard: &guard{}, stop: stop, client: &http.Client{Transport: &http.Transport{}}}
	s.guard.set(principal("agent"), nil)
	o := Options{
		Base: base, Handler: s.fake, Auth: s.guard, Logger: slog.New(slog.DiscardHandler), Loopback: true, MaxMessage: 1000,
		AllowedOrigins: []string{"https://app.example"}, Challenge: `Bearer realm="navra"`, times: usual,
	}
	if change != nil {
		change(&o)
	}
	s.server = New(o)
	web := httptest.NewServer(s.server)
	s.url = web.URL
	t.Cleanup(func() {
		stop(errors.New("test over"))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.server.Wait(ctx); err != nil {
			t.Errorf("Wait() = %v", err)
		}
		s.client.CloseIdleConnections()
		web.Close()
	})
	return s
}

// A peer is a connected client.
type peer struct {
	*ws.Conn
	t *testing.T
}

func (s *site) dial(t *testing.T) *peer { t.Helper(); return s.dialAs(t, "good") }

func (s *site) dialAs(t *testing.T, token string) *peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, _, err := ws.Dial(ctx, s.url, &ws.DialOptions{
		HTTPClient: s.client, Subprotocols: []string{Subprotocol}, HTTPHeader: http.Header{"Authorization": {"Bearer " + token}, "Traceparent": {"t"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(-1)
	t.Cleanup(func() { _ = c.CloseNow() })
	return &peer{c, t}
}

func (p *peer) write(kind ws.MessageType, text string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Write(ctx, kind, []byte(text)); err != nil {
		p.t.Error(err)
	}
}

func (p *peer) ask(id, method string) {
	p.t.Helper()
	p.write(ws.MessageText, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`"}`)
}

// next is the next message, or how the connection ended.
func (p *peer) next() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, b, err := p.Read(ctx)
	return string(b), err
}

// wants reads one message.
func (p *peer) wants(want string) {
	p.t.Helper()
	if got, err := p.next(); err != nil || got != want {
		p.t.Errorf("read %s, %v, want %s", got, err, want)
	}
}

// closed reads the close frame, and nothing else.
func (p *peer) closedWith(want ws.StatusCode, reason string) {
	p.t.Helper()
	got, err := p.next()
	var ce ws.CloseError
	if !errors.As(err, &ce) || ce.Code != want || !strings.Contains(ce.Reason, reason) {
		p.t.Errorf("read %q, %v, want close %d for %q", got, err, want, reason)
	}
}

// receive takes from a channel what must come.
func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Error("nothing came")
	}
	return v
}

func pong(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":{}}` }
