package schema

import (
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// maxShown bounds what is said of a fault, in bytes.
const maxShown = 200

// faultOf finds the first fault that says something: where a value fits none of several forms, that.
func faultOf(e *jsonschema.ValidationError) *Fault {
	for len(e.Causes) > 0 && goesInto(e.ErrorKind) {
		e = e.Causes[0]
	}
	f := &Fault{Why: why(e.ErrorKind)}
	for _, part := range e.InstanceLocation {
		f.Where += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part)
	}
	f.Where, f.Why = shorten(f.Where), shorten(f.Why)
	return f
}

// goesInto reports whether what is wrong stands among the causes.
func goesInto(k jsonschema.ErrorKind) bool {
	switch k.(type) {
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
		return true
	}
	return false
}

func why(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Required:
		return "it lacks " + strings.Join(k.Missing, ", ")
	case *kind.AdditionalProperties:
		return "it has members that are not known: " + strings.Join(k.Properties, ", ")
	case *kind.Type:
		return "it is of type " + k.Got + ", not " + strings.Join(k.Want, " or ")
	case *kind.Enum:
		return "it is none of the values that are allowed"
	case *kind.Const:
		return "it is not the value that is allowed"
	case *kind.AnyOf, *kind.OneOf:
		return "it fits none, or more than one, of the forms that are allowed"
	case *kind.FalseSchema:
		return "it must not be there"
	}
	if path := k.KeywordPath(); len(path) > 0 {
		return "it breaks the rule " + path[len(path)-1]
	}
	return "it does not fit"
}

func shorten(s string) string {
	if len(s) > maxShown {
		return strings.ToValidUTF8(s[:maxShown], "") + "…"
	}
	return s
}
