package mcp

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"

	"navra/internal/jsonrpc"
)

// HeaderParam begins the headers that mirror arguments.
const HeaderParam = "Mcp-Param-"

// A Param is an argument that a header mirrors, because the tool's schema says so with x-mcp-header. MCP 2026-07-28,
// basic/transports §Custom Headers from Tool Parameters.
type Param struct {
	Header string   // canonical
	Path   []string // of properties, from the arguments on
	kind   string   // string, integer or boolean
}

// MirroredParams returns the arguments that a tool's inputSchema mirrors. The error says why the schema does so in a way
// that is not valid; such a tool must not be offered.
func MirroredParams(schema jsonrpc.Raw) ([]Param, error) {
	if !strings.Contains(string(schema), "x-mcp-header") {
		return nil, nil
	}
	c := &paramCollector{seen: map[string]bool{}}
	c.properties(schema, nil)
	if c.err == nil && c.count(schema, 0) != len(c.params) {
		c.err = errMirror("x-mcp-header stands where no argument can be told: only properties, one within another, may have it")
	}
	return c.params, c.err
}

type errMirror string

func (e errMirror) Error() string { return string(e) }

type paramCollector struct {
	params []Param
	seen   map[string]bool
	err    error
}

func (c *paramCollector) properties(schema jsonrpc.Raw, path []string) {
	props, _ := schema.Get("properties")
	if !props.IsObject() {
		return
	}
	for name, def := range props.Members() {
		at := append(path[:len(path):len(path)], name)
		if raw, has := def.Get("x-mcp-header"); has {
			c.add(raw, def, at)
		}
		c.properties(def, at)
	}
}

func (c *paramCollector) add(raw, def jsonrpc.Raw, at []string) {
	name, ok := raw.Text()
	kindRaw, _ := def.Get("type")
	kind, _ := kindRaw.Text()
	switch {
	case !ok || !isToken(name):
		c.err = errMirror("x-mcp-header is not a header's name")
	case c.seen[strings.ToLower(name)]:
		c.err = errMirror("x-mcp-header " + name + " is given twice")
	case kind != "string" && kind != "integer" && kind != "boolean":
		c.err = errMirror("x-mcp-header " + name + " stands at a property that is no string, integer or boolean")
	}
	c.seen[strings.ToLower(name)] = true
	c.params = append(c.params, Param{Header: http.CanonicalHeaderKey(HeaderParam + name), Path: at, kind: kind})
}

// count counts the x-mcp-header members of schemas anywhere in v; a property of that name is none.
func (c *paramCollector) count(v jsonrpc.Raw, depth int) (n int) {
	if !v.IsObject() {
		for e := range v.Elements() {
			n += c.count(e, depth+1)
		}
		return n
	}
	for name, e := range v.Members() {
		switch name {
		case "x-mcp-header":
			n++
		case "properties", "$defs", "definitions", "patternProperties", "dependentSchemas":
			for _, def := range e.Members() {
				n += c.count(def, depth+1)
			}
		case "const", "default", "enum", "examples":
		default:
			n += c.count(e, depth+1)
		}
	}
	return n
}

// isToken reports whether s is a token. RFC 9110 §5.6.2.
func isToken(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// maxExact is the largest integer that all JSON readers hold exactly.
const maxExact = 1<<53 - 1

// Value is what mirrors the argument in args; ok is false where it is absent, null, or of another type than the schema says.
func (p Param) Value(args jsonrpc.Raw) (value string, ok bool) {
	v, has := args.Get(p.Path...)
	if !has || v.IsNull() {
		return "", false
	}
	switch p.kind {
	case "string":
		return v.Text()
	case "integer":
		f, err := strconv.ParseFloat(string(v), 64) // 42.0 is one too
		return strconv.FormatInt(int64(f), 10), err == nil && f == float64(int64(f)) && f >= -maxExact && f <= maxExact
	}
	s := string(v)
	return s, s == "true" || s == "false"
}

// Mirrors says how a header, as it came, fails to mirror the argument in args; "" where it does.
func (p Param) Mirrors(head []string, args jsonrpc.Raw) string {
	want, has := p.Value(args)
	switch {
	case !has && len(head) == 0:
		return ""
	case !has:
		return "the " + p.Header + " header mirrors an argument that is not there"
	case len(head) != 1:
		return "the " + p.Header + " header is missing or given twice"
	}
	got, ok := decodeHeader(trim(head[0]))
	if p.kind == "integer" && ok {
		f, err := strconv.ParseFloat(got, 64)
		n, _ := strconv.ParseInt(want, 10, 64)
		ok = err == nil && f == float64(n)
	} else {
		ok = ok && got == want
	}
	if !ok {
		return "the " + p.Header + " header differs from the argument"
	}
	return ""
}

// EncodeHeader writes a value so that a header may carry it: as it is, or in base64 between =?base64? and ?=.
func EncodeHeader(s string) string {
	plain := s == trim(s) && !(strings.HasPrefix(s, "=?base64?") && strings.HasSuffix(s, "?="))
	for _, c := range []byte(s) {
		plain = plain && c >= 0x20 && c <= 0x7e
	}
	if plain {
		return s
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}
