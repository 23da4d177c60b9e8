package filter

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"navra/internal/jsonrpc"
)

// Apply looks through every string of a value, member names included, at any depth. Where replace is not nil and says so, what was
// found is replaced by what it returns. Image and audio data
// passes as it is; a resource's blob is looked through decoded. Two names of one object that would become the same are an error.
func (s *Set) Apply(v jsonrpc.Raw, replace func(Finding) (string, bool)) (jsonrpc.Raw, []Finding, error) {
	w := walker{set: s, replace: replace}
	out := w.value(v, "")
	return out, w.found, w.err
}

type walker struct {
	set     *Set
	replace func(Finding) (string, bool)
	found   []Finding
	spent   int
	err     error
}

// value walks v, which is the value of a member called name (or an element of its list), and returns it with what was replaced.
func (w *walker) value(v jsonrpc.Raw, name string) jsonrpc.Raw {
	if w.err != nil || len(v) == 0 {
		return v
	}
	switch v[0] {
	case '"':
		s, _ := v.Text()
		if out := w.text(s, name); out != s {
			return jsonrpc.Quote(out)
		}
	case '[':
		return w.array(v, name)
	case '{':
		return w.object(v)
	}
	return v
}

func (w *walker) array(v jsonrpc.Raw, name string) jsonrpc.Raw {
	var out []jsonrpc.Raw
	i, changed := 0, false
	for e := range v.Elements() {
		f := w.value(e, name)
		if !changed && string(f) != string(e) {
			changed = true
			out = make([]jsonrpc.Raw, 0, i+1)
			for before := range v.Elements() {
				if len(out) == i {
					break
				}
				out = append(out, before)
			}
		}
		if changed {
			out = append(out, f)
		}
		i++
	}
	if !changed {
		return v
	}
	return jsonrpc.Array(out...)
}

func (w *walker) object(v jsonrpc.Raw) jsonrpc.Raw {
	type member struct {
		name  string
		value jsonrpc.Raw
	}
	var members []member
	changed := false
	media, blob := kindOf(v)
	for name, e := range v.Members() {
		m := member{w.text(name, ""), e}
		switch {
		case name == "data" && media && w.binary(e):
		case name == "blob" && blob:
			m.value = w.blob(e)
		default:
			m.value = w.value(e, name)
		}
		changed = changed || m.name != name || string(m.value) != string(e)
		members = append(members, m)
	}
	if !changed || w.err != nil {
		return v
	}
	o := new(jsonrpc.Object)
	seen := map[string]bool{}
	for _, m := range members {
		if seen[m.name] {
			w.err = errSameNames
			return v
		}
		seen[m.name] = true
		o.Raw(m.name, m.value)
	}
	return o.Done()
}

// kindOf tells whether an object is an image or audio block, and whether it is the contents of a binary resource.
func kindOf(v jsonrpc.Raw) (media, blob bool) {
	if kind, ok := v.Get("type"); ok {
		s, _ := kind.Text()
		media = s == "image" || s == "audio"
	}
	_, hasURI := v.Get("uri")
	_, hasBlob := v.Get("blob")
	return media, hasURI && hasBlob
}

// binary reports whether v is base64 of an image or of sound, by its first bytes: nothing to look through.
func (w *walker) binary(v jsonrpc.Raw) bool {
	s, ok := v.Text()
	if !ok {
		return false
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if w.spent += len(s); w.spent > maxText {
		w.err = ErrBudget
	}
	kind := http.DetectContentType(b)
	return err == nil && (strings.HasPrefix(kind, "image/") || strings.HasPrefix(kind, "audio/") || kind == "application/ogg" || kind == "video/webm")
}

// blob looks through what a binary resource decodes to. Where nothing is replaced it passes bit by bit.
func (w *walker) blob(v jsonrpc.Raw) jsonrpc.Raw {
	s, ok := v.Text()
	if !ok {
		return w.value(v, "")
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return w.value(v, "")
	}
	text := string(b) // of whatever encoding: what is looked for is ASCII
	if out := w.text(text, ""); out != text {
		return jsonrpc.Quote(base64.StdEncoding.EncodeToString([]byte(out)))
	}
	return v
}

// text looks through one string. The name of its member counts like a name that stands before a value in text.
func (w *walker) text(s, name string) string {
	if w.spent += len(s); w.spent > maxText {
		w.err = ErrBudget
		return s
	}
	spans := w.set.Scan(s)
	if len(spans) == 0 && len(s) >= minRandom && len(name) <= maxSecretName && isSecretName(name) && random(s) {
		spans = []Span{{"assigned-secret", 0, len(s)}}
	}
	if len(spans) == 0 {
		return s
	}
	var b strings.Builder
	last := 0
	for _, sp := range spans {
		f := Finding{sp.Kind, s[sp.Start:sp.End]}
		w.found = append(w.found, f)
		if w.replace == nil {
			continue
		}
		if by, ok := w.replace(f); ok {
			b.WriteString(s[last:sp.Start])
			b.WriteString(by)
			last = sp.End
		}
	}
	if last == 0 && b.Len() == 0 {
		return s
	}
	b.WriteString(s[last:])
	return b.String()
}

func isSecretName(name string) bool {
	return slices.ContainsFunc(secretNames, func(n string) bool {
		return len(name) >= len(n) && strings.EqualFold(name[len(name)-len(n):], n)
	})
}
