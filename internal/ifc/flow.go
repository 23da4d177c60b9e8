package ifc

import (
	"fmt"
	"slices"
)

// A Class says what a call does with what it is given. The zero Class is Unclassified, which is judged like the
// strictest that its upstream could be.
type Class uint8

// The classes of tools, prompts and resource templates.
const (
	Unclassified Class = iota
	Read               // looks something up in the upstream's own data
	Write              // changes the upstream's own data
	Egress             // reaches people or systems beyond the upstream's own data, or can make its data public
)

var classNames = []string{"unclassified", "read", "write", "egress"}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return classNames[Unclassified]
}

// ParseClass reads a class that an operator may give.
func ParseClass(s string) (Class, error) {
	if i := slices.Index(classNames, s); i > 0 {
		return Class(i), nil
	}
	return Unclassified, fmt.Errorf("class %q is none of read, write, egress", s)
}

// A Violation is a flow that the lattice forbids. The zero Violation is none.
type Violation struct {
	Sources []string // whose data would leave, or whose words may have steered the call
	Reason  string   // "confidentiality" or "integrity"
	Ceiling Confidentiality
}

// IsZero reports whether there is no violation.
func (v Violation) IsZero() bool { return v.Reason == "" }

// Flow checks a call of class c from a scope labelled l towards upstream u, whose own data has the confidentiality own.
//
// No write down (Bell-LaPadula): the highest confidentiality over all sources but u must not exceed the clearance, which is
// own for reads and writes and public for egress, where u's own data counts too. Unclassified calls have clearance public.
// Integrity: a suspect scope does not write, send, or call what nobody classified.
func Flow(l Label, u string, c Class, own Confidentiality) Violation {
	ceiling, but := Public, []string{u}
	switch c {
	case Read, Write:
		ceiling = own
	case Egress:
		but = nil
	}
	if l.Confidentiality(but...).Exceeds(ceiling) {
		return Violation{Sources: l.Above(ceiling, but...), Reason: "confidentiality", Ceiling: ceiling}
	}
	if c != Read && l.Integrity() == Suspect {
		return Violation{Sources: l.suspects(), Reason: "integrity", Ceiling: ceiling}
	}
	return Violation{}
}

func (l Label) suspects() []string {
	var out []string
	for _, s := range l.Sources() {
		if l.sources[s].Integrity == Suspect {
			out = append(out, s)
		}
	}
	return out
}
