// Package ifc is the lattice of information flow labels: what a label is, how labels join, and whether data under a
// label may flow towards an upstream. It is pure: it knows nothing of messages, rules or storage.
package ifc

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Integrity says how far data may be trusted. The zero Integrity is the worst.
type Integrity uint8

// The integrity levels, worst first.
const (
	Suspect   Integrity = iota // carries an injection finding
	Untrusted                  // from outside
	Trusted                    // the operator's or the person's own
)

// Confidentiality says how secret data is. The zero Confidentiality is the most secret.
type Confidentiality uint8

// The confidentiality levels, most secret first.
const (
	Secret Confidentiality = iota
	PII
	Sensitive
	Public
)

var (
	integrityNames       = []string{"suspect", "untrusted", "trusted"}
	confidentialityNames = []string{"secret", "pii", "sensitive", "public"}
)

func (i Integrity) String() string {
	if int(i) < len(integrityNames) {
		return integrityNames[i]
	}
	return integrityNames[Suspect]
}

func (c Confidentiality) String() string {
	if int(c) < len(confidentialityNames) {
		return confidentialityNames[c]
	}
	return confidentialityNames[Secret]
}

// ParseIntegrity reads a level's name.
func ParseIntegrity(s string) (Integrity, error) {
	if i := slices.Index(integrityNames, s); i >= 0 {
		return Integrity(i), nil
	}
	return Suspect, fmt.Errorf("integrity %q is none of trusted, untrusted, suspect", s)
}

// ParseConfidentiality reads a level's name.
func ParseConfidentiality(s string) (Confidentiality, error) {
	if i := slices.Index(confidentialityNames, s); i >= 0 {
		return Confidentiality(i), nil
	}
	return Secret, fmt.Errorf("confidentiality %q is none of public, sensitive, pii, secret", s)
}

// Exceeds reports whether c is more secret than ceiling.
func (c Confidentiality) Exceeds(ceiling Confidentiality) bool { return c < ceiling }

// A Level is what one source contributes: its integrity and its confidentiality. The zero Level is the top.
type Level struct {
	Integrity       Integrity
	Confidentiality Confidentiality
}

// Join returns the least upper bound of l and m: the worse of each.
func (l Level) Join(m Level) Level {
	return Level{min(l.Integrity, m.Integrity), min(l.Confidentiality, m.Confidentiality)}
}

func (l Level) String() string { return l.Integrity.String() + ", " + l.Confidentiality.String() }

// Neutral is the level of what carries nothing: navra's own words, pinned definitions, acknowledgements.
var Neutral = Level{Trusted, Public}

// A Label is a point in the lattice: a level for each source that data came from. Labels are immutable values.
// The zero Label is the top: of unknown origin, suspect and secret. [Bottom] is the label of nothing.
type Label struct {
	known   bool
	sources map[string]Level // never written after the label was made
}

// Bottom returns the label of data without a source.
func Bottom() Label { return Label{known: true} }

// Of returns the label of data from one source. A neutral level adds no source.
func Of(source string, l Level) Label {
	if l == Neutral {
		return Bottom()
	}
	return Label{known: true, sources: map[string]Level{source: l}}
}

// IsTop reports whether l is the zero Label.
func (l Label) IsTop() bool { return !l.known }

// Join returns the least upper bound of l and m.
func (l Label) Join(m Label) Label {
	switch {
	case !l.known || !m.known:
		return Label{}
	case len(m.sources) == 0:
		return l
	case len(l.sources) == 0:
		return m
	}
	out := maps.Clone(l.sources)
	for s, lv := range m.sources {
		if old, ok := out[s]; ok {
			lv = lv.Join(old)
		}
		out[s] = lv
	}
	return Label{known: true, sources: out}
}

// Covers reports whether joining m into l would change nothing.
func (l Label) Covers(m Label) bool {
	if !l.known {
		return true
	}
	if !m.known {
		return false
	}
	for s, lv := range m.sources {
		if old, ok := l.sources[s]; !ok || old.Join(lv) != old {
			return false
		}
	}
	return true
}

// Equal reports whether l and m are the same point.
func (l Label) Equal(m Label) bool {
	return l.known == m.known && maps.Equal(l.sources, m.sources)
}

// Confidentiality returns the highest confidentiality over all sources but those named.
func (l Label) Confidentiality(but ...string) Confidentiality {
	if !l.known {
		return Secret
	}
	c := Public
	for s, lv := range l.sources {
		if !slices.Contains(but, s) {
			c = min(c, lv.Confidentiality)
		}
	}
	return c
}

// Integrity returns the lowest integrity over all sources.
func (l Label) Integrity() Integrity {
	if !l.known {
		return Suspect
	}
	i := Trusted
	for _, lv := range l.sources {
		i = min(i, lv.Integrity)
	}
	return i
}

// Sources returns the names of the sources, sorted.
func (l Label) Sources() []string { return slices.Sorted(maps.Keys(l.sources)) }

// Above returns the sources, but those named, whose confidentiality exceeds ceiling; sorted.
func (l Label) Above(ceiling Confidentiality, but ...string) []string {
	var out []string
	for _, s := range l.Sources() {
		if !slices.Contains(but, s) && l.sources[s].Confidentiality.Exceeds(ceiling) {
			out = append(out, s)
		}
	}
	return out
}

// String prints l as "untrusted, files:pii, github:sensitive"; the bottom is "trusted, public", the top "suspect, secret".
func (l Label) String() string {
	if !l.known {
		return "suspect, secret"
	}
	parts := []string{l.Integrity().String()}
	for _, s := range l.Sources() {
		parts = append(parts, s+":"+l.sources[s].Confidentiality.String())
	}
	if len(parts) == 1 {
		parts = append(parts, Public.String())
	}
	return strings.Join(parts, ", ")
}
