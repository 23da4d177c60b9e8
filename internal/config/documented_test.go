package config

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

var codeSpan = regexp.MustCompile("`[^`]*`")

// TestKeysAreDocumented wants each key of the schema in a row of docs/configuration.md: whole (`listen.tls`), or in the row of the key that it
// is below (`{cert, key}`).
func TestKeysAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{} // by key: the code of its row
	for line := range strings.Lines(string(doc)) {
		if cells := codeSpan.FindAllString(line, -1); strings.HasPrefix(line, "| `") {
			rows[strings.Trim(cells[0], "`")] = strings.Join(cells, " ")
		}
	}
	var root schemaNode
	if err := json.Unmarshal(Schema, &root); err != nil {
		t.Fatal(err)
	}
	checked := 0
	var walk func(n schemaNode, at, row string)
	walk = func(n schemaNode, at, row string) {
		for _, one := range n.OneOf {
			walk(one, at, row)
		}
		if n.Items != nil {
			walk(*n.Items, at, row)
		}
		if one, ok := n.named(); ok {
			walk(one, at+map[bool]string{false: ".NAME", true: ".TOOL"}[strings.HasSuffix(at, ".tools")], row)
		}
		for key, p := range n.Properties {
			place, below := strings.TrimPrefix(at+"."+key, "."), row
			_, holds := p.named()
			if own, ok := rows[place]; ok {
				below = own
			} else if !holds && p.Properties == nil && !regexp.MustCompile(`\b`+key+`\b`).MatchString(row) {
				t.Errorf("docs/configuration.md has no row for %s, and that of what it is in does not name it", place)
			}
			checked++
			walk(p, place, below)
		}
	}
	walk(root, "", "")
	if checked < 50 {
		t.Errorf("%d keys checked", checked)
	}
}

// named is what a mapping has under names that the operator gives.
func (n schemaNode) named() (one schemaNode, ok bool) {
	err := json.Unmarshal(n.AdditionalProperties, &one)
	return one, err == nil && one.Properties != nil
}
