package config

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

func (r *reader) auth(n *yaml.Node, at string, f *File) {
	if n.Kind == yaml.ScalarNode {
		if f.AuthNone = n.Value == "none"; !f.AuthNone {
			r.fault(n, at, "want {tokens: true}, or the word none")
		}
		return
	}
	r.fields(n, at, fields{"tokens": func(n *yaml.Node, at string) { f.AuthTokens = r.truth(n, at) }})
}

// store reads the path of the database. What looks like a database's URL is not shown: it may hold a password.
func (r *reader) store(n *yaml.Node, at string) string {
	if strings.Contains(n.Value, "://") {
		r.fault(n, at, "want the path of a file, not a URL")
		return ""
	}
	return r.path(n, at)
}

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
	u := Upstream{Name: name, Integrity: defaultIntegrity, Confidentiality: defaultConfidentiality, Classes: map[string]string{}, Connect: DefaultConnect, Call: DefaultCall}
	given := false
	r.fields(n, at, fields{
		"command": func(n *yaml.Node, at string) { given = true; u.Command = r.command(n, at) },
		"env":     func(n *yaml.Node, at string) { u.Env = r.env(n, at) },
		"cwd":     func(n *yaml.Node, at string) { u.Cwd = r.path(n, at) },
		"root":    func(n *yaml.Node, at string) { u.Root = r.path(n, at) },
		"prefix":  func(n *yaml.Node, at string) { u.Bare = r.word(n, at, "none") == "none" },
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
			})
		},
	})
	if n.Kind == yaml.MappingNode && !given {
		r.fault(n, at, `the command is missing, such as "command: [npx, -y, some-server]"`)
	}
	return u
}

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

func (r *reader) filters(n *yaml.Node, at string, f *File) {
	r.fields(n, at, fields{"secrets": func(n *yaml.Node, at string) {
		r.fields(n, at, fields{
			"results":   func(n *yaml.Node, at string) { f.Results = r.word(n, at, "record", "pseudonymise", "deny") },
			"arguments": func(n *yaml.Node, at string) { f.Arguments = r.word(n, at, "record", "ask", "deny") },
		})
	}})
}
