package config

import (
	"fmt"
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

// store reads the path of the database, or its URL. What looks like one is not shown: it may hold a password.
func (r *reader) store(n *yaml.Node, at string, f *File) {
	scheme, _, ok := strings.Cut(n.Value, "://")
	switch {
	case !ok:
		f.Store = r.path(n, at)
	case scheme != "postgres" && scheme != "postgresql":
		r.fault(n, at, "want the path of a file or a URL that starts with postgres://")
	default:
		if err := checkValue(n.Value); err != nil {
			r.fault(n, at, "%v", err)
		}
		f.Database = Variable{Name: "store", value: n.Value, where: fmt.Sprintf("%s:%d: %s", r.name, n.Line, at)}
	}
}

func (r *reader) filters(n *yaml.Node, at string, f *File) {
	r.fields(n, at, fields{"secrets": func(n *yaml.Node, at string) {
		r.fields(n, at, fields{
			"results":   func(n *yaml.Node, at string) { f.Results = r.word(n, at, "record", "pseudonymise", "deny") },
			"arguments": func(n *yaml.Node, at string) { f.Arguments = r.word(n, at, "record", "ask", "deny") },
		})
	}})
}
