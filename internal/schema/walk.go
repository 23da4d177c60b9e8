package schema

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// namedOf are the rules whose members are named by the schema's author.
var namedOf = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}

// instrument has each place of a schema take its toll, and writes the names of drafts as the library knows them. What stands under a rule that
// nobody knows may be referred to: it is a place too.
//
// The toll is a format, which the library looks at before what is within a place, but after enum and const; in old drafts it looks at nothing beside
// a $ref. So these go one place deeper.
func (m *meter) instrument(v any) error {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if err := m.instrument(e); err != nil {
				return err
			}
		}
	case bool:
		m.places++
	case map[string]any:
		m.places++
		return m.place(v)
	}
	return nil
}

func (m *meter) place(o map[string]any) error {
	if m.places > maxPlaces {
		return fmt.Errorf("it has more than %d places", maxPlaces)
	}
	if name, ok := o["$schema"].(string); ok {
		if o["$schema"] = draft(name); m.places > 1 && draft(name) != m.draft {
			return errors.New("it is of several drafts")
		}
	}
	t := m.toll(o)
	for key, e := range o {
		if err := refers(key, e); err != nil {
			return err
		}
		if named, ok := e.(map[string]any); ok && slices.Contains(namedOf, key) {
			for _, e := range named {
				if err := m.instrument(e); err != nil {
					return err
				}
			}
		} else if key != "enum" && key != "const" {
			if err := m.instrument(e); err != nil {
				return err
			}
		}
	}
	if ref, has := o["$ref"]; has && oldDrafts[m.draft] {
		maps.DeleteFunc(o, func(key string, _ any) bool { return !slices.Contains(besideRef, key) })
		o["allOf"] = []any{map[string]any{"$ref": ref}}
	} else {
		deeper(o, "enum")
		deeper(o, "const")
	}
	o["format"] = m.format(t)
	return nil
}

// refers refuses a reference to what is no place: into values to compare with, and to a list of dependencies.
func refers(key string, e any) error {
	text, ok := e.(string)
	if !ok || key != "$ref" && key != "$dynamicRef" && key != "$recursiveRef" {
		return nil
	}
	_, fragment, _ := strings.Cut(text, "#")
	path, err := url.PathUnescape(fragment)
	if err != nil {
		return errors.New("it has a reference that is not valid")
	}
	parts := strings.Split(path, "/")
	for i, part := range parts {
		value := (part == "enum" || part == "const") && i > 0 && !slices.Contains(namedOf, parts[i-1])
		if value || part == "dependencies" && i == len(parts)-1 {
			return errors.New("it refers to a place that is no schema")
		}
	}
	return nil
}

// besideRef is what still means something beside $ref in old drafts.
var besideRef = []string{"$schema", "$id", "id", "definitions", "$defs"}

// deeper moves a rule of a place into one that the value must fit too.
func deeper(o map[string]any, key string) {
	rule, has := o[key]
	all, list := o["allOf"].([]any)
	if !has || !list && o["allOf"] != nil { // which is not valid
		return
	}
	delete(o, key)
	o["allOf"] = append(slices.Clip(all), map[string]any{key: rule})
}

// toll is that of one place.
func (m *meter) toll(o map[string]any) (t toll) {
	for _, key := range []string{"enum", "const", "required", "dependentRequired", "dependencies", "dependentSchemas"} {
		t.fixed += weight(o[key]) / 16
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := o[key].([]any)
		t.fixed += len(list)
	}
	if o["$ref"] != nil { // the library looks for circles each time
		t.fixed += 3
	}
	t.unique, _ = o["uniqueItems"].(bool)
	if text, ok := o["pattern"].(string); ok {
		t.pattern = m.instructions(text)
	}
	if named, ok := o["patternProperties"].(map[string]any); ok {
		for text := range named {
			t.names += 4 + m.instructions(text)
		}
	}
	for _, key := range []string{"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
		t.numeric = t.numeric || o[key] != nil
	}
	return t
}

// weight is about how long it takes to compare something with v: 16 is a step.
func weight(v any) int {
	switch v := v.(type) {
	case nil, bool:
		return 1
	case string:
		return 1 + len(v)/stepBytes
	case []any:
		n := 1
		for _, e := range v {
			n += weight(e)
		}
		return n
	case map[string]any:
		n := 1
		for _, e := range v {
			n += 1 + weight(e)
		}
		return n
	}
	return 16 // a number: the library makes a fraction of it, each time
}

// newest is the draft of a schema that names none.
const newest = "https://json-schema.org/draft/2020-12/schema"

// oldDrafts are those in which nothing beside $ref counts.
var oldDrafts = map[string]bool{
	"http://json-schema.org/draft-04/schema#": true, "http://json-schema.org/draft-06/schema#": true, "http://json-schema.org/draft-07/schema#": true,
}

// draft is the name of a draft with the scheme that it was given: both are in use, with and without an empty fragment.
func draft(name string) string {
	rest := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(name, "https://"), "http://"), "#")
	switch rest {
	case "json-schema.org/draft-04/schema", "json-schema.org/draft-06/schema", "json-schema.org/draft-07/schema":
		return "http://" + rest + "#"
	case "json-schema.org/draft/2019-09/schema", "json-schema.org/draft/2020-12/schema":
		return "https://" + rest
	}
	return name
}
