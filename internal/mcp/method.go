package mcp

import (
	"slices"

	"navra/internal/jsonrpc"
)

// A Topic says what a method is about, and so what policy looks at. The zero Topic is unknown: refused.
type Topic uint8

// The topics of methods.
const (
	Unknown      Topic = iota
	Lifecycle          // initialize, server/discover, ping: navra answers
	List               // what there is: navra answers from the catalogue
	Tool               // tools/call
	Prompt             // prompts/get
	Resource           // resources/read
	Template           // a family of resources: what completion may be asked for
	Subscription       // subscriptions/listen: each of its URIs is judged as a resource
	Task               // tasks/get and the like: judged as the tool whose call the task is
)

func (t Topic) String() string {
	return [...]string{"unknown", "lifecycle", "list", "tool", "prompt", "resource", "template", "subscription", "task"}[t]
}

// Crosses reports whether a request of this topic goes on to an upstream.
func (t Topic) Crosses() bool {
	return t == Tool || t == Prompt || t == Resource || t == Template || t == Task
}

// The methods and notifications that navra handles, by the names the specification gives them.
const (
	Initialize    = "initialize"
	Discover      = "server/discover"
	Ping          = "ping"
	ToolsList     = "tools/list"
	PromptsList   = "prompts/list"
	ResourcesList = "resources/list"
	TemplatesList = "resources/templates/list"
	ToolsCall     = "tools/call"
	PromptsGet    = "prompts/get"
	ResourcesRead = "resources/read"
	Subscribe     = "resources/subscribe"
	Unsubscribe   = "resources/unsubscribe"
	Complete      = "completion/complete"
	SetLevel      = "logging/setLevel"
	Listen        = "subscriptions/listen"

	Initialized      = "notifications/initialized"
	Cancelled        = "notifications/cancelled"
	Progress         = "notifications/progress"
	Logging          = "notifications/message"
	ToolsChanged     = "notifications/tools/list_changed"
	PromptsChanged   = "notifications/prompts/list_changed"
	ResourcesChanged = "notifications/resources/list_changed"
	ResourceUpdated  = "notifications/resources/updated"
	RootsChanged     = "notifications/roots/list_changed"
	Elicited         = "notifications/elicitation/complete"
	Acknowledged     = "notifications/subscriptions/acknowledged"
)

// Meta is the prefix of the protocol's own keys in _meta; Own is the prefix of navra's.
const (
	Meta = "io.modelcontextprotocol/"
	Own  = "dev.navra/"
)

type method struct {
	topic    Topic
	stateful bool // exists up to 2025-11-25
	current  bool // exists in 2026-07-28
	key      string
}

var methods = map[string]method{
	Initialize:    {Lifecycle, true, false, ""},
	Discover:      {Lifecycle, false, true, ""},
	Ping:          {Lifecycle, true, false, ""},
	ToolsList:     {List, true, true, ""},
	PromptsList:   {List, true, true, ""},
	ResourcesList: {List, true, true, ""},
	TemplatesList: {List, true, true, ""},
	ToolsCall:     {Tool, true, true, "name"},
	PromptsGet:    {Prompt, true, true, "name"},
	ResourcesRead: {Resource, true, true, "uri"},
	Subscribe:     {Resource, true, false, "uri"},
	Unsubscribe:   {Resource, true, false, "uri"},
	Complete:      {Prompt, true, true, ""},
	Listen:        {Subscription, false, true, ""},
	SetLevel:      {Lifecycle, true, false, ""},
	TasksGet:      {Task, true, true, "taskId"},
	TasksResult:   {Task, true, false, "taskId"},
	TasksCancel:   {Task, true, true, "taskId"},
	TasksUpdate:   {Task, false, true, "taskId"},
	TasksList:     {List, true, false, ""},
}

// in reports whether v has the method of that name.
func (d method) in(name string, v Version) bool {
	if v.Stateless() {
		return d.current
	}
	return d.stateful && (!IsTask(name) || v >= V20251125)
}

// A Subject is what a request is about.
type Subject struct {
	Topic Topic
	Name  string // public tool or prompt name, URI, or id of a task; "" for the other topics
}

// SubjectOf returns what a client's request is about under version v. The error is what the client is to be answered:
// -32601 for a method that does not exist in v or is not there, -32602 for params that do not fit it.
func SubjectOf(m jsonrpc.Message, v Version) (Subject, *jsonrpc.Error) {
	d, ok := methods[m.Method]
	if !ok || !d.in(m.Method, v) {
		return Subject{}, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}
	}
	switch {
	case m.Method == SetLevel:
		raw, _ := m.Params.Get("level")
		name, _ := raw.Text()
		if _, ok := ParseLevel(name); !ok {
			return Subject{}, invalid("level is no log level")
		}
		return Subject{Topic: d.topic}, nil
	case m.Method == Complete:
		return completes(m.Params)
	case m.Method == Listen:
		_, bad := WishOf(m.Params)
		return Subject{Topic: d.topic}, bad
	case d.key == "":
		return Subject{Topic: d.topic}, nil
	}
	if args, ok := m.Params.Get("arguments"); ok && !args.IsObject() && !args.IsNull() {
		return Subject{}, invalid("arguments must be an object")
	}
	raw, _ := m.Params.Get(d.key)
	name, ok := raw.Text()
	if !ok {
		return Subject{}, invalid(d.key + " must be a string")
	}
	return Subject{Topic: d.topic, Name: name}, nil
}

// MirroredName returns the params member that the Mcp-Name header of a method mirrors, and whether there is one.
func MirroredName(m jsonrpc.Message) (string, bool) {
	d := methods[m.Method]
	if d.key == "" || !d.current { // what is not there needs no headers
		return "", false
	}
	raw, _ := m.Params.Get(d.key)
	s, ok := raw.Text()
	return s, ok
}

// Methods returns the names of the request methods that exist in v, sorted.
func Methods(v Version) (names []string) {
	for name, d := range methods {
		if d.in(name, v) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// IsMethod reports whether any era that navra speaks has the request method.
func IsMethod(name string) bool { _, ok := methods[name]; return ok }

func invalid(text string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Invalid params: " + text}
}

// CapabilityOf names the capability of a server without which a client's method is not there, with a slash before a member of it; "" for the others.
func CapabilityOf(method string) string {
	switch method {
	case Complete:
		return "completions"
	case SetLevel:
		return "logging"
	case Subscribe, Unsubscribe:
		return SubscribeCapability
	}
	return ""
}

// completes returns what a completion is about. MCP 2025-11-25, server/utilities/completion.
func completes(params jsonrpc.Raw) (Subject, *jsonrpc.Error) {
	raw, _ := params.Get("ref", "type")
	kind, _ := raw.Text()
	topic, key := Prompt, "name"
	switch kind {
	case "ref/prompt":
	case "ref/resource":
		topic, key = Template, "uri"
	default:
		return Subject{}, invalid("ref is neither ref/prompt nor ref/resource")
	}
	raw, _ = params.Get("ref", key)
	name, ok := raw.Text()
	if !ok {
		return Subject{}, invalid("ref." + key + " must be a string")
	}
	for _, member := range []string{"name", "value"} {
		raw, _ := params.Get("argument", member)
		if _, ok := raw.Text(); !ok {
			return Subject{}, invalid("argument." + member + " must be a string")
		}
	}
	return Subject{Topic: topic, Name: name}, nil
}
