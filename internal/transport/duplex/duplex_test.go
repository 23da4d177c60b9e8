package duplex

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// batcher is what a sink is for the answer to a batch.
type batcher interface {
	Together(ms []jsonrpc.Message) error
}

// A fake handles each message with handle, and notes who sent it and who closed.
type fake struct {
	handle func(ctx context.Context, in mcp.Inbound, out mcp.Sink) error
	listen func(push mcp.Sink)
	sent   []string
	closed []string
}

func (f *fake) Handle(ctx context.Context, who auth.Principal, in mcp.Inbound, out mcp.Sink) error {
	f.sent = append(f.sent, who.Name())
	return f.handle(ctx, in, out)
}

func (f *fake) Listen(ctx context.Context, _ auth.Principal, _ mcp.Inbound, push mcp.Sink) error {
	if f.listen != nil {
		f.listen(push)
	}
	<-ctx.Done()
	return nil
}

func (f *fake) Close(_ context.Context, who auth.Principal, _ mcp.Inbound) error {
	f.closed = append(f.closed, who.Name())
	return nil
}

func principal(name string) auth.Principal { return auth.Directory{}.Prove(name, "token:1", "token") }

// feed returns a Next that gives the messages, then the client's end.
func feed(messages ...string) func() (jsonrpc.Message, *jsonrpc.Fault, error) {
	return func() (jsonrpc.Message, *jsonrpc.Fault, error) {
		if len(messages) == 0 {
			return jsonrpc.Message{}, nil, io.EOF
		}
		m, fault := jsonrpc.Parse([]byte(messages[0]))
		messages = messages[1:]
		return m, fault, nil
	}
}

// options are those of a connection that writes to *out.
func options(f *fake, out *[]string, messages ...string) Options {
	return Options{
		Next: feed(messages...), Write: func(b []byte) error { *out = append(*out, string(b)); return nil },
		Who: principal("agent"), Handler: f, Logger: slog.New(slog.DiscardHandler), FinishGrace: time.Second, CancelGrace: time.Second,
	}
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

func TestTogether(t *testing.T) {
	one := jsonrpc.Message{ID: jsonrpc.IntID(1), Result: jsonrpc.Raw("{}")}
	two := jsonrpc.Message{ID: jsonrpc.IntID(2), Error: &jsonrpc.Error{Code: -32601, Message: "no"}}
	note := jsonrpc.Message{Method: "notifications/progress"}
	both := `[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no"}}]`
	type step struct {
		ms   []jsonrpc.Message
		want error
	}
	for _, tt := range []struct {
		name, in string
		steps    []step
		want     []string
	}{
		{"several answers are one array", ping, []step{{[]jsonrpc.Message{one, two}, nil}}, []string{both}},
		{"they are the one answer", ping, []step{{[]jsonrpc.Message{one, two}, nil}, {[]jsonrpc.Message{one}, ErrAnswered}}, []string{both}},
		{"no empty array", ping, []step{{nil, ErrNoBatch}, {[]jsonrpc.Message{one, two}, nil}}, []string{both}},
		{"a notification is no answer", ping, []step{{[]jsonrpc.Message{one, note}, ErrNoBatch}, {[]jsonrpc.Message{one, two}, nil}}, []string{both}},
		{"a fault may be a batch", "[", []step{{[]jsonrpc.Message{one, two}, nil}}, []string{both}},
		{"a notification is never answered", `{"jsonrpc":"2.0","method":"x"}`, []step{{[]jsonrpc.Message{one}, ErrUnasked}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out []string
				f := &fake{
					listen: func(push mcp.Sink) {
						if err := push.(batcher).Together([]jsonrpc.Message{one}); !errors.Is(err, ErrUnasked) {
							t.Errorf("pushing Together() = %v, want %v", err, ErrUnasked)
						}
					},
					handle: func(_ context.Context, _ mcp.Inbound, sink mcp.Sink) error {
						for _, s := range tt.steps {
							if err := sink.(batcher).Together(s.ms); !errors.Is(err, s.want) {
								t.Errorf("Together() = %v, want %v", err, s.want)
							}
						}
						return nil
					},
				}
				if err := New(options(f, &out, tt.in)).Serve(t.Context()); err != nil {
					t.Errorf("Serve() = %v", err)
				}
				if diff := cmp.Diff(tt.want, out); diff != "" {
					t.Errorf("written (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestRecheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		var out []string
		f := &fake{handle: func(ctx context.Context, in mcp.Inbound, sink mcp.Sink) error {
			in.Registered()
			<-ctx.Done()
			if err := sink.Send(jsonrpc.Message{ID: in.Msg.ID, Result: jsonrpc.Raw("{}")}); !errors.Is(err, ErrEnded) {
				t.Errorf("Send() = %v, want %v", err, ErrEnded)
			}
			return nil
		}}
		names := []string{"first", "second"}
		o := options(f, &out, ping, ping, ping, ping)
		o.Recheck = func() (auth.Principal, error) {
			if len(names) == 0 {
				return auth.Principal{}, gone
			}
			name := names[0]
			names = names[1:]
			return principal(name), nil
		}
		c := New(o)
		if err := c.Serve(t.Context()); !errors.Is(err, gone) {
			t.Errorf("Serve() = %v, want %v", err, gone)
		}
		c.Wait()
		if diff := cmp.Diff([]string{"first", "second", "second"}, append(f.sent, f.closed...)); diff != "" {
			t.Errorf("who sent and closed (-want +got):\n%s", diff)
		}
		if len(out) != 0 {
			t.Errorf("written %q after the end, want nothing", out)
		}
	})
}

func TestBeside(t *testing.T) {
	gone := errors.New("gone")
	for _, tt := range []struct {
		name   string
		beside func(context.Context) error
		want   error
	}{
		{"an error ends the connection", func(context.Context) error { return gone }, gone},
		{"a panic too", func(context.Context) error { panic("secret") }, errPanic},
		{"it is over when the connection is", func(ctx context.Context) error { <-ctx.Done(); return gone }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out []string
				o := options(&fake{}, &out)
				hold := make(chan struct{})
				o.Next = func() (jsonrpc.Message, *jsonrpc.Fault, error) { <-hold; return jsonrpc.Message{}, nil, io.EOF }
				o.Beside = []func(context.Context) error{tt.beside}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				c := New(o)
				if err := c.Serve(ctx); !errors.Is(err, tt.want) || (tt.want == nil) != (err == nil) {
					t.Errorf("Serve() = %v, want %v", err, tt.want)
				}
				close(hold)
				c.Wait()
			})
		})
	}
}
