package streamable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake is a handler that does what the method says.
type fake struct {
	listen  func(ctx context.Context, in mcp.Inbound, push mcp.Sink) error
	release chan struct{} // lets "hold" go on
	revoked atomic.Bool   // of the credential
	version mcp.Version   // of good sessions; "" where none may be resumed
	steps   chan jsonrpc.Message

	mu    sync.Mutex
	seen  []mcp.Inbound
	ended []string // how the context of "wait" ended, or what "hold" got from sending
}

func (f *fake) saw() []mcp.Inbound {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]mcp.Inbound(nil), f.seen...)
}

func (f *fake) endings() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.ended...)
}

func result(id jsonrpc.ID) jsonrpc.Message { return jsonrpc.Message{ID: id, Result: jsonrpc.Raw("{}")} }

var (
	progress = jsonrpc.Message{Method: "notifications/progress"}
	refusal  = jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no such method"}
)

func (f *fake) Handle(ctx context.Context, who auth.Principal, in mcp.Inbound, out mcp.Sink) error {
	f.mu.Lock()
	f.seen = append(f.seen, in)
	f.mu.Unlock()
	if who.IsZero() {
		return errors.New("nobody was proven")
	}
	if in.Fault != nil {
		return out.Refuse(http.StatusBadRequest, jsonrpc.Message{ID: in.Fault.ID, Error: &in.Fault.Err})
	}
	f.vouch(in)
	id := in.Msg.ID
	switch in.Msg.Method {
	case "step": // sends what the test says, and is answered where that says so
		for m := range f.steps {
			if m.Method == "" {
				m.ID = id
				return out.Send(m)
			}
			if err := out.Send(m); err != nil {
				return err
			}
		}
		return nil
	case mcp.Initialize:
		time.Sleep(ms(in))
		_ = out.Send(progress)
		out.Open("session-1")
		return out.Send(result(id))
	case mcp.Listen: // until it is ended: with its result
		_ = out.Send(progress)
		<-ctx.Done()
		return out.Send(result(id))
	case "notify":
		if err := out.Send(progress); err != nil {
			return err
		}
		return out.Send(result(id))
	case "ask":
		if err := out.Send(jsonrpc.Message{ID: jsonrpc.IntID(5), Method: "roots/list"}); err != nil {
			return out.Send(jsonrpc.Message{ID: id, Error: &jsonrpc.Error{Code: 1, Message: err.Error()}})
		}
		return out.Send(result(id))
	case "sleep":
		time.Sleep(ms(in))
		return out.Send(result(id))
	case "refuse":
		time.Sleep(ms(in))
		return out.Refuse(http.StatusNotFound, jsonrpc.Message{ID: id, Error: &refusal})
	case "notifications/refused":
		return out.Refuse(http.StatusBadRequest, jsonrpc.Message{Error: &refusal})
	case "notifications/answered":
		_ = out.Send(progress)
		if err := out.Send(result(jsonrpc.IntID(1))); !errors.Is(err, errUnasked) {
			return errors.New("a notification was answered")
		}
		return nil
	case "twice":
		_ = out.Send(result(id))
		for _, again := range []jsonrpc.Message{result(id), progress} {
			if err := out.Send(again); !errors.Is(err, errAnswered) {
				return errors.New("sent after the answer")
			}
		}
		return out.Refuse(500, result(id))
	case "big":
		_ = out.Send(progress)
		return out.Send(jsonrpc.Message{ID: id, Result: new(jsonrpc.Object).Text("x", strings.Repeat("x", 3*writeBytes)).Done()})
	case "fail", "notifications/fail":
		return errors.New("no good")
	case "late panic":
		_ = out.Send(progress)
		panic("secret")
	case "panic":
		panic("secret")
	case "silent":
		return nil
	case "hold":
		<-f.release
		err := errors.Join(out.Send(progress), out.Send(result(id)))
		f.mu.Lock()
		f.ended = append(f.ended, fmt.Sprint(err))
		f.mu.Unlock()
		return nil
	case "wait":
		_ = out.Send(progress)
		<-ctx.Done()
		f.mu.Lock()
		f.ended = append(f.ended, context.Cause(ctx).Error())
		f.mu.Unlock()
		return ctx.Err()
	}
	if in.Msg.Kind() == jsonrpc.Request {
		return out.Send(result(id))
	}
	return nil
}

// ms is the time that a message asks for.
func ms(in mcp.Inbound) time.Duration {
	raw, _ := in.Msg.Params.Get("ms")
	n, _ := raw.Int()
	return time.Duration(n) * time.Millisecond
}

// vouch says that the session is good.
func (f *fake) vouch(in mcp.Inbound) {
	if f.version != "" && strings.HasPrefix(in.Session, "session-") && in.Resumable != nil {
		in.Resumable(f.version)
	}
}

func (f *fake) Listen(ctx context.Context, _ auth.Principal, in mcp.Inbound, push mcp.Sink) error {
	if f.version != "" && !strings.HasPrefix(in.Session, "session-") {
		return &mcp.HTTPError{Status: http.StatusNotFound, Msg: jsonrpc.Message{Error: &refusal}}
	}
	f.vouch(in)
	if in.Resumes {
		return nil
	}
	if f.listen != nil {
		return f.listen(ctx, in, push)
	}
	return &mcp.HTTPError{Status: http.StatusMethodNotAllowed, Msg: jsonrpc.Message{Error: &refusal}}
}

func (f *fake) Close(_ context.Context, _ auth.Principal, in mcp.Inbound) error {
	switch in.Session {
	case "session-1":
		return nil
	case "fail":
		return errors.New("no good")
	case "panic":
		panic("secret")
	}
	return &mcp.HTTPError{Status: http.StatusNotFound, Msg: jsonrpc.Message{Error: &refusal}}
}

// guard proves who has the token, as long as it is not revoked.
type guard struct{ revoked *atomic.Bool }

func (g guard) Authenticate(r *http.Request) (auth.Principal, error) {
	if g.revoked != nil && g.revoked.Load() {
		return auth.Principal{}, auth.ErrBadCredential
	}
	switch token := r.Header.Get("Authorization"); token {
	case "Bearer good":
		return auth.Directory{}.Prove("agent", "token", "token"), nil
	case "Bearer other":
		return auth.Directory{}.Prove("other", "token", "token"), nil
	case "":
		return auth.Principal{}, auth.ErrNoCredential
	case "Bearer store down":
		return auth.Principal{}, errors.New("store: no answer")
	case "Bearer nobody":
		return auth.Principal{}, nil
	case "Bearer panic":
		panic("secret")
	}
	return auth.Principal{}, auth.ErrBadCredential
}

func options(f *fake) Options {
	return Options{
		Base: context.Background(), Handler: f, Auth: guard{&f.revoked}, Logger: slog.New(slog.DiscardHandler), Loopback: true, MaxMessage: 1000,
		AllowedOrigins: []string{"https://App.example", "https://app.example:8443"}, AllowedHosts: []string{"Gateway.example"},
		Challenge: `Bearer resource_metadata="https://gateway.example/.well-known/oauth-protected-resource"`,
	}
}

// listenSteps pushes what the test says until it ends.
func listenSteps(f *fake, ended chan<- struct{}) func(context.Context, mcp.Inbound, mcp.Sink) error {
	return func(ctx context.Context, in mcp.Inbound, push mcp.Sink) error {
		defer func() { ended <- struct{}{} }()
		in.Registered()
		for {
			select {
			case <-ctx.Done():
				return nil
			case m := <-f.steps:
				if err := push.Send(m); err != nil {
					return err
				}
			}
		}
	}
}
