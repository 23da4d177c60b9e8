package jsonrpc

import (
	"errors"
	"strconv"
	"strings"
)

// MapStrings returns v with every string in it, member names included, at any depth, replaced by f's answer. path is a
// JSON pointer without its first slash (RFC 6901 §3) and names the place for messages: "content/0/text", "" for v
// itself; for a member name the object that holds it. It is made of the names as f left them, so that it tells nothing
// that f took out. f sees a name before its value, and everything in order. Where f returns changed false for all, v itself is
// returned; invalid UTF-8 of an answer becomes U+FFFD.
// f that maps two names of one object to the same name makes it an error, which does not show the name.
func (v Raw) MapStrings(f func(path string, name bool, s string) (out string, changed bool)) (Raw, error) {
	if len(v) == 0 {
		return v, nil
	}
	m := mapper{in: v, f: f}
	if _, err := m.value(0); err != nil {
		return nil, err
	}
	if m.out == nil {
		return v, nil
	}
	return append(m.out, v[m.copied:]...), nil
}

// A mapper walks a value once, from its first byte to its last. What it has not copied yet is unchanged.
type mapper struct {
	in     Raw
	f      func(path string, name bool, s string) (string, bool)
	out    Raw // nil as long as nothing has changed
	copied int // how much of in stands in out
	path   []byte
	names  []string // of the objects that are open, as they are now
}

var errSameName = errors.New("two members of one object would have the same name")

// value maps the value that begins at byte i and returns the byte after it.
func (m *mapper) value(i int) (end int, err error) {
	switch m.in[i] {
	case '"':
		end = afterText(m.in, i)
		m.text(string(m.path), false, i, end)
		return end, nil
	case '{':
		return m.object(i)
	case '[':
		return m.array(i)
	}
	return after(m.in, i), nil
}

// text maps the string in[i:end] and returns what it is now.
func (m *mapper) text(path string, name bool, i, end int) (now string, changed bool) {
	was := unquote(m.in[i:end])
	now, changed = m.f(path, name, was)
	if !changed {
		return was, false
	}
	now = strings.ToValidUTF8(now, "\uFFFD")
	if m.out == nil {
		m.out = make(Raw, 0, len(m.in))
	}
	m.out = appendText(append(m.out, m.in[m.copied:i]...), now)
	m.copied = end
	return now, true
}

func (m *mapper) array(i int) (end int, err error) {
	base := len(m.path)
	at := i + 1
	for n := 0; at < len(m.in) && m.in[at] != ']'; n++ {
		m.path = strconv.AppendInt(m.enter(i, base), int64(n), 10)
		if at, err = m.value(at); err != nil {
			return 0, err
		}
		at = overComma(m.in, at)
	}
	m.path = m.path[:base]
	return at + 1, nil
}

func (m *mapper) object(i int) (end int, err error) {
	base, first := len(m.path), len(m.names)
	here := string(m.path)
	renamed := false
	at := i + 1
	for at < len(m.in) && m.in[at] == '"' {
		colon := afterText(m.in, at)
		name, changed := m.text(here, true, at, colon)
		renamed = renamed || changed
		m.names = append(m.names, name)
		m.path = appendToken(m.enter(i, base), name)
		if at, err = m.value(colon + 1); err != nil {
			return 0, err
		}
		at = overComma(m.in, at)
	}
	if renamed && !distinct(m.names[first:]) {
		return 0, errSameName
	}
	m.path, m.names = m.path[:base], m.names[:first]
	return at + 1, nil
}

// enter returns the path of the array or object at byte i, whose length is base, open for one more token.
func (m *mapper) enter(i, base int) []byte {
	if i == 0 {
		return m.path[:0]
	}
	return append(m.path[:base], '/')
}

func distinct(names []string) bool {
	seen := make(map[string]struct{}, len(names))
	for _, name := range names {
		seen[name] = struct{}{}
	}
	return len(seen) == len(names)
}

// appendToken appends a reference token of a JSON pointer.
func appendToken(b []byte, name string) []byte {
	for i := range len(name) {
		switch name[i] {
		case '~':
			b = append(b, "~0"...)
		case '/':
			b = append(b, "~1"...)
		default:
			b = append(b, name[i])
		}
	}
	return b
}
