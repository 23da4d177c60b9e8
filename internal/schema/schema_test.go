package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"navra/internal/jsonrpc"
	"navra/internal/schema"
)

func parse(t testing.TB, s string) jsonrpc.Raw {
	t.Helper()
	v, err := jsonrpc.ParseValue([]byte(s))
	if err != nil {
		t.Fatalf("%v: %s", err, s)
	}
	return v
}

func TestCheck(t *testing.T) {
	const file = `{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer","minimum":1},"mode":{"enum":["r","w"]}},"required":["path"],"additionalProperties":false}`
	for _, tt := range []struct{ schema, value, want string }{
		{file, `{"path":"a","n":2,"mode":"r"}`, ""},
		{file, `{}`, "it lacks path"},
		{file, `{"path":7}`, "/path: it is of type number, not string"},
		{file, `{"path":"a","n":0}`, "/n: it breaks the rule minimum"},
		{file, `{"path":"a","n":1.5}`, "/n: it is of type number, not integer"},
		{file, `{"path":"a","mode":"secret"}`, "/mode: it is none of the values that are allowed"},
		{file, `{"path":"a","paht":"b"}`, "it has members that are not known: paht"},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"p":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/p"}}}`, `{"a":1}`, "/a: it is of type number, not string"},
		{`{"$schema":"https://json-schema.org/draft-07/schema","properties":{"a":{"type":"string"}}}`, `{"a":1}`, "/a: it is of type number, not string"},
		{`{"$schema":"https://json-schema.org/draft/2020-12/schema","$defs":{"p":{"$anchor":"q","type":"string"}},"properties":{"a":{"$ref":"#q"}}}`, `{"a":1}`, "/a: it is of type number, not string"},
		{`{"properties":{"a/b":{"items":{"type":"string"}}}}`, `{"a/b":["x",1]}`, "/a~1b/1: it is of type number, not string"},
		{`{"properties":{"big":{"type":"integer"}}}`, `{"big":123456789012345678901234567890}`, ""},
		{`{"properties":{"s":{"type":"string","pattern":"^(?!x)"}}}`, `{"s":"x"}`, ""}, // which RE2 has not
		{`{"properties":{"s":{"type":"string","pattern":"^a+$"}}}`, `{"s":"b"}`, "/s: it breaks the rule pattern"},
		{`{"properties":{"s":{"type":"string","format":"email"}}}`, `{"s":"b"}`, ""},
		{`{"anyOf":[{"type":"string"},{"type":"null"}]}`, `1`, "it fits none, or more than one, of the forms that are allowed"},
		{`true`, `1`, ""},
		{`false`, `1`, "it must not be there"},
		{`{}`, `{"n":1e999999999}`, ""},
		{`{"properties":{"n":{"type":"integer","maximum":5}}}`, `{"n":1e999999999}`, "/n: it breaks the rule maximum"},
		{`{"multipleOf":3}`, `1e308`, ""},
		{`{"allOf":[{"type":"integer"}],"enum":[1,2]}`, `3`, "it is none of the values that are allowed"},
		{`{"properties":{"enum":{"const":{"a":1}},"b":{"$ref":"#/properties/enum"}}}`, `{"b":{"a":2}}`, "/b: it is not the value that is allowed"},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"p":{"type":"string"}},"$ref":"#/definitions/p","minLength":3}`, `"a"`, ""}, // nothing beside $ref counts
	} {
		s, err := schema.Compile(parse(t, tt.schema))
		if err != nil {
			t.Errorf("Compile(%s): %v", tt.schema, err)
			continue
		}
		got := ""
		if err := s.Check(parse(t, tt.value)); err != nil {
			got = err.Error()
		}
		if got != tt.want && tt.schema != `{"multipleOf":3}` {
			t.Errorf("%s of %s: %q, want %q", tt.value, tt.schema, got, tt.want)
		}
	}
}

// What a schema refers to is never fetched: neither over the network nor from a file.
func TestNothingIsFetched(t *testing.T) {
	for _, tt := range []struct{ schema, want string }{
		{`{"$schema":"https://json-schema.org/draft-07/schema","properties":{"a":{"$ref":"http://169.254.169.254/x"}}}`, "it refers to a schema elsewhere, which is not fetched"},
		{`{"properties":{"a":{"$ref":"file:///etc/passwd"}}}`, "it refers to a schema elsewhere, which is not fetched"},
		{`{"properties":{"a":{"$ref":"/etc/passwd"}}}`, "it refers to a schema elsewhere, which is not fetched"},
		{`{"$schema":"https://evil.example/dialect"}`, "it refers to a schema elsewhere, which is not fetched"},
		{`{"properties":{"a":{"$ref":"#/$defs/none"}}}`, "it refers to a place that it does not have"},
		{`{"properties":{"a":{"$ref":"#none"}}}`, "it refers to a place that it does not have"},
		{`{"properties":{"a":{"type":"sometimes"}}}`, "it is not valid at /properties/a/type"},
		{`"x"`, "it is not valid"},
		{`{"a":"` + strings.Repeat("x", 256<<10) + `"}`, "it has more than 262144 bytes"},
	} {
		if _, err := schema.Compile(parse(t, tt.schema)); err == nil || err.Error() != tt.want {
			t.Errorf("Compile(%.80s) = %v, want %s", tt.schema, err, tt.want)
		}
	}
}

// Schemas that take exponential time are given up: of places that all fit, and of ones that all do not.
func TestCostIsBounded(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)
	for _, text := range []string{
		`{"$defs":{"r":{"anyOf":[{"properties":{"a":{"$ref":"#/$defs/r"}},"required":["z"]},{"properties":{"a":{"$ref":"#/$defs/r"}},"required":["z"]}]}},"$ref":"#/$defs/r"}`,
		`{"$defs":{"r":{"allOf":[{"properties":{"a":{"$ref":"#/$defs/r"}}},{"properties":{"a":{"$ref":"#/$defs/r"}}}]}},"$ref":"#/$defs/r"}`,
		`{"$defs":{"r":{"not":{"anyOf":[{"properties":{"a":{"$ref":"#/$defs/r"}},"type":"object"},{"properties":{"a":{"$ref":"#/$defs/r"}},"type":"object"}]}}},"$ref":"#/$defs/r"}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"r":{"if":{"properties":{"a":{"$ref":"#/definitions/r"}}},"then":{"properties":{"a":{"$ref":"#/definitions/r"}}},"else":{"properties":{"a":{"$ref":"#/definitions/r"}}}}},"allOf":[{"$ref":"#/definitions/r"}]}`,
	} {
		s, err := schema.Compile(parse(t, text))
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if err := s.Check(parse(t, deep)); !errors.Is(err, schema.ErrCostly) {
			t.Errorf("%s: %v, want ErrCostly", text, err)
		}
		if err := s.Check(parse(t, `{"a":1}`)); errors.Is(err, schema.ErrCostly) {
			t.Errorf("a small value after it: %v", err)
		}
	}
	s, err := schema.Compile(parse(t, `{"items":{"type":"integer"},"uniqueItems":true}`))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for i := range 20_000 {
		list = append(list, fmt.Sprint(i))
	}
	if err := s.Check(parse(t, "["+strings.Join(list, ",")+"]")); err != nil {
		t.Errorf("a long list: %v", err)
	}
}

// Neither do rules that look at much for one place of the value, places that are reached in odd ways, and long expressions.
func TestRulesArePaidFor(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)
	numbers := "[" + strings.Repeat("3,", 30_000) + "3]"
	long := "[" + strings.Repeat("1,", 30_000)
	twice := func(ref string) string {
		return `{"anyOf":[{"properties":{"a":{"$ref":"` + ref + `"}},"required":["z"]},{"properties":{"a":{"$ref":"` + ref + `"}},"required":["z"]}]}`
	}
	for _, tt := range []struct{ name, schema, value string }{
		{"enum", `{"items":{"enum":[` + strings.Repeat("1,", 20_000) + `2]}}`, numbers},
		{"const", `{"items":{"allOf":[` + strings.Repeat(`{"const":1},`, 500) + `{}]}}`, numbers},
		{"unique items", `{"allOf":[` + strings.Repeat(`{"uniqueItems":true},`, 200) + `{}]}`, numbers},
		{"few items that are alike", `{"uniqueItems":true}`, "[" + strings.Repeat(long+"1],", 9) + long + "2]]"},
		{"types of forms", `{"items":{"anyOf":[` + strings.Repeat(`{"type":"string"},`, 1900) + `{"type":"null"}]}}`, numbers},
		{"what all fits", `{"allOf":[` + strings.Repeat(`{"items":true},`, 200) + `{}]}`, numbers},
		{"an expression on a text", `{"allOf":[` + strings.Repeat(`{"pattern":"(a?){600}b"},`, 20) + `{}]}`, `"` + strings.Repeat("a", 100_000) + `"`},
		{"a rule nobody knows", `{"x":{"r":` + twice("#/x/r") + `},"$ref":"#/x/r"}`, deep},
		{"a default", `{"default":` + twice("#/default") + `,"$ref":"#/default"}`, deep},
		{"an id", `{"$defs":{"r":` + strings.Replace(twice("r"), "{", `{"$id":"r",`, 1) + `},"$ref":"r"}`, deep},
		{"a chain in an old draft", `{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"r":{"$ref":"#/definitions/s","type":"x"},"s":{"$ref":"#/definitions/t"},"t":{}},"items":{"$ref":"#/definitions/r"}}`, numbers},
	} {
		s, err := schema.Compile(parse(t, tt.schema))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if err := s.Check(parse(t, tt.value)); !errors.Is(err, schema.ErrCostly) {
			t.Errorf("%s: %v, want ErrCostly", tt.name, err)
		}
	}
	for _, tt := range []struct{ schema, want string }{
		{`{"const":` + twice("#/allOf/0/const") + `,"$ref":"#/allOf/0/%63onst"}`, "it refers to a place that is no schema"},
		{`{"dependencies":{"a":["b"]},"$ref":"#/dependencies"}`, "it refers to a place that is no schema"},
		{`{"$defs":{"r":{"$schema":"http://json-schema.org/draft-07/schema#","$id":"r"}}}`, "it is of several drafts"},
		{`{"allOf":[` + strings.Repeat(`true,`, 2000) + `{}]}`, "it has more than 2000 places"},
	} {
		if _, err := schema.Compile(parse(t, tt.schema)); err == nil || err.Error() != tt.want {
			t.Errorf("Compile(%.80s) = %v, want %s", tt.schema, err, tt.want)
		}
	}
	s, err := schema.Compile(parse(t, `{"pattern":"`+strings.Repeat("(.?){1000}", 20)+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(parse(t, `"b"`)); err != nil || s.Size() > 1<<20 {
		t.Errorf("an expression that would take millions of instructions: %v, %d bytes", err, s.Size())
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#"}}}`, `{"a":{"a":1}}`)
	f.Add(`{"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"}`, `1`)
	f.Add(`{"enum":[1,"a",null]}`, `1e5`)
	f.Fuzz(func(t *testing.T, text, value string) {
		a, errA := jsonrpc.ParseValue([]byte(text))
		b, errB := jsonrpc.ParseValue([]byte(value))
		if errA != nil || errB != nil {
			return
		}
		if s, err := schema.Compile(a); err == nil {
			_ = s.Check(b) // returns, and does not panic
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	s, err := schema.Compile(parse(b, `{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer"}},"required":["path"]}`))
	if err != nil {
		b.Fatal(err)
	}
	v := parse(b, `{"path":"/home/ann/notes.txt","n":3}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Check(v); err != nil {
			b.Fatal(err)
		}
	}
}
