package streamable

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navra/internal/mcp"
)

// An answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// send writes a raw request to srv and reads what comes back.
func send(t *testing.T, srv *httptest.Server, raw string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(raw, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%v after %q", err, raw)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// request is a raw request with headers; one given as "Name: value" replaces the default, "Name:" alone takes it away, and one that comes
// twice is sent twice.
func request(method, body string, headers ...string) string {
	defaults := []string{
		"Host: localhost:8420", "Authorization: Bearer good", "Connection: close", "Accept: application/json, text/event-stream",
		"Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body)),
	}
	if method != http.MethodPost {
		defaults = defaults[:4]
	}
	all := slices.DeleteFunc(defaults, func(d string) bool {
		name, _, _ := strings.Cut(d, ":")
		return slices.ContainsFunc(headers, func(h string) bool { return strings.HasPrefix(strings.ToLower(h), strings.ToLower(name)+":") })
	})
	for _, h := range headers {
		if !strings.HasSuffix(h, ":") {
			all = append(all, h)
		}
	}
	return method + " /mcp HTTP/1.1\r\n" + strings.Join(all, "\r\n") + "\r\n\r\n" + body
}

const (
	ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	pong = `{"jsonrpc":"2.0","id":1,"result":{}}`
)

func refused(code int, text string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","error":{"code":%d,"message":%q}}`, code, text)
}

const internal = `"error":{"code":-32603,"message":"internal error of navra; whether the call ran is not known (outcome: unknown)","data":{"outcome":"unknown"}}}`

func call(method string) string { return `{"jsonrpc":"2.0","id":1,"method":"` + method + `"}` }

func notice(method string) string { return `{"jsonrpc":"2.0","method":"` + method + `"}` }

func TestRules(t *testing.T) {
	wrongHost, wrongOrigin := refused(-32600, "the Host header names another server"), refused(-32600, "requests from this Origin are not allowed")
	wrongType, wrongAccept := refused(-32600, "Content-Type must be application/json"), refused(-32600, "Accept must allow application/json or text/event-stream")
	tooLong := func(actual int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","error":{"code":-32002,"message":"content over the size limit","data":{"reason":"size","limit":1000,"actual":%d}}}`, actual)
	}
	long := ping + strings.Repeat(" ", 2000)
	event := "event: message\ndata: "
	for _, tt := range []struct {
		name, raw string
		status    int
		body      string   // whole
		headers   []string // "Name: value" that must be there, "Name:" that must not
	}{
		// Host and Origin
		{"localhost", request("POST", ping, "Host: localhost"), 200, pong, []string{"Content-Type: application/json", "Mcp-Session-Id:"}},
		{"127.0.0.1 with a port", request("POST", ping, "Host: 127.0.0.1:1"), 200, pong, nil},
		{"[::1]", request("POST", ping, "Host: [::1]"), 200, pong, nil},
		{"[::1] with a port", request("POST", ping, "Host: [::1]:8420"), 200, pong, nil},
		{"host in capitals", request("POST", ping, "Host: LOCALHOST:8420"), 200, pong, nil},
		{"configured host", request("POST", ping, "Host: gateway.example:443"), 200, pong, nil},
		{"another host", request("POST", ping, "Host: rebind.example:8420"), 403, wrongHost, nil},
		{"host that begins like localhost", request("POST", ping, "Host: localhost.evil.example"), 403, wrongHost, nil},
		{"host with something like a port", request("POST", ping, "Host: localhost:evil.example"), 403, wrongHost, nil},
		{"no host", request("POST", ping, "Host: "), 403, wrongHost, nil},
		{"host is checked before the credential", request("POST", ping, "Host: evil.example", "Authorization:"), 403, wrongHost, []string{"WWW-Authenticate:"}},
		{"allowed origin", request("POST", ping, "Origin: https://app.example"), 200, pong, nil},
		{"allowed origin in capitals", request("POST", ping, "Origin: HTTPS://APP.example"), 200, pong, nil},
		{"allowed origin with its port", request("POST", ping, "Origin: https://app.example:8443"), 200, pong, nil},
		{"allowed origin with another scheme", request("POST", ping, "Origin: http://app.example"), 403, wrongOrigin, nil},
		{"allowed origin with another port", request("POST", ping, "Origin: https://app.example:1"), 403, wrongOrigin, nil},
		{"below an allowed origin", request("POST", ping, "Origin: https://x.app.example"), 403, wrongOrigin, nil},
		{"own origin", request("POST", ping, "Origin: http://localhost:8420"), 200, pong, nil},
		{"own host, other port", request("POST", ping, "Origin: http://localhost:3000"), 403, wrongOrigin, nil},
		{"own host, not encrypted", request("POST", ping, "Origin: https://localhost:8420"), 403, wrongOrigin, nil},
		{"configured host is no origin", request("POST", ping, "Host: gateway.example", "Origin: http://gateway.example"), 403, wrongOrigin, nil},
		{"null origin", request("POST", ping, "Origin: null"), 403, wrongOrigin, nil},
		{"two origins", request("POST", ping, "Origin: https://app.example", "Origin: https://app.example"), 403, wrongOrigin, nil},
		{"foreign origin on GET", request("GET", "", "Origin: https://evil.example"), 403, wrongOrigin, nil},
		// Authentication
		{"no credential", request("POST", ping, "Authorization:"), 401, refused(-32600, "authentication required"), []string{`WWW-Authenticate: Bearer resource_metadata="https://gateway.example/.well-known/oauth-protected-resource"`}},
		{"bad credential", request("POST", ping, "Authorization: Bearer bad"), 401, refused(-32600, "authentication required"), nil},
		{"nobody", request("POST", ping, "Authorization: Bearer nobody"), 401, refused(-32600, "authentication required"), nil},
		{"it cannot be told", request("POST", ping, "Authorization: Bearer store down"), 503, refused(-32603, "the credential cannot be checked now; try again later"), []string{"WWW-Authenticate:"}},
		{"the authenticator panics", request("POST", ping, "Authorization: Bearer panic"), 503, refused(-32603, "the credential cannot be checked now; try again later"), nil},
		{"credential before method", request("PUT", "", "Authorization:"), 401, refused(-32600, "authentication required"), nil},
		{"credential before type", request("POST", ping, "Authorization:", "Content-Type: text/plain"), 401, refused(-32600, "authentication required"), nil},
		// Method
		{"PUT", request("PUT", ""), 405, refused(-32600, "the method must be one of GET, POST, DELETE"), []string{"Allow: GET, POST, DELETE"}},
		{"HEAD", request("HEAD", ""), 405, "", []string{"Allow: GET, POST, DELETE"}},
		{"OPTIONS", request("OPTIONS", ""), 405, refused(-32600, "the method must be one of GET, POST, DELETE"), []string{"Allow: GET, POST, DELETE"}},
		// Headers
		{"two sessions", request("POST", ping, "Mcp-Session-Id: a", "MCP-Session-Id: b"), 400, refused(-32600, "the Mcp-Session-Id header is given twice"), nil},
		{"two versions", request("POST", ping, "MCP-Protocol-Version: 2025-11-25", "Mcp-Protocol-Version: 2025-11-25"), 400, refused(-32600, "the Mcp-Protocol-Version header is given twice"), nil},
		{"two sessions on DELETE", request("DELETE", "", "Mcp-Session-Id: session-1", "Mcp-Session-Id: session-1"), 400, refused(-32600, "the Mcp-Session-Id header is given twice"), nil},
		// Content-Type
		{"type in another case with a charset", request("POST", ping, `Content-Type: Application/JSON; Charset="UTF-8"`), 200, pong, nil},
		{"type with another parameter", request("POST", ping, "Content-Type: application/json; profile=x"), 200, pong, nil},
		{"another charset", request("POST", ping, "Content-Type: application/json; charset=latin1"), 415, refused(-32600, "the charset must be utf-8"), nil},
		{"text", request("POST", ping, "Content-Type: text/plain"), 415, wrongType, nil},
		{"form", request("POST", ping, "Content-Type: application/x-www-form-urlencoded"), 415, wrongType, nil},
		{"no type", request("POST", ping, "Content-Type:"), 415, wrongType, nil},
		{"two types", request("POST", ping, "Content-Type: application/json", "Content-Type: application/json"), 415, wrongType, nil},
		{"malformed type", request("POST", ping, "Content-Type: application/json; charset"), 415, wrongType, nil},
		{"compressed", request("POST", ping, "Content-Encoding: gzip"), 415, refused(-32600, "a Content-Encoding is not supported"), nil},
		{"identity", request("POST", ping, "Content-Encoding: Identity"), 200, pong, nil},
		// Accept
		{"anything", request("POST", ping, "Accept: */*"), 200, pong, nil},
		{"no Accept", request("POST", ping, "Accept:"), 200, pong, nil},
		{"JSON", request("POST", ping, "Accept: application/json"), 200, pong, nil},
		{"a group", request("POST", ping, "Accept: application/*"), 200, pong, nil},
		{"two headers", request("POST", ping, "Accept: text/html", "Accept: application/json"), 200, pong, nil},
		{"qualities", request("POST", ping, "Accept: text/event-stream;q=0.9, application/json;q=0.8"), 200, pong, []string{"Content-Type: application/json"}},
		{"streams alone", request("POST", ping, "Accept: text/event-stream"), 200, event + pong + "\n\n", []string{"Content-Type: text/event-stream"}},
		{"JSON at quality 0", request("POST", ping, "Accept: */*, application/json;q=0"), 200, event + pong + "\n\n", []string{"Content-Type: text/event-stream"}},
		{"neither", request("POST", ping, "Accept: text/html"), 406, wrongAccept, nil},
		{"neither, by quality", request("POST", ping, "Accept: application/*;q=0, text/html"), 406, wrongAccept, nil},
		{"a bad quality is none", request("POST", ping, "Accept: application/json;q=2, text/event-stream;q=x, */*;q=NaN"), 406, wrongAccept, nil},
		// Size
		{"a length at the limit", request("POST", ping+strings.Repeat(" ", 1000-len(ping))), 200, pong, nil},
		{"a length over the limit", request("POST", "", "Content-Length: 99999999999"), 413, tooLong(99999999999), nil},
		{"type before size", request("POST", "", "Content-Length: 99999999999", "Content-Type: text/plain"), 415, wrongType, nil},
		{"chunks within the limit", request("POST", "28\r\n"+ping+"\r\n0\r\n\r\n", "Content-Length:", "Transfer-Encoding: chunked"), 200, pong, nil},
		{"chunks over the limit", request("POST", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(long), long), "Content-Length:", "Transfer-Encoding: chunked"), 413, tooLong(1001), nil},
		{"chunks that break off", request("POST", "28\r\n"+ping+"\r\nx\r\n", "Content-Length:", "Transfer-Encoding: chunked"), 400, refused(-32600, "the body breaks off"), nil},
		// Messages
		{"bytes that are no message", request("POST", `{"jsonrpc":"1.0","id":"x","method":"ping"}`), 400, `{"jsonrpc":"2.0","id":"x","error":{"code":-32600,"message":"jsonrpc must be \"2.0\""}}`, nil},
		{"a notification", request("POST", notice("notifications/x")), 202, "", []string{"Content-Type:", "Content-Length: 0"}},
		{"a notification to a client of streams", request("POST", notice("notifications/x"), "Accept: text/event-stream"), 202, "", nil},
		{"a response", request("POST", pong), 202, "", nil},
		{"a refused notification", request("POST", notice("notifications/refused")), 400, refused(-32601, "no such method"), []string{"Content-Type: application/json"}},
		{"a notification is not answered", request("POST", notice("notifications/answered")), 202, "", nil},
		{"a notification that fails", request("POST", notice("notifications/fail")), 500, `{"jsonrpc":"2.0",` + internal, nil},
		{"a session id", request("POST", call("initialize")), 200, pong, []string{"Mcp-Session-Id: session-1", "Content-Type: application/json"}},
		{"a refusal", request("POST", call("refuse")), 404, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}`, nil},
		{"a refusal to a client of streams", request("POST", call("refuse"), "Accept: text/event-stream"), 404, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}`, []string{"Content-Type: application/json"}},
		{"a notification before the answer", request("POST", call("notify")), 200, noted + event + pong + "\n\n", []string{"Content-Type: text/event-stream", "Cache-Control: no-cache", "X-Accel-Buffering: no"}},
		{"a notification to a client of JSON", request("POST", call("notify"), "Accept: application/json"), 200, pong, []string{"Content-Type: application/json"}},
		{"a question", request("POST", call("ask")), 200, event + `{"jsonrpc":"2.0","id":5,"method":"roots/list"}` + "\n\n" + event + pong + "\n\n", nil},
		{"a question to a client of JSON", request("POST", call("ask"), "Accept: application/json"), 200, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"` + errNoStream.Error() + `"}}`, nil},
		{"an answer is the last", request("POST", call("twice")), 200, pong, nil},
		{"an answer of many writes", request("POST", call("big")), 200, noted + event + `{"jsonrpc":"2.0","id":1,"result":{"x":"` + strings.Repeat("x", 3*writeBytes) + `"}}` + "\n\n", nil},
		{"a handler that fails", request("POST", call("fail")), 200, `{"jsonrpc":"2.0","id":1,` + internal, nil},
		{"a handler that says nothing", request("POST", call("silent")), 200, `{"jsonrpc":"2.0","id":1,` + internal, nil},
		{"a handler that panics", request("POST", call("panic")), 200, `{"jsonrpc":"2.0","id":1,` + internal, nil},
		{"a handler that panics on a stream", request("POST", call("late panic")), 200, noted + event + `{"jsonrpc":"2.0","id":1,` + internal + "\n\n", nil},
		// GET and DELETE
		{"no stream is offered", request("GET", "", "Accept: text/event-stream"), 405, refused(-32601, "no such method"), []string{"Allow: GET, POST, DELETE"}},
		{"GET that takes no stream", request("GET", "", "Accept: application/json"), 406, refused(-32600, "Accept must allow text/event-stream"), nil},
		{"the end of a session", request("DELETE", "", "Mcp-Session-Id: session-1"), 204, "", []string{"Content-Type:"}},
		{"the end of an unknown session", request("DELETE", "", "Mcp-Session-Id: nope"), 404, refused(-32601, "no such method"), nil},
		{"an end that fails", request("DELETE", "", "Mcp-Session-Id: fail"), 500, refused(-32603, "internal error of navra"), nil},
		{"an end that panics", request("DELETE", "", "Mcp-Session-Id: panic"), 500, refused(-32603, "internal error of navra"), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(New(options(&fake{})))
			defer srv.Close()
			got := send(t, srv, tt.raw)
			if got.status != tt.status {
				t.Errorf("status %d, want %d", got.status, tt.status)
			}
			if diff := cmp.Diff(tt.body, got.body); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			for _, h := range tt.headers {
				name, want, _ := strings.Cut(h, ":")
				if have := got.header.Get(name); have != strings.TrimSpace(want) {
					t.Errorf("header %s is %q, want %q", name, have, strings.TrimSpace(want))
				}
			}
		})
	}
}

func TestHostsWhereNotOnLoopback(t *testing.T) {
	for _, tt := range []struct {
		name    string
		allowed []string
		headers []string
		want    int
	}{
		{"any host where none is named", nil, []string{"Host: anything.example"}, 200},
		{"a named host with any port", []string{"a.example"}, []string{"Host: A.example:99"}, 200},
		{"a named host and port", []string{"a.example:99"}, []string{"Host: a.example:99"}, 200},
		{"a named host with another port", []string{"a.example:99"}, []string{"Host: a.example:98"}, 403},
		{"another host", []string{"a.example"}, []string{"Host: b.example"}, 403},
		{"loopback is another host too", []string{"a.example"}, []string{"Host: localhost"}, 403},
		{"no origin is its own", nil, []string{"Host: localhost", "Origin: http://localhost"}, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options(&fake{})
			o.Loopback, o.AllowedHosts = false, tt.allowed
			srv := httptest.NewServer(New(o))
			defer srv.Close()
			if got := send(t, srv, request("POST", ping, tt.headers...)); got.status != tt.want {
				t.Errorf("status %d, want %d", got.status, tt.want)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	o := options(&fake{})
	o.MaxMessage, o.Challenge = 0, ""
	srv := httptest.NewServer(New(o))
	defer srv.Close()
	if got := send(t, srv, request("POST", ping, "Authorization:")); got.header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("challenge %q, want Bearer", got.header.Get("WWW-Authenticate"))
	}
	body := ping + strings.Repeat(" ", DefaultMaxMessage-len(ping))
	if got := send(t, srv, request("POST", body)); got.status != 200 {
		t.Errorf("status %d at the default limit", got.status)
	}
	if got := send(t, srv, request("POST", "", fmt.Sprintf("Content-Length: %d", DefaultMaxMessage+1))); got.status != 413 {
		t.Errorf("status %d over the default limit, want 413", got.status)
	}
}

func TestInbound(t *testing.T) {
	f := &fake{}
	srv := httptest.NewServer(New(options(f)))
	defer srv.Close()
	send(t, srv, request("POST", ping, "mcp-session-id: s", "MCP-Protocol-Version: 2025-11-25", "mcp-method: ping", "Mcp-Name: a", "MCP-NAME: b", "mcp-param-x: 1", "Cookie: c", "Traceparent: t"))
	got := f.saw()
	if len(got) != 1 {
		t.Fatalf("%d messages were handed over, want 1", len(got))
	}
	want := http.Header{"Mcp-Protocol-Version": {"2025-11-25"}, "Mcp-Method": {"ping"}, "Mcp-Name": {"a", "b"}, "Mcp-Param-X": {"1"}}
	if diff := cmp.Diff(want, got[0].Header); diff != "" {
		t.Errorf("Header (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(http.Header{"Traceparent": {"t"}}, got[0].Trace); diff != "" {
		t.Errorf("Trace (-want +got):\n%s", diff)
	}
	if in := got[0]; in.Transport != mcp.HTTP || in.Session != "s" || in.Conn != "" || in.Msg.Method != "ping" || in.Fault != nil {
		t.Errorf("handed over %+v", in)
	}
}

// TestRefusedBodiesAreNotAwaited sends headers alone: the refusal must not need the body.
func TestRefusedBodiesAreNotAwaited(t *testing.T) {
	for name, headers := range map[string][]string{
		"unproven": {"Authorization:"}, "too long": {"Content-Length: 5000"}, "no JSON": {"Content-Type: text/plain"}, "foreign": {"Origin: null"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			srv := httptest.NewServer(New(options(f)))
			defer srv.Close()
			headers := append(headers, "Expect: 100-continue")
			if !slices.Contains(headers, "Content-Length: 5000") {
				headers = append(headers, "Content-Length: 50")
			}
			if got := send(t, srv, request("POST", "", headers...)); got.status < 400 {
				t.Errorf("status %d: the body was asked for", got.status)
			}
			for _, in := range f.saw() {
				if in.Fault == nil {
					t.Errorf("%+v was handed over", in)
				}
			}
		})
	}
}

// TestWire runs the shared cases that the transport alone decides.
func TestWire(t *testing.T) {
	file, err := os.Open("testdata/wire.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for dec := json.NewDecoder(file); ; {
		var c struct {
			Name   string
			Raw    string
			RawB64 string `json:"raw_b64"`
			Expect struct {
				Kind           string
				ID             json.RawMessage
				Code           int
				Status         []int
				HeadersPresent []string `json:"headers_present"`
			}
			Setup struct{ Auth string }
		}
		if err := dec.Decode(&c); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		t.Run(c.Name, func(t *testing.T) {
			srv := httptest.NewServer(New(options(&fake{})))
			defer srv.Close()
			raw := []byte(c.Raw)
			if c.RawB64 != "" {
				if raw, err = base64.StdEncoding.DecodeString(c.RawB64); err != nil {
					t.Fatal(err)
				}
			}
			credential := "\r\nAuthorization: Bearer good\r\nConnection: close"
			if c.Setup.Auth == "bearer" {
				credential = "\r\nConnection: close"
			}
			raw = bytes.Replace(raw, []byte("\r\nConnection: close"), []byte(credential), 1)
			raw = bytes.ReplaceAll(raw, []byte("{{HOST}}"), []byte("127.0.0.1:8420"))
			raw = bytes.ReplaceAll(raw, []byte("{{SESSION}}"), []byte("session-1"))
			got := send(t, srv, string(raw))
			if !slices.Contains(c.Expect.Status, got.status) {
				t.Errorf("status %d, want one of %v", got.status, c.Expect.Status)
			}
			for _, h := range c.Expect.HeadersPresent {
				if got.header.Get(h) == "" {
					t.Errorf("no %s header", h)
				}
			}
			if c.Expect.Kind == "none" {
				if got.body != "" {
					t.Errorf("body %q, want none", got.body)
				}
				return
			}
			var m struct {
				ID            json.RawMessage
				Result, Error json.RawMessage
			}
			if err := json.Unmarshal([]byte(got.body), &m); err != nil {
				t.Fatalf("body %q: %v", got.body, err)
			}
			var rpc struct{ Code int }
			_ = json.Unmarshal(m.Error, &rpc) // absent in results
			if c.Expect.Kind == "result" && (m.Result == nil || !bytes.Equal(m.ID, c.Expect.ID)) || c.Expect.Kind == "error" && m.Error == nil || c.Expect.Code != 0 && rpc.Code != c.Expect.Code {
				t.Errorf("body %s, want %s %d with id %s", got.body, c.Expect.Kind, c.Expect.Code, c.Expect.ID)
			}
		})
	}
}
