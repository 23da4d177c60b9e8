package ifc_test

import (
	"math/rand/v2"
	"testing"

	"navra/internal/ifc"
)

func some(r *rand.Rand) ifc.Label {
	if r.IntN(20) == 0 {
		return ifc.Label{}
	}
	l := ifc.Bottom()
	for range r.IntN(4) {
		l = l.Join(ifc.Of(string(rune('a'+r.IntN(4))), ifc.Level{Integrity: ifc.Integrity(r.IntN(3)), Confidentiality: ifc.Confidentiality(r.IntN(4))}))
	}
	return l
}

// The laws of a join semilattice with bottom and top, and that Covers is its order.
func TestLattice(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		a, b, c := some(r), some(r), some(r)
		checks := map[string]bool{
			"idempotent":       a.Join(a).Equal(a),
			"commutative":      a.Join(b).Equal(b.Join(a)),
			"associative":      a.Join(b).Join(c).Equal(a.Join(b.Join(c))),
			"bottom":           a.Join(ifc.Bottom()).Equal(a),
			"top":              a.Join(ifc.Label{}).IsTop(),
			"upper bound":      a.Join(b).Covers(a) && a.Join(b).Covers(b),
			"covers is order":  a.Covers(b) == a.Join(b).Equal(a),
			"zero is the top":  ifc.Label{}.Covers(a),
			"monotone secrecy": !a.Confidentiality().Exceeds(a.Join(b).Confidentiality()),
			"monotone trust":   a.Join(b).Integrity() <= a.Integrity(),
		}
		for law, holds := range checks {
			if !holds {
				t.Fatalf("%s fails for %v, %v, %v", law, a, b, c)
			}
		}
		text, err := a.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back ifc.Label
		if err := back.UnmarshalText(text); err != nil || !back.Equal(a) {
			t.Fatalf("UnmarshalText(%s) = %v, %v, want %v", text, back, err, a)
		}
	}
}

func TestDamagedTextIsTheTop(t *testing.T) {
	for _, s := range []string{"", "{", `{"a":["trusted"]}`, `{"a":["trusted","loud"]}`, `"bottom"`} {
		l := ifc.Bottom()
		if err := l.UnmarshalText([]byte(s)); err == nil || !l.IsTop() {
			t.Errorf("UnmarshalText(%q) = %v, %v, want an error and the top", s, l, err)
		}
	}
}

func TestString(t *testing.T) {
	u := ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.PII}
	s := ifc.Level{Integrity: ifc.Trusted, Confidentiality: ifc.Sensitive}
	for want, l := range map[string]ifc.Label{
		"suspect, secret":                        {},
		"trusted, public":                        ifc.Bottom(),
		"untrusted, files:pii, github:sensitive": ifc.Of("github", s).Join(ifc.Of("files", u)),
	} {
		if got := l.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}

func TestFlow(t *testing.T) {
	level := func(i ifc.Integrity, c ifc.Confidentiality) ifc.Level {
		return ifc.Level{Integrity: i, Confidentiality: c}
	}
	private := ifc.Of("files", level(ifc.Untrusted, ifc.Sensitive))
	page := ifc.Of("web", level(ifc.Untrusted, ifc.Public))
	personal := ifc.Of("crm", level(ifc.Untrusted, ifc.PII))
	suspect := ifc.Of("web", level(ifc.Suspect, ifc.Public))
	for _, tt := range []struct {
		rule  string
		scope ifc.Label
		to    string
		class ifc.Class
		own   ifc.Confidentiality
		want  string
	}{
		{"a clean scope may send", ifc.Bottom(), "mail", ifc.Egress, ifc.Sensitive, ""},
		{"private data does not leave by egress", private, "mail", ifc.Egress, ifc.Sensitive, "confidentiality"},
		{"egress counts the upstream's own data", private, "files", ifc.Egress, ifc.Sensitive, "confidentiality"},
		{"an upstream's data may go back to it", private, "files", ifc.Write, ifc.Public, ""},
		{"sensitive data may be written where sensitive data lies", private, "tickets", ifc.Write, ifc.Sensitive, ""},
		{"sensitive data is not written to a public place", private, "wiki", ifc.Write, ifc.Public, "confidentiality"},
		{"reads leak by their arguments", private, "wiki", ifc.Read, ifc.Public, "confidentiality"},
		{"no write down from pii", personal, "tickets", ifc.Write, ifc.Sensitive, "confidentiality"},
		{"unclassified has clearance public", private, "mail", ifc.Unclassified, ifc.Sensitive, "confidentiality"},
		{"unclassified within one upstream", private, "files", ifc.Unclassified, ifc.Sensitive, ""},
		{"public pages may be sent on", page, "mail", ifc.Egress, ifc.Sensitive, ""},
		{"suspect words do not send", suspect, "mail", ifc.Egress, ifc.Sensitive, "integrity"},
		{"suspect words do not write", suspect, "files", ifc.Write, ifc.Sensitive, "integrity"},
		{"suspect words do not call what nobody classified", suspect, "files", ifc.Unclassified, ifc.Sensitive, "integrity"},
		{"suspect words may read", suspect, "files", ifc.Read, ifc.Sensitive, ""},
		{"an unknown label is the worst", ifc.Label{}, "files", ifc.Read, ifc.PII, "confidentiality"},
	} {
		if got := ifc.Flow(tt.scope, tt.to, tt.class, tt.own); got.Reason != tt.want {
			t.Errorf("%s: Flow(%v, %s, %v, %v) = %q, want %q", tt.rule, tt.scope, tt.to, tt.class, tt.own, got.Reason, tt.want)
		}
	}
}
