package streamable

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// A rig is a server on connections in memory, so that its time is the test's.
type rig struct {
	conns chan net.Conn
	shut  chan struct{}
	stop  context.CancelCauseFunc // ends Base
}

func (g *rig) Accept() (net.Conn, error) {
	select {
	case c := <-g.conns:
		return c, nil
	case <-g.shut:
		return nil, net.ErrClosed
	}
}

func (g *rig) Close() error {
	close(g.shut)
	return nil
}

func (g *rig) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func start(t *testing.T, f *fake) *rig {
	t.Helper()
	return startWith(t, f, func(*Options) {})
}

func startWith(t *testing.T, f *fake, change func(*Options)) *rig {
	t.Helper()
	g := &rig{conns: make(chan net.Conn), shut: make(chan struct{})}
	o := options(f)
	o.Base, g.stop = context.WithCancelCause(context.Background())
	change(&o)
	end := New(o)
	srv := &http.Server{Handler: end, MaxHeaderBytes: MaxHeader, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	served := make(chan error)
	go func() { served <- srv.Serve(g) }()
	t.Cleanup(func() {
		g.stop(nil)
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		<-served
		if err := end.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// open sends a raw request and returns the connection.
func (g *rig) open(t *testing.T, raw string) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	g.conns <- theirs
	if _, err := io.WriteString(ours, raw); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	return ours
}

// get sends a raw request and reads the head of what comes back.
func (g *rig) get(t *testing.T, raw string) (net.Conn, *http.Response, *bufio.Reader) {
	t.Helper()
	conn := g.open(t, raw)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn, resp, bufio.NewReader(resp.Body)
}

// block reads one event or comment.
func block(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	var b strings.Builder
	for !strings.HasSuffix(b.String(), "\n\n") {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, b.String())
		}
		b.WriteString(line)
	}
	return b.String()
}

func timed(method string, d time.Duration) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"ms":%d}}`, method, d.Milliseconds())
}

const (
	stateful  = "MCP-Protocol-Version: 2025-11-25"
	stateless = "MCP-Protocol-Version: 2026-07-28"
	asEvent   = "event: message\ndata: " + pong + "\n\n"
	noted     = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n"
)

func TestPatience(t *testing.T) {
	notFound := `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}`
	for _, tt := range []struct {
		name, raw   string
		status      int
		contentType string
		head        time.Duration // until the head came
		body        string
	}{
		{"an answer in time is JSON", request("POST", timed("sleep", 1900*time.Millisecond)), 200, typeJSON, 1900 * time.Millisecond, pong},
		{"a late answer is an event", request("POST", timed("sleep", 5*time.Second)), 200, typeStream, patience, asEvent},
		{"a later one comes after comments", request("POST", timed("sleep", 40*time.Second)), 200, typeStream, patience, ":\n\n:\n\n" + asEvent},
		{"a client of JSON waits", request("POST", timed("sleep", 40*time.Second), "Accept: application/json"), 200, typeJSON, 40 * time.Second, pong},
		{"a late refusal is an event", request("POST", timed("refuse", 5*time.Second)), 200, typeStream, patience, "event: message\ndata: " + notFound + "\n\n"},
		{"a stateful initialize brings its header", request("POST", timed("initialize", 5*time.Second)), 200, typeJSON, 5 * time.Second, pong},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := start(t, &fake{})
				began := time.Now()
				_, resp, body := g.get(t, tt.raw)
				if took := time.Since(began); took != tt.head {
					t.Errorf("the head came after %v, want %v", took, tt.head)
				}
				all, err := io.ReadAll(body)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.body, string(all)); diff != "" || resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != tt.contentType {
					t.Errorf("%d %s, want %d %s; body (-want +got):\n%s", resp.StatusCode, resp.Header.Get("Content-Type"), tt.status, tt.contentType, diff)
				}
				if strings.Contains(tt.raw, "initialize") && resp.Header.Get(mcp.HeaderSession) != "session-1" {
					t.Error("no session id")
				}
			})
		})
	}
}

func TestDisconnect(t *testing.T) {
	for _, tt := range []struct {
		name, version string
		want          []string // how the call had ended a minute after
	}{
		{"cancels in the stateless era", stateless, []string{"context canceled"}},
		{"cancels nothing in the stateful era", stateful, nil},
		{"cancels nothing where no version is said", "MCP-Protocol-Version:", nil},
		{"cancels nothing where the version is unknown", "MCP-Protocol-Version: 2031-01-01", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				g := start(t, f)
				conn, _, body := g.get(t, request("POST", call("wait"), tt.version))
				block(t, body)
				conn.Close()
				time.Sleep(time.Minute)
				if diff := cmp.Diff(tt.want, f.endings()); diff != "" {
					t.Errorf("ended (-want +got):\n%s", diff)
				}
				g.stop(errors.New("shutdown"))
				synctest.Wait()
				if tt.want == nil {
					tt.want = []string{"shutdown"}
				}
				if diff := cmp.Diff(tt.want, f.endings()); diff != "" {
					t.Errorf("ended after the shutdown (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestShutdownEndsStatelessCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		g := start(t, f)
		_, _, body := g.get(t, request("POST", call("wait"), stateless))
		block(t, body)
		g.stop(errors.New("shutdown"))
		if got, want := block(t, body), `event: message`+"\n"+`data: {"jsonrpc":"2.0","id":1,`+internal+"\n\n"; got != want {
			t.Errorf("last event %q, want %q", got, want)
		}
		if diff := cmp.Diff([]string{"shutdown"}, f.endings()); diff != "" {
			t.Errorf("ended (-want +got):\n%s", diff)
		}
	})
}

func TestAnswerToAGoneClientIsDropped(t *testing.T) {
	for _, accept := range []string{"Accept: application/json", "Accept: text/event-stream"} {
		t.Run(accept, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{release: make(chan struct{})}
				g := start(t, f)
				conn := g.open(t, request("POST", call("hold"), stateful, accept))
				synctest.Wait()
				conn.Close()
				synctest.Wait()
				close(f.release)
				synctest.Wait()
				if diff := cmp.Diff([]string{"<nil>"}, f.endings()); diff != "" {
					t.Errorf("sending (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestClientThatDoesNotReadIsGivenUp(t *testing.T) {
	for _, tt := range []struct{ name, version, method string }{
		{"stream", stateful, "big"},
		{"stream, cancelled", stateless, "wait"},
		{"JSON", stateful, "sleep"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				g := start(t, f)
				conn := g.open(t, request("POST", timed(tt.method, 0), tt.version))
				synctest.Wait()
				if len(f.saw()) != 1 {
					t.Fatal("nothing was handed over")
				}
				time.Sleep(writeTime + time.Second)
				if tt.method == "wait" && len(f.endings()) != 1 {
					t.Error("the call was not cancelled")
				}
				if _, err := conn.Write([]byte("x")); err == nil {
					t.Error("the connection is still open")
				}
			})
		})
	}
}

func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, &fake{})
		began := time.Now()
		_, resp, _ := g.get(t, request("POST", ping[:10], fmt.Sprintf("Content-Length: %d", len(ping))))
		if took := time.Since(began); resp.StatusCode != http.StatusRequestTimeout || took != bodyTime {
			t.Errorf("status %d after %v, want 408 after %v", resp.StatusCode, took, bodyTime)
		}
	})
}

func TestConnectionIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, &fake{})
		conn := g.open(t, request("POST", ping, "Connection: keep-alive"))
		r := bufio.NewReader(conn)
		for i := range 3 {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != pong {
				t.Errorf("request %d: %q, %v", i, b, err)
			}
			time.Sleep(2 * bodyTime) // longer than each deadline of the last request
			if _, err := io.WriteString(conn, request("POST", ping, "Connection: keep-alive")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := http.ReadResponse(r, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestListen(t *testing.T) {
	changed := jsonrpc.Message{Method: "notifications/tools/list_changed"}
	event := "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"
	wait := func(ctx context.Context, _ mcp.Inbound, _ mcp.Sink) error {
		<-ctx.Done()
		return nil
	}
	for _, tt := range []struct {
		name   string
		listen func(ctx context.Context, in mcp.Inbound, push mcp.Sink) error
		head   time.Duration // until the head came
		blocks []string
		end    time.Duration // until the last block came
	}{
		{"a registered stream is begun at once", func(ctx context.Context, in mcp.Inbound, push mcp.Sink) error {
			in.Registered()
			in.Registered()
			return wait(ctx, in, push)
		}, 0, []string{":\n\n", ":\n\n"}, 2 * commentEvery},
		{"a stream that says nothing is begun soon", wait, listenPatience, []string{":\n\n"}, listenPatience + commentEvery},
		{"the first message begins it", func(ctx context.Context, in mcp.Inbound, push mcp.Sink) error {
			push.Open("ignored") // a GET opens no session, but must not hang either
			if err := push.Send(result(jsonrpc.IntID(1))); !errors.Is(err, errUnasked) {
				t.Errorf("pushing an answer: %v, want %v", err, errUnasked)
			}
			for range 2 {
				if err := push.Send(changed); err != nil {
					return err
				}
			}
			return wait(ctx, in, push)
		}, 0, []string{event, event, ":\n\n"}, commentEvery},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := start(t, &fake{listen: tt.listen})
				began := time.Now()
				_, resp, body := g.get(t, request("GET", "", stateful))
				if took := time.Since(began); took != tt.head || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != typeStream || resp.Header.Get("X-Accel-Buffering") != "no" {
					t.Errorf("head %d %v after %v, want after %v", resp.StatusCode, resp.Header, took, tt.head)
				}
				var got []string
				for range tt.blocks {
					got = append(got, block(t, body))
				}
				if diff := cmp.Diff(tt.blocks, got); diff != "" || time.Since(began) != tt.end {
					t.Errorf("after %v, want %v; (-want +got):\n%s", time.Since(began), tt.end, diff)
				}
				g.stop(errors.New("shutdown"))
				if rest, err := io.ReadAll(body); err != nil || len(rest) > 0 {
					t.Errorf("at the shutdown: %q, %v, want the end of the stream", rest, err)
				}
			})
		})
	}
}

func TestListenEndsWithTheCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{listen: func(ctx context.Context, in mcp.Inbound, _ mcp.Sink) error {
			in.Registered()
			<-ctx.Done()
			return nil
		}}
		g := start(t, f)
		_, _, body := g.get(t, request("GET", "", stateful))
		if got := block(t, body); got != ":\n\n" {
			t.Fatalf("read %q", got)
		}
		f.revoked.Store(true)
		began := time.Now()
		if rest, err := io.ReadAll(body); err != nil || len(rest) > 0 || time.Since(began) > commentEvery {
			t.Errorf("after the credential was revoked: %q, %v after %v; want the end of the stream", rest, err, time.Since(began))
		}
	})
}

// A subscription of the stateless era is a request without an end of its own: it gets its answer when the credential is withdrawn.
func TestSubscriptionEndsWithTheCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		g := start(t, f)
		_, _, body := g.get(t, request("POST", timed("subscriptions/listen", 0), stateless))
		if got := block(t, body); !strings.Contains(got, "notifications/progress") {
			t.Fatalf("read %q", got)
		}
		f.revoked.Store(true)
		began := time.Now()
		rest, err := io.ReadAll(body)
		if err != nil || !strings.Contains(string(rest), `"result"`) || time.Since(began) > commentEvery {
			t.Errorf("after the credential was revoked: %q, %v after %v; want the result and the end of the stream", rest, err, time.Since(began))
		}
	})
}

func TestSubscriptionNeedsAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, &fake{})
		_, resp, body := g.get(t, request("POST", timed("subscriptions/listen", 0), stateless, "Accept: application/json"))
		text, err := io.ReadAll(body)
		if want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Accept must allow text/event-stream"}}`; err != nil || resp.StatusCode != 406 || string(text) != want {
			t.Errorf("%d %s, %v, want 406 %s", resp.StatusCode, text, err, want)
		}
	})
}

func TestListenEnds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		listen func(ctx context.Context, in mcp.Inbound, push mcp.Sink) error
		status int
		body   string
	}{
		{"at once", func(context.Context, mcp.Inbound, mcp.Sink) error { return nil }, 200, ""},
		{"with an error", func(context.Context, mcp.Inbound, mcp.Sink) error { return errors.New("no good") }, 500, refused(-32603, "internal error of navra")},
		{"with a panic", func(context.Context, mcp.Inbound, mcp.Sink) error { panic("secret") }, 500, refused(-32603, "internal error of navra")},
		{"with a refusal", func(context.Context, mcp.Inbound, mcp.Sink) error {
			return fmt.Errorf("stream: %w", &mcp.HTTPError{Status: 404, Msg: jsonrpc.Message{Error: &refusal}})
		}, 404, refused(-32601, "no such method")},
		{"with a refusal through the sink", func(_ context.Context, _ mcp.Inbound, push mcp.Sink) error {
			return errors.Join(push.Refuse(400, jsonrpc.Message{Error: &refusal}), errors.New("refused"))
		}, 400, refused(-32601, "no such method")},
		{"with an error after it began", func(_ context.Context, _ mcp.Inbound, push mcp.Sink) error {
			return errors.Join(push.Send(progress), errors.New("no good"))
		}, 200, noted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := start(t, &fake{listen: tt.listen})
				_, resp, body := g.get(t, request("GET", ""))
				all, err := io.ReadAll(body)
				if diff := cmp.Diff(tt.body, string(all)); err != nil || resp.StatusCode != tt.status || diff != "" {
					t.Errorf("status %d, %v, want %d; body (-want +got):\n%s", resp.StatusCode, err, tt.status, diff)
				}
			})
		})
	}
}

func TestListenEndsWithTheClient(t *testing.T) {
	for _, version := range []string{stateful, stateless} {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan struct{})
			g := start(t, &fake{listen: func(ctx context.Context, in mcp.Inbound, _ mcp.Sink) error {
				in.Registered()
				<-ctx.Done()
				close(ended)
				return nil
			}})
			conn, _, _ := g.get(t, request("GET", "", version))
			conn.Close()
			<-ended
		})
	}
}

// TestSendsAtTheSameTime sends from several goroutines, some after the answer and the handler's end.
func TestSendsAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := make(chan error, 20)
		g := start(t, &fake{listen: func(ctx context.Context, _ mcp.Inbound, push mcp.Sink) error {
			first := make(chan struct{})
			for i := range 20 {
				go func() {
					if i >= 10 {
						<-ctx.Done()
						time.Sleep(time.Second)
					}
					out <- push.Send(progress)
					if i == 0 {
						close(first)
					}
				}()
			}
			<-ctx.Done()
			<-first
			return nil
		}})
		conn, _, body := g.get(t, request("GET", ""))
		for range 10 {
			if got := block(t, body); got != noted {
				t.Errorf("event %q, want %q", got, noted)
			}
		}
		conn.Close()
		var got []error
		for range 20 {
			got = append(got, <-out)
		}
		want := slices.Repeat([]error{nil}, 10)
		want = append(want, slices.Repeat([]error{errEnded}, 10)...)
		if !slices.Equal(got, want) {
			t.Errorf("Send() = %v, want %v", got, want)
		}
	})
}
