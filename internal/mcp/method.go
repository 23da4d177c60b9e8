package mcp

import (
	"slices"

	"navra/internal/jsonrpc"
)

// A Topic says what a method is about, and so what policy looks at. The zero Topic is unknown: refused.
type Topic uint8

// The topics of methods.
const (
	Unknown   Topic = iota
	Lifecycle       // initialize, server/discover, ping: navra answers
	List            // what there is: navra answers from the catalogue
	Tool            // tools/call
	Prompt          // prompts/get
	Resource        // resources/read
	Template        // a family of resources; no method is about one
)

func (t Topic) String() string {
	return [...]string{"unknown", "lifecycle", "list", "tool", "prompt", "resource", "template"}[t]
}

// Crosses reports whether a request of this topic goes on to an upstream.
func (t Topic) Crosses() bool { return t == Tool || t == Prompt || t == Resource }

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
	RootsList     = "roots/list"

	Initialized = "notifications/initialized"
	Cancelled   = "notifications/cancelled"
	Progress    = "notifications/progress"
	Logging     = "notifications/message"
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
}

// A Subject is what a request is about.
type Subject struct {
	Topic Topic
	Name  string // public tool or prompt name, or URI; "" for the other topics
}

// SubjectOf returns what a client's request is about under version v. The error is what the client is to be answered:
// -32601 for a method that does not exist in v or is not there, -32602 for params that do not fit it.
func SubjectOf(m jsonrpc.Message, v Version) (Subject, *jsonrpc.Error) {
	d, ok := methods[m.Method]
	if !ok || (v.Stateless() && !d.current) || (!v.Stateless() && !d.stateful) {
		return Subject{}, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}
	}
	if d.key == "" {
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
	if d.key == "" {
		return "", false
	}
	raw, _ := m.Params.Get(d.key)
	s, ok := raw.Text()
	return s, ok
}

// Methods returns the names of the request methods that exist in v, sorted.
func Methods(v Version) (names []string) {
	for name, d := range methods {
		if v.Stateless() && d.current || !v.Stateless() && d.stateful {
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
