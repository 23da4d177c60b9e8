package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxPrincipal is the longest name of a principal, in bytes.
const maxPrincipal = 128

// principals returns what can be checked only when the roles are known.
func (r *reader) principals(n *yaml.Node, at string, f *File) (later []func()) {
	r.pairs(n, at, func(k, v *yaml.Node, place string) {
		f.Principals[k.Value] = nil
		if k.Value == "" || k.Value == "navra" || k.Value == "*" || len(k.Value) > maxPrincipal {
			r.fault(k, at, "%q can be no principal's name", k.Value)
		}
		r.fields(v, place, fields{"roles": func(n *yaml.Node, place string) {
			f.Principals[k.Value] = r.texts(n, place, func(string) error { return nil })
			later = append(later, func() { r.knownRoles(n, place, f) })
		}})
	})
	return later
}

// knownRoles finds fault with each element of a list that is no role.
func (r *reader) knownRoles(n *yaml.Node, at string, f *File) {
	if n.Kind != yaml.SequenceNode {
		return
	}
	for _, e := range n.Content {
		if _, ok := f.Roles[e.Value]; !ok && e.Kind == yaml.ScalarNode && e.Value != LocalDefault {
			r.fault(e, at, "role %q is not defined under roles", e.Value)
		}
	}
}

func (r *reader) roles(n *yaml.Node, at string, f *File) {
	r.pairs(n, at, func(k, v *yaml.Node, place string) {
		switch k.Value {
		case "":
			r.fault(k, at, "a role's name is empty")
		case LocalDefault:
			r.fault(k, at, "the role %q is built in; give yours another name", k.Value)
		}
		role := Role{Clearance: defaultClearance}
		r.fields(v, place, fields{
			"clearance": func(n *yaml.Node, at string) { role.Clearance = r.word(n, at, levels...) },
			"rules": func(n *yaml.Node, at string) {
				r.items(n, at, func(n *yaml.Node, at string) { r.rule(n, at, &role) })
			},
		})
		f.Roles[k.Value] = role
	})
}

// rule reads one item of a role's rules.
func (r *reader) rule(n *yaml.Node, at string, role *Role) {
	r.fields(n, at, fields{
		"allow": func(n *yaml.Node, at string) { role.Allow = append(role.Allow, r.patterns(n, at)) },
		"ask":   func(n *yaml.Node, at string) { role.Ask = append(role.Ask, r.patterns(n, at)) },
		"deny":  func(n *yaml.Node, at string) { role.Deny = append(role.Deny, r.patterns(n, at)) },
	})
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		r.fault(n, at, "the rule is empty; it needs allow, ask or deny")
	}
}

func (r *reader) patterns(n *yaml.Node, at string) (p Patterns) {
	r.fields(n, at, fields{
		"tools":     func(n *yaml.Node, at string) { p.Tools = r.texts(n, at, namePattern) },
		"prompts":   func(n *yaml.Node, at string) { p.Prompts = r.texts(n, at, namePattern) },
		"resources": func(n *yaml.Node, at string) { p.Resources = r.texts(n, at, uriPattern) },
		"client":    func(n *yaml.Node, at string) { p.Client = r.texts(n, at, clientKind) },
	})
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		r.fault(n, at, "it names nothing; it needs tools, prompts, resources or client")
	}
	return p
}

// clientKind says what is wrong with a kind of what an upstream may ask of a client.
func clientKind(s string) error {
	if !slices.Contains(clientKinds, s) {
		return fmt.Errorf("%q is none of %s", s, strings.Join(clientKinds, ", "))
	}
	return nil
}

var clientKinds = []string{"sampling", "elicitation", "roots"}

// namePattern says what is wrong with a glob on canonical names.
func namePattern(s string) error {
	up, rest, ok := strings.Cut(s, "/")
	if s != "*" && (!ok || up == "" || rest == "" || up != "*" && strings.Contains(up, "*")) {
		return fmt.Errorf("pattern %q: want UPSTREAM/NAME, where UPSTREAM is a name or *, or * alone", s)
	}
	return nil
}

// uriPattern says what is wrong with a glob on URIs.
func uriPattern(s string) error {
	if s == "" {
		return errors.New(`the pattern is empty; want a URI such as "file:///repo/**", or * alone`)
	}
	return nil
}
