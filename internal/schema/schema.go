// Package schema checks values against JSON Schemas that somebody else wrote: nothing is ever fetched, and neither a schema nor a value can
// make a check take long. It knows nothing of MCP.
package schema

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"navra/internal/jsonrpc"
)

// Bounds on a schema and on a check.
const (
	maxSchema = 256 << 10 // bytes
	maxPlaces = 2_000     // of the schema: the library compiles n of them in n² steps
	maxSteps  = 100_000   // places of a value that are held against a place of the schema; a long text counts as several
	stepBytes = 256       // of text that count as one step

	placeBytes, programBytes = 1 << 10, 64 // of memory, about: for a place of a schema, for an instruction of an expression
)

// ErrCostly reports a check that was given up: the schema is made so that it would take too long.
var ErrCostly = errors.New("the check takes too many steps")

// A Schema is a compiled schema. Its methods may be called concurrently; checks wait for each other.
type Schema struct {
	mu       sync.Mutex
	compiled *jsonschema.Schema
	left     int // steps of the check under way; guarded by mu
	size     int
}

// Size is about how many bytes of memory the schema takes.
func (s *Schema) Size() int { return s.size }

// A Fault says what is wrong with a value, without quoting it.
type Fault struct {
	Where string // JSON Pointer; "" for the whole value
	Why   string
}

func (f *Fault) Error() string {
	if f.Where == "" {
		return f.Why
	}
	return f.Where + ": " + f.Why
}

// Compile compiles a schema of any draft from 4 on; where it names none, 2020-12. References must stay within it. An expression that Go does not know
// matches everything, and formats are notes, as the drafts have it.
func Compile(raw jsonrpc.Raw) (*Schema, error) {
	if len(raw) > maxSchema {
		return nil, fmt.Errorf("it has more than %d bytes", maxSchema)
	}
	doc, err := valueOf(raw)
	if err != nil {
		return nil, err
	}
	s := &Schema{left: maxSteps}
	c := jsonschema.NewCompiler()
	c.UseLoader(nowhere{})
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	m := newMeter(c, s, doc)
	c.UseRegexpEngine(m.expression)
	if err := m.instrument(doc); err != nil {
		return nil, err
	}
	s.size = len(raw) + m.places*placeBytes + (maxPrograms-m.room)*programBytes
	const name = "https://schema.invalid/it" // what is relative is relative to nothing
	if err := c.AddResource(name, doc); err != nil {
		return nil, errors.New("it is no schema")
	}
	if s.compiled, err = c.Compile(name); err != nil {
		return nil, reason(err)
	}
	return s, nil
}

// Check holds a value against the schema. The error is a *Fault, or ErrCostly.
func (s *Schema) Check(raw jsonrpc.Raw) (err error) {
	v, err := valueOf(raw)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = maxSteps
	defer func() {
		switch p := recover(); p {
		case nil:
		case ErrCostly:
			err = ErrCostly
		default:
			panic(p)
		}
	}()
	if bad := (*jsonschema.ValidationError)(nil); errors.As(s.compiled.Validate(v), &bad) {
		return faultOf(bad)
	}
	return nil
}

// step takes the toll of one place for a value. It is called as the check of a format, which each place of the schema has been given.
func (s *Schema) step(t toll, v any) error {
	if s.left -= t.of(v, s.left); s.left < 0 {
		panic(ErrCostly)
	}
	return nil
}

// nowhere loads nothing.
type nowhere struct{}

var errElsewhere = errors.New("it refers to a schema elsewhere, which is not fetched")

func (nowhere) Load(string) (any, error) { return nil, errElsewhere }

// An always is an expression that matches everything.
type always string

func (a always) String() string        { return string(a) }
func (always) MatchString(string) bool { return true }

// reason says why a schema does not compile. The library's texts quote it, and name files.
func reason(err error) error {
	var load *jsonschema.LoadURLError
	var invalid *jsonschema.SchemaValidationError
	switch {
	case errors.As(err, &load):
		return errElsewhere
	case errors.As(err, &invalid):
		if bad := (*jsonschema.ValidationError)(nil); errors.As(invalid.Err, &bad) {
			if f := faultOf(bad); f.Where != "" {
				return fmt.Errorf("it is not valid at %s", f.Where)
			}
		}
		return errors.New("it is not valid")
	case strings.Contains(err.Error(), "not found"):
		return errors.New("it refers to a place that it does not have")
	}
	return errors.New("it is not valid")
}
