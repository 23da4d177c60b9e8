package config

import (
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

type fields = map[string]func(*yaml.Node, string)

func (r *reader) listen(n *yaml.Node, at string, f *File) {
	address := func(n *yaml.Node, at string) {
		f.Listen = r.text(n, at)
		host, port, err := net.SplitHostPort(f.Listen)
		if p, perr := strconv.Atoi(port); err != nil || perr != nil || p < 0 || p > 65535 || host == "" {
			r.fault(n, at, "%q is no address such as 127.0.0.1:8420", f.Listen)
		}
	}
	if n.Kind == yaml.ScalarNode {
		address(n, at)
		return
	}
	r.fields(n, at, fields{
		"address": address,
		"allowed_origins": func(n *yaml.Node, at string) {
			f.Origins = r.texts(n, at)
			for _, o := range f.Origins {
				if u, err := url.Parse(o); err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" {
					r.fault(n, at, "%q is no origin such as https://app.example", o)
				}
			}
		},
	})
	if f.Listen == "" {
		r.fault(n, at, "the address is missing")
	}
}

func (r *reader) auth(n *yaml.Node, at string, f *File) {
	if n.Kind == yaml.ScalarNode {
		f.AuthNone = r.word(n, at, "none") == "none"
		return
	}
	r.fields(n, at, fields{"tokens": func(n *yaml.Node, at string) {
		f.AuthTokens = r.word(n, at, "true", "false") == "true"
	}})
}

var upstreamName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

func (r *reader) upstreams(n *yaml.Node, at string, f *File) {
	r.pairs(n, at, func(k, v *yaml.Node, at string) {
		name := k.Value
		if !upstreamName.MatchString(name) || strings.Contains(name, "__") || name == "navra" || name == "self" {
			r.fault(k, at, "an upstream's name is of a-z, 0-9, - and _ (not two of them in a row), at most 32, and not navra or self")
		}
		f.Upstreams = append(f.Upstreams, r.upstream(v, at, name))
	})
}

func (r *reader) upstream(n *yaml.Node, at, name string) Upstream {
	u := Upstream{Name: name, Integrity: "untrusted", Confidentiality: "sensitive", Classes: map[string]string{}, Connect: DefaultConnect, Call: DefaultCall}
	r.fields(n, at, fields{
		"command": func(n *yaml.Node, at string) {
			if n.Kind == yaml.ScalarNode {
				u.Command = []string{r.text(n, at)}
			} else {
				u.Command = r.texts(n, at)
			}
			if len(u.Command) == 0 || u.Command[0] == "" {
				r.fault(n, at, "the command is empty")
			}
		},
		"env":    func(n *yaml.Node, at string) { u.Env = r.env(n, at) },
		"cwd":    func(n *yaml.Node, at string) { u.Cwd = r.path(n, at) },
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
			})
		},
		"timeouts": func(n *yaml.Node, at string) {
			r.fields(n, at, fields{
				"connect": func(n *yaml.Node, at string) { u.Connect = r.duration(n, at) },
				"call":    func(n *yaml.Node, at string) { u.Call = r.duration(n, at) },
			})
		},
	})
	if u.Command == nil {
		r.fault(n, at, `the command is missing, such as "command: [npx, -y, some-server]"`)
	}
	return u
}

var levels = []string{"public", "sensitive", "pii", "secret"}

func (r *reader) env(n *yaml.Node, at string) (out []Variable) {
	r.pairs(n, at, func(k, v *yaml.Node, at string) {
		if k.Value == "" || strings.ContainsAny(k.Value, "=\x00") {
			r.fault(k, at, "%q is no name of a variable", k.Value)
		}
		if v.Kind != yaml.ScalarNode || v.Tag == "!!null" || v.Anchor != "" || strings.ContainsRune(v.Value, 0) {
			r.fault(v, at, "want text, not %s", kindName(v))
			return
		}
		if err := checkReferences(v.Value); err != "" {
			r.fault(v, at, "%s", err)
		}
		out = append(out, Variable{Name: k.Value, value: v.Value, where: r.name + ":" + strconv.Itoa(v.Line) + ": " + at})
	})
	return out
}

// principals returns what can be checked only when the roles are known.
func (r *reader) principals(n *yaml.Node, at string, f *File) (later []func()) {
	r.pairs(n, at, func(k, v *yaml.Node, at string) {
		f.Principals[k.Value] = nil
		if k.Value == "" || k.Value == "navra" || len(k.Value) > 128 {
			r.fault(k, at, "%q can be no principal's name", k.Value)
		}
		r.fields(v, at, fields{"roles": func(n *yaml.Node, at string) {
			f.Principals[k.Value] = r.texts(n, at)
			later = append(later, func() {
				for _, role := range f.Principals[k.Value] {
					if _, ok := f.Roles[role]; !ok && role != LocalDefault {
						r.fault(n, at, "role %q is not defined under roles", role)
					}
				}
			})
		}})
	})
	return later
}

func (r *reader) roles(n *yaml.Node, at string, f *File) {
	r.pairs(n, at, func(k, v *yaml.Node, at string) {
		if k.Value == LocalDefault || k.Value == "" {
			r.fault(k, at, "%q cannot be defined: it is built in, or empty", k.Value)
		}
		role := Role{Clearance: "pii"}
		r.fields(v, at, fields{
			"clearance": func(n *yaml.Node, at string) { role.Clearance = r.word(n, at, levels...) },
			"rules": func(n *yaml.Node, at string) {
				if n.Kind != yaml.SequenceNode {
					r.fault(n, at, "want a list of rules, not %s", kindName(n))
					return
				}
				for _, rule := range n.Content {
					r.fields(rule, at, fields{
						"allow": func(n *yaml.Node, at string) { role.Allow = append(role.Allow, r.patterns(n, at)) },
						"deny":  func(n *yaml.Node, at string) { role.Deny = append(role.Deny, r.patterns(n, at)) },
					})
				}
			},
		})
		f.Roles[k.Value] = role
	})
}

func (r *reader) patterns(n *yaml.Node, at string) (p Patterns) {
	named := func(to *[]string) func(*yaml.Node, string) {
		return func(n *yaml.Node, at string) {
			*to = r.texts(n, at)
			for _, s := range *to {
				up, rest, ok := strings.Cut(s, "/")
				if s != "*" && (!ok || up == "" || rest == "" || up != "*" && strings.Contains(up, "*")) {
					r.fault(n, at, "pattern %q: want UPSTREAM/NAME, where UPSTREAM is a name or *, or * alone", s)
				}
			}
		}
	}
	r.fields(n, at, fields{
		"tools": named(&p.Tools), "prompts": named(&p.Prompts),
		"resources": func(n *yaml.Node, at string) { p.Resources = r.texts(n, at) },
	})
	return p
}

func (r *reader) filters(n *yaml.Node, at string, f *File) {
	r.fields(n, at, fields{"secrets": func(n *yaml.Node, at string) {
		r.fields(n, at, fields{
			"results":   func(n *yaml.Node, at string) { f.Results = r.word(n, at, "record", "pseudonymise", "deny") },
			"arguments": func(n *yaml.Node, at string) { f.Arguments = r.word(n, at, "record", "ask", "deny") },
		})
	}})
}
