package chokepoint

import (
	"bytes"

	"navra/internal/blackbox"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// fitting holds a call's arguments, as they are to be sent, against the tool's inputSchema.
func (x *Crossing) fitting() policy.Verdict {
	ok := policy.Allowed(policy.StageSchema)
	it := x.facts.Item
	if it.Topic != mcp.Tool || it.Input == nil || x.asked != mcp.NoQuestion || x.entry.Method != mcp.ToolsCall {
		return ok
	}
	args, _ := x.final.Get("arguments")
	err := it.Input.Check(args)
	if err != nil && it.Input.Check(withoutNulls(args)) == nil {
		err = nil // models write null for what they leave out, and MCP reads it so: 2026-07-28, basic/transports §Custom Headers
	}
	if err != nil {
		return policy.Denied(policy.StageSchema, "the arguments do not fit the tool's inputSchema: "+err.Error())
	}
	return ok
}

// withoutNulls takes out members that are null, at any depth of objects.
func withoutNulls(v jsonrpc.Raw) jsonrpc.Raw {
	if !v.IsObject() {
		return v
	}
	o := new(jsonrpc.Object)
	for name, e := range v.Members() {
		if !e.IsNull() {
			o.Raw(name, withoutNulls(e))
		}
	}
	return o.Done()
}

// keepPromise makes an error of a tool's result that does not hold the structuredContent which its outputSchema promises: because the upstream
// left it out, or because the filter changed it so that it does not fit any more. A client would take it for what it is not.
func (x *Crossing) keepPromise() {
	if it := x.facts.Item; x.failed != nil || it.Topic != mcp.Tool || it.Output == nil {
		return
	}
	if x.result {
		x.final = x.promised(x.body, x.final)
	}
	if was, has := x.body.Get("result"); has && x.inner {
		now, _ := x.final.Get("result")
		x.final = x.final.With("result", x.promised(was, now))
	}
}

// promised is the result of a call that was body, and is final now, as its tool promises it.
func (x *Crossing) promised(body, final jsonrpc.Raw) jsonrpc.Raw {
	it := x.facts.Item
	if kind, has := body.Get("resultType"); has && string(kind) != `"complete"` {
		return final
	}
	_, task := body.Get("task")
	bad, _ := body.Get("isError")
	if task || string(bad) == "true" {
		return final
	}
	structured, has := final.Get("structuredContent")
	was, _ := body.Get("structuredContent")
	text := ""
	switch {
	case !has:
		text = "navra: upstream " + it.Upstream.Name + " left out the structuredContent that the tool's outputSchema promises. " + outcomeText(Ran)
	case !bytes.Equal(structured, was) && it.Output.Check(structured) != nil:
		text = "navra: what was taken out of the structuredContent makes it break the tool's outputSchema; it is left out. " + outcomeText(Ran)
	default:
		return final
	}
	content, _ := final.Get("content")
	blocks := []jsonrpc.Raw{textBlock(text)}
	for e := range content.Elements() {
		blocks = append(blocks, e)
	}
	x.entry.Findings = append(x.entry.Findings, blackbox.Count{Name: "structuredContent missing", N: 1})
	return final.Without("structuredContent").With("content", jsonrpc.Array(blocks...)).With("isError", jsonrpc.Raw("true"))
}
