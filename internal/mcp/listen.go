package mcp

import (
	"fmt"

	"navra/internal/jsonrpc"
)

// SubscribeCapability is what a server has that can be asked to tell of a resource's changes.
const SubscribeCapability = "resources/subscribe"

// SubscriptionID is the key in _meta that names the listen which a message belongs to.
const SubscriptionID = Meta + "subscriptionId"

// MaxWatched bounds the resources of one listen, and its tasks.
const MaxWatched = 256

// A Wish is what a subscriptions/listen asks to be told of. MCP 2026-07-28, basic/utilities/subscriptions.
type Wish struct {
	Tools, Prompts, Resources bool     // that the list has changed
	URIs                      []string // resources that change; none twice
	Tasks                     []string // ids of tasks, of the extension; none twice
}

// WishOf reads the params of a subscriptions/listen.
func WishOf(params jsonrpc.Raw) (w Wish, bad *jsonrpc.Error) {
	o, _ := params.Get("notifications")
	if !o.IsObject() {
		return Wish{}, invalid("notifications must be an object")
	}
	for name, to := range map[string]*bool{"toolsListChanged": &w.Tools, "promptsListChanged": &w.Prompts, "resourcesListChanged": &w.Resources} {
		v, has := o.Get(name)
		if has && string(v) != "true" && string(v) != "false" && !v.IsNull() {
			return Wish{}, invalid("notifications." + name + " must be a boolean")
		}
		*to = string(v) == "true"
	}
	if w.URIs, bad = named(o, "resourceSubscriptions"); bad != nil {
		return Wish{}, bad
	}
	if w.Tasks, bad = named(o, "taskIds"); bad != nil {
		return Wish{}, bad
	}
	return w, nil
}

// named reads a list of names in what is asked for.
func named(o jsonrpc.Raw, member string) (names []string, bad *jsonrpc.Error) {
	list, has := o.Get(member)
	if has && !list.IsArray() && !list.IsNull() {
		return nil, invalid("notifications." + member + " must be an array")
	}
	seen := map[string]bool{}
	for e := range list.Elements() {
		name, ok := e.Text()
		if !ok {
			return nil, invalid("notifications." + member + " must hold strings")
		}
		if seen[name] {
			continue
		}
		if seen[name] = true; len(seen) > MaxWatched {
			return nil, invalid(fmt.Sprintf("notifications.%s names more than %d", member, MaxWatched))
		}
		names = append(names, name)
	}
	return names, nil
}

// Has reports whether w asks for the list of a topic.
func (w Wish) Has(t Topic) bool {
	switch t {
	case Tool:
		return w.Tools
	case Prompt:
		return w.Prompts
	case Resource, Template:
		return w.Resources
	}
	return false
}

// Lists reports whether w asks for any list.
func (w Wish) Lists() bool { return w.Tools || w.Prompts || w.Resources }

// Empty reports whether w asks for nothing.
func (w Wish) Empty() bool { return !w.Lists() && len(w.URIs)+len(w.Tasks) == 0 }

// Object is w as a listen and its acknowledgement hold it: only what is asked for.
func (w Wish) Object() jsonrpc.Raw {
	o := new(jsonrpc.Object)
	for _, l := range []struct {
		name string
		on   bool
	}{{"toolsListChanged", w.Tools}, {"promptsListChanged", w.Prompts}, {"resourcesListChanged", w.Resources}} {
		if l.on {
			o.Bool(l.name, true)
		}
	}
	for _, l := range []struct {
		name  string
		names []string
	}{{"resourceSubscriptions", w.URIs}, {"taskIds", w.Tasks}} {
		var list []jsonrpc.Raw
		for _, name := range l.names {
			list = append(list, jsonrpc.Quote(name))
		}
		if len(list) > 0 {
			o.Raw(l.name, jsonrpc.Array(list...))
		}
	}
	return o.Done()
}

// ListTopic is the topic of what a list method lists; Unknown for other methods.
func ListTopic(method string) Topic {
	switch method {
	case ToolsList:
		return Tool
	case PromptsList:
		return Prompt
	case ResourcesList:
		return Resource
	case TemplatesList:
		return Template
	}
	return Unknown
}
