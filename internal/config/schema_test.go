package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

type schemaNode struct {
	Properties           map[string]schemaNode
	AdditionalProperties json.RawMessage
	Items                *schemaNode
	OneOf                []schemaNode
}

var knownKeys = regexp.MustCompile(`\(known are ([^)]*)\)`)

// TestSchemaKnowsTheSameKeys asks the reader, in each mapping that the schema knows, for a key that is in neither.
func TestSchemaKnowsTheSameKeys(t *testing.T) {
	var root schemaNode
	if err := json.Unmarshal(Schema, &root); err != nil {
		t.Fatal(err)
	}
	checked := 0
	var walk func(n schemaNode, wrap string)
	walk = func(n schemaNode, wrap string) {
		for _, one := range n.OneOf {
			walk(one, wrap)
		}
		if n.Items != nil {
			walk(*n.Items, fmt.Sprintf(wrap, "[%s]"))
		}
		var more schemaNode
		if json.Unmarshal(n.AdditionalProperties, &more) == nil && more.Properties != nil {
			walk(more, fmt.Sprintf(wrap, "{some: %s}"))
		}
		if len(n.Properties) == 0 {
			return
		}
		text := fmt.Sprintf(wrap, "{qqqqqqqqqqqq: 1}")
		_, err := Parse("/navra.yaml", []byte(text))
		if err == nil {
			t.Errorf("the reader takes %s", text)
			return
		}
		want := strings.Join(slices.Sorted(maps.Keys(n.Properties)), ", ")
		m := knownKeys.FindStringSubmatch(err.Error())
		if m == nil || m[1] != want {
			t.Errorf("%s: the schema knows %s, the reader says\n%v", text, want, err)
		}
		checked++
		for key, p := range n.Properties {
			walk(p, fmt.Sprintf(wrap, "{"+key+": %s}"))
		}
	}
	walk(root, "%s")
	if checked < 15 {
		t.Errorf("only %d mappings were checked", checked)
	}
}
