package jsonrpc

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func value(t testing.TB, in string) Raw {
	t.Helper()
	v, err := ParseValue([]byte(in))
	if err != nil {
		t.Fatalf("ParseValue(%q): %v", in, err)
	}
	return v
}

func TestGet(t *testing.T) {
	v := value(t, `{"a":{"b\n\u0001":[1,{"x":"}"}],"A":null,"ab":"\\\"","":{"é/~":-1.5e3}},"z":true}`)
	for _, tt := range []struct {
		path []string
		want string // "" for not there
	}{
		{nil, string(v)},
		{[]string{"z"}, `true`},
		{[]string{"a", "b\n\x01"}, `[1,{"x":"}"}]`},
		{[]string{"a", "A"}, `null`},
		{[]string{"a", "ab"}, `"\\\""`},
		{[]string{"a", "", "é/~"}, `-1.5e3`},
		{[]string{"a", "B"}, ``},
		{[]string{"Z"}, ``},
		{[]string{"z", "a"}, ``},
		{[]string{"a", "b\n\x01", "0"}, ``},
	} {
		got, ok := v.Get(tt.path...)
		if string(got) != tt.want || ok != (tt.want != "") {
			t.Errorf("Get(%q) = %s, %v, want %s", tt.path, got, ok, tt.want)
		}
	}
	if got, ok := Raw(nil).Get("a"); got != nil || ok {
		t.Errorf("Get of an absent value = %s, %v", got, ok)
	}
}

func TestMembersAndElements(t *testing.T) {
	var got []string
	for name, v := range value(t, `{ "b\t" : [ ] , "a" : { "x" : "," } , "" : 0 }`).Members() {
		got = append(got, name+"="+string(v))
	}
	if diff := cmp.Diff([]string{"b\t=[]", `a={"x":","}`, "=0"}, got); diff != "" {
		t.Errorf("Members (-want +got):\n%s", diff)
	}
	got = nil
	for v := range value(t, `[ 1 , "]" , [ [ ] , { } ] , null , { "a" : [ 1 ] } ]`).Elements() {
		got = append(got, string(v))
	}
	if diff := cmp.Diff([]string{`1`, `"]"`, `[[],{}]`, `null`, `{"a":[1]}`}, got); diff != "" {
		t.Errorf("Elements (-want +got):\n%s", diff)
	}
	for _, in := range []string{``, `{}`, `[]`, `"{"`, `1`, `null`} {
		for name, v := range Raw(in).Members() {
			t.Errorf("Members of %s has %s %s", in, name, v)
		}
		for v := range Raw(in).Elements() {
			t.Errorf("Elements of %s has %s", in, v)
		}
	}
	for range value(t, `{"a":1,"b":2}`).Members() {
		break
	}
	for range value(t, `[1,2]`).Elements() {
		break
	}
}

func TestTextAndInt(t *testing.T) {
	for _, tt := range []struct {
		in   string
		text string
		isT  bool
		n    int64
		isN  bool
	}{
		{in: `"a\u0000\b\f\n\r\t\"\\\/\u001f\u007f\ud83d\ude00"`, text: "a\x00\b\f\n\r\t\"\\/\x1f\x7f😀", isT: true},
		{in: `""`, isT: true},
		{in: `"1"`, text: "1", isT: true},
		{in: `0`, isN: true},
		{in: `-0`, isN: true},
		{in: `-9223372036854775808`, n: math.MinInt64, isN: true},
		{in: `9223372036854775807`, n: math.MaxInt64, isN: true},
		{in: `9223372036854775808`},
		{in: `1.0`},
		{in: `1e2`},
		{in: `null`},
		{in: `true`},
		{in: `{}`},
	} {
		v := value(t, tt.in)
		if got, ok := v.Text(); got != tt.text || ok != tt.isT {
			t.Errorf("Text(%s) = %q, %v, want %q, %v", tt.in, got, ok, tt.text, tt.isT)
		}
		if got, ok := v.Int(); ok != tt.isN || ok && got != tt.n {
			t.Errorf("Int(%s) = %d, %v, want %d, %v", tt.in, got, ok, tt.n, tt.isN)
		}
	}
	if _, ok := Raw(nil).Text(); ok {
		t.Error("an absent value holds a string")
	}
	if _, ok := Raw(nil).Int(); ok {
		t.Error("an absent value holds an integer")
	}
	if Raw(nil).IsNull() || Raw(nil).IsObject() || Raw(nil).IsArray() {
		t.Error("an absent value has a type")
	}
}

func TestIDs(t *testing.T) {
	for _, tt := range []struct {
		in string
		ok bool
	}{
		{`1`, true},
		{`-7`, true},
		{`"a"`, true},
		{`"` + strings.Repeat("a", MaxID) + `"`, true},
		{`"` + strings.Repeat("a", MaxID+1) + `"`, false},
		{`"` + strings.Repeat(`\n`, MaxID) + `"`, true},
		{`"` + strings.Repeat(`\n`, MaxID+1) + `"`, false},
		{strings.Repeat("1", MaxID), true},
		{strings.Repeat("1", MaxID+1), false},
		{`1.0`, false}, {`1e3`, false}, {`null`, false}, {`false`, false}, {`[1]`, false}, {`{}`, false},
	} {
		id, ok := IDOf(value(t, tt.in))
		if ok != tt.ok || id.IsZero() == ok || ok && id.String() != tt.in || string(id.Raw()) != id.String() {
			t.Errorf("IDOf(%s) = %s, %v, want %v", tt.in, id, ok, tt.ok)
		}
	}
	if id, ok := IDOf(nil); ok || !id.IsZero() || id.Raw() != nil {
		t.Errorf("IDOf(nil) = %v, %v", id, ok)
	}
	if got := IntID(math.MinInt64).String(); got != "-9223372036854775808" {
		t.Errorf("IntID = %s", got)
	}
	escaped, _ := IDOf(value(t, `"\u0031"`))
	plain, _ := IDOf(value(t, `"1"`))
	if escaped != plain || plain == IntID(1) {
		t.Errorf("ids: %v, %v, %v", escaped, plain, IntID(1))
	}
}

// Whatever bytes a Raw is made of, reading it neither panics nor hangs.
func FuzzRaw(f *testing.F) {
	for _, in := range []string{`{"a":`, `{"a"`, `{"a":1`, `[1,`, `["\`, `"\u00`, `{"a":"\u1"}`, `"`, `{,}`, `[`, `[1}`, `[,`, `[}`, `[1}}`, "[\"\x01"} {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		v := Raw(in)
		v.Text()
		v.Int()
		IDOf(v)
		v.Get("a", "b")
		for range v.Members() {
		}
		for range v.Elements() {
		}
	})
}
