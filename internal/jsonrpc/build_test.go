package jsonrpc

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWith(t *testing.T) {
	for _, tt := range []struct{ in, name, value, want string }{
		{``, "a", `1`, `{"a":1}`},
		{`{}`, "a", `1`, `{"a":1}`},
		{`[1]`, "a", `1`, `{"a":1}`},
		{`{"b":[2]}`, "a", `1`, `{"b":[2],"a":1}`},
		{`{"a":1,"b":2,"c":3}`, "a", `{}`, `{"a":{},"b":2,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, "b", `"x"`, `{"a":1,"b":"x","c":3}`},
		{`{"a":1,"b":2,"c":3}`, "c", `[1,2]`, `{"a":1,"b":2,"c":[1,2]}`},
		{`{"a":{"b":1}}`, "b", `2`, `{"a":{"b":1},"b":2}`},
		{`{"a\n":1}`, "a\n", `2`, `{"a\n":2}`},
		{`{}`, "\"\\\x00\xff", `1`, "{\"\\\"\\\\\\u0000\ufffd\":1}"},
		{`{"a":1,"b":2}`, "a", ``, `{"b":2}`},
	} {
		in := Raw(tt.in)
		got := in.With(tt.name, Raw(tt.value))
		if string(got) != tt.want || string(in) != tt.in {
			t.Errorf("With(%s, %q, %s) = %s, want %s; then %s", tt.in, tt.name, tt.value, got, tt.want, in)
		}
	}
}

func TestWithout(t *testing.T) {
	for _, tt := range []struct{ in, name, want string }{
		{``, "a", ``},
		{`{}`, "a", `{}`},
		{`[1]`, "a", `[1]`},
		{`{"a":1}`, "a", `{}`},
		{`{"a":1}`, "b", `{"a":1}`},
		{`{"a":1,"b":2,"c":3}`, "a", `{"b":2,"c":3}`},
		{`{"a":1,"b":{"a":[1,2]},"c":3}`, "b", `{"a":1,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, "c", `{"a":1,"b":2}`},
	} {
		in := Raw(tt.in)
		got := in.Without(tt.name)
		if string(got) != tt.want || string(in) != tt.in {
			t.Errorf("Without(%s, %q) = %s, want %s; then %s", tt.in, tt.name, got, tt.want, in)
		}
	}
}

func TestObjectAndArray(t *testing.T) {
	var o Object
	if got := string(o.Done()); got != `{}` {
		t.Errorf("empty object = %s", got)
	}
	got := o.Text("a\"", "x\n\u2028").Raw("none", nil).Int("n", -5).Bool("t", true).Bool("f", false).Raw("r", Raw(`[1]`)).Done()
	if want := "{\"a\\\"\":\"x\\n\u2028\",\"n\":-5,\"t\":true,\"f\":false,\"r\":[1]}"; string(got) != want {
		t.Errorf("object = %s, want %s", got, want)
	}
	next := o.Int("b", 1).Done()
	if string(next) != `{"b":1}` || got[2] != 'a' {
		t.Errorf("second object = %s, first = %s", next, got)
	}
	if got := string(new(Object).Raw("none", nil).Done()); got != `{}` {
		t.Errorf("object of an absent member = %s", got)
	}
	for _, tt := range []struct {
		in   []Raw
		want string
	}{
		{nil, `[]`},
		{[]Raw{Raw(`1`)}, `[1]`},
		{[]Raw{Quote("a"), nil, Raw(`{}`)}, `["a",null,{}]`},
	} {
		if got := string(Array(tt.in...)); got != tt.want {
			t.Errorf("Array(%s) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestQuote(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", `""`},
		{"a\"b\\c/", `"a\"b\\c/"`},
		{"\x00\b\t\n\v\f\r\x1f\x7f", `"\u0000\b\t\n\u000b\f\r\u001f` + "\x7f\""},
		{"é\u2028😀", "\"é\u2028😀\""},
		{"a\xff\xfeb\xed\xa0\x80", "\"a\ufffdb\ufffd\""},
	} {
		if got := string(Quote(tt.in)); got != tt.want {
			t.Errorf("Quote(%q) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestAppend(t *testing.T) {
	one := IntID(1)
	for _, tt := range []struct {
		m    Message
		want string
	}{
		{Message{ID: one, Method: "a\nb"}, `{"jsonrpc":"2.0","id":1,"method":"a\nb"}`},
		{Message{ID: ID{`"x"`}, Method: "m", Params: Raw(`{"a":1}`)}, `{"jsonrpc":"2.0","id":"x","method":"m","params":{"a":1}}`},
		{Message{Method: "m", Params: Raw(`{}`)}, `{"jsonrpc":"2.0","method":"m","params":{}}`},
		{Message{ID: one, Result: Raw(`{"a":1}`)}, `{"jsonrpc":"2.0","id":1,"result":{"a":1}}`},
		{Message{ID: one}, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{Message{ID: one, Error: &Error{Code: -1, Message: "a\"", Data: Raw(`{}`)}}, `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"a\"","data":{}}}`},
		{Message{Error: &Error{Code: -32700, Message: "x"}}, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}`},
	} {
		if got := string(tt.m.Append([]byte("> "))); got != "> "+tt.want {
			t.Errorf("Append(%+v) = %s, want %s", tt.m, got, tt.want)
		}
	}
}

func TestKind(t *testing.T) {
	one := IntID(1)
	for _, tt := range []struct {
		m    Message
		want Kind
	}{
		{Message{}, Invalid},
		{Message{ID: one}, Invalid},
		{Message{Method: "m"}, Notification},
		{Message{ID: one, Method: "m"}, Request},
		{Message{ID: one, Result: Raw(`{}`)}, Response},
		{Message{Error: &Error{}}, Response},
	} {
		if diff := cmp.Diff(tt.want, tt.m.Kind()); diff != "" {
			t.Errorf("Kind(%+v) (-want +got):\n%s", tt.m, diff)
		}
	}
}
