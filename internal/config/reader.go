package config

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
)

const (
	maxErrors = 10
	// maxDuration bounds what a time-out may be.
	maxDuration = 24 * time.Hour
	maxDays     = 36_500
	// Bounds on names.max: shorter leaves no room for a prefix and a hash, longer no model takes.
	minName, maxName = 24, 64
	// minDatabase is the least that a database may be bounded to, in bytes: its write-ahead log alone takes up 4 MiB.
	minDatabase = 16 << 20
)

// A reader walks the document's nodes, so that each fault can be named with its line. Faults are gathered; what it returns counts only
// where there are none. Values of the file are not shown where they may be secrets.
type reader struct {
	name string
	dir  string
	errs []error
}

// fields says how each key of a mapping is read, given its value and its place.
type fields = map[string]func(n *yaml.Node, at string)

func (r *reader) fault(n *yaml.Node, at, format string, args ...any) {
	if len(r.errs) >= maxErrors {
		return
	}
	if at != "" {
		at += ": "
	}
	r.errs = append(r.errs, fmt.Errorf("%s:%d: %s%s", r.name, n.Line, at, fmt.Sprintf(format, args...)))
}

// join is the place of a key below another place.
func join(at, key string) string {
	if key == "" || strings.ContainsFunc(key, func(c rune) bool { return !unicode.IsGraphic(c) }) {
		key = strconv.Quote(key)
	}
	return strings.TrimPrefix(at+"."+key, ".")
}

// fields reads a mapping: each key is handled by its function; any other is a fault.
func (r *reader) fields(n *yaml.Node, at string, keys fields) {
	r.pairs(n, at, func(k, v *yaml.Node, place string) {
		read, ok := keys[k.Value]
		if !ok {
			r.fault(k, at, "unknown key %q (%s)", k.Value, hint(k.Value, slices.Collect(maps.Keys(keys))))
			return
		}
		read(v, place)
	})
}

// pairs calls f for each entry of a mapping, with the entry's place.
func (r *reader) pairs(n *yaml.Node, at string, f func(k, v *yaml.Node, place string)) {
	if n.Kind != yaml.MappingNode {
		r.fault(n, at, "want a mapping of keys to values, not %s", kindName(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case k.Kind != yaml.ScalarNode:
			r.fault(k, at, "a key must be plain text")
		case seen[k.Value]:
			r.fault(k, at, "key %q is given twice", k.Value)
		default:
			seen[k.Value] = true
			f(k, v, join(at, k.Value))
		}
	}
}

// text reads a string. ok is false after a fault.
func (r *reader) text(n *yaml.Node, at string) (s string, ok bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		r.fault(n, at, "want text, not %s", kindName(n))
		return "", false
	}
	return r.written(n, at)
}

// written reads a scalar as it is written: a number or a truth value is as good as text. ok is false after a fault.
func (r *reader) written(n *yaml.Node, at string) (s string, ok bool) {
	switch {
	case n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null":
		r.fault(n, at, "want text, not %s", kindName(n))
	case strings.Contains(n.Value, "${"):
		r.fault(n, at, "${…} may stand only in env, in headers and in a store that is a URL")
	case strings.ContainsRune(n.Value, 0):
		r.fault(n, at, "it holds a NUL character")
	default:
		return n.Value, true
	}
	return "", false
}

func (r *reader) word(n *yaml.Node, at string, words ...string) string {
	s, ok := r.text(n, at)
	switch {
	case !ok || slices.Contains(words, s):
	case len(words) == 1:
		r.fault(n, at, "%q is not taken; want %s, or leave it out", s, words[0])
	default:
		r.fault(n, at, "%q is none of %s", s, strings.Join(words, ", "))
	}
	return s
}

func (r *reader) truth(n *yaml.Node, at string) bool {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		r.fault(n, at, "want true or false, not %s", kindName(n))
	}
	return strings.EqualFold(n.Value, "true")
}

// items calls f for each element of a list, with the element's place.
func (r *reader) items(n *yaml.Node, at string, f func(n *yaml.Node, place string)) {
	if n.Kind != yaml.SequenceNode {
		r.fault(n, at, "want a list, not %s", kindName(n))
		return
	}
	for i, e := range n.Content {
		f(e, fmt.Sprintf("%s[%d]", at, i))
	}
}

// texts reads a list of strings, each of which check may find fault with.
func (r *reader) texts(n *yaml.Node, at string, check func(s string) error) (out []string) {
	r.items(n, at, func(n *yaml.Node, place string) {
		s, ok := r.text(n, place)
		if !ok {
			return
		}
		if err := check(s); err != nil {
			r.fault(n, place, "%v", err)
		}
		out = append(out, s)
	})
	return out
}

// path reads a path and makes it absolute.
func (r *reader) path(n *yaml.Node, at string) string {
	s, ok := r.text(n, at)
	switch {
	case !ok:
	case s == "":
		r.fault(n, at, "the path is empty")
	case s == "~" || strings.HasPrefix(s, "~/"):
		r.fault(n, at, "~ is not known here; write the whole path")
	case !filepath.IsAbs(s):
		return filepath.Join(r.dir, s)
	}
	return s
}

// number reads an integer within bounds.
func (r *reader) number(n *yaml.Node, at string, low, high int) int {
	i, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || i < low || i > high {
		r.fault(n, at, "want a number from %d to %d", low, high)
	}
	return i
}

// bytes reads an amount, at least low: 1073741824, or 1GiB.
func (r *reader) bytes(n *yaml.Node, at string, low int64) int64 {
	s, ok := r.written(n, at)
	number, unit := s, int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if rest, given := strings.CutSuffix(s, suffix); given {
			number, unit = strings.TrimRight(rest, " "), int64(1)<<(10*(i+1))
		}
	}
	i, err := strconv.ParseInt(number, 10, 64)
	if ok && (err != nil || i < 0 || i > math.MaxInt64/unit || i*unit < low || strings.HasPrefix(number, "+")) {
		r.fault(n, at, "%q is no number of bytes such as 1073741824 or 1GiB (at least %dMiB)", s, low>>20)
		return 0
	}
	return i * unit
}

func (r *reader) duration(n *yaml.Node, at string) time.Duration {
	s, ok := r.written(n, at)
	d, err := time.ParseDuration(s)
	if ok && (err != nil || d <= 0 || d > maxDuration) {
		r.fault(n, at, "%q is no duration such as 30s or 5m (at most 24h)", s)
	}
	return d
}

// days reads a time that may be given in days: 90d, or 36h.
func (r *reader) days(n *yaml.Node, at string) time.Duration {
	s, ok := r.written(n, at)
	d, err := time.ParseDuration(s)
	if count, given := strings.CutSuffix(s, "d"); given {
		var days int
		if days, err = strconv.Atoi(count); days > maxDays {
			days = 0
		}
		d = time.Duration(days) * 24 * time.Hour
	}
	if ok && (err != nil || d < time.Hour) {
		r.fault(n, at, "%q is no time such as 90d or 36h (at least 1h)", s)
	}
	return d
}

// kindName says what a node is, but not what it holds.
func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!str":
		return "text"
	case "!!bool":
		return "true or false; text goes in quotes"
	}
	return "a number or date; text goes in quotes"
}
