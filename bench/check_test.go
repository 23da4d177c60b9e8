package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// A hostile echo answers rightly until call number after, and then does harm.
type hostile struct {
	*echo
	harm  func(w http.ResponseWriter, right []byte)
	after int

	mu    sync.Mutex
	calls int
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := httptest.NewRecorder()
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	h.echo.ServeHTTP(rec, r)
	h.mu.Lock()
	if bytes.Contains(body, []byte(`"tools/call"`)) {
		h.calls++
	}
	harm := h.calls > h.after
	h.mu.Unlock()
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	if harm {
		w.Header().Del("Content-Length")
		h.harm(w, rec.Body.Bytes())
		return
	}
	w.WriteHeader(rec.Code)
	w.Write(rec.Body.Bytes())
}

// edit is a harm that changes the answer.
func edit(old, new string) func(http.ResponseWriter, []byte) {
	return func(w http.ResponseWriter, b []byte) { w.Write(bytes.ReplaceAll(b, []byte(old), []byte(new))) }
}

// swap is a harm that holds an answer back and gives it to the next call.
func swap() func(http.ResponseWriter, []byte) {
	var mu sync.Mutex
	waiting := make(chan []byte, 1)
	return func(w http.ResponseWriter, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		b = bytes.Clone(b)
		select {
		case other := <-waiting:
			waiting <- b
			w.Write(other)
		default:
			waiting <- b
			w.Write(b)
		}
	}
}

func testLoad(h http.Handler, era string, patience time.Duration) error {
	srv := httptest.NewServer(h)
	defer srv.Close()
	p := loadPlan{URL: srv.URL + "/mcp", Era: era, Size: 200, Conns: 3, Warm: 10 * time.Millisecond, Time: 50 * time.Millisecond, Patience: patience}
	var out strings.Builder
	err := load(p, strings.NewReader("go\n"), &out)
	var res loadResult
	if err == nil {
		if err := json.Unmarshal([]byte(strings.TrimPrefix(out.String(), "ready\n")), &res); err != nil || res.Calls == 0 || res.P50 == 0 {
			return fmt.Errorf("load said %q (%w)", out.String(), err)
		}
	}
	return err
}

func TestLoadFindsWrongAnswers(t *testing.T) {
	for _, row := range []struct {
		name string
		harm func(http.ResponseWriter, []byte)
		want error
	}{
		{"wrong nonce", edit(`"nonce `, `"nonce f`), errText},
		{"text cut short", edit(`"}]`, ` "}]`), errText},
		{"two blocks", edit(`}]`, `},{"type":"text","text":""}]`), errText},
		{"other id", edit(`"id":`, `"id":1`), errID},
		{"id as a string", func(w http.ResponseWriter, b []byte) {
			id := member(b, "id")
			w.Write(bytes.Replace(b, id, []byte(`"`+string(id)+`"`), 1))
		}, errID},
		{"answers swapped between calls", swap(), errID},
		{"answer lost: connection closed", func(http.ResponseWriter, []byte) { panic(http.ErrAbortHandler) }, errLost},
		{"answer lost: no body", func(http.ResponseWriter, []byte) {}, errLost},
		{"answer lost: never comes", func(http.ResponseWriter, []byte) { time.Sleep(500 * time.Millisecond) }, errLost},
		{"answer lost: empty stream", func(w http.ResponseWriter, _ []byte) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, ": nothing\n\n")
		}, errLost},
		{"two answers", func(w http.ResponseWriter, b []byte) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: %s\n\ndata: %s\n\n", b, b)
		}, errTwice},
		{"error", edit(`"result":`, `"error":`), errRefused},
		{"tool error", edit(`}]}`, `}],"isError":true}`), errRefused},
		{"status 500", func(w http.ResponseWriter, b []byte) { http.Error(w, "no", 500) }, errRefused},
		{"no JSON", edit(`}`, ``), errJSON},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := testLoad(&hostile{echo: newEcho(stateful), harm: row.harm, after: 5}, stateful, 250*time.Millisecond)
			if !errors.Is(err, row.want) {
				t.Errorf("load against %s = %v, want %v", row.name, err, row.want)
			}
		})
	}
}

func TestLoadAcceptsRightAnswers(t *testing.T) {
	stream := func(w http.ResponseWriter, b []byte) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"id":7}}`+"\n\n")
		w.(http.Flusher).Flush()
		fmt.Fprintf(w, "event: message\ndata: %s\n\n", b)
	}
	for _, era := range []string{stateful, stateless} {
		if err := testLoad(newEcho(era), era, time.Minute); err != nil {
			t.Errorf("%s: %v", era, err)
		}
		if err := testLoad(&hostile{echo: newEcho(era), harm: stream}, era, time.Minute); err != nil {
			t.Errorf("%s, as a stream: %v", era, err)
		}
	}
	escaped := func(w http.ResponseWriter, b []byte) {
		w.Write(bytes.ReplaceAll(b, []byte("nonce"), []byte(`n\u006fnce`)))
	}
	if err := testLoad(&hostile{echo: newEcho(stateful), harm: escaped}, stateful, time.Minute); err != nil {
		t.Errorf("escaped in another way: %v", err)
	}
}

func TestFloorsHandOn(t *testing.T) {
	for _, era := range []string{stateful, stateless} {
		srv := httptest.NewServer(newEcho(era))
		to, _ := url.Parse(srv.URL + "/mcp")
		for name, h := range map[string]http.Handler{"reverseproxy": newReverseProxy(to), "relay": newRelay(to)} {
			if err := testLoad(h, era, time.Minute); err != nil {
				t.Errorf("%s, %s: %v", name, era, err)
			}
		}
		srv.Close()
	}
}

func TestEchoChecksSessions(t *testing.T) {
	srv := httptest.NewServer(newEcho(stateful))
	defer srv.Close()
	for id, want := range map[string]int{"": http.StatusBadRequest, "unknown": http.StatusNotFound} {
		req, _ := http.NewRequestWithContext(context.Background(), "POST", srv.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		req.Header.Set("Mcp-Session-Id", id)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("session %q: status %d, want %d", id, resp.StatusCode, want)
		}
	}
}

func TestEchoOverStdio(t *testing.T) {
	text := string(newPayload(1<<19).text(nil, 1, 1)) // longer than the read buffer
	in := `{"jsonrpc":"2.0","id":"a","method":"initialize","params":{}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":` + text + `}}}` + "\n" + `{"jsonrpc":"2.0","id":3,"method":"nonsense"}` + "\n"
	var out bytes.Buffer
	if err := newEcho(stateful).serveStdio(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d answers, want 3", len(lines))
	}
	if err := (want{2, []byte(text)}).check(nil, []byte(lines[1])); err != nil {
		t.Error(err)
	}
	if !strings.Contains(lines[2], "-32601") {
		t.Errorf("unknown method: %s", lines[2])
	}
}

func TestPayload(t *testing.T) {
	seen := map[string]bool{}
	for _, size := range []int{minSize, 200, 8192, 65536} {
		p := newPayload(size)
		for seq := range 3 * variants {
			b := p.text(nil, 16, seq)
			if len(b) != size+2 || !json.Valid(b) {
				t.Fatalf("size %d, call %d: %d bytes, valid JSON: %v", size, seq, len(b), json.Valid(b))
			}
			if seen[string(b)] {
				t.Fatalf("size %d, call %d: seen before", size, seq)
			}
			seen[string(b)] = true
		}
	}
}

func TestMembers(t *testing.T) {
	for _, row := range []struct{ in, want string }{
		{`{}`, ""},
		{` { "a" : 1 , "b":[{"x":"]\"}"}] } `, `a=1 b=[{"x":"]\"}"}] `},
		{`{"a\"b":"c\\","d":null}`, `a\"b="c\\" d=null `},
		{`{"a":{}}`, `a={} `},
	} {
		got := ""
		err := members([]byte(row.in), func(k, v []byte) { got += string(k) + "=" + string(v) + " " })
		if err != nil || got != row.want {
			t.Errorf("members(%s) = %q, %v, want %q", row.in, got, err, row.want)
		}
	}
	for _, in := range []string{``, `[]`, `{`, `{"a"}`, `{"a":}`, `{"a":1`, `{"a":1,}`, `{"a":1}x`, `{"a":"}`, `{"a":[}`, `{a:1}`, `{"a":1 "b":2}`} {
		if err := members([]byte(in), func(_, _ []byte) {}); err == nil {
			t.Errorf("members(%s) accepts it", in)
		}
	}
}

func TestParseStat(t *testing.T) {
	u, err := parseStat("42 (a) b) S 7 42 42 0 -1 4194560 100 0 0 0 150 50 3 2 20 0 9 0 1000 123456 256 18446744073709551615 1 1\n")
	if err != nil || u.parent != 7 || u.cpu != 2*time.Second || u.ended != 50*time.Millisecond || u.rss == 0 {
		t.Errorf("parseStat = %+v, %v", u, err)
	}
	if _, err := parseStat("42 (a"); err == nil {
		t.Error("parseStat accepts half a line")
	}
}

func TestMedianAndSpread(t *testing.T) {
	if got := median([]float64{9, 1, 2}); got != 2 {
		t.Errorf("median of three = %v", got)
	}
	if got := median([]float64{4, 1, 2, 9}); got != 3 {
		t.Errorf("median of four = %v", got)
	}
	if got := spreadOf([]float64{8, 10, 12}); got != 0.2 {
		t.Errorf("spread = %v", got)
	}
	if got := quantile([]time.Duration{1, 2, 3, 4}, 0.99); got != 4 {
		t.Errorf("quantile = %v", got)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range []string{"-sizes=1", "-sizes=x", "-only=nobody", "-era=new", "-upstream=ws", "-rounds=0", "-conns=0", "more"} {
		if _, err := parseFlags([]string{args}); err == nil {
			t.Errorf("flags %s are accepted", args)
		}
	}
	if o, err := parseFlags([]string{"-sizes", "200, 8192", "-only", "direct,navra"}); err != nil || len(o.sizes) != 2 || len(o.only) != 2 {
		t.Errorf("flags = %+v, %v", o, err)
	}
}

// A wire reads chunks, with extensions and trailers, and goes on with the next response.
func TestWireReadsChunks(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	go func() {
		defer server.Close()
		io.WriteString(server, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: 1\r\n\r\nHTTP/1.1 202 Accepted\r\ncontent-length: 1\r\n\r\nz")
	}()
	w := newWire(client, time.Minute)
	for _, want := range []struct {
		status int
		body   string
	}{{200, "abcde"}, {202, "z"}} {
		res, err := w.read()
		if err != nil || res.status != want.status || string(res.body) != want.body {
			t.Fatalf("read = %d %q, %v, want %d %q", res.status, res.body, err, want.status, want.body)
		}
	}
	if _, err := w.read(); err == nil {
		t.Error("read after the end: no error")
	}
}
