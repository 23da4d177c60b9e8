package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestWhatComesOutOfTurnIsNotLogged has an upstream send a second response to one request: what is in it was judged by nobody.
func TestWhatComesOutOfTurnIsNotLogged(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	closed := make(chan struct{}, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerTwice(c, closed)
		}
	}()
	g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\nupstreams: {odd: {url: \"http://"+l.Addr().String()+"\"}}\n"))
	w := &web{t: t, addr: g.Addr, modern: true}
	if m := w.send("tools/call", map[string]any{"name": "odd__two", "arguments": map[string]any{}}, nil); !strings.Contains(string(m.Result), "one") {
		t.Fatalf("the call is answered %s %+v", m.Result, m.Error)
	}
	select {
	case <-closed: // navra has read it
	case <-time.After(patience):
		t.Fatal("navra keeps a connection on which something came out of turn")
	}
	g.stop()
	if strings.Contains(g.stderr.String(), "confidential") {
		t.Errorf("the log shows what the upstream sent:\n%s", g.stderr)
	}
}

// answerTwice serves one connection; a call has two responses, after which it waits for the end.
func answerTwice(c net.Conn, closed chan<- struct{}) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		send := func(status, result string) {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
			fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
		}
		switch m.Method {
		case "server/discover":
			send("200 OK", `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
		case "tools/list":
			send("200 OK", `{"tools":[{"name":"two","inputSchema":{"type":"object"}}]}`)
		case "tools/call":
			send("200 OK", `{"resultType":"complete","content":[{"type":"text","text":"one"}]}`)
			time.Sleep(100 * time.Millisecond) // so that the connection is idle
			send("200 OK", `{"text":"confidential"}`)
			_, _ = io.Copy(io.Discard, in)
			closed <- struct{}{}
			return
		}
	}
}
