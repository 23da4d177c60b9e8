package main

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// The eras of MCP that the rig speaks.
const (
	stateful  = "stateful"  // 2025-11-25: initialize, Mcp-Session-Id
	stateless = "stateless" // 2026-07-28: each request says its version in _meta
)

const (
	version2025 = "2025-11-25"
	version2026 = "2026-07-28"
	metaVersion = "io.modelcontextprotocol/protocolVersion"
)

// maxBody bounds a message in bytes, for servers and client alike.
const maxBody = 8 << 20

const (
	echoTools  = `{"tools":[{"name":"echo","description":"Say it again","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}]`
	serverInfo = `"serverInfo":{"name":"bench-echo","version":"1"}`
)

// An echo is an MCP server with one tool, echo, that answers with its argument text. It reads of a message only what it
// needs and copies the rest as it stands: as little work as a server can do.
type echo struct {
	era string

	mu       sync.RWMutex
	sessions map[string]bool
}

func newEcho(era string) *echo { return &echo{era: era, sessions: map[string]bool{}} }

// answer appends the answer to a message to out; what is no request has none.
func (e *echo) answer(out, msg []byte) (answer []byte, method []byte) {
	var id, params []byte
	if err := members(msg, func(k, v []byte) {
		switch string(k) {
		case "id":
			id = v
		case "method":
			method = v
		case "params":
			params = v
		}
	}); err != nil {
		return append(out, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`...), nil
	}
	if id == nil || method == nil {
		return out, method
	}
	out = append(out, `{"jsonrpc":"2.0","id":`...)
	out = append(out, id...)
	return append(e.result(out, string(method), params), '}'), method
}

// result appends the result or error of a request.
func (e *echo) result(out []byte, method string, params []byte) []byte {
	var arguments, meta []byte
	members(params, func(k, v []byte) {
		switch string(k) {
		case "arguments":
			arguments = v
		case "_meta":
			meta = v
		}
	})
	if e.era == stateless && string(member(meta, metaVersion)) != `"`+version2026+`"` {
		return append(out, `,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["`+version2026+`"]}}`...)
	}
	more := "}"
	if e.era == stateless {
		more = `,"resultType":"complete"}`
	}
	switch {
	case method == `"tools/call"`:
		text := member(arguments, "text")
		if len(text) == 0 || text[0] != '"' {
			return append(out, `,"error":{"code":-32602,"message":"echo needs the argument text, a string"}`...)
		}
		out = append(out, `,"result":{"content":[{"type":"text","text":`...)
		out = append(out, text...)
		return append(append(out, `}]`...), more...)
	case method == `"tools/list"` && e.era == stateless:
		return append(out, `,"result":`+echoTools+`,"ttlMs":60000,"cacheScope":"public"`+more...)
	case method == `"tools/list"`:
		return append(out, `,"result":`+echoTools+more...)
	case method == `"ping"` && e.era == stateful:
		return append(out, `,"result":{}`...)
	case method == `"initialize"` && e.era == stateful:
		return append(out, `,"result":{"protocolVersion":"`+version2025+`","capabilities":{"tools":{}},`+serverInfo+`}`...)
	case method == `"server/discover"` && e.era == stateless:
		return append(out, `,"result":{"supportedVersions":["`+version2026+`"],"capabilities":{"tools":{}},"ttlMs":60000,"cacheScope":"public",`+serverInfo+more...)
	}
	return append(out, `,"error":{"code":-32601,"message":"Method not found"}`...)
}

// buffers are reused between requests: what garbage collection costs is not what the rig is about.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// ServeHTTP is the Streamable HTTP transport. It answers with JSON and has no stream of its own.
func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPost:
	case http.MethodDelete:
		e.mu.Lock()
		delete(e.sessions, r.Header.Get("Mcp-Session-Id"))
		e.mu.Unlock()
		return
	default:
		http.Error(w, "this server has no stream", http.StatusMethodNotAllowed)
		return
	}
	in, out := buffers.Get().(*[]byte), buffers.Get().(*[]byte)
	defer buffers.Put(in)
	defer buffers.Put(out)
	var err error
	if *in, err = readAll((*in)[:0], r.Body, r.ContentLength); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var method []byte
	*out, method = e.answer((*out)[:0], *in)
	if status, text := e.admit(r, string(method), w.Header()); status != 0 {
		http.Error(w, text, status)
		return
	}
	if len(*out) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(*out)))
	w.Write(*out)
}

// admit checks what the era asks of a request's headers, and makes the session of an initialize. Status 0 is yes.
func (e *echo) admit(r *http.Request, method string, head http.Header) (status int, text string) {
	if e.era == stateless {
		if v := r.Header.Get("Mcp-Protocol-Version"); v != version2026 {
			return http.StatusBadRequest, fmt.Sprintf("MCP-Protocol-Version is %q, want %s", v, version2026)
		}
		if m := r.Header.Get("Mcp-Method"); `"`+m+`"` != method {
			return http.StatusBadRequest, fmt.Sprintf("Mcp-Method is %q, the body says %s", m, method)
		}
		return 0, ""
	}
	if method == `"initialize"` {
		id := rand.Text()
		e.mu.Lock()
		e.sessions[id] = true
		e.mu.Unlock()
		head.Set("Mcp-Session-Id", id)
		return 0, ""
	}
	id := r.Header.Get("Mcp-Session-Id")
	if id == "" {
		return http.StatusBadRequest, "Mcp-Session-Id is missing"
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if !e.sessions[id] {
		return http.StatusNotFound, "there is no such session"
	}
	return 0, ""
}

// serveStdio answers the lines of in until it ends.
func (e *echo) serveStdio(in io.Reader, out io.Writer) error {
	r := bufio.NewReaderSize(in, 256<<10)
	var long, buf []byte
	for {
		line, err := r.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			if long = append(long, line...); len(long) > maxBody {
				return fmt.Errorf("a line is longer than %d bytes", maxBody)
			}
			continue
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if len(long) > 0 {
			long = append(long, line...)
			line = long
		}
		buf, _ = e.answer(buf[:0], line)
		long = long[:0]
		if len(buf) == 0 {
			continue
		}
		if _, err := out.Write(append(buf, '\n')); err != nil {
			return err
		}
	}
}

// readAll appends what r yields to b; n is how much it is said to be, or -1.
func readAll(b []byte, r io.Reader, n int64) ([]byte, error) {
	if n > maxBody {
		return b, fmt.Errorf("a body of %d bytes is longer than %d", n, maxBody)
	}
	if n >= 0 {
		b = append(b, make([]byte, n)...)
		_, err := io.ReadFull(r, b[len(b)-int(n):])
		return b, err
	}
	rest, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err == nil && len(rest) > maxBody {
		err = fmt.Errorf("a body is longer than %d bytes", maxBody)
	}
	return append(b, rest...), err
}
