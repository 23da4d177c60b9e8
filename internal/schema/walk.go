package schema

import "strings"

// step is the name of the format that counts.
const step = "navra-step"

// Where schemas stand within a schema, in any draft.
var (
	oneOf   = []string{"not", "if", "then", "else", "items", "additionalItems", "additionalProperties", "propertyNames", "contains", "unevaluatedItems", "unevaluatedProperties", "contentSchema"}
	listOf  = []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"}
	namedOf = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)

// instrument has each place of a schema count, and writes the names of drafts as the library knows them.
func instrument(v any) {
	o, ok := v.(map[string]any)
	if !ok {
		return
	}
	o["format"] = step
	if name, ok := o["$schema"].(string); ok {
		o["$schema"] = draft(name)
	}
	for _, key := range oneOf {
		instrument(o[key])
	}
	for _, key := range listOf {
		if list, ok := o[key].([]any); ok {
			for _, e := range list {
				instrument(e)
			}
		}
	}
	for _, key := range namedOf {
		if named, ok := o[key].(map[string]any); ok {
			for _, e := range named {
				instrument(e)
			}
		}
	}
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
