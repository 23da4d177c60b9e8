package chokepoint

import (
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// What came into definitions after a revision: a client of that revision is not given it. Some check strictly.
var newer = map[mcp.Version][]string{
	mcp.V20250326: {"title", "outputSchema", "icons", "execution"},
	mcp.V20250618: {"icons", "execution"},
	mcp.V20251125: {},
	mcp.V20260728: {"execution"}, // of the stateful era alone
}

// definition gives a definition the form of a client's version. MCP 2025-06-18, 2025-11-25 and 2026-07-28, changelogs.
func definition(def jsonrpc.Raw, v mcp.Version) jsonrpc.Raw {
	for _, name := range newer[v] {
		def = def.Without(name)
	}
	if kind, _ := def.Get("outputSchema", "type"); !v.Stateless() && string(kind) != `"object"` {
		def = def.Without("outputSchema") // before 2026-07-28 it is an object's
	}
	return def
}

// result gives a result the form of a client's version: what only the stateless era has is not given to others, and what is younger
// than the version is given as text.
func result(r jsonrpc.Raw, v mcp.Version, method string) jsonrpc.Raw {
	if method != mcp.TasksGet { // whose questions were judged one by one
		r = withoutAsking(r)
	}
	if v.Stateless() {
		return r
	}
	r = r.Without("resultType")
	if method == mcp.ResourcesRead {
		r = r.Without("ttlMs").Without("cacheScope")
	}
	if method != mcp.ToolsCall && method != mcp.PromptsGet {
		return r
	}
	structured, has := r.Get("structuredContent")
	if has && (v == mcp.V20250326 || !structured.IsObject()) {
		r = r.Without("structuredContent")
		if content, _ := r.Get("content"); firstOf(content) == nil {
			r = r.With("content", jsonrpc.Array(textBlock(string(structured))))
		}
	}
	if v != mcp.V20250326 {
		return r
	}
	if content, ok := r.Get("content"); ok && content.IsArray() {
		r = r.With("content", mapElements(content, linkAsText))
	}
	if messages, ok := r.Get("messages"); ok && messages.IsArray() {
		r = r.With("messages", mapElements(messages, func(m jsonrpc.Raw) jsonrpc.Raw {
			if c, ok := m.Get("content"); ok {
				return m.With("content", linkAsText(c))
			}
			return m
		}))
	}
	return r
}

// withoutAsking takes out what only a result that asks may have: some clients answer it whatever the result says of itself, and nobody would have
// judged the questions. Some servers leave it in results of the stateful era.
func withoutAsking(r jsonrpc.Raw) jsonrpc.Raw {
	for name := range r.Members() {
		if name == "inputRequests" || name == "requestState" {
			return r.Without("inputRequests").Without("requestState")
		}
	}
	return r
}

// linkAsText makes text of a link to a resource, which 2025-03-26 does not know.
func linkAsText(block jsonrpc.Raw) jsonrpc.Raw {
	if kind, _ := block.Get("type"); string(kind) != `"resource_link"` {
		return block
	}
	raw, _ := block.Get("name")
	name, _ := raw.Text()
	raw, _ = block.Get("uri")
	uri, _ := raw.Text()
	return textBlock(name + " " + uri)
}

func textBlock(s string) jsonrpc.Raw {
	return new(jsonrpc.Object).Text("type", "text").Text("text", s).Done()
}

func firstOf(list jsonrpc.Raw) jsonrpc.Raw {
	for e := range list.Elements() {
		return e
	}
	return nil
}

func mapElements(list jsonrpc.Raw, f func(jsonrpc.Raw) jsonrpc.Raw) jsonrpc.Raw {
	var out []jsonrpc.Raw
	for e := range list.Elements() {
		out = append(out, f(e))
	}
	return jsonrpc.Array(out...)
}
