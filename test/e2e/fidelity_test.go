package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A maker makes JSON that a sloppy gateway would change: long numbers, members in any order, keywords and members that it does not know.
type maker struct{ *rand.Rand }

var (
	someNames = []string{"oneOf", "$defs", "allOf", "if", "then", "else", "x-acme", "X-Acme", "$comment", "$anchor", "prefixItems", "patternProperties", "enum", "const",
		"default", "title", "icons", "b", "a", "B", "ключ", "", "with space", `q"\/`, "é", "é", "__proto__", "0", "10", "9", "<b>&", "annotations", "_meta", "resultTypes"}
	someNumbers = []string{"0", "-0", "1", "-1", "9007199254740993", "-9223372036854775808", "18446744073709551615", "123456789012345678901234567890", "1.0", "1.10",
		"0.1e+2", "1E400", "5e-324", "100"}
	someTexts = []string{"", "plain", "Grüße", "日本語", "a\\u0000b", "\\u2028", "\\\"quoted\\\"", "tab\\there", "<script>", "😀", "\\ud83d\\ude00", "https://example.com/x?a=1&b=2"}
)

func (m maker) value(depth int) string {
	switch n := m.IntN(10); {
	case n < 2 && depth > 0:
		return m.object(depth-1, "")
	case n < 4 && depth > 0:
		var parts []string
		for range m.IntN(4) {
			parts = append(parts, m.value(depth-1))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case n < 6:
		return someNumbers[m.IntN(len(someNumbers))]
	case n < 7:
		return []string{"true", "false", "null"}[m.IntN(3)]
	}
	return `"` + someTexts[m.IntN(len(someTexts))] + `"`
}

// object makes an object with the given members at random places among others.
func (m maker) object(depth int, given ...string) string {
	parts := slices.DeleteFunc(slices.Clone(given), func(s string) bool { return s == "" })
	used := map[string]bool{}
	for _, p := range parts {
		used[strings.SplitN(p, `"`, 3)[1]] = true
	}
	for range m.IntN(6) {
		name := someNames[m.IntN(len(someNames))]
		if used[name] {
			continue
		}
		used[name] = true
		key, _ := json.Marshal(name)
		parts = append(parts, string(key)+":"+m.value(depth))
	}
	m.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return "{" + strings.Join(parts, ",") + "}"
}

// vendor is a _meta with a key of somebody's.
func (m maker) vendor() string { return `"_meta":{"vendor.example/k":` + m.value(3) + `}` }

// notes are members of a schema that may hold anything.
func (m maker) notes(depth int) []string {
	return []string{`"x-acme":` + m.value(depth), `"X-Acme":` + m.value(depth), `"default":` + m.value(depth), `"examples":[` + m.value(depth) + `]`, `"ключ":` + m.value(depth), `"":` + m.value(depth)}
}

// schema makes a valid schema that takes everything, of members in any order.
func (m maker) schema(depth int, given ...string) string {
	parts := append(m.notes(depth), given...)
	m.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return "{" + strings.Join(parts, ",") + "}"
}

func (m maker) tool(name string) string {
	inner := func() string { return m.schema(2) }
	schema := m.schema(3, `"type":"object"`, `"$defs":{"s":`+inner()+`,"__proto__":`+inner()+`,"r":`+m.schema(1, `"$ref":"#/$defs/s"`)+`}`, `"oneOf":[`+inner()+`,`+m.schema(1, `"not":{}`)+`]`,
		`"properties":{"a":`+inner()+`,"10":`+inner()+`,"9":true}`, `"if":`+inner(), `"then":`+inner(), `"patternProperties":{"^z":`+inner()+`}`, `"$comment":"c"`, `"$anchor":"here"`, `"prefixItems":[`+inner()+`]`)
	return m.object(3, `"name":"`+name+`"`, `"inputSchema":`+schema, `"outputSchema":`+m.schema(2, `"type":"object"`), m.vendor(), `"title":"t"`, `"annotations":`+m.object(1), `"icons":[]`)
}

func (m maker) result() string {
	block := m.object(2, `"type":"text"`, `"text":"t"`, m.vendor(), `"annotations":{}`)
	return m.object(3, `"content":[`+block+`]`, `"structuredContent":`+m.object(4), m.vendor())
}

// canon writes a value so that two are equal only if members, their order, digits and texts are. Members that navra owns are left out.
func canon(t *testing.T, raw []byte, owned ...string) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var out strings.Builder
	var value func(write bool)
	value = func(write bool) {
		tok, err := dec.Token()
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		put := func(s string) {
			if write {
				out.WriteString(s)
			}
		}
		d, nested := tok.(json.Delim)
		if !nested {
			put(fmt.Sprintf("%T %q;", tok, fmt.Sprint(tok)))
			return
		}
		put(d.String())
		for dec.More() {
			if d == '{' {
				name, _ := dec.Token()
				mine := slices.Contains(owned, name.(string))
				if !mine {
					put(fmt.Sprintf("%q:", name))
				}
				value(write && !mine)
				continue
			}
			value(write)
		}
		end, _ := dec.Token()
		put(fmt.Sprint(end))
	}
	value(true)
	return out.String()
}

// TestFidelity lists and calls tools of which everything is made up, in both eras of clients and all ways to upstreams: nothing changes but what
// navra owns.
func TestFidelity(t *testing.T) {
	t.Parallel()
	const tools = 24
	m := maker{rand.New(rand.NewPCG(1, 20260728))}
	var defs, results, args []string
	var file []string
	for i := range tools {
		defs, results, args = append(defs, m.tool(fmt.Sprintf("t%02d", i))), append(results, m.result()), append(args, m.object(4))
		file = append(file, `{"tool":`+defs[i]+`,"result":`+results[i]+`}`)
	}
	for _, c := range cells() {
		if c.name == "sse" || strings.Contains(c.name, "silent") || strings.Contains(c.name, "exits") {
			continue // they differ in how they are found, not in what they send
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			path := filepath.Join(s.Dir, "tools.json")
			if err := os.WriteFile(path, []byte("["+strings.Join(file, ",")+"]"), 0o600); err != nil {
				t.Fatal(err)
			}
			g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\nifc: {on_violation: observe}\n"+
				"upstreams: {odd: {"+c.key(s, "odd", "-verbatim", path)+", prefix: none}}\n"))
			for _, modern := range []bool{false, true} {
				w := &web{t: t, addr: g.Addr, modern: modern}
				if !modern {
					w.open()
				}
				var list struct{ Tools []json.RawMessage }
				if got := w.request("tools/list", map[string]any{}); json.Unmarshal(got.Result, &list) != nil || len(list.Tools) != tools {
					t.Fatalf("tools/list: %d tools, want %d: %s", len(list.Tools), tools, got.Result)
				}
				for i := range tools {
					if got, want := canon(t, list.Tools[i]), canon(t, []byte(defs[i])); got != want {
						t.Errorf("modern client %v: a definition came out changed:\n got %s\nwant %s", modern, list.Tools[i], defs[i])
					}
					got := w.request("tools/call", map[string]any{"name": fmt.Sprintf("t%02d", i), "arguments": json.RawMessage(args[i])})
					want := `{"echo":` + args[i] + `,` + results[i][1:]
					if got.Error != nil || canon(t, got.Result, "resultType", "io.modelcontextprotocol/serverInfo") != canon(t, []byte(want)) {
						t.Errorf("modern client %v: a result came out changed:\n got %s %+v\nwant %s", modern, got.Result, got.Error, want)
					}
				}
			}
		})
	}
}
