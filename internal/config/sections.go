package config

import (
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

func (r *reader) filters(n *yaml.Node, at string, f *File) {
	r.fields(n, at, fields{"secrets": func(n *yaml.Node, at string) {
		r.fields(n, at, fields{
			"results":   func(n *yaml.Node, at string) { f.Results = r.word(n, at, "record", "pseudonymise", "deny") },
			"arguments": func(n *yaml.Node, at string) { f.Arguments = r.word(n, at, "record", "ask", "deny") },
		})
	}})
}
