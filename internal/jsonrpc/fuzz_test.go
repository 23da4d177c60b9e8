package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

func seed(f *testing.F) {
	for _, in := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":[1,-0.5e+3,true,null]}}}`,
		`{"jsonrpc":"2.0","id":"\ud83d\ude00","result":{"t":"\u0000\b\f\n\r\t\"\\\/\u2028\u007f"}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"m","data":{}}}`,
		`{"jsonrpc":"2.0","id":1,"id":2,"Method":"m"}`,
		`{"a":{"a":1,"\u0061":2}}`,
		`["\ud800"]`, "\"\xff\"", ` [ ] `, `[1,]`, `01`, `-`, `1e`, `{"a":1}}`, `"ab`, `nul`,
		strings.Repeat("[", 128) + strings.Repeat("]", 128),
		strings.Repeat("[", 129) + strings.Repeat("]", 129),
		`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"l":1,"m":1,"n":1,"o":1,"p":1,"q":1,"r":1,"b":1}`,
	} {
		f.Add([]byte(in))
	}
}

// tokens returns what jsontext reads in a valid value: strings unescaped, numbers as written, and the largest depth.
func tokens(t *testing.T, in []byte) (list []string, depth int) {
	t.Helper()
	d := jsontext.NewDecoder(bytes.NewReader(in), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		token, err := d.ReadToken()
		if err == io.EOF {
			return list, depth
		}
		if err != nil {
			t.Fatalf("jsontext on %q: %v", in, err)
		}
		depth = max(depth, d.StackDepth())
		list = append(list, token.Kind().String()+" "+token.String())
	}
}

// jsontext and this package accept the same values, but for the depth, and read the same in them.
func FuzzValue(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		grammar := jsontext.Value(in).IsValid(jsontext.AllowDuplicateNames(true))
		depth := 0
		if grammar {
			_, depth = tokens(t, in)
		}
		v, err := ParseValue(in)
		switch valid := jsontext.Value(in).IsValid() && depth <= MaxDepth; {
		case valid != (err == nil):
			t.Fatalf("ParseValue(%q) = %v, jsontext finds it valid: %v", in, err, valid)
		case err != nil:
			var fault *Fault
			if !errors.As(err, &fault) || (fault.Err.Code == CodeParse) == grammar {
				t.Fatalf("ParseValue(%q) = %#v, jsontext finds its grammar good: %v", in, err, grammar)
			}
			return
		}
		sameTokens(t, in, v)
		if again, err := ParseValue(v); !bytes.Equal(again, v) || err != nil {
			t.Fatalf("ParseValue(%q) again = %q, %v", v, again, err)
		}
		if len(v) > len(in) {
			t.Fatalf("%q grew to %q", in, v)
		}
		rebuilt(t, v)
	})
}

func sameTokens(t *testing.T, in, out []byte) {
	t.Helper()
	want, _ := tokens(t, in)
	got, _ := tokens(t, out)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("tokens of %q and %q (-want +got):\n%s", in, out, diff)
	}
}

// rebuilt takes v apart and puts it together again.
func rebuilt(t *testing.T, v Raw) {
	t.Helper()
	var again Raw
	text, isText := v.Text()
	switch {
	case v.IsObject():
		var o Object
		with := Raw("{}")
		for name, member := range v.Members() {
			o.Raw(name, member)
			with = with.With(name, member)
			if got, ok := v.Get(name); !ok || !bytes.Equal(got, member) {
				t.Fatalf("Get(%q) of %s = %s, want %s", name, v, got, member)
			}
			if _, ok := v.Without(name).Get(name); ok {
				t.Fatalf("Without(%q) of %s leaves it", name, v)
			}
			rebuilt(t, member)
		}
		if again = o.Done(); !bytes.Equal(again, with) {
			t.Fatalf("built %s and %s", again, with)
		}
	case v.IsArray():
		var list []Raw
		for element := range v.Elements() {
			list = append(list, element)
			rebuilt(t, element)
		}
		again = Array(list...)
	case isText:
		if again = Quote(text); textLen(v) != len(text) {
			t.Fatalf("textLen(%s) = %d, want %d", v, textLen(v), len(text))
		}
	default:
		return
	}
	if !bytes.Equal(again, v) {
		t.Fatalf("%s put together again is %s", v, again)
	}
}

// What is parsed and written parses to the same; an upstream's message is read like a client's, but for lone surrogates.
func FuzzParse(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		m, fault := Parse(in)
		up, repaired, upFault := ParseUpstream(in)
		if fault == nil {
			if diff := cmp.Diff(m, up, compareIDs); diff != "" || repaired != 0 || upFault != nil {
				t.Fatalf("ParseUpstream(%q) = %d, %v, (-client +upstream):\n%s", in, repaired, upFault, diff)
			}
		}
		if upFault == nil {
			again(t, up)
		}
		if !utf8.Valid(in) || !jsontext.Value(in).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			if fault == nil || fault.Err.Code != CodeParse || !fault.ID.IsZero() || upFault == nil || upFault.Err.Code != CodeParse {
				t.Fatalf("Parse(%q) = %+v, ParseUpstream: %+v, want %d", in, fault, upFault, CodeParse)
			}
			return
		}
		s := newScanner(true, new(scratch))
		s.run(in)
		sameTokens(t, in, s.output())
		if strict := jsontext.Value(in).IsValid(jsontext.AllowDuplicateNames(true)); strict != (s.repaired == 0) {
			t.Fatalf("%q: repaired %d, jsontext finds no surrogate alone: %v", in, s.repaired, strict)
		}
	})
}

func again(t *testing.T, m Message) {
	t.Helper()
	out := m.Append(nil)
	got, f := Parse(out)
	if diff := cmp.Diff(m, got, compareIDs); diff != "" || f != nil {
		t.Fatalf("Parse(%q): %v, (-want +got):\n%s", out, f, diff)
	}
	if bytes.IndexByte(out, '\n') >= 0 {
		t.Fatalf("%q has a line feed", out)
	}
}
