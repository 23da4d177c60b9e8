package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// file reads the whole document.
func (r *reader) file(b []byte) *File {
	f := &File{Principals: map[string][]string{}, Roles: map[string]Role{}, Violation: "ask", Results: "pseudonymise", Arguments: "ask"}
	root := r.document(b)
	if root == nil || !r.plain(root, "") {
		return f
	}
	var later []func() // what can be checked only when all is read
	r.fields(root, "", fields{
		"listen":     func(n *yaml.Node, at string) { r.listen(n, at, f) },
		"admin":      func(n *yaml.Node, at string) { later = append(later, r.admin(n, at, f)) },
		"auth":       func(n *yaml.Node, at string) { r.auth(n, at, f) },
		"store":      func(n *yaml.Node, at string) { r.store(n, at, f) },
		"key":        func(n *yaml.Node, at string) { f.Key = r.path(n, at) },
		"upstreams":  func(n *yaml.Node, at string) { r.upstreams(n, at, f) },
		"principals": func(n *yaml.Node, at string) { later = append(later, r.principals(n, at, f)...) },
		"roles":      func(n *yaml.Node, at string) { r.roles(n, at, f) },
		"blackbox": func(n *yaml.Node, at string) {
			r.fields(n, at, fields{
				"durability":    func(n *yaml.Node, at string) { f.Blackbox.Fsync = r.word(n, at, "process", "fsync") == "fsync" },
				"keep":          func(n *yaml.Node, at string) { f.Blackbox.Keep = r.days(n, at) },
				"max_bytes":     func(n *yaml.Node, at string) { f.Blackbox.MaxBytes = r.bytes(n, at, minDatabase) },
				"checkpoint_to": func(n *yaml.Node, at string) { r.checkpointTo(n, at, f) },
				"ship":          func(n *yaml.Node, at string) { r.ship(n, at, f) },
			})
		},
		"names": func(n *yaml.Node, at string) {
			r.fields(n, at, fields{"max": func(n *yaml.Node, at string) { f.NamesMax = r.number(n, at, minName, maxName) }})
		},
		"ifc": func(n *yaml.Node, at string) {
			r.fields(n, at, fields{"on_violation": func(n *yaml.Node, at string) { f.Violation = r.word(n, at, "deny", "ask", "observe") }})
		},
		"telemetry": func(n *yaml.Node, at string) { r.telemetry(n, at, f) },
		"filters":   func(n *yaml.Node, at string) { r.filters(n, at, f) },
	})
	for _, check := range later {
		check()
	}
	return f
}

// document returns the root of the one document, or nil after a fault.
func (r *reader) document(b []byte) *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		r.fault(&yaml.Node{Line: 1}, "", noContent)
		return nil
	} else if err != nil {
		r.syntax(b, err)
		return nil
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		r.fault(&more, "", "a second document starts here; want one document")
		return nil
	case !errors.Is(err, io.EOF):
		r.syntax(b, err)
		return nil
	}
	root := doc.Content[0]
	if root.ShortTag() == "!!null" {
		r.fault(root, "", noContent)
		return nil
	}
	return root
}

var (
	atLine = regexp.MustCompile(`^line (\d+): (.*)`)
	// fromZero are the messages whose lines the parser counts from 0.
	fromZero      = regexp.MustCompile(`^did not find expected (key|node content|'|<)|^found (duplicate %|incompatible|undefined)`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
)

const (
	noContent = `the file is empty; it needs at least "upstreams:"`
	noAnchors = "anchors and aliases are not taken; text that starts with & or * goes in quotes"
	// noName is what the parser says of & and * before anything but a letter or digit: a pattern without quotes.
	noName = "did not find expected alphabetic or numeric character"
	// noToken is what it says of tabs, and of text without quotes that begins with a sign of YAML's own.
	noToken = "found character that cannot start any token"
	quoted  = "; text that begins with @, % or ` goes in quotes, and lines are indented with spaces, not tabs"
)

// syntax is the fault for what the YAML parser refused. An alias that names no anchor is not shown: it is mostly a value whose quotes were
// forgotten, and may be a secret.
func (r *reader) syntax(b []byte, err error) {
	n, text := &yaml.Node{Line: 1}, strings.TrimPrefix(err.Error(), "yaml: ")
	if m := atLine.FindStringSubmatch(text); m != nil {
		n.Line, _ = strconv.Atoi(m[1])
		if text = m[2]; fromZero.MatchString(text) {
			n.Line++
		}
	}
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		before, _, _ := bytes.Cut(b, []byte("*"+m[1]))
		n.Line, text = bytes.Count(before, []byte("\n"))+1, noAnchors
	}
	if text == noName {
		text = noAnchors
	}
	if text == noToken {
		text += quoted
	}
	r.fault(n, "", "%s", text)
}

// plain reports whether a tree is what it looks like: without anchors and aliases, which let a small file be a huge one, merge keys, and
// types beyond YAML's own.
func (r *reader) plain(n *yaml.Node, at string) bool {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		r.fault(n, at, noAnchors)
		return false
	}
	switch tag := n.ShortTag(); tag {
	case "!!map", "!!seq", "!!str", "!!int", "!!float", "!!bool", "!!null", "!!timestamp":
	case "!!merge":
		r.fault(n, at, "the merge key << is not taken")
		return false
	default:
		r.fault(n, at, "the type %q is not taken", tag)
		return false
	}
	ok := true
	for i, c := range n.Content {
		place := at
		if n.Kind == yaml.MappingNode && i%2 == 1 {
			place = join(at, n.Content[i-1].Value)
		}
		ok = r.plain(c, place) && ok
	}
	return ok
}
