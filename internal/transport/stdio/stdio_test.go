package stdio

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/transport/duplex"
)

func TestMain(m *testing.M) {
	if os.Getenv(playHost) != "" {
		printHost()
		return
	}
	goleak.VerifyTestMain(m)
}

// A fake is a handler that does what the method says.
type fake struct {
	listen func(ctx context.Context, push mcp.Sink) error

	mu      sync.Mutex
	seen    []string // what was handed over, in order
	running map[string]context.CancelFunc
	closed  []mcp.Inbound
	conns   []string
	release chan struct{} // lets "hold" go on
}

func newFake() *fake {
	return &fake{running: map[string]context.CancelFunc{}, release: make(chan struct{})}
}

func (f *fake) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, what)
}

func (f *fake) saw() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.seen...)
}

func result(id jsonrpc.ID) jsonrpc.Message { return jsonrpc.Message{ID: id, Result: jsonrpc.Raw("{}")} }

func (f *fake) Handle(ctx context.Context, _ auth.Principal, in mcp.Inbound, out mcp.Sink) error {
	f.mu.Lock()
	f.conns = append(f.conns, in.Conn)
	f.mu.Unlock()
	if in.Fault != nil {
		f.note("fault")
		return out.Refuse(400, jsonrpc.Message{ID: in.Fault.ID, Error: &in.Fault.Err})
	}
	m := in.Msg
	switch m.Method {
	case "notifications/cancelled":
		raw, _ := m.Params.Get("requestId")
		f.mu.Lock()
		cancel := f.running[string(raw)]
		f.mu.Unlock()
		if cancel == nil {
			f.note("cancel of nothing")
			return nil
		}
		f.note("cancel")
		cancel()
		return nil
	case "late": // registers late, then waits for its cancellation
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(ctx)
		f.mu.Lock()
		f.running[m.ID.String()] = cancel
		f.mu.Unlock()
		in.Registered()
		in.Registered()
		<-ctx.Done()
		return nil
	case "hold":
		f.note("hold")
		in.Registered()
		select {
		case <-f.release:
			return out.Send(result(m.ID))
		case <-ctx.Done():
			f.note("hold cancelled")
			return ctx.Err()
		}
	case "stuck":
		in.Registered()
		<-f.release
		return out.Send(result(m.ID))
	case mcp.Initialize:
		time.Sleep(time.Second)
		f.note("initialize")
		return out.Send(result(m.ID))
	case "panic":
		panic("secret")
	case "panic after answer":
		_ = out.Send(result(m.ID))
		panic("secret")
	case "fail":
		return errors.New("no good")
	case "silent":
		return nil
	case "twice":
		_ = out.Send(jsonrpc.Message{Method: "notifications/progress"})
		_ = out.Send(result(m.ID))
		for _, again := range []jsonrpc.Message{result(m.ID), {Method: "notifications/progress"}} {
			if err := out.Send(again); !errors.Is(err, duplex.ErrAnswered) {
				return errors.New("sent after the answer")
			}
		}
		return nil
	case "notifications/answer":
		_ = out.Refuse(400, jsonrpc.Message{Error: &jsonrpc.Error{Code: 1}})
		if err := out.Send(result(jsonrpc.IntID(9))); !errors.Is(err, duplex.ErrUnasked) {
			return errors.New("a notification was answered")
		}
		return nil
	case "":
		f.note("response")
		return nil
	}
	f.note(m.Method)
	if m.Kind() == jsonrpc.Request {
		return out.Send(result(m.ID))
	}
	return nil
}

func (f *fake) Listen(ctx context.Context, _ auth.Principal, in mcp.Inbound, push mcp.Sink) error {
	if f.listen != nil {
		return f.listen(ctx, push)
	}
	<-ctx.Done()
	return nil
}

func (f *fake) Close(_ context.Context, _ auth.Principal, in mcp.Inbound) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = append(f.closed, in)
	return nil
}

var quiet = slog.New(slog.DiscardHandler)

// serve runs input through f until its end and returns the lines written and how Serve ended.
func serve(t *testing.T, f *fake, input string, change func(*Options)) ([]string, error) {
	t.Helper()
	var out strings.Builder
	o := Options{In: strings.NewReader(input), Out: &out, Handler: f, Logger: quiet}
	if change != nil {
		change(&o)
	}
	err := Serve(t.Context(), o)
	text := out.String()
	if text != "" && !strings.HasSuffix(text, "\n") || strings.Contains(text, "\r") {
		t.Errorf("written %q: each message must end with LF alone", text)
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n"), err
}

func ask(id, method string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"}` + "\n"
}

const internal = `"error":{"code":-32603,"message":"internal error of navra; whether the call ran is not known (outcome: unknown)","data":{"outcome":"unknown"}}}`

func TestAnswers(t *testing.T) {
	pong := `{"jsonrpc":"2.0","id":1,"result":{}}`
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"a request is answered", ask("1", "ping"), []string{pong}},
		{"the last line may lack its LF", strings.TrimSuffix(ask("1", "ping"), "\n"), []string{pong}},
		{"a line of white space is no message", " \t\r\n\r\r\n" + ask("1", "ping"), []string{pong}},
		{"a line separator in a string splits nothing", "{\"jsonrpc\":\"2.0\",\"id\":\"a\u2028\u0085\",\"method\":\"ping\"}\n", []string{"{\"jsonrpc\":\"2.0\",\"id\":\"a\u2028\u0085\",\"result\":{}}"}},
		{"a bare CR splits nothing", "{\"jsonrpc\":\"2.0\",\r\"id\":1,\"method\":\"ping\"}\r\n", []string{pong}},
		{"an error of the handler is answered", ask(`"x"`, "fail"), []string{`{"jsonrpc":"2.0","id":"x",` + internal}},
		{"a panic is answered", ask("7", "panic"), []string{`{"jsonrpc":"2.0","id":7,` + internal}},
		{"a panic after the answer is not answered again", ask("1", "panic after answer"), []string{pong}},
		{"a handler may answer nothing", ask("7", "silent"), []string{""}},
		{"an answer is the last", ask("1", "twice"), []string{`{"jsonrpc":"2.0","method":"notifications/progress"}`, pong}},
		{"a notification is never answered", `{"jsonrpc":"2.0","method":"notifications/answer"}` + "\n", []string{""}},
		{"a response is never answered", `{"jsonrpc":"2.0","id":3,"result":{}}` + "\n", []string{""}},
		{"a fault is answered with the id where it is known", `{"jsonrpc":"1.0","id":3,"method":"ping"}` + "\n", []string{`{"jsonrpc":"2.0","id":3,"error":{"code":-32600,"message":"jsonrpc must be \"2.0\""}}`}},
		{"no input, no output", "", []string{""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, err := serve(t, newFake(), tt.in, nil)
				if err != nil {
					t.Errorf("Serve() = %v", err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("written (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestSizeLimit(t *testing.T) {
	line := strings.TrimSuffix(ask("1", "ping"), "\n") // 40 bytes
	long := line + strings.Repeat(" ", 3*readBytes)
	tooLong := func(actual string) string {
		return `{"jsonrpc":"2.0","error":{"code":-32002,"message":"content over the size limit","data":{"reason":"size","limit":40,"actual":` + actual + `}}}`
	}
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"at the limit", line + "\n", []string{`{"jsonrpc":"2.0","id":1,"result":{}}`}},
		{"at the limit with CR", line + "\r\n", []string{`{"jsonrpc":"2.0","id":1,"result":{}}`}},
		{"one over", line + " \n", []string{tooLong("41")}},
		{"one over with CR", line + " \r\n", []string{tooLong("41")}},
		{"far over, then the stream goes on", long + "\n" + ask("2", "ping"), []string{tooLong("196648"), `{"jsonrpc":"2.0","id":2,"result":{}}`}},
		{"over without an end", long, []string{tooLong("196648")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, _ := serve(t, newFake(), tt.in, func(o *Options) { o.MaxMessage = 40 })
				if diff := cmp.Diff(tt.want, got, sorted); diff != "" {
					t.Errorf("written (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// sorted compares answers in any order.
var sorted = cmp.Transformer("set", func(lines []string) map[string]int {
	m := map[string]int{}
	for _, l := range lines {
		m[l]++
	}
	return m
})

func TestLongLineIsNotKept(t *testing.T) {
	l := lines{r: bufio.NewReaderSize(io.LimitReader(zeros{}, 8<<20), 4096), limit: 1000}
	if _, size, err := l.next(); size != 8<<20 || err != nil || cap(l.buf) > 8192 {
		t.Errorf("next() = size %d, %v, with %d bytes kept, want size %d and few bytes kept", size, err, cap(l.buf), 8<<20)
	}
	l = lines{r: bufio.NewReader(strings.NewReader(strings.Repeat(" ", keptBytes+1) + "\n\n")), limit: 1 << 30}
	if _, _, err := l.next(); err != nil || cap(l.buf) <= keptBytes {
		t.Fatalf("next() = %v, with %d bytes kept", err, cap(l.buf))
	}
	if _, _, err := l.next(); err != nil || cap(l.buf) > keptBytes {
		t.Errorf("next() = %v, with %d bytes kept after a long line, want at most %d", err, cap(l.buf), keptBytes)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestWire runs the shared cases that the transport alone decides.
func TestWire(t *testing.T) {
	type expect struct {
		Kind string
		ID   json.RawMessage
		Code int
		All  []expect
	}
	file, err := os.Open("testdata/wire.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for dec := json.NewDecoder(file); ; {
		var c struct {
			Name, Raw string
			Expect    expect
		}
		if err := dec.Decode(&c); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		t.Run(c.Name, func(t *testing.T) {
			want := map[string]int{}
			if len(c.Expect.All) == 0 {
				c.Expect.All = []expect{c.Expect}
			}
			for _, e := range c.Expect.All {
				want[string(e.ID)] = e.Code
			}
			lines, err := serve(t, newFake(), c.Raw, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]int{}
			for _, l := range lines {
				var m struct {
					ID    json.RawMessage
					Error struct{ Code int }
				}
				if err := json.Unmarshal([]byte(l), &m); err != nil {
					t.Fatalf("%q: %v", l, err)
				}
				if m.ID == nil {
					m.ID = json.RawMessage("null")
				}
				got[string(m.ID)] = m.Error.Code
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("id to code (-want +got):\n%s", diff)
			}
		})
	}
}
