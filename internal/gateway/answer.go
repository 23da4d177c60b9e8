package gateway

import (
	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// answer makes what navra answers itself: handshakes, ping and lists, from what the chokepoint lets the peer see.
func (g *Gateway) answer(from chokepoint.Peer, view chokepoint.View) jsonrpc.Message {
	m := jsonrpc.Message{ID: from.In.Msg.ID}
	switch from.In.Msg.Method {
	case mcp.Initialize:
		m.Result = g.initialized(from, view)
	case mcp.Discover:
		m.Result = g.discovered(from, view)
	case mcp.ToolsList:
		list(&m, from, "tools", view.Definitions(mcp.Tool))
	case mcp.PromptsList:
		list(&m, from, "prompts", view.Definitions(mcp.Prompt))
	case mcp.ResourcesList:
		list(&m, from, "resources", view.Definitions(mcp.Resource))
	case mcp.TemplatesList:
		list(&m, from, "resourceTemplates", view.Definitions(mcp.Template))
	default:
		m.Result = jsonrpc.Raw("{}")
	}
	return m
}

// list answers with all of a list in one page. navra hands out no cursor, so any that comes is foreign.
func list(m *jsonrpc.Message, from chokepoint.Peer, key string, items []jsonrpc.Raw) {
	if cursor, has := from.In.Msg.Params.Get("cursor"); has && !cursor.IsNull() {
		m.Error = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Invalid params: unknown cursor"}
		return
	}
	m.Result = new(jsonrpc.Object).Raw(key, jsonrpc.Array(items...)).Done()
}

func (g *Gateway) initialized(from chokepoint.Peer, view chokepoint.View) jsonrpc.Raw {
	o := new(jsonrpc.Object).Text("protocolVersion", string(from.Version)).Raw("capabilities", withTasks(capabilities(view), view, from.Version))
	o.Raw("serverInfo", chokepoint.ServerInfo(g.version))
	if view.Instructions != "" {
		o.Text("instructions", view.Instructions)
	}
	return o.Done()
}

func (g *Gateway) discovered(from chokepoint.Peer, view chokepoint.View) jsonrpc.Raw {
	var versions []jsonrpc.Raw
	for _, v := range mcp.Supported() {
		versions = append(versions, jsonrpc.Quote(string(v)))
	}
	o := new(jsonrpc.Object).Raw("supportedVersions", jsonrpc.Array(versions...)).Raw("capabilities", withTasks(capabilities(view), view, from.Version))
	if view.Instructions != "" {
		o.Text("instructions", view.Instructions)
	}
	return o.Done()
}

// capabilities says what is there. navra hears when lists change, or reads them when they are asked for, and tells.
func capabilities(view chokepoint.View) jsonrpc.Raw {
	o := new(jsonrpc.Object)
	for _, c := range []struct {
		topic mcp.Topic
		name  string
	}{{mcp.Tool, "tools"}, {mcp.Resource, "resources"}, {mcp.Prompt, "prompts"}} {
		if !view.Capabilities[c.topic] {
			continue
		}
		inner := new(jsonrpc.Object).Bool("listChanged", true)
		if c.topic == mcp.Resource && view.Offers(mcp.SubscribeCapability) {
			inner.Bool("subscribe", true)
		}
		o.Raw(c.name, inner.Done())
	}
	for _, name := range []string{"completions", "logging"} {
		if view.Offers(name) {
			o.Raw(name, jsonrpc.Raw("{}"))
		}
	}
	return o.Done()
}
