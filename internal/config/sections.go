package config

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

func (r *reader) listen(n *yaml.Node, at string, f *File) {
	address := func(n *yaml.Node, at string) {
		s, ok := r.text(n, at)
		host, port, err := net.SplitHostPort(s)
		if p, perr := strconv.ParseUint(port, 10, 16); ok && (err != nil || perr != nil || host == "" || strconv.FormatUint(p, 10) != port) {
			r.fault(n, at, "%q is no address such as 127.0.0.1:8420", s)
		}
		f.Listen = s
	}
	if n.Kind != yaml.MappingNode {
		address(n, at)
		return
	}
	given := false
	r.fields(n, at, fields{
		"address":         func(n *yaml.Node, at string) { given = true; address(n, at) },
		"allowed_origins": func(n *yaml.Node, at string) { f.Origins = r.texts(n, at, origin) },
	})
	if !given {
		r.fault(n, at, `the address is missing, such as "address: 127.0.0.1:8420"`)
	}
}

// origin says what is wrong with a browser's origin. RFC 6454 §6.2.
func origin(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != s {
		return fmt.Errorf("%q is no origin such as https://app.example", s)
	}
	return nil
}

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
