package config

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxChildren bounds what max_children may be.
const maxChildren = 1000

var upstreamName = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9_-]{0,30}[a-z0-9-])?$`)

func (r *reader) upstreams(n *yaml.Node, at string, f *File) {
	r.pairs(n, at, func(k, v *yaml.Node, place string) {
		name := k.Value
		if !upstreamName.MatchString(name) || strings.Contains(name, "__") || name == "navra" || name == "self" {
			r.fault(k, place, "an upstream's name is of a-z, 0-9, - and _, begins with a letter or digit, has at most 32 of them and no __, and is not navra or self")
		}
		f.Upstreams = append(f.Upstreams, r.upstream(v, place, name))
	})
}

func (r *reader) upstream(n *yaml.Node, at, name string) Upstream {
	u := Upstream{Name: name, Integrity: defaultIntegrity, Confidentiality: defaultConfidentiality, Classes: map[string]string{}, Connect: DefaultConnect, Call: DefaultCall, CallMax: DefaultCallMax}
	keys := map[string]*yaml.Node{}
	note := func(key string, read func(n *yaml.Node, at string)) func(n *yaml.Node, at string) {
		return func(n *yaml.Node, at string) { keys[key] = n; read(n, at) }
	}
	r.fields(n, at, fields{
		"command": note("command", func(n *yaml.Node, at string) { u.Command = r.command(n, at) }),
		"url":     note("url", func(n *yaml.Node, at string) { u.URL = r.url(n, at) }),
		"headers": note("headers", func(n *yaml.Node, at string) { u.Headers = r.headers(n, at) }),
		"tls": note("tls", func(n *yaml.Node, at string) {
			r.fields(n, at, fields{"ca": func(n *yaml.Node, at string) { u.CA = r.path(n, at) }})
		}),
		"proxy":  note("proxy", func(n *yaml.Node, at string) { u.Proxy = r.proxy(n, at) }),
		"shared": func(n *yaml.Node, at string) { u.Shared = r.truth(n, at) },
		"max_children": note("max_children", func(n *yaml.Node, at string) {
			r.fields(n, at, fields{
				"upstream":  func(n *yaml.Node, at string) { u.Children = r.number(n, at, 1, maxChildren) },
				"principal": func(n *yaml.Node, at string) { u.OwnChildren = r.number(n, at, 1, maxChildren) },
			})
		}),
		"env":    note("env", func(n *yaml.Node, at string) { u.Env = r.env(n, at) }),
		"cwd":    note("cwd", func(n *yaml.Node, at string) { u.Cwd = r.path(n, at) }),
		"root":   func(n *yaml.Node, at string) { u.Root = r.path(n, at) },
		"prefix": func(n *yaml.Node, at string) { u.Bare = r.word(n, at, "none") == "none" },
		"label": func(n *yaml.Node, at string) {
			r.fields(n, at, fields{
				"integrity":       func(n *yaml.Node, at string) { u.Integrity = r.word(n, at, "trusted", "untrusted", "suspect") },
				"confidentiality": func(n *yaml.Node, at string) { u.Confidentiality = r.word(n, at, levels...) },
			})
		},
		"tools": func(n *yaml.Node, at string) {
			r.pairs(n, at, func(k, v *yaml.Node, at string) {
				r.fields(v, at, fields{"class": func(n *yaml.Node, at string) { u.Classes[k.Value] = r.word(n, at, "read", "write", "egress") }})
				if v.Kind == yaml.MappingNode && len(v.Content) == 0 {
					r.fault(v, at, "it says nothing of the tool; it needs class")
				}
			})
		},
		"timeouts": func(n *yaml.Node, at string) {
			r.fields(n, at, fields{
				"connect": func(n *yaml.Node, at string) { u.Connect = r.duration(n, at) },
				"call":    func(n *yaml.Node, at string) { u.Call = r.duration(n, at) },
				"max":     func(n *yaml.Node, at string) { u.CallMax = r.duration(n, at) },
			})
		},
	})
	r.reached(n, at, keys)
	return u
}

// reached finds fault with what an upstream has too little or too much of to be reached one way.
func (r *reader) reached(n *yaml.Node, at string, keys map[string]*yaml.Node) {
	has := func(key string) bool { return keys[key] != nil }
	switch {
	case n.Kind != yaml.MappingNode:
	case has("command") && has("url"):
		r.fault(keys["url"], at, "it has both a command and a url; want one")
	case !has("command") && !has("url"):
		r.fault(n, at, `the command is missing, such as "command: [npx, -y, some-server]", or the url, such as "url: https://mcp.example/mcp"`)
	}
	for _, key := range []string{"env", "cwd", "max_children"} {
		if has("url") && has(key) {
			r.fault(keys[key], at, "%s is for an upstream with a command", key)
		}
	}
	for _, key := range []string{"headers", "tls", "proxy"} {
		if has("command") && has(key) {
			r.fault(keys[key], at, "%s is for an upstream with a url", key)
		}
	}
}

// url reads the address of an upstream. It is not shown where it may hold a secret.
func (r *reader) url(n *yaml.Node, at string) string {
	s, ok := r.text(n, at)
	u, err := url.Parse(s)
	switch {
	case !ok:
	case err != nil || !slices.Contains([]string{"http", "https", "ws", "wss"}, u.Scheme) || u.Host == "":
		r.fault(n, at, "want an address such as https://mcp.example/mcp")
	case u.User != nil:
		r.fault(n, at, "a user and password in the address are not taken; use headers, such as Authorization: \"Bearer ${env:TOKEN}\"")
	case u.Fragment != "":
		r.fault(n, at, "an address has no # part")
	}
	return s
}

// proxy reads the address of a proxy, or the word none.
func (r *reader) proxy(n *yaml.Node, at string) string {
	s, ok := r.text(n, at)
	u, err := url.Parse(s)
	if ok && s != "none" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5") {
		r.fault(n, at, "want an address such as http://proxy.example:3128, or the word none")
	}
	return s
}

// ownHeaders are the headers that navra sets by itself.
var ownHeaders = []string{"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Host", "Last-Event-Id", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// headers reads what is sent with each request. Values may be secrets.
func (r *reader) headers(n *yaml.Node, at string) (out []Variable) {
	r.pairs(n, at, func(k, v *yaml.Node, place string) {
		name := http.CanonicalHeaderKey(k.Value)
		switch {
		case !headerName.MatchString(k.Value):
			r.fault(k, at, "%q is no header's name", k.Value)
		case strings.HasPrefix(name, "Mcp-"), slices.Contains(ownHeaders, name):
			r.fault(k, at, "navra sets the header %s by itself", name)
		case v.Kind != yaml.ScalarNode || v.ShortTag() == "!!null":
			r.fault(v, place, "want text, not %s", kindName(v))
		case strings.ContainsAny(v.Value, "\r\n"):
			r.fault(v, place, "a header's value is one line")
		default:
			if err := checkValue(v.Value); err != nil {
				r.fault(v, place, "%v", err)
			}
		}
		out = append(out, Variable{Name: name, value: v.Value, where: r.name + ":" + strconv.Itoa(v.Line) + ": " + place})
	})
	return out
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// command reads a program with its arguments, or a program alone. Arguments are not shown: they may be secrets.
func (r *reader) command(n *yaml.Node, at string) (out []string) {
	parts := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		parts = n.Content
	} else if program, _, more := strings.Cut(n.Value, " "); more && !strings.ContainsAny(program, `/\`) {
		r.fault(n, at, "a program with arguments is a list, such as [npx, -y, some-server]")
		return nil
	}
	if len(parts) == 0 || parts[0].ShortTag() == "!!str" && parts[0].Value == "" {
		r.fault(n, at, "the command is empty")
		return nil
	}
	for _, part := range parts {
		s, _ := r.written(part, at)
		out = append(out, s)
	}
	return out
}

func (r *reader) env(n *yaml.Node, at string) (out []Variable) {
	r.pairs(n, at, func(k, v *yaml.Node, place string) {
		if k.Value == "" || strings.ContainsAny(k.Value, "=\x00") {
			r.fault(k, at, "a variable's name is empty or holds = or NUL; want NAME: value")
			return
		}
		if v.Kind != yaml.ScalarNode || v.ShortTag() == "!!null" {
			r.fault(v, place, "want text, not %s", kindName(v))
			return
		}
		if err := checkValue(v.Value); err != nil {
			r.fault(v, place, "%v", err)
		}
		out = append(out, Variable{Name: k.Value, value: v.Value, where: r.name + ":" + strconv.Itoa(v.Line) + ": " + place})
	})
	return out
}
