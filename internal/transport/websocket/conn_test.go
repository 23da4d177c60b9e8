package websocket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ws "github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

func TestInbound(t *testing.T) {
	s := start(t, nil)
	p, q := s.dial(t), s.dial(t)
	for _, x := range []*peer{p, p, q} {
		x.ask("1", "ping")
		x.wants(pong("1"))
	}
	if p.Subprotocol() != Subprotocol {
		t.Errorf("subprotocol %q, want %q", p.Subprotocol(), Subprotocol)
	}
	for _, x := range []*peer{p, q} {
		if err := x.Close(ws.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
	}
	s.stop(errors.New("over"))
	if err := s.server.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	in := s.in
	if in[0].Conn == "" || in[0].Conn != in[1].Conn || in[0].Conn == in[2].Conn {
		t.Errorf("connections %q, %q, %q: want the first two alike", in[0].Conn, in[1].Conn, in[2].Conn)
	}
	for _, x := range slices.Concat(in, s.closed) {
		if x.Transport != mcp.WebSocket || x.Session != "" || x.Header != nil || x.Host != (mcp.HostKey{}) || len(x.Trace) != 1 || x.Trace.Get("Traceparent") != "t" {
			t.Errorf("inbound %+v, want no session, header and host, and the trace of the upgrade", x)
		}
	}
	if len(s.closed) != 2 {
		t.Errorf("closed %d times, want once for each connection", len(s.closed))
	}
}

func TestMessages(t *testing.T) {
	good := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, tt := range []struct {
		name, in, want string
	}{
		{"bad JSON", `{"jsonrpc"`, `"code":-32700`},
		{"nothing", "", `"code":-32700`},
		{"not UTF-8", "\"\xff\"", `"code":-32700`},
		{"two messages in one", good + "\n" + good, `"code":-32700`},
		{"bad envelope", `{"jsonrpc":"1.0","id":3,"method":"ping"}`, `"id":3,"error":{"code":-32600`},
		{"line ends are white space", "{\"jsonrpc\":\"2.0\",\r\n\"id\":7,\"method\":\"ping\"}\n", pong("7")},
		{"at the limit", good + strings.Repeat(" ", 1000-len(good)), pong("1")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := start(t, nil).dial(t)
			p.write(ws.MessageText, tt.in)
			if got, err := p.next(); err != nil || !strings.Contains(got, tt.want) {
				t.Errorf("read %s, %v, want %s", got, err, tt.want)
			}
			p.ask("9", "ping") // the connection stays open
			p.wants(pong("9"))
		})
	}
}

func TestClosedForMessages(t *testing.T) {
	for _, tt := range []struct {
		name string
		kind ws.MessageType
		in   string
		want ws.StatusCode
	}{
		{"binary", ws.MessageBinary, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, 1003},
		{"one byte too long", ws.MessageText, strings.Repeat(" ", 1001), 1009},
		{"far too long", ws.MessageText, strings.Repeat(" ", 8<<20), 1009},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refused := make(chan string, 2)
			s := start(t, func(o *Options) {
				o.Refused = func(who auth.Principal, status int, why string) {
					refused <- fmt.Sprint(who.Name(), " ", status, " ", why)
				}
			})
			p := s.dial(t)
			p.ask("1", "hold")
			receive(t, s.held)
			go func() { _ = p.Write(context.Background(), tt.kind, []byte(tt.in)) }() // may be cut off
			receive(t, s.ended)
			got, err := p.next()
			if err == nil { // the cancelled request's answer, where there was time for it
				got, err = p.next()
			}
			if ws.CloseStatus(err) != tt.want {
				t.Errorf("read %q, %v, want close %d", got, err, tt.want)
			}
			if told := receive(t, refused); !strings.HasPrefix(told, fmt.Sprint("agent ", int(tt.want), " message")) {
				t.Errorf("it is told that %q", told)
			}
		})
	}
}

func TestCredential(t *testing.T) {
	soon := func(o *Options) { o.times.recheck = 10 * time.Millisecond }
	for _, tt := range []struct {
		name   string
		who    auth.Principal
		err    error
		change func(*Options)
		want   ws.StatusCode
	}{
		{"revoked, at the next message", auth.Principal{}, auth.ErrBadCredential, nil, 1008},
		{"gone, at the next message", auth.Principal{}, auth.ErrNoCredential, nil, 1008},
		{"another principal's, at the next message", principal("other"), nil, nil, 1008},
		{"nobody's, at the next message", auth.Principal{}, nil, nil, 1008},
		{"not to be checked, at the next message", auth.Principal{}, errDown, nil, 1011},
		{"revoked, while idle", auth.Principal{}, auth.ErrBadCredential, soon, 1008},
		{"not to be checked, while idle", auth.Principal{}, errDown, soon, 1011},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, tt.change)
			p := s.dial(t)
			p.ask("1", "hold")
			receive(t, s.held)
			s.guard.set(tt.who, tt.err)
			if tt.change == nil {
				p.ask("2", "ping")
			}
			p.closedWith(tt.want, "the credential") // and no answer to what was in flight
			receive(t, s.ended)
		})
	}
}

// TestChanged: when something has changed an idle client is proved again at once, and stays where nothing is wrong with it.
func TestChanged(t *testing.T) {
	changes := []chan struct{}{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	asked := make(chan int, len(changes))
	n := 0 // times that the connection has asked for its next channel; it alone does
	s := start(t, func(o *Options) {
		o.Changed = func() <-chan struct{} {
			asked <- n
			n++
			return changes[n-1]
		}
	})
	p := s.dial(t)
	receive(t, asked)
	close(changes[0])
	receive(t, asked)
	p.ask("1", "ping")
	p.wants(pong("1"))
	s.guard.set(auth.Principal{}, auth.ErrBadCredential)
	close(changes[1])
	p.closedWith(1008, "the credential")
}

func TestNewestRoles(t *testing.T) {
	s := start(t, nil)
	p := s.dial(t)
	p.ask("1", "ping")
	p.wants(pong("1"))
	s.guard.set(principal("agent", "reader"), nil)
	p.ask("2", "ping")
	p.wants(pong("2"))
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff([][]string{nil, {"reader"}}, s.roles); diff != "" {
		t.Errorf("roles of each message (-want +got):\n%s", diff)
	}
}

func TestShutdown(t *testing.T) {
	s := start(t, nil)
	p, idle := s.dial(t), s.dial(t)
	p.ask("1", "hold")
	receive(t, s.held)
	s.stop(errors.New("going down"))
	p.wants(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"going down"}}`)
	p.closedWith(ws.StatusGoingAway, "shutting down")
	idle.closedWith(ws.StatusGoingAway, "shutting down")
	if err := s.server.Wait(t.Context()); err != nil {
		t.Errorf("Wait() = %v", err)
	}
}

func TestWaitGivesUp(t *testing.T) {
	s := start(t, nil)
	s.dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.server.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait() = %v, want %v", err, context.Canceled)
	}
}

func TestManyAtOnce(t *testing.T) {
	const many = 300 // more than may be in flight
	s := start(t, nil)
	p := s.dial(t)
	go func() {
		for i := range many {
			p.ask(fmt.Sprint(i), "hold")
		}
	}()
	for range 256 {
		receive(t, s.held)
	}
	select {
	case id := <-s.held:
		t.Errorf("%s handed over, want it to wait for room", id)
	case <-time.After(20 * time.Millisecond):
	}
	close(s.release)
	got := map[string]bool{}
	for range many {
		text, err := p.next()
		if err != nil {
			t.Fatal(err)
		}
		m, fault := jsonrpc.Parse([]byte(text))
		if fault != nil || got[m.ID.String()] || text != pong(m.ID.String()) {
			t.Errorf("read %s", text)
		}
		got[m.ID.String()] = true
	}
	if len(got) != many {
		t.Errorf("%d ids answered, want %d", len(got), many)
	}
}

func TestAnswersOvertake(t *testing.T) {
	s := start(t, nil)
	p := s.dial(t)
	p.ask("1", "hold")
	p.ask(`"1"`, "hold")
	p.ask("2", "ping")
	p.wants(pong("2"))
	close(s.release)
	for range 2 {
		if got, err := p.next(); err != nil || got != pong("1") && got != pong(`"1"`) {
			t.Errorf("read %s, %v, want the answers to what was held", got, err)
		}
	}
}

func TestPushWhileIdle(t *testing.T) {
	s := start(t, nil)
	p := s.dial(t)
	push := receive(t, s.push)
	if err := push.Send(jsonrpc.Message{Method: "notifications/tools/list_changed"}); err != nil {
		t.Error(err)
	}
	p.wants(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
}

func TestClientEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(p *peer)
	}{
		{"with a handshake", func(p *peer) { _ = p.Close(ws.StatusNormalClosure, "") }},
		{"without", func(p *peer) { _ = p.CloseNow() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, nil)
			p := s.dial(t)
			p.ask("1", "hold")
			receive(t, s.held)
			tt.end(p)
			receive(t, s.ended)
		})
	}
}

func TestSlowReader(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *Options) { o.times.write = 2 * time.Second })
	slow, other := s.dial(t), s.dial(t)
	const many = 20 // of 1 MiB: more than the buffers of a socket take
	for i := range many {
		slow.ask(fmt.Sprint(i), "big")
		receive(t, s.held)
	}
	close(s.release)
	for i := range 100 {
		id := fmt.Sprint(i)
		other.ask(id, "ping")
		other.wants(pong(id))
	}
	for range 1000 { // the slow client is given up
		s.mu.Lock()
		n := len(s.closed)
		s.mu.Unlock()
		if n == 1 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the slow client is still connected")
}

func TestSilence(t *testing.T) {
	quick := func(o *Options) { o.times.ping, o.times.silence = 50*time.Millisecond, time.Second }
	t.Run("a client that answers pings stays", func(t *testing.T) {
		t.Parallel()
		s := start(t, quick)
		p := s.dial(t)
		go func() {
			time.Sleep(1500 * time.Millisecond)
			close(s.release)
		}()
		p.ask("1", "hold")
		p.wants(pong("1")) // reading answers pings
	})
	t.Run("one that does not is closed", func(t *testing.T) {
		t.Parallel()
		s := start(t, quick)
		p := s.dial(t) // and does not read
		p.ask("1", "hold")
		receive(t, s.held)
		receive(t, s.ended)
		p.closedWith(ws.StatusInternalError, "no pong")
	})
	t.Run("silence means nothing while no message is taken", func(t *testing.T) {
		t.Parallel()
		s := start(t, quick)
		p := s.dial(t)
		go func() {
			for i := range 258 {
				p.ask(fmt.Sprint(i), "hold")
			}
		}()
		go func() {
			for range 256 {
				receive(t, s.held)
			}
			time.Sleep(1500 * time.Millisecond)
			close(s.release)
		}()
		for range 258 {
			if _, err := p.next(); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("a message that does not end is cut off", func(t *testing.T) {
		t.Parallel()
		s := start(t, func(o *Options) { o.times.message, o.MaxMessage = 50*time.Millisecond, 1<<20 })
		p := s.dial(t)
		w, err := p.Writer(t.Context(), ws.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(strings.Repeat("x", 8<<10))); err != nil {
			t.Fatal(err)
		}
		p.closedWith(ws.StatusPolicyViolation, "took too long")
	})
}
