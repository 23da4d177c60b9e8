package chokepoint

import (
	"slices"
	"strings"

	"navra/internal/catalogue"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// params builds what goes on from what a client sent: the name is the upstream's own, arguments are an object, and members
// that belong to the hop between client and navra are gone, its trace context too: carry puts in what goes on.
func params(m jsonrpc.Message, it catalogue.Item) jsonrpc.Raw {
	v := m.Params
	key := "name"
	if it.Topic == mcp.Resource || it.Topic == mcp.Template {
		key = "uri"
	}
	if m.Method == mcp.Complete {
		ref, _ := v.Get("ref")
		v = v.With("ref", ref.With(key, jsonrpc.Quote(it.Name)))
	} else {
		v = v.With(key, jsonrpc.Quote(it.Name))
	}
	if it.Topic == mcp.Tool {
		if args, ok := v.Get("arguments"); !ok || args.IsNull() {
			v = v.With("arguments", jsonrpc.Raw("{}"))
		}
	}
	for _, hop := range []string{"task", "inputResponses", "requestState"} {
		v = v.Without(hop)
	}
	return withoutMeta(v, "progressToken", mcp.TraceParent, mcp.TraceState, mcp.Baggage)
}

// withoutMeta takes the protocol's and navra's own keys out of _meta, and the named ones; an empty _meta goes too.
func withoutMeta(v jsonrpc.Raw, names ...string) jsonrpc.Raw {
	meta, ok := v.Get("_meta")
	if !ok {
		return v
	}
	if !meta.IsObject() {
		return v.Without("_meta")
	}
	o, kept := new(jsonrpc.Object), 0
	for k, e := range meta.Members() {
		if !strings.HasPrefix(k, mcp.Meta) && !strings.HasPrefix(k, mcp.Own) && !slices.Contains(names, k) {
			o.Raw(k, e)
			kept++
		}
	}
	if kept == 0 {
		return v.Without("_meta")
	}
	return v.With("_meta", o.Done())
}

// outgoing puts navra's own progress token in, where the client asked for progress.
func (c *clearance) outgoing(v jsonrpc.Raw) jsonrpc.Raw {
	if v = c.tasked(v); c.token == nil || c.lane.upstream == Self || c.task != nil {
		return v
	}
	meta, _ := v.Get("_meta")
	return v.With("_meta", meta.With("progressToken", c.id.Raw()))
}
