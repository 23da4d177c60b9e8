package websocket

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	ws "github.com/coder/websocket"
)

func TestBeforeTheUpgrade(t *testing.T) {
	s := start(t, nil)
	const host, bearer, proto = "Host", "Authorization", "Sec-Websocket-Protocol"
	for _, tt := range []struct {
		name   string
		change map[string]string // of a good upgrade; "" takes away
		want   int
		header [2]string
	}{
		{"good", nil, 101, [2]string{proto, "mcp"}},
		{"one of several subprotocols", map[string]string{proto: "x, mcp"}, 101, [2]string{proto, "mcp"}},
		{"an allowed web page", map[string]string{"Origin": "https://app.example"}, 101, [2]string{}},
		{"the compression a client offers is not taken", map[string]string{"Sec-Websocket-Extensions": "permessage-deflate"}, 101, [2]string{"Sec-Websocket-Extensions", ""}},
		{"a foreign web page", map[string]string{"Origin": "https://evil.example"}, 403, [2]string{}},
		{"a null origin", map[string]string{"Origin": "null"}, 403, [2]string{}},
		{"a rebound name", map[string]string{host: "evil.example"}, 403, [2]string{}},
		{"origin before authentication", map[string]string{"Origin": "null", bearer: ""}, 403, [2]string{}},
		{"no credential", map[string]string{bearer: ""}, 401, [2]string{"Www-Authenticate", `Bearer realm="navra"`}},
		{"bad credential", map[string]string{bearer: "Bearer bad"}, 401, [2]string{"Www-Authenticate", `Bearer realm="navra"`}},
		{"a token in the query is none", map[string]string{bearer: "", "query": "access_token=good"}, 401, [2]string{}},
		{"authentication before the method", map[string]string{bearer: "", "method": "POST"}, 401, [2]string{}},
		{"credential not to be checked", map[string]string{bearer: "Bearer store down"}, 503, [2]string{}},
		{"authenticator panics", map[string]string{bearer: "Bearer panic"}, 503, [2]string{}},
		{"another method", map[string]string{"method": "POST"}, 405, [2]string{"Allow", "GET"}},
		{"no upgrade", map[string]string{"Upgrade": "", "Connection": ""}, 426, [2]string{"Upgrade", "websocket"}},
		{"another upgrade", map[string]string{"Upgrade": "h2c"}, 426, [2]string{"Upgrade", "websocket"}},
		{"upgrade before subprotocol", map[string]string{"Upgrade": "", proto: ""}, 426, [2]string{}},
		{"another version", map[string]string{"Sec-Websocket-Version": "8"}, 400, [2]string{"Sec-Websocket-Version", "13"}},
		{"no subprotocol", map[string]string{proto: ""}, 400, [2]string{}},
		{"another subprotocol", map[string]string{proto: "mcp2, MCP"}, 400, [2]string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			method := "GET"
			if m := tt.change["method"]; m != "" {
				method = m
			}
			r, err := http.NewRequest(method, s.url+"/?"+tt.change["query"], nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{
				bearer: {"Bearer good"}, proto: {"mcp"}, "Upgrade": {"websocket"}, "Connection": {"Upgrade"},
				"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
			}
			for name, v := range tt.change {
				switch {
				case name == "method" || name == "query":
				case name == host:
					r.Host = v
				case v == "":
					r.Header.Del(name)
				default:
					r.Header.Set(name, v)
				}
			}
			a, err := s.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			if a.StatusCode != tt.want {
				t.Errorf("status %d, want %d", a.StatusCode, tt.want)
			}
			if tt.header[0] != "" && a.Header.Get(tt.header[0]) != tt.header[1] {
				t.Errorf("%s: %q, want %q", tt.header[0], a.Header.Get(tt.header[0]), tt.header[1])
			}
			if tt.want == 101 {
				return
			}
			if b, _ := io.ReadAll(a.Body); tt.name != "another version" && !strings.HasPrefix(string(b), `{"jsonrpc":"2.0","error":{"code":-32`) {
				t.Errorf("body %s, want an error without an id", b)
			}
		})
	}
}

func TestRoom(t *testing.T) {
	status := func(t *testing.T, s *site, token string) (int, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c, a, err := ws.Dial(ctx, s.url, &ws.DialOptions{
			HTTPClient: s.client, Subprotocols: []string{Subprotocol}, HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
		})
		if err == nil {
			t.Cleanup(func() { _ = c.CloseNow() })
		} else if a == nil {
			t.Fatal(err)
		}
		return a.StatusCode, a.Header.Get("Retry-After")
	}
	t.Run("of one principal", func(t *testing.T) {
		s := start(t, nil)
		var last *peer
		for range MaxPerPrincipal {
			last = s.dial(t)
		}
		if code, after := status(t, s, "good"); code != 503 || after != retryAfter {
			t.Errorf("one too many: %d, Retry-After %q, want 503, %q", code, after, retryAfter)
		}
		if code, _ := status(t, s, "other"); code != 101 {
			t.Errorf("another principal: %d, want 101", code)
		}
		if err := last.Close(ws.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
		for range 1000 { // the place is given back a moment after the close
			if code, _ := status(t, s, "good"); code == 101 {
				return
			}
		}
		t.Error("a place that was given back is not there")
	})
	t.Run("of all", func(t *testing.T) {
		s := start(t, func(o *Options) { o.MaxConns = 1 })
		s.dial(t)
		if code, after := status(t, s, "other"); code != 503 || after != retryAfter {
			t.Errorf("one too many: %d, Retry-After %q, want 503, %q", code, after, retryAfter)
		}
	})
	t.Run("none at shutdown", func(t *testing.T) {
		s := start(t, nil)
		s.stop(errors.New("over"))
		if code, _ := status(t, s, "good"); code != 503 {
			t.Errorf("after shutdown: %d, want 503", code)
		}
	})
}
