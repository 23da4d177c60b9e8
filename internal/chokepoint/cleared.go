package chokepoint

import (
	"net/http"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// Bytes is the message in the form of the protocol version that its connection speaks, as one line without a line feed. Besides what was
// judged and recorded it holds constants alone: a request of the stateless era says its version, and what its client can be asked.
func (c Cleared) Bytes(v mcp.Version) []byte {
	if c.c == nil {
		return nil
	}
	m := c.c.body
	if v.Stateless() && m.Kind() == jsonrpc.Request {
		meta, _ := m.Params.Get("_meta")
		meta = orEmpty(meta).With(mcp.Meta+"protocolVersion", jsonrpc.Quote(string(v)))
		meta = meta.With(mcp.Meta+"clientCapabilities", c.c.caps.Object(v)).With(mcp.Meta+"clientInfo", ServerInfo(c.c.by.version))
		if level := c.c.from.Level; level != 0 {
			meta = meta.With(mcp.Meta+"logLevel", jsonrpc.Quote(level.String()))
		}
		m.Params = orEmpty(m.Params).With("_meta", meta)
	}
	if r := c.c.retry; r != nil && r.parked == "" && v.Stateless() {
		m.Params = m.Params.With("inputResponses", r.inputs).With("requestState", r.upstream)
	}
	if v < mcp.V20250618 && m.Method == mcp.Complete {
		m.Params = m.Params.Without("context")
	}
	return m.Append(nil)
}

// Answers is the id of the upstream's request that the message answers; zero for none.
func (c Cleared) Answers() jsonrpc.ID {
	if c.c == nil || c.c.body.Kind() != jsonrpc.Response {
		return jsonrpc.ID{}
	}
	return c.c.body.ID
}

// Header is what mirrors the message in HTTP headers, in that version: its trace context in all of them. MCP 2026-07-28,
// basic/transports §Standard Request Headers.
func (c Cleared) Header(v mcp.Version) http.Header {
	if c.c == nil {
		return nil
	}
	h := c.c.traceHeader()
	if !v.Stateless() || c.c.body.Kind() != jsonrpc.Request {
		return h
	}
	if h == nil {
		h = http.Header{}
	}
	h[mcp.HeaderMethod] = []string{c.Method}
	if name, ok := mcp.MirroredName(c.c.body); ok {
		h[mcp.HeaderName] = []string{mcp.EncodeHeader(name)}
	}
	if it := c.c.x.facts.Item; it.Topic == mcp.Tool {
		schema, _ := it.Definition.Get("inputSchema")
		args, _ := c.c.body.Params.Get("arguments")
		params, err := mcp.MirroredParams(schema)
		if err != nil { // the tool was listed by an upstream of the stateful era, where it means nothing
			params = nil
		}
		for _, p := range params {
			if value, ok := p.Value(args); ok {
				h[p.Header] = []string{mcp.EncodeHeader(value)}
			}
		}
	}
	return h
}
