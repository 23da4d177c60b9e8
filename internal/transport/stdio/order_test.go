package stdio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/transport/duplex"
)

// A client is the other end of a running connection.
type client struct {
	in    *io.PipeWriter
	out   *bufio.Reader
	pipe  *io.PipeReader
	ended chan error
	stop  context.CancelFunc
}

func start(t *testing.T, f *fake) *client {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	c := &client{inW, bufio.NewReader(outR), outR, make(chan error, 1), stop}
	go func() {
		c.ended <- Serve(ctx, Options{In: inR, Out: outW, Handler: f, Logger: quiet, Host: mcp.HostKey{User: "uid:1"}})
		outW.Close()
	}()
	t.Cleanup(func() {
		inW.Close()
		outR.Close()
		stop()
	})
	return c
}

func (c *client) write(t *testing.T, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(c.in, strings.TrimSuffix(l, "\n")+"\n"); err != nil {
			t.Error(err)
			return
		}
	}
}

func (c *client) read(t *testing.T) string {
	t.Helper()
	l, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(l, "\n")
}

func TestCancelFindsItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := start(t, f)
		c.write(t, ask("1", "late"), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, ask("2", "ping"))
		if got, want := c.read(t), `{"jsonrpc":"2.0","id":2,"result":{}}`; got != want {
			t.Errorf("answer %s, want %s", got, want)
		}
		if diff := cmp.Diff([]string{"cancel", "ping"}, f.saw()); diff != "" {
			t.Errorf("handed over (-want +got):\n%s", diff)
		}
	})
}

func TestCancelOvertakesRunningCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := start(t, f)
		c.write(t, ask("1", "hold"), ask("2", "late"), ask("3", "hold"), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`, ask("4", "ping"))
		if got, want := c.read(t), `{"jsonrpc":"2.0","id":4,"result":{}}`; got != want {
			t.Errorf("answer %s, want %s", got, want)
		}
		close(f.release)
		got := []string{c.read(t), c.read(t)}
		want := []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":3,"result":{}}`}
		if diff := cmp.Diff(want, got, sorted); diff != "" {
			t.Errorf("answers (-want +got):\n%s", diff)
		}
	})
}

func TestInitializeComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := start(t, f)
		go c.write(t, ask("1", "initialize"), `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ask("2", "tools/list"))
		c.read(t)
		c.read(t)
		if diff := cmp.Diff([]string{"initialize", "notifications/initialized", "tools/list"}, f.saw()); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
	})
}

func TestConcurrencyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := start(t, f)
		for i := range duplex.MaxConcurrent {
			c.write(t, ask(fmt.Sprint(i), "hold"))
		}
		c.write(t, `{"jsonrpc":"2.0","method":"notifications/x"}`) // needs no room
		go c.write(t, ask("900", "ping"), ask("901", "ping"), ask("902", "ping"))
		synctest.Wait()
		if got := f.saw(); len(got) != duplex.MaxConcurrent+1 {
			t.Errorf("%d messages handed over, want %d requests and the notification", len(got), duplex.MaxConcurrent)
		}
		close(f.release)
		for range duplex.MaxConcurrent + 3 {
			c.read(t)
		}
	})
}

func TestEnd(t *testing.T) {
	for _, tt := range []struct {
		name  string
		end   func(c *client)
		hands string        // request in flight
		want  []string      // answers
		took  time.Duration // until Serve returned
	}{
		{"the client's end cancels what runs", func(c *client) { c.in.Close() }, "hold", []string{`{"jsonrpc":"2.0","id":1,` + internal}, finishGrace},
		{"a signal cancels at once", func(c *client) { c.stop() }, "hold", []string{`{"jsonrpc":"2.0","id":1,` + internal}, 0},
		{"a handler that does not end is left behind", func(c *client) { c.in.Close() }, "stuck", nil, finishGrace + cancelGrace},
		{"a signal leaves it behind too", func(c *client) { c.stop() }, "stuck", nil, cancelGrace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				c := start(t, f)
				c.write(t, ask("1", tt.hands))
				synctest.Wait()
				began := time.Now()
				tt.end(c)
				var got []string
				for {
					l, err := c.out.ReadString('\n')
					if err != nil {
						break
					}
					got = append(got, strings.TrimSuffix(l, "\n"))
				}
				if err := <-c.ended; err != nil {
					t.Errorf("Serve() = %v", err)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("ended after %v, want %v", took, tt.took)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("written (-want +got):\n%s", diff)
				}
				if len(f.closed) != 1 || f.closed[0].Conn == "" || f.closed[0].Conn != f.conns[0] || f.closed[0].Host.User != "uid:1" {
					t.Errorf("Close got %+v, want the one connection %v", f.closed, f.conns)
				}
				close(f.release)
			})
		})
	}
}

func TestAnswersBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := start(t, f)
		c.write(t, ask("1", "hold"))
		c.in.Close()
		time.Sleep(finishGrace / 2)
		close(f.release)
		if got, want := c.read(t), `{"jsonrpc":"2.0","id":1,"result":{}}`; got != want {
			t.Errorf("answer %s, want %s", got, want)
		}
	})
}

func TestPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.listen = func(ctx context.Context, push mcp.Sink) error {
			push.Open("x")
			if err := push.Send(result(jsonrpc.IntID(1))); !errors.Is(err, duplex.ErrUnasked) {
				t.Errorf("pushing an answer: %v, want %v", err, duplex.ErrUnasked)
			}
			if err := push.Refuse(400, jsonrpc.Message{}); err != nil {
				t.Error(err)
			}
			return push.Send(jsonrpc.Message{Method: "notifications/tools/list_changed"})
		}
		c := start(t, f)
		if got, want := c.read(t), `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`; got != want {
			t.Errorf("pushed %s, want %s", got, want)
		}
		c.write(t, ask("1", "ping")) // the connection outlives Listen
		c.read(t)
	})
}

func TestBrokenStreams(t *testing.T) {
	broken := errors.New("broken")
	t.Run("reading", func(t *testing.T) {
		_, err := serve(t, newFake(), "", func(o *Options) {
			o.In = io.MultiReader(strings.NewReader(ask("1", "ping")), failing{broken})
		})
		if !errors.Is(err, broken) {
			t.Errorf("Serve() = %v, want %v", err, broken)
		}
	})
	t.Run("writing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			c := start(t, f)
			c.pipe.CloseWithError(broken)
			c.write(t, ask("1", "ping"))
			if err := <-c.ended; !errors.Is(err, broken) {
				t.Errorf("Serve() = %v, want %v", err, broken)
			}
		})
	})
	t.Run("a client that does not read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := start(t, newFake())
			c.write(t, ask("1", "ping"))
			c.in.Close()
			if err := <-c.ended; err != nil {
				t.Errorf("Serve() = %v", err)
			}
		})
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestPanicsAreLoggedWithoutContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		_, err := serve(t, newFake(), ask("1", "panic"), func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		if text := log.String(); err != nil || !strings.Contains(text, "handler panicked") || strings.Contains(text, "secret") {
			t.Errorf("Serve() = %v, log %q: want the panic without what it carries", err, text)
		}
	})
}
