package mcp

import (
	"strings"

	"navra/internal/jsonrpc"
)

// Capabilities is the set of what a client says it can be asked. The zero value is nothing. It is comparable.
type Capabilities uint16

// What a client may be asked. MCP 2025-11-25 and 2026-07-28, schema: ClientCapabilities.
const (
	CanSample Capabilities = 1 << iota
	CanSampleContext
	CanSampleTools
	CanElicit    // with a form
	CanElicitURL // by opening a URL
	CanListRoots
	CanTellRoots // that the roots have changed; stateful era
	CanTask      // it takes a task in the place of a result; an extension of the stateless era
)

// capabilityNames are how a set is written in sealed ids; order and letters are never changed.
var capabilityNames = []struct {
	letter byte
	bit    Capabilities
}{
	{'s', CanSample}, {'c', CanSampleContext}, {'t', CanSampleTools}, {'e', CanElicit}, {'u', CanElicitURL}, {'r', CanListRoots}, {'l', CanTellRoots}, {'k', CanTask},
}

// CapabilitiesOf reads a ClientCapabilities object as a client of version v means it: what the version does not know is not there.
func CapabilitiesOf(o jsonrpc.Raw, v Version) (c Capabilities) {
	has := func(path ...string) bool {
		m, ok := o.Get(path...)
		return ok && (m.IsObject() || string(m) == "true")
	}
	if has("sampling") {
		c |= CanSample
		if v >= V20251125 && has("sampling", "context") {
			c |= CanSampleContext
		}
		if v >= V20251125 && has("sampling", "tools") {
			c |= CanSampleTools
		}
	}
	if v >= V20250618 && has("elicitation") {
		url := v >= V20251125 && has("elicitation", "url")
		if url {
			c |= CanElicitURL
		}
		if has("elicitation", "form") || !url { // {} means forms alone
			c |= CanElicit
		}
	}
	if has("roots") {
		c |= CanListRoots
		if !v.Stateless() && has("roots", "listChanged") {
			c |= CanTellRoots
		}
	}
	if v.Stateless() && has("extensions", TaskExtension) {
		c |= CanTask
	}
	return c
}

// Object is the ClientCapabilities object of c in version v.
func (c Capabilities) Object(v Version) jsonrpc.Raw {
	o, empty := new(jsonrpc.Object), jsonrpc.Raw("{}")
	if c&CanListRoots != 0 {
		roots := new(jsonrpc.Object)
		if c&CanTellRoots != 0 && !v.Stateless() {
			roots.Bool("listChanged", true)
		}
		o.Raw("roots", roots.Done())
	}
	if c&CanSample != 0 {
		inner := new(jsonrpc.Object)
		if v >= V20251125 && c&CanSampleContext != 0 {
			inner.Raw("context", empty)
		}
		if v >= V20251125 && c&CanSampleTools != 0 {
			inner.Raw("tools", empty)
		}
		o.Raw("sampling", inner.Done())
	}
	if v >= V20250618 && c&(CanElicit|CanElicitURL) != 0 {
		inner := new(jsonrpc.Object)
		if v >= V20251125 && c&CanElicitURL != 0 {
			if c&CanElicit != 0 {
				inner.Raw("form", empty)
			}
			inner.Raw("url", empty)
		}
		if c&CanElicit != 0 || v >= V20251125 {
			o.Raw("elicitation", inner.Done())
		}
	}
	if c&CanTask != 0 && v.Stateless() {
		o.Raw("extensions", new(jsonrpc.Object).Raw(TaskExtension, empty).Done())
	}
	return o.Done()
}

// String writes c as letters; ParseCapabilities reads them.
func (c Capabilities) String() string {
	var b strings.Builder
	for _, n := range capabilityNames {
		if c&n.bit != 0 {
			b.WriteByte(n.letter)
		}
	}
	return b.String()
}

// ParseCapabilities reads what String wrote. Letters that it does not know add nothing.
func ParseCapabilities(s string) (c Capabilities) {
	for _, n := range capabilityNames {
		if strings.IndexByte(s, n.letter) >= 0 {
			c |= n.bit
		}
	}
	return c
}
