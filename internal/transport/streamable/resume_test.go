package streamable

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

const session = "Mcp-Session-Id: session-1"

// note is the nth notification.
func note(n int) jsonrpc.Message {
	return jsonrpc.Message{Method: "notifications/progress", Params: new(jsonrpc.Object).Int("progress", int64(n)).Done()}
}

var answered = jsonrpc.Message{Result: jsonrpc.Raw("{}")}

// A line is one client's stream of events.
type line struct {
	t      *testing.T
	conn   net.Conn
	status int
	body   *bufio.Reader
	last   string // id of the last event that had one
}

func (g *rig) stream(t *testing.T, raw string) *line {
	t.Helper()
	conn, resp, body := g.get(t, raw)
	return &line{t: t, conn: conn, status: resp.StatusCode, body: body}
}

// resume goes on with a stream after an event.
func (g *rig) resume(t *testing.T, last string, headers ...string) *line {
	t.Helper()
	return g.stream(t, request("GET", "", append([]string{session, stateful, "Last-Event-ID: " + last}, headers...)...))
}

// event reads one event that is no comment and returns its data; one that primes has none.
func (l *line) event() string {
	l.t.Helper()
	for {
		b := block(l.t, l.body)
		if b == ":\n\n" {
			continue
		}
		data := ""
		for line := range strings.Lines(b) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch name {
			case "id":
				l.last = value
			case "data":
				data = value
			}
		}
		return data
	}
}

// notes reads the notifications from first to last.
func (l *line) notes(first, last int) {
	l.t.Helper()
	for n := first; n <= last; n++ {
		if got, want := l.event(), string(note(n).Append(nil)); got != want {
			l.t.Fatalf("event %q, want %q", got, want)
		}
	}
}

// ends reads the end of the stream.
func (l *line) ends() {
	l.t.Helper()
	if rest, err := io.ReadAll(l.body); err != nil || len(rest) > 0 {
		l.t.Errorf("read %q, %v, want the end", rest, err)
	}
}

func (l *line) answered() {
	l.t.Helper()
	if got := l.event(); got != pong {
		l.t.Errorf("event %q, want %q", got, pong)
	}
	l.ends()
}

// keeper is a fake whose sessions may be resumed.
func keeper(v mcp.Version) *fake {
	return &fake{version: v, steps: make(chan jsonrpc.Message), release: make(chan struct{})}
}

func (f *fake) say(from, to int) {
	for n := from; n <= to; n++ {
		f.steps <- note(n)
	}
}

func TestResume(t *testing.T) {
	for _, v := range []mcp.Version{mcp.V20250326, mcp.V20250618, mcp.V20251125} {
		t.Run(string(v), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := keeper(v)
				g := start(t, f)
				l := g.stream(t, request("POST", call("step"), session, stateful))
				if v.Primes() {
					if data := l.event(); data != "" || l.last == "" {
						t.Errorf("the first event has the data %q and the id %q", data, l.last)
					}
				}
				go f.say(1, 2)
				l.notes(1, 2)
				after2 := l.last
				l.conn.Close()
				synctest.Wait()
				f.say(3, 4) // nobody reads: it waits in the book
				m := g.resume(t, after2)
				if v.Primes() && (m.event() != "" || m.last != after2) {
					t.Errorf("the resumed stream begins with the id %q, want %q", m.last, after2)
				}
				m.notes(3, 4)
				go f.say(5, 5)
				m.notes(5, 5)
				m.conn.Close()
				synctest.Wait()
				f.steps <- answered
				synctest.Wait()
				n := g.resume(t, after2) // from before: all again, and the answer
				if v.Primes() {
					n.event()
				}
				n.notes(3, 5)
				n.answered()
				if got := g.resume(t, n.last); got.status != http.StatusNoContent {
					t.Errorf("after the answer: status %d, want 204", got.status)
				}
				time.Sleep(keepTime + time.Second)
				late := g.resume(t, after2)
				if got, want := late.event(), `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,`; !strings.HasPrefix(got, want) {
					t.Errorf("after %v: %q, want %q…", keepTime, got, want)
				}
				late.ends()
				if got := g.resume(t, late.last); got.status != http.StatusNoContent {
					t.Errorf("after that: status %d, want 204", got.status)
				}
			})
		})
	}
}

// TestStreamIsTakenOver shows that a client that comes back before its lost connection is noticed gets the stream at once, and alone.
func TestStreamIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keeper(mcp.V20251125)
		g := start(t, f)
		l := g.stream(t, request("POST", call("step"), session, stateful))
		l.event()
		first := l.last
		go f.say(1, 1) // is written to a connection that nobody reads
		synctest.Wait()
		began := time.Now()
		m := g.resume(t, first)
		m.event()
		m.notes(1, 1)
		f.steps <- answered
		m.answered()
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		if rest, _ := io.ReadAll(l.body); strings.Contains(string(rest), `"result"`) {
			t.Errorf("the lost connection got %q", rest)
		}
	})
}

func TestForeignEventIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keeper(mcp.V20251125)
		g := start(t, f)
		l := g.stream(t, request("POST", call("step"), session, stateful))
		l.event()
		go f.say(1, 1)
		l.notes(1, 1)
		p := parsePosition(l.last)
		before := position{stream: p.stream, request: p.request}.String()
		lost := `{"jsonrpc":"2.0","id":1,"error":`
		for _, tt := range []struct {
			name, id string
			headers  []string
			status   int
			data     string // of the first event
		}{
			{"another session of the principal", before, []string{"Mcp-Session-Id: session-2"}, 200, lost},
			{"the session's id from another principal", before, []string{"Authorization: Bearer other"}, 200, lost},
			{"a session that is not good", before, []string{"Mcp-Session-Id: stolen"}, 404, ""},
			{"an invented stream", "pAAAAAAAAAAAAAAAAAAAAAAAAAA.0", nil, 204, ""},
			{"an event that was never sent", p.stream + ".99", nil, 204, ""},
		} {
			headers := append([]string{session, stateful, "Last-Event-ID: " + tt.id}, tt.headers...)
			if len(tt.headers) > 0 && strings.HasPrefix(tt.headers[0], "Mcp-Session-Id") {
				headers = headers[1:]
			}
			got := g.stream(t, request("GET", "", headers...))
			if got.status != tt.status {
				t.Errorf("%s: status %d, want %d", tt.name, got.status, tt.status)
			}
			if tt.data == "" {
				continue
			}
			if data := got.event(); !strings.HasPrefix(data, tt.data) {
				t.Errorf("%s: %q, want %q…", tt.name, data, tt.data)
			}
			got.ends()
		}
		f.steps <- answered
		l.answered() // the stream went on for its own
	})
}

// TestStatelessIsNotResumed: no ids, and a client that goes away cancels.
func TestStatelessIsNotResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keeper("") // as the gateway says of the stateless era
		g := start(t, f)
		conn, _, body := g.get(t, request("POST", call("wait"), session, stateless))
		if got := block(t, body); got != noted {
			t.Errorf("event %q, want %q", got, noted)
		}
		conn.Close()
		synctest.Wait()
		if got := f.endings(); len(got) != 1 {
			t.Errorf("the call was not cancelled: %v", got)
		}
		f.listen = nil
		if got := g.stream(t, request("GET", "", session, stateless, "Last-Event-ID: pAAAAAAAAAAAAAAAAAAAAAAAAAA.0")); got.status != http.StatusMethodNotAllowed {
			t.Errorf("status %d, want 405", got.status)
		}
	})
}

func TestPollAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keeper(mcp.V20251125)
		g := startWith(t, f, func(o *Options) { o.Poll = 10 * time.Second })
		l := g.stream(t, request("POST", call("step"), session, stateful))
		for range 3 {
			began := time.Now()
			l.event()
			first := l.last
			if data := l.event(); data != "" || l.last == first || time.Since(began) != 10*time.Second {
				t.Errorf("after %v: data %q, id %q after %q", time.Since(began), data, l.last, first)
			}
			l.ends()
			l = g.resume(t, l.last)
		}
		l.event()
		f.steps <- answered
		l.answered()
	})
}

func TestGETStreamIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keeper(mcp.V20251125)
		ended := make(chan struct{}, 2)
		f.listen = listenSteps(f, ended)
		g := start(t, f)
		l := g.stream(t, request("GET", "", session, stateful))
		l.event()
		go f.say(1, 1)
		l.notes(1, 1)
		l.conn.Close()
		synctest.Wait()
		f.say(2, 3)
		m := g.resume(t, l.last)
		m.event()
		m.notes(2, 3)
		m.conn.Close()
		time.Sleep(keepTime - time.Second)
		if len(ended) != 0 {
			t.Error("the stream was given up too early")
		}
		time.Sleep(2 * time.Second)
		if len(ended) != 1 {
			t.Error("the stream was not given up")
		}
		fresh := g.resume(t, m.last) // begins anew, without what is lost
		fresh.event()
		if parsePosition(fresh.last).stream == parsePosition(m.last).stream {
			t.Error("the stream has its old name")
		}
		resp := g.stream(t, request("DELETE", "", session, stateful))
		if resp.status != http.StatusNoContent {
			t.Errorf("DELETE: %d", resp.status)
		}
		fresh.ends()
	})
}

// A client that opens a new stream, and does not go on with the one that it lost, hears what waits there, once. A stream that it has yet keeps its own.
func TestNewGETStreamInherits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keeper(mcp.V20251125)
		ended := make(chan struct{}, 4)
		f.listen = listenSteps(f, ended)
		g := start(t, f)
		lost := g.stream(t, request("GET", "", session, stateful))
		lost.event()
		go f.say(1, 1)
		lost.notes(1, 1)
		lost.conn.Close()
		synctest.Wait()
		f.say(2, 3)
		synctest.Wait()
		fresh := g.stream(t, request("GET", "", session, stateful))
		fresh.event()
		fresh.notes(2, 3)
		synctest.Wait()
		if len(ended) != 1 {
			t.Error("the stream that was lost goes on")
		}
		other := g.stream(t, request("GET", "", session, stateful))
		other.event()
		synctest.Wait()
		if len(ended) != 1 {
			t.Error("a stream that its client reads was ended for another")
		}
		again := g.resume(t, lost.last) // there is no such stream any more: it is a new one, and has nothing to tell
		again.event()
		if parsePosition(again.last).stream == parsePosition(lost.last).stream {
			t.Error("the stream has its old name")
		}
		g.stream(t, request("DELETE", "", session, stateful))
		for _, l := range []*line{fresh, other, again} {
			l.ends()
		}
	})
}

// TestRevokedCredentialEndsAKeptStream: nothing goes on for who may not come back.
func TestRevokedCredentialEndsAKeptStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keeper(mcp.V20251125)
		ended := make(chan struct{}, 1)
		f.listen = listenSteps(f, ended)
		l := start(t, f).stream(t, request("GET", "", session, stateful))
		l.event()
		f.revoked.Store(true)
		time.Sleep(commentEvery + time.Second)
		if len(ended) != 1 {
			t.Error("what feeds the stream goes on")
		}
		l.ends()
	})
}

// TestSlowReaderIsBounded: before a client that does not read nothing gathers, and it is given up; what it has not read waits for it.
func TestSlowReaderIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keeper(mcp.V20251125)
		g := start(t, f)
		l := g.stream(t, request("POST", call("step"), session, stateful))
		l.event()
		f.steps <- note(1) // is under way
		f.steps <- note(2) // the handler waits with it
		select {
		case f.steps <- note(3):
			t.Error("the handler ran ahead of a client that does not read")
		case <-time.After(writeTime - time.Second):
		}
		time.Sleep(2 * time.Second)
		f.steps <- note(3)
		f.steps <- answered
		synctest.Wait()
		m := g.resume(t, l.last)
		m.event()
		m.notes(1, 3)
		m.answered()
	})
}

func TestFullStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keeper(mcp.V20251125)
		g := start(t, f)
		l := g.stream(t, request("POST", call("step"), session, stateful))
		l.event()
		l.conn.Close()
		synctest.Wait()
		f.say(1, maxStreamEvents+10)
		f.steps <- answered
		synctest.Wait()
		m := g.resume(t, l.last)
		m.event()
		m.notes(12, maxStreamEvents+10) // the oldest notifications are gone, the answer is not
		m.answered()
	})
}

func TestAnswerThatHasNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keeper(mcp.V20251125)
		g := start(t, f)
		big := jsonrpc.Message{Result: new(jsonrpc.Object).Text("x", strings.Repeat("x", maxStreamBytes)).Done()}
		l := g.stream(t, request("POST", call("step"), session, stateful)) // reads on: it gets the answer, without an id
		l.event()
		first := l.last
		f.steps <- big
		if data := l.event(); len(data) < maxStreamBytes || l.last != first {
			t.Errorf("%d bytes with the id %q", len(data), l.last)
		}
		l.ends()
		if got := g.resume(t, first).event(); !strings.Contains(got, `"outcome":"unknown"`) {
			t.Errorf("resumed: %q", got)
		}
	})
}

func TestDoubledLastEventID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, keeper(mcp.V20251125))
		if got := g.resume(t, "a", "Last-Event-ID: b"); got.status != http.StatusBadRequest {
			t.Errorf("status %d, want 400", got.status)
		}
	})
}

func TestParsePosition(t *testing.T) {
	for _, p := range []position{
		{stream: newName(bornPOST), at: 7, request: jsonrpc.IntID(12)},
		{stream: newName(bornGET)},
	} {
		if got := parsePosition(p.String()); got != p {
			t.Errorf("parsePosition(%q) = %+v, want %+v", p, got, p)
		}
	}
	for _, s := range []string{
		"", ".", "p", "p.", "x.1", "p.-1", "p.1.2.3", "p.99999999999999999999", "p.1.!", "p.1.IA", "p.1.MQoy", "p.1." + strings.Repeat("MTEx", 30),
		"p.1.MSwibWV0aG9kIjoieSI", // 1,"method":"y"
	} {
		if got := parsePosition(s); got != (position{}) {
			t.Errorf("parsePosition(%q) = %+v, want none", s, got)
		}
	}
	if s := fmt.Sprint(position{stream: "p", request: mustID(t, strings.Repeat("x", 100))}); s != "p.0" {
		t.Errorf("a long request id is in %q", s)
	}
}

func mustID(t *testing.T, s string) jsonrpc.ID {
	t.Helper()
	id, ok := jsonrpc.IDOf(jsonrpc.Quote(s))
	if !ok {
		t.Fatal("no id")
	}
	return id
}
