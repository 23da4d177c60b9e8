package jsonrpc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var compareIDs = cmp.AllowUnexported(ID{})

func nested(open, inner, end string, n int) string {
	return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
}

func TestParse(t *testing.T) {
	one := IntID(1)
	for _, tt := range []struct {
		rule, in string
		want     Message
	}{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, Message{ID: one, Method: "ping"}},
		{"members in any order, white space", " {\t\"method\" : \"ping\" ,\r\n\"id\": 1, \"jsonrpc\":\"2.0\" } ", Message{ID: one, Method: "ping"}},
		{"notification", `{"jsonrpc":"2.0","method":"n"}`, Message{Method: "n"}},
		{"params kept, re-encoded, in order", `{"jsonrpc":"2.0","id":1,"method":"m","params":{ "b" : 1.50e+01, "a":"\u0041\/\u001F" }}`,
			Message{ID: one, Method: "m", Params: Raw(`{"b":1.50e+01,"a":"A/\u001f"}`)}},
		{"null params are absent", `{"jsonrpc":"2.0","id":1,"method":"m","params":null}`, Message{ID: one, Method: "m"}},
		{"empty params stay", `{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`, Message{ID: one, Method: "m", Params: Raw(`{}`)}},
		{"array params of a notification", `{"jsonrpc":"2.0","method":"m","params":[1]}`, Message{Method: "m"}},
		{"scalar params of a notification", `{"jsonrpc":"2.0","method":"m","params":true}`, Message{Method: "m"}},
		{"result", `{"jsonrpc":"2.0","id":"a","result":{}}`, Message{ID: ID{`"a"`}, Result: Raw(`{}`)}},
		{"null result is one", `{"jsonrpc":"2.0","id":1,"result":null}`, Message{ID: one, Result: Raw(`null`)}},
		{"error", `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"x","data":[1],"more":0}}`,
			Message{ID: one, Error: &Error{Code: -32603, Message: "x", Data: Raw(`[1]`)}}},
		{"error without id", `{"jsonrpc":"2.0","error":{"code":1,"message":""}}`, Message{Error: &Error{Code: 1}}},
		{"unknown members are dropped", `{"jsonrpc":"2.0","id":1,"method":"m","x":{"y":[]},"ids":2}`, Message{ID: one, Method: "m"}},
		{"params beside a result are dropped", `{"jsonrpc":"2.0","id":1,"result":1,"params":{}}`, Message{ID: one, Result: Raw(`1`)}},
		{"escaped member names", `{"\u006asonrpc":"\u0032.0","i\u0064":1,"method":"p\u0069ng"}`, Message{ID: one, Method: "ping"}},
		{"id keeps its digits", `{"jsonrpc":"2.0","id":9007199254740993,"method":"m"}`, Message{ID: IntID(9007199254740993), Method: "m"}},
		{"id beyond 64 bits", `{"jsonrpc":"2.0","id":-123456789012345678901234567890,"method":"m"}`, Message{ID: ID{"-123456789012345678901234567890"}, Method: "m"}},
		{"id -0 stays -0", `{"jsonrpc":"2.0","id":-0,"method":"m"}`, Message{ID: ID{"-0"}, Method: "m"}},
		{"empty string id", `{"jsonrpc":"2.0","id":"","method":"m"}`, Message{ID: ID{`""`}, Method: "m"}},
		{"string id is not the number", `{"jsonrpc":"2.0","id":"\u0031","method":"m"}`, Message{ID: ID{`"1"`}, Method: "m"}},
		{"surrogate pair", `{"jsonrpc":"2.0","id":"\ud83d\ude00","method":"m"}`, Message{ID: ID{`"😀"`}, Method: "m"}},
		{"id of 256 bytes, escaped", `{"jsonrpc":"2.0","id":"` + strings.Repeat(`\u00e9`, 128) + `","method":"m"}`, Message{ID: ID{`"` + strings.Repeat("é", 128) + `"`}, Method: "m"}},
		{"id of 256 control characters", `{"jsonrpc":"2.0","id":"` + strings.Repeat(`\u0001`, 256) + `","method":"m"}`, Message{ID: ID{`"` + strings.Repeat(`\u0001`, 256) + `"`}, Method: "m"}},
		{"method of 256 bytes", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("é", 128) + `"}`, Message{ID: one, Method: strings.Repeat("é", 128)}},
		{"depth 128", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"d":` + nested("[", "", "]", 126) + `}}`,
			Message{ID: one, Method: "m", Params: Raw(`{"d":` + nested("[", "", "]", 126) + `}`)}},
		{"line separators stay raw", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"a\":\"\u2028\u2029\u0085\\u2028\\u007f\"}}",
			Message{ID: one, Method: "m", Params: Raw("{\"a\":\"\u2028\u2029\u0085\u2028\u007f\"}")}},
		{"same name in different objects", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":{"a":{"b":1}},"b":{"a":[{"c":1},{"c":1}]}}}`,
			Message{ID: one, Method: "m", Params: Raw(`{"a":{"a":{"b":1}},"b":{"a":[{"c":1},{"c":1}]}}`)}},
		{"names that differ by case only in params", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"A":2}}`, Message{ID: one, Method: "m", Params: Raw(`{"a":1,"A":2}`)}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			got, f := Parse([]byte(tt.in))
			if f != nil {
				t.Fatalf("Parse(%q) fault = %d %v", tt.in, f.Err.Code, f)
			}
			if diff := cmp.Diff(tt.want, got, compareIDs); diff != "" {
				t.Errorf("Parse(%q) (-want +got):\n%s", tt.in, diff)
			}
			up, repaired, f := ParseUpstream([]byte(tt.in))
			if diff := cmp.Diff(tt.want, up, compareIDs); diff != "" || repaired != 0 || f != nil {
				t.Errorf("ParseUpstream(%q) = repaired %d, fault %v, (-want +got):\n%s", tt.in, repaired, f, diff)
			}
			again, f := Parse(got.Append(nil))
			if diff := cmp.Diff(got, again, compareIDs); diff != "" || f != nil {
				t.Errorf("Parse(Append(Parse(%q))): fault %v, (-want +got):\n%s", tt.in, f, diff)
			}
		})
	}
}

func TestParseFault(t *testing.T) {
	const (
		parse   = CodeParse
		invalid = CodeInvalidRequest
		params  = CodeInvalidParams
	)
	deep := nested(`{"a":[`, "1", "]}", 64) // as a member's value 1 too deep
	for _, tt := range []struct {
		rule, in string
		code     int
		id       string // as Parse tells it
		upstream string // as ParseUpstream tells it
	}{
		// UTF-8, grammar, surrogates
		{"empty", ``, parse, "", ""},
		{"white space only", " \n", parse, "", ""},
		{"byte order mark", "\ufeff{}", parse, "", ""},
		{"invalid byte", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"t\":\"\xd6\xd0\"}}", parse, "", "1"},
		{"overlong", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\xc0\xaf\"}", parse, "", "1"},
		{"surrogate in UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xed\xa0\xbd\"}", parse, "", "1"},
		{"invalid byte in the id", "{\"jsonrpc\":\"2.0\",\"id\":\"a\xff\",\"result\":1}", parse, "", `"a` + "\ufffd" + `"`},
		{"garbage", `hello`, parse, "", ""},
		{"NUL after the message", "{\"id\":1}\x00", parse, "", "1"},
		{"broken off", `{"jsonrpc":"2.0","id":1,"result":{"content":[{"te`, parse, "", "1"},
		{"broken off in the id", `{"jsonrpc":"2.0","id":12`, parse, "", ""},
		{"broken off in the id's name", `{"jsonrpc":"2.0","i`, parse, "", ""},
		{"broken off, an id deeper", `{"result":{"id":1,"a":[{"id":2,`, parse, "", ""},
		{"broken off, two ids", `{"id":1,"id":1,"result":{"a":`, parse, "", ""},
		{"id in an array is none", `[{"id":1,"a":2},`, parse, "", ""},
		{"trailing data", `{"jsonrpc":"2.0","id":1,"method":"m"}{"jsonrpc":"2.0","id":2,"method":"m"}`, parse, "", "1"},
		{"trailing brace", `{"id":1}}`, parse, "", "1"},
		{"trailing comma in an object", `{"jsonrpc":"2.0","id":1,"method":"m",}`, parse, "", "1"},
		{"trailing comma in an array", `[1,]`, parse, "", ""},
		{"leading comma", `[,1]`, parse, "", ""},
		{"no comma", `[1 2]`, parse, "", ""},
		{"no colon", `{"a" 1}`, parse, "", ""},
		{"no value", `{"a":}`, parse, "", ""},
		{"name without quotes", `{a:1}`, parse, "", ""},
		{"number as a name", `{1:1}`, parse, "", ""},
		{"wrong end of array", `[1}`, parse, "", ""},
		{"wrong end of object", `{"a":1]`, parse, "", ""},
		{"end without begin", `]`, parse, "", ""},
		{"leading zero", `{"jsonrpc":"2.0","id":01,"method":"m"}`, parse, "", ""},
		{"minus alone", `[-]`, parse, "", ""},
		{"minus zero digit", `[-01]`, parse, "", ""},
		{"plus", `[+1]`, parse, "", ""},
		{"no digit after the point", `[1.]`, parse, "", ""},
		{"no digit before the point", `[.1]`, parse, "", ""},
		{"no digit in the exponent", `[1e+]`, parse, "", ""},
		{"hexadecimal", `[0x1]`, parse, "", ""},
		{"NaN", `[NaN]`, parse, "", ""},
		{"literal broken off", `[tru`, parse, "", ""},
		{"literal with another case", `[True]`, parse, "", ""},
		{"literal too long", `[nullx]`, parse, "", ""},
		{"string without end", `["abc`, parse, "", ""},
		{"string ends in a backslash", `["abc\`, parse, "", ""},
		{"single quotes", `['a']`, parse, "", ""},
		{"line feed in a string", "[\"a\nb\"]", parse, "", ""},
		{"unknown escape", `["\x41"]`, parse, "", ""},
		{"short escape", `["\u00e"]`, parse, "", ""},
		{"escape broken off", `["\u00`, parse, "", ""},
		{"comment", `[1/*a*/]`, parse, "", ""},
		{"form feed is no white space", "\f[]", parse, "", ""},
		{"no-break space is no white space", "\u00a0[]", parse, "", ""},
		{"grammar after duplicate", `{"id":1,"id":1,"method":"m"`, parse, "", ""},
		{"grammar after depth", strings.Repeat("[", 200_000), parse, "", ""},
		{"grammar after depth, objects", strings.Repeat(`{"a":`, 200_000), parse, "", ""},
		// depth
		{"depth 129", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"d":` + nested("[", "", "]", 127) + `}}`, invalid, "1", "1"},
		{"depth 129 in objects, id behind", `{"x":` + deep + `,"id":1}`, invalid, "1", "1"},
		{"depth 129 in a batch", nested("[", "", "]", 129), invalid, "", ""},
		{"far too deep", nested("[", "", "]", 100_000), invalid, "", ""},
		// duplicates
		{"duplicate id", `{"jsonrpc":"2.0","id":1,"id":1,"method":"m"}`, invalid, "", ""},
		{"duplicate id, escaped", `{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"m"}`, invalid, "", ""},
		{"duplicate method", `{"jsonrpc":"2.0","id":1,"method":"m","\u006dethod":"n"}`, invalid, "1", "1"},
		{"duplicate deep down", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[{"b":1,"c":2,"b":3}]}}`, invalid, "1", "1"},
		{"duplicate with an escaped slash", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a/":1,"a\/":2}}`, invalid, "1", "1"},
		{"duplicate empty name", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"":1,"":2}}`, invalid, "1", "1"},
		{"duplicate after a nested object", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":{"x":1},"b":{"x":1},"a":1}}`, invalid, "1", "1"},
		// top level
		{"empty array", `[]`, invalid, "", ""},
		{"batch", `[{"jsonrpc":"2.0","id":1,"method":"m"}]`, invalid, "", ""},
		{"null", `null`, invalid, "", ""},
		{"string", `"ping"`, invalid, "", ""},
		{"number", `1`, invalid, "", ""},
		{"empty object", `{}`, invalid, "", ""},
		// envelope
		{"no jsonrpc", `{"id":1,"method":"m"}`, invalid, "1", "1"},
		{"jsonrpc 1.0", `{"jsonrpc":"1.0","id":1,"method":"m"}`, invalid, "1", "1"},
		{"jsonrpc a number", `{"jsonrpc":2.0,"id":1,"method":"m"}`, invalid, "1", "1"},
		{"jsonrpc null", `{"jsonrpc":null,"id":1,"method":"m"}`, invalid, "1", "1"},
		{"jsonrpc with a space", `{"jsonrpc":"2.0 ","id":1,"method":"m"}`, invalid, "1", "1"},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"m"}`, invalid, "", ""},
		{"id true", `{"jsonrpc":"2.0","id":true,"method":"m"}`, invalid, "", ""},
		{"id object", `{"jsonrpc":"2.0","id":{},"method":"m"}`, invalid, "", ""},
		{"id array", `{"jsonrpc":"2.0","id":[1],"method":"m"}`, invalid, "", ""},
		{"id fraction", `{"jsonrpc":"2.0","id":1.0,"method":"m"}`, invalid, "", ""},
		{"id exponent", `{"jsonrpc":"2.0","id":1e3,"method":"m"}`, invalid, "", ""},
		{"id of 257 bytes", `{"jsonrpc":"2.0","id":"` + strings.Repeat("a", 257) + `","method":"m"}`, invalid, "", ""},
		{"id of 257 digits", `{"jsonrpc":"2.0","id":` + strings.Repeat("1", 257) + `,"method":"m"}`, invalid, "", ""},
		{"id null with a result", `{"jsonrpc":"2.0","id":null,"result":1}`, invalid, "", ""},
		{"method of 257 bytes", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("m", 257) + `"}`, invalid, "1", "1"},
		{"method of 258 bytes, 129 characters", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("é", 129) + `"}`, invalid, "1", "1"},
		{"method empty", `{"jsonrpc":"2.0","id":1,"method":""}`, invalid, "1", "1"},
		{"method a number", `{"jsonrpc":"2.0","id":1,"method":1}`, invalid, "1", "1"},
		{"method null", `{"jsonrpc":"2.0","id":1,"method":null}`, invalid, "1", "1"},
		{"method an object", `{"jsonrpc":"2.0","id":1,"method":{}}`, invalid, "1", "1"},
		{"method with result", `{"jsonrpc":"2.0","id":1,"method":"m","result":{}}`, invalid, "1", "1"},
		{"method with error", `{"jsonrpc":"2.0","id":1,"method":"m","error":null}`, invalid, "1", "1"},
		{"neither", `{"jsonrpc":"2.0","id":1}`, invalid, "1", "1"},
		{"only another case", `{"jsonrpc":"2.0","id":1,"Method":"m"}`, invalid, "1", "1"},
		{"another case beside", `{"jsonrpc":"2.0","id":1,"method":"m","METHOD":"n"}`, invalid, "1", "1"},
		{"folded long s", `{"jsonrpc":"2.0","id":1,"method":"m","param\u017f":{}}`, invalid, "1", "1"},
		{"folded Jsonrpc", `{"jsonrpc":"2.0","id":1,"method":"m","j\u017fonrpc":{}}`, invalid, "1", "1"},
		{"extended by NUL", `{"jsonrpc":"2.0","id":1,"method":"m","method\u0000x":"n"}`, invalid, "1", "1"},
		{"folded and extended by NUL", `{"jsonrpc":"2.0","id":1,"method":"m","ID\u0000":2}`, invalid, "1", "1"},
		{"result with error", `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}`, invalid, "1", "1"},
		{"result without id", `{"jsonrpc":"2.0","result":{}}`, invalid, "", ""},
		{"error null", `{"jsonrpc":"2.0","id":1,"error":null}`, invalid, "1", "1"},
		{"error without code", `{"jsonrpc":"2.0","id":1,"error":{"message":"x"}}`, invalid, "1", "1"},
		{"error without message", `{"jsonrpc":"2.0","id":1,"error":{"code":1}}`, invalid, "1", "1"},
		{"error with a fractional code", `{"jsonrpc":"2.0","id":1,"error":{"code":1.0,"message":"x"}}`, invalid, "1", "1"},
		{"error with a huge code", `{"jsonrpc":"2.0","id":1,"error":{"code":9223372036854775808,"message":"x"}}`, invalid, "1", "1"},
		{"error with a null message", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":null}}`, invalid, "1", "1"},
		// params
		{"params array", `{"jsonrpc":"2.0","id":1,"method":"m","params":[]}`, params, "1", "1"},
		{"params string", `{"jsonrpc":"2.0","id":1,"method":"m","params":"{}"}`, params, "1", "1"},
		{"params false", `{"jsonrpc":"2.0","id":1,"method":"m","params":false}`, params, "1", "1"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			m, f := Parse([]byte(tt.in))
			if f == nil {
				t.Fatalf("Parse = %+v, want fault %d", m, tt.code)
			}
			if f.Err.Code != tt.code || f.ID.String() != tt.id {
				t.Errorf("Parse fault = %d, id %s (%v), want %d, id %s", f.Err.Code, f.ID, f, tt.code, tt.id)
			}
			var want Message
			if tt.code == params {
				want = Message{ID: IntID(1), Method: "m"}
			}
			if diff := cmp.Diff(want, m, compareIDs); diff != "" {
				t.Errorf("message beside the fault (-want +got):\n%s", diff)
			}
			_, _, f = ParseUpstream([]byte(tt.in))
			if f == nil || f.Err.Code != tt.code || f.ID.String() != tt.upstream {
				t.Errorf("ParseUpstream fault = %+v, want %d, id %s", f, tt.code, tt.upstream)
			}
		})
	}
}

func TestParseBatchText(t *testing.T) {
	_, f := Parse([]byte(`[1]`))
	if f == nil || !strings.Contains(f.Error(), "2025-03-26") {
		t.Errorf("fault for a batch = %v, want one that names 2025-03-26", f)
	}
}

// JSON-RPC 2.0 §5: an error about a request that could not be read has the id null.
func TestParseUpstreamErrorWithNullID(t *testing.T) {
	in := []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`)
	m, _, f := ParseUpstream(in)
	want := Message{Error: &Error{Code: CodeParse, Message: "x"}}
	if diff := cmp.Diff(want, m, compareIDs); diff != "" || f != nil {
		t.Errorf("ParseUpstream: fault %v, (-want +got):\n%s", f, diff)
	}
	if _, f := Parse(in); f == nil || f.Err.Code != CodeInvalidRequest {
		t.Errorf("Parse fault = %v, want %d", f, CodeInvalidRequest)
	}
}

func TestLoneSurrogates(t *testing.T) {
	for _, tt := range []struct {
		in, want string
		repaired int
	}{
		{`\ud800`, "\ufffd", 1},
		{`\udc00`, "\ufffd", 1},
		{`a\ud800b`, "a\ufffdb", 1},
		{`\ud83d\ude00`, "😀", 0},
		{`\ud83d\ud83d\ude00`, "\ufffd😀", 1},
		{`\ude00\ud83d`, "\ufffd\ufffd", 2},
		{`\ud83d\u0041`, "\ufffdA", 1},
		{`\ud83d\n`, "\ufffd\n", 1},
		{`\ud83d\` + `\ude00`, "\ufffd\\ude00", 1},
		{`\ufffd`, "\ufffd", 0},
	} {
		in := []byte(`{"jsonrpc":"2.0","id":1,"result":{"t":"` + tt.in + `"}}`)
		m, repaired, f := ParseUpstream(in)
		text, _ := m.Result.Get("t")
		if got, _ := text.Text(); got != tt.want || repaired != tt.repaired || f != nil {
			t.Errorf("ParseUpstream(%s) = %q, %d, %v, want %q, %d", tt.in, got, repaired, f, tt.want, tt.repaired)
		}
		_, f = Parse(in)
		if (f != nil) != (tt.repaired > 0) || f != nil && f.Err.Code != CodeParse {
			t.Errorf("Parse(%s) fault = %v", tt.in, f)
		}
	}
	_, _, f := ParseUpstream([]byte(`{"jsonrpc":"2.0","id":1,"result":{"\ud800":1,"\ud801":2}}`))
	if f == nil || f.Err.Code != CodeInvalidRequest || f.ID != IntID(1) {
		t.Errorf("fault for names that a repair made equal = %+v", f)
	}
}

// Objects below, at and above the size from which names are indexed.
func TestDuplicateNamesInLargeObjects(t *testing.T) {
	for _, n := range []int{1, 2, linearNames - 1, linearNames, linearNames + 1, 100, 5000} {
		for _, again := range []int{-1, 0, n / 2, n - 1} {
			var o Object
			for i := range n {
				o.Raw(fmt.Sprint("n", i), Raw(`{"n0":1,"n1":1}`))
			}
			if again >= 0 {
				o.Int(fmt.Sprint("n", again), 1)
			}
			_, err := ParseValue(o.Done())
			if (err != nil) != (again >= 0) {
				t.Errorf("%d names, number %d again: %v", n, again, err)
			}
		}
	}
}

// The bytes given may be used again by the caller.
func TestParseKeepsNothing(t *testing.T) {
	in := []byte(`{"jsonrpc":"2.0","id":"a","method":"m","params":{"a":"b"}}`)
	m, f := Parse(in)
	if f != nil {
		t.Fatal(f)
	}
	clear(in)
	want := `{"jsonrpc":"2.0","id":"a","method":"m","params":{"a":"b"}}`
	if got := string(m.Append(nil)); got != want {
		t.Errorf("Append = %s, want %s", got, want)
	}
}

func TestParseValueError(t *testing.T) {
	_, err := ParseValue([]byte(`{"secret":1,"secret":"s3cr3t"}`))
	if err == nil || strings.Contains(err.Error(), "cr") {
		t.Errorf("err = %v, want one without content", err)
	}
	v, err := ParseValue([]byte(` 1.0 `))
	if string(v) != "1.0" || err != nil {
		t.Errorf("ParseValue = %s, %v", v, err)
	}
}
