package catalogue

import (
	"fmt"
	"regexp"
	"time"

	"github.com/yosida95/uritemplate/v3"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/schema"
)

// A Listing is what one upstream said of itself to one principal: its handshake and its complete lists, as released.
// It is never written after it was made. The zero Listing offers nothing.
type Listing struct {
	Version      mcp.Version
	Capabilities jsonrpc.Raw
	Instructions string
	Tools        []jsonrpc.Raw
	Prompts      []jsonrpc.Raw
	Resources    []jsonrpc.Raw
	Templates    []jsonrpc.Raw
	Hints        map[mcp.Topic]Hint // of the lists as they were read; not kept
}

// A Hint says how long a list may be used, and by whom. The zero Hint: it is out of date already, and one principal's alone.
type Hint struct {
	Until  time.Time
	Public bool
}

// Encode writes l for the store.
func (l Listing) Encode() []byte {
	o := new(jsonrpc.Object).Text("version", string(l.Version)).Raw("capabilities", l.Capabilities).Text("instructions", l.Instructions)
	o.Raw("tools", jsonrpc.Array(l.Tools...)).Raw("prompts", jsonrpc.Array(l.Prompts...)).Raw("resources", jsonrpc.Array(l.Resources...))
	o.Raw("templates", jsonrpc.Array(l.Templates...))
	return o.Done()
}

// Decode reads what Encode wrote.
func Decode(b []byte) (Listing, error) {
	v, err := jsonrpc.ParseValue(b)
	if err != nil {
		return Listing{}, fmt.Errorf("kept catalogue: %w", err)
	}
	text := func(name string) string {
		raw, _ := v.Get(name)
		s, _ := raw.Text()
		return s
	}
	list := func(name string) (out []jsonrpc.Raw) {
		raw, _ := v.Get(name)
		for e := range raw.Elements() {
			out = append(out, e)
		}
		return out
	}
	l := Listing{Version: mcp.Version(text("version")), Instructions: text("instructions")}
	l.Capabilities, _ = v.Get("capabilities")
	l.Tools, l.Prompts, l.Resources, l.Templates = list("tools"), list("prompts"), list("resources"), list("templates")
	return l, nil
}

// A Left is a definition that was left out, and why.
type Left struct {
	Upstream, Name, Why string
}

// items turns l into items of u. Definitions that hosts could not use are left out singly: hosts else drop all of that
// server's tools.
func (l Listing) items(u *Upstream, maxName int, compile compiler) (items []Item, left []Left) {
	compile = compile.within(maxSchemaBytes)
	for _, kind := range []struct {
		topic mcp.Topic
		key   string
		defs  []jsonrpc.Raw
	}{{mcp.Tool, "name", l.Tools}, {mcp.Prompt, "name", l.Prompts}, {mcp.Resource, "uri", l.Resources}, {mcp.Template, "uriTemplate", l.Templates}} {
		seen, room := map[string]bool{}, maxTemplates
		for _, def := range kind.defs {
			raw, _ := def.Get(kind.key)
			name, _ := raw.Text()
			why := l.invalid(kind.topic, name, def, seen)
			var template *regexp.Regexp
			if why == "" && kind.topic == mcp.Template {
				if room -= len(name); room < 0 {
					why = fmt.Sprintf("the templates have more than %d bytes together", maxTemplates)
				} else if template = expansions(name); template == nil {
					why = "it is no URI template"
				}
			}
			var input, output *schema.Schema
			if why == "" && kind.topic == mcp.Tool {
				input, output, why = compile.ofTool(def)
			}
			if why != "" {
				left = append(left, Left{u.Name, name, why})
				continue
			}
			seen[name] = true
			it := Item{Topic: kind.topic, Upstream: u, Name: name, Public: name, Class: classOf(u, kind.topic, name, def), Definition: def, Input: input, Output: output, template: template}
			switch kind.topic {
			case mcp.Tool, mcp.Prompt:
				it.Public = publicName(u, name, maxName)
				it.Definition = def.With("name", jsonrpc.Quote(it.Public))
			}
			items = append(items, it)
		}
	}
	return items, left
}

// invalid says why a definition is left out, "" where it is not.
func (l Listing) invalid(topic mcp.Topic, name string, def jsonrpc.Raw, seen map[string]bool) string {
	switch {
	case name == "":
		return "it has no name"
	case seen[name]:
		return "its name is given twice"
	case len(seen) >= maxItems:
		return fmt.Sprintf("the list has more than %d items", maxItems)
	case topic != mcp.Tool:
		return ""
	}
	schema, _ := def.Get("inputSchema")
	kind, _ := schema.Get("type")
	if s, _ := kind.Text(); s != "object" {
		return `its inputSchema is missing or not of type "object"`
	}
	if _, err := mcp.MirroredParams(schema); err != nil && l.Version.Stateless() { // before, the member meant nothing
		return err.Error()
	}
	return ""
}

// Bounds in bytes on a URI template, on all of an upstream, and on a URI that is matched with them: an expression takes hundreds of bytes
// for each byte of its template, and time for each of the URI.
const (
	maxTemplate  = 1 << 10
	maxTemplates = 32 << 10
	maxMatched   = 4 << 10
)

// expansions returns an expression for all URIs that a template expands to, nil where it is none. RFC 6570.
func expansions(template string) *regexp.Regexp {
	if len(template) > maxTemplate {
		return nil
	}
	t, err := uritemplate.New(template)
	if err != nil {
		return nil
	}
	return t.Regexp()
}
