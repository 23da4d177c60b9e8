package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const maxErrors = 10

// A reader walks the document's nodes, so that each fault can be named with its line. Faults are gathered; what it returns counts only where there are none.
type reader struct {
	name string
	dir  string
	errs []error
}

func (r *reader) fault(n *yaml.Node, at, format string, args ...any) {
	if len(r.errs) >= maxErrors {
		return
	}
	if at != "" {
		at += ": "
	}
	r.errs = append(r.errs, fmt.Errorf("%s:%d: %s%s", r.name, n.Line, at, fmt.Sprintf(format, args...)))
}

// fields reads a mapping: each key is handled by its function; any other is a fault.
func (r *reader) fields(n *yaml.Node, at string, keys map[string]func(n *yaml.Node, at string)) {
	r.pairs(n, at, func(k, v *yaml.Node, at string) {
		read, ok := keys[k.Value]
		if !ok {
			hint := "known are " + strings.Join(known(keys), ", ")
			if near := closest(k.Value, known(keys)); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			r.fault(k, strings.TrimSuffix(strings.TrimSuffix(at, k.Value), "."), "unknown key %q (%s)", k.Value, hint)
			return
		}
		read(v, at)
	})
}

// pairs calls f for each entry of a mapping, with the entry's place.
func (r *reader) pairs(n *yaml.Node, at string, f func(k, v *yaml.Node, at string)) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		r.fault(n, at, "anchors and aliases are not taken")
		return
	}
	if n.Kind != yaml.MappingNode {
		r.fault(n, at, "want a mapping of keys to values, not %s", kindName(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		place := strings.TrimPrefix(at+"."+k.Value, ".")
		switch {
		case k.Kind != yaml.ScalarNode || k.Tag == "!!merge":
			r.fault(k, at, "a key must be plain text")
		case seen[k.Value]:
			r.fault(k, at, "key %q is given twice", k.Value)
		default:
			seen[k.Value] = true
			f(k, v, place)
		}
	}
}

func (r *reader) text(n *yaml.Node, at string) string {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Anchor != "" {
		r.fault(n, at, "want text, not %s", kindName(n))
		return ""
	}
	if strings.Contains(n.Value, "${") {
		r.fault(n, at, "${…} may stand only in env")
	}
	if strings.ContainsRune(n.Value, 0) {
		r.fault(n, at, "it holds a NUL character")
	}
	return n.Value
}

func (r *reader) word(n *yaml.Node, at string, words ...string) string {
	s := r.text(n, at)
	if !slices.Contains(words, s) {
		r.fault(n, at, "%q is none of %s", s, strings.Join(words, ", "))
	}
	return s
}

func (r *reader) texts(n *yaml.Node, at string) (out []string) {
	if n.Kind != yaml.SequenceNode || n.Anchor != "" {
		r.fault(n, at, "want a list, not %s", kindName(n))
		return nil
	}
	for _, e := range n.Content {
		out = append(out, r.text(e, at))
	}
	return out
}

func (r *reader) path(n *yaml.Node, at string) string {
	s := r.text(n, at)
	if s == "" {
		r.fault(n, at, "the path is empty")
	} else if !filepath.IsAbs(s) {
		s = filepath.Join(r.dir, s)
	}
	return s
}

func (r *reader) duration(n *yaml.Node, at string) time.Duration {
	s := r.text(n, at)
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > 24*time.Hour {
		r.fault(n, at, "%q is no duration such as 30s or 5m", s)
	}
	return d
}

func kindName(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return "an anchor or alias"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	}
	return fmt.Sprintf("%q", n.Value)
}

func known[T any](keys map[string]T) (out []string) {
	for k := range keys {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// closest returns the word that s was meant to be, if one is near.
func closest(s string, words []string) string {
	best, at := 3, ""
	for _, w := range words {
		if d := distance(s, w); d < best && len(s) > 2 {
			best, at = d, w
		}
	}
	return at
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := min(row[j]+1, row[j+1]+1, diag+1)
			if a[i] == b[j] {
				next = min(next, diag)
			}
			diag, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

// file reads the document.
func (r *reader) file(b []byte) *File {
	f := &File{Principals: map[string][]string{}, Roles: map[string]Role{}, Violation: "ask", Results: "pseudonymise", Arguments: "ask"}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		r.errs = append(r.errs, fmt.Errorf("%s: %w", r.name, err))
		return f
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		r.errs = append(r.errs, fmt.Errorf("%s: want one document", r.name))
		return f
	}
	var uses []func()
	r.fields(doc.Content[0], "", map[string]func(*yaml.Node, string){
		"listen":     func(n *yaml.Node, at string) { r.listen(n, at, f) },
		"auth":       func(n *yaml.Node, at string) { r.auth(n, at, f) },
		"store":      func(n *yaml.Node, at string) { f.Store = r.path(n, at) },
		"upstreams":  func(n *yaml.Node, at string) { r.upstreams(n, at, f) },
		"principals": func(n *yaml.Node, at string) { uses = append(uses, r.principals(n, at, f)...) },
		"roles":      func(n *yaml.Node, at string) { r.roles(n, at, f) },
		"ifc": func(n *yaml.Node, at string) {
			r.fields(n, at, map[string]func(*yaml.Node, string){"on_violation": func(n *yaml.Node, at string) { f.Violation = r.word(n, at, "deny", "ask", "observe") }})
		},
		"filters": func(n *yaml.Node, at string) { r.filters(n, at, f) },
	})
	for _, check := range uses {
		check()
	}
	return f
}
