package schema

import (
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds on the expressions of one schema. What is over them matches everything: it is the upstream's to check.
const (
	maxExpression = 2 << 10 // bytes
	maxProgram    = 4_000   // instructions of one expression: repeats are written out, so few bytes make many
	maxPrograms   = 20_000  // of all together
)

// A toll is what it takes to hold a value against one place of a schema, beside the places within it.
type toll struct {
	fixed   int  // steps: values to compare with, members to look for, forms to try
	unique  bool // the elements are compared with each other
	pattern int  // instructions of the expression that texts are held against
	names   int  // of those that names of members are held against
	numeric bool // numbers are computed with
}

// of is the toll for a value, in steps; at most a little more than limit.
func (t toll) of(v any, limit int) int {
	n := 1 + t.fixed
	switch v := v.(type) {
	case string:
		n += len(v)/stepBytes + len(v)*t.pattern/stepWork
	case []any:
		n += len(v) / 2
		if t.unique {
			size := sizeOf(v, limit)
			if len(v) <= 20 { // the library compares each with each
				size *= max(1, len(v)/2)
			}
			n += size
		}
	case map[string]any:
		n += len(v) / 2
		if t.names > 0 {
			for name := range v {
				n += 1 + (len(name)+1)*t.names/stepWork
			}
		}
	default:
		if t.numeric {
			n += 4
		}
	}
	return n
}

// stepWork is how many instructions over one byte each count as a step.
const stepWork = 2048

// sizeOf counts the values in v, up to limit.
func sizeOf(v any, limit int) int {
	n := 1
	switch v := v.(type) {
	case string:
		n += len(v) / stepBytes
	case []any:
		for _, e := range v {
			if n += sizeOf(e, limit-n); n > limit {
				break
			}
		}
	case map[string]any:
		for name, e := range v {
			if n += sizeOf(e, limit-n) + len(name)/stepBytes; n > limit {
				break
			}
		}
	}
	return n
}

// A meter instruments one schema.
type meter struct {
	c        *jsonschema.Compiler
	s        *Schema
	tolls    map[toll]string
	draft    string
	compiled map[string]jsonschema.Regexp
	room     int // instructions
	places   int
}

func newMeter(c *jsonschema.Compiler, s *Schema, doc any) *meter {
	m := &meter{c: c, s: s, draft: newest, tolls: map[toll]string{}, compiled: map[string]jsonschema.Regexp{}, room: maxPrograms}
	if o, ok := doc.(map[string]any); ok && o["$schema"] != nil {
		name, _ := o["$schema"].(string)
		m.draft = draft(name)
	}
	return m
}

// format is the name of the format that takes a toll.
func (m *meter) format(t toll) string {
	name, ok := m.tolls[t]
	if !ok {
		name = fmt.Sprintf("navra-step-%d", len(m.tolls))
		m.tolls[t] = name
		m.c.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(v any) error { return m.s.step(t, v) }})
	}
	return name
}

// expression compiles an expression, once. The library also asks for it where it only looks whether it is one.
func (m *meter) expression(text string) (jsonschema.Regexp, error) {
	re, ok := m.compiled[text]
	if !ok {
		re = always(text)
		if n := program(text); n <= min(maxProgram, m.room) {
			if compiled, err := regexp.Compile(text); err == nil {
				re = compiled
				m.room -= n
			}
		}
		m.compiled[text] = re
	}
	return re, nil
}

// instructions is about how long the program of an expression is; 0 for one that is not run.
func (m *meter) instructions(text string) int {
	re, _ := m.expression(text)
	if _, ok := re.(always); ok {
		return 0
	}
	return program(text)
}

// program is about how many instructions an expression takes; more than maxProgram for what is none, or too long.
func program(text string) int {
	if len(text) > maxExpression {
		return maxProgram + 1
	}
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil { // of ECMA-262, with what RE2 cannot do in linear time
		return maxProgram + 1
	}
	return lengthOf(re)
}

func lengthOf(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)/4
	for _, sub := range re.Sub {
		n += lengthOf(sub)
	}
	if re.Op == syntax.OpLiteral {
		n = 1 + len(re.Rune)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min+1, re.Max, 1)
	}
	return n
}
