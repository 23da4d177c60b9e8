package jsonrpc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMapStrings(t *testing.T) {
	for _, tt := range []struct{ rule, in, want string }{
		{"values and names at any depth", `{"a":["x",{"x":"xx","n":1}],"x":null,"b":"y"}`, `{"a":["Q",{"Q":"QQ","n":1}],"Q":null,"b":"y"}`},
		{"escapes", `["\nx\"",{"\\x":1}]`, `["\nQ\"",{"\\Q":1}]`},
		{"a string alone", `"x"`, `"Q"`},
		{"no string", `[1,true,null,{}]`, `[1,true,null,{}]`},
		{"nothing to change", `{"a":["b",{"c":"d"}]}`, `{"a":["b",{"c":"d"}]}`},
		{"numbers keep their digits", `{"a":1.50e+01,"x":-0}`, `{"a":1.50e+01,"Q":-0}`},
	} {
		v := value(t, tt.in)
		got, err := v.MapStrings(func(_ string, _ bool, s string) (string, bool) {
			return strings.ReplaceAll(s, "x", "Q"), strings.Contains(s, "x")
		})
		if string(got) != tt.want || err != nil {
			t.Errorf("%s: MapStrings(%s) = %s, %v, want %s", tt.rule, tt.in, got, err, tt.want)
		}
		if string(v) != tt.in {
			t.Errorf("%s: %s became %s", tt.rule, tt.in, v)
		}
		if tt.in == tt.want && &got[0] != &v[0] {
			t.Errorf("%s: not v itself", tt.rule)
		}
	}
	if got, err := Raw(nil).MapStrings(nil); got != nil || err != nil {
		t.Errorf("MapStrings of an absent value = %s, %v", got, err)
	}
}

func TestMapStringsPaths(t *testing.T) {
	v := value(t, `{"content":[{"text":"a"},["b"],"c"],"secret":{"x/y~":"d","":{"z":"e"}}}`)
	var got []string
	_, err := v.MapStrings(func(path string, name bool, s string) (string, bool) {
		kind := "value"
		if name {
			kind = "name"
		}
		got = append(got, fmt.Sprintf("%s|%s|%s", path, kind, s))
		return "***", s == "secret"
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"|name|content", "content/0|name|text", "content/0/text|value|a", "content/1/0|value|b", "content/2|value|c",
		"|name|secret", "***|name|x/y~", "***/x~1y~0|value|d", "***|name|", "***/|name|z", "***//z|value|e",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
}

func TestMapStringsSameName(t *testing.T) {
	for _, tt := range []struct {
		in string
		ok bool
	}{
		{`{"a":1,"z":2,"w":3}`, true},
		{`{"z":1,"x":2}`, false},
		{`{"x":1,"z":2}`, false},
		{`{"x":1,"y":2}`, false},
		{`[{"a":{"y":1,"b":1,"x":2}}]`, false},
		{`{"x":{"x":1},"y ":{"y":1}}`, true},
		{`{"x":"z","z ":"x"}`, true},
		{`{"bad":1,"` + "\ufffd" + `":2}`, false},
	} {
		got, err := value(t, tt.in).MapStrings(func(_ string, name bool, s string) (string, bool) {
			switch {
			case s == "bad":
				return "\xff", true
			case s == "x" || s == "y":
				return "z", true
			}
			return s, false
		})
		if (err == nil) != tt.ok || !tt.ok && got != nil {
			t.Errorf("MapStrings(%s) = %s, %v, want ok %v", tt.in, got, err, tt.ok)
		}
	}
}

// A name at any depth is seen once, and a name that only a far one equals is found.
func TestMapStringsDeep(t *testing.T) {
	v := value(t, nested(`{"a":[],"x":`, `{"y":"x"}`, "}", MaxDepth-1))
	seen := 0
	got, err := v.MapStrings(func(_ string, _ bool, s string) (string, bool) {
		seen++
		return "z", s == "x"
	})
	want := nested(`{"a":[],"z":`, `{"y":"z"}`, "}", MaxDepth-1)
	if string(got) != want || err != nil || seen != 2*(MaxDepth-1)+2 {
		t.Errorf("MapStrings saw %d strings, = %s, %v", seen, got, err)
	}
}

// In a map that changes nothing and in one that gives every string back as changed, the bytes stay.
func FuzzMapStrings(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := ParseValue(in)
		if err != nil {
			return
		}
		for _, changed := range []bool{false, true} {
			got, err := v.MapStrings(func(path string, name bool, s string) (string, bool) { return s, changed })
			if string(got) != string(v) || err != nil {
				t.Fatalf("identity (changed %v) of %s = %s, %v", changed, v, got, err)
			}
		}
		got, err := v.MapStrings(func(_ string, name bool, s string) (string, bool) {
			return s + "\"\n", !name || len(s)%2 == 0
		})
		if err != nil {
			return
		}
		if again, err := ParseValue(got); string(again) != string(got) || err != nil {
			t.Fatalf("a mapped value %s is not in the one encoding: %s, %v", got, again, err)
		}
	})
}
