// Package catalogue holds the facts that decide about a call: what an upstream offers, under which public name, in which
// class and with which label. Facts come from lists that the chokepoint released and from the operator's word, from
// nowhere else. It knows no policy and no connection.
package catalogue

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	"github.com/yosida95/uritemplate/v3"

	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/schema"
)

// An Upstream is the operator's word on one upstream. It is never written after it was made.
type Upstream struct {
	Name    string // canonical: the key in the configuration
	Bare    bool   // public names carry no prefix
	Label   ifc.Level
	Classes map[string]ifc.Class // by tool name
	Root    string               // absolute; "" for none: what roots/list is answered with
	Folder  string               // absolute: what relative paths in arguments count from
	Kept    string               // key of what is kept from the last run: changes with the command
	Shared  bool                 // all principals use one connection, and see what it lists
}

// An Item is one thing that an upstream offers.
type Item struct {
	Topic      mcp.Topic // Tool, Prompt, Resource or Template
	Upstream   *Upstream
	Name       string // the upstream's name, or the URI, or its template
	Public     string // what clients see; a URI is public as it is
	Class      ifc.Class
	Definition jsonrpc.Raw // as clients see it

	Input    *schema.Schema // of a tool: what its arguments have to fit
	Output   *schema.Schema // of a tool: what its structuredContent has to fit; nil: it promises none
	template *regexp.Regexp // of a template: what it expands to
	rank     int            // of its upstream, in the operator's order
}

// Canonical is the item's name inside navra: upstream/name; a URI for a resource.
func (it Item) Canonical() string {
	if it.Topic == mcp.Resource || it.Topic == mcp.Template {
		return it.Name
	}
	return it.Upstream.Name + "/" + it.Name
}

// Label is the label of what the item answers.
func (it Item) Label() ifc.Label { return ifc.Of(it.Upstream.Name, it.Upstream.Label) }

// Limits on names: what model APIs take, and what is left when hosts add a prefix of their own.
const (
	maxBareName    = 64
	DefaultMaxName = 50
	maxItems       = 10_000 // a list of one kind
	reserved       = "navra_"
)

// publicName returns the name that clients see: legal, short enough, and the same at each start.
func publicName(u *Upstream, name string, prefixed int) string {
	limit, public := maxBareName, name
	if !u.Bare {
		limit, public = prefixed, u.Name+"__"+name
	}
	legal := strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return r
		}
		return '_'
	}, public)
	if legal == public && len(public) <= limit && !strings.HasPrefix(public, reserved) {
		return public
	}
	sum := sha256.Sum256([]byte(public))
	suffix := "_" + hex.EncodeToString(sum[:4])
	if strings.HasPrefix(legal, reserved) {
		legal = "x_" + legal
	}
	return legal[:min(len(legal), limit-len(suffix))] + suffix
}

// classOf returns the class of an item: the operator's word for tools, read for resources and for prompts that take no address.
func classOf(u *Upstream, topic mcp.Topic, name string, definition jsonrpc.Raw) ifc.Class {
	switch topic {
	case mcp.Tool:
		return u.Classes[name]
	case mcp.Prompt:
		args, _ := definition.Get("arguments")
		for a := range args.Elements() {
			raw, _ := a.Get("name")
			if n, _ := raw.Text(); namesAddress(n) {
				return ifc.Egress
			}
		}
		return ifc.Read
	case mcp.Template:
		if t, err := uritemplate.New(name); err != nil || slices.ContainsFunc(t.Varnames(), namesAddress) {
			return ifc.Egress
		}
		return ifc.Read
	case mcp.Resource:
		return ifc.Read
	}
	return ifc.Unclassified
}

// namesAddress reports whether an argument of that name says where to reach out to.
func namesAddress(argument string) bool {
	n := strings.ToLower(argument)
	return strings.Contains(n, "url") || strings.Contains(n, "uri") || strings.Contains(n, "host")
}
