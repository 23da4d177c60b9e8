package mcp

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"navra/internal/jsonrpc"
)

const (
	parentA = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	parentB = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func TestTraceParent(t *testing.T) {
	for _, tt := range []struct{ rule, in, want string }{
		{"this version", parentA, parentA},
		{"not sampled", parentB, parentB},
		{"the random flag is kept", parentA[:53] + "03", parentA[:53] + "03"},
		{"unknown flags are not", parentA[:53] + "ff", parentA[:53] + "03"},
		{"a later version", "cc" + parentA[2:], parentA},
		{"a later version with more", "cc" + parentA[2:] + "-what-the-future-holds", parentA},
		{"of a later version only sampled is known", "01" + parentA[2:53] + "03", parentA},
		{"a later version that goes on without a dash", "cc" + parentA[2:] + ".x", ""},
		{"this version with more", parentA + "-x", ""},
		{"version ff", "ff" + parentA[2:], ""},
		{"no digits as a version", "0x" + parentA[2:], ""},
		{"upper case", strings.ToUpper(parentA), ""},
		{"a trace id of zeros", "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", ""},
		{"a parent id of zeros", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", ""},
		{"too short", parentA[:54], ""},
		{"other separators", strings.ReplaceAll(parentA, "-", "_"), ""},
		{"blanks around it", " " + parentA + " ", ""},
		{"a flag that is no digit", parentA[:54] + "g", ""},
		{"endless", "cc" + parentA[2:] + "-" + strings.Repeat("a", maxParent), ""},
		{"nothing", "", ""},
	} {
		got, ok := ParseTraceParent(tt.in)
		if got.String() != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: ParseTraceParent(%.80q) = %q, %v, want %q", tt.rule, tt.in, got, ok, tt.want)
		}
	}
}

func members(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("k%d=v", i))
	}
	return strings.Join(out, ",")
}

func TestTraceState(t *testing.T) {
	long := strings.Repeat("a", 256)
	for _, tt := range []struct {
		rule, in, want string
		ok             bool
	}{
		{"one", "congo=t61rcWkgMzE", "congo=t61rcWkgMzE", true},
		{"several, with blanks", "rojo=00f0 , congo=t61\t,, x=y,", "rojo=00f0,congo=t61,x=y", true},
		{"a tenant", "fw529a3039@dt=FfAAB", "fw529a3039@dt=FfAAB", true},
		{"a digit leads", "1a=b", "1a=b", true},
		{"blanks in a value", "a=b  c", "a=b  c", true},
		{"nothing", "", "", true},
		{"only commas", ",,", "", true},
		{"the longest key", long[:255] + "=" + long[:200], long[:255] + "=" + long[:200], true},
		{"the longest value", "a=" + long, "a=" + long, true},
		{"a key too long", long + "a=b", "", false},
		{"a value too long", "a=" + long + "a", "", false},
		{"32 members", members(32), members(32), true},
		{"33 members", members(33), "", false},
		{"over 512 bytes", "a=" + long[:200] + ",b=" + long[:200] + ",c=" + long[:200], "", false},
		{"a key twice", "a=1,b=2,a=3", "", false},
		{"upper case", "A=1", "", false},
		{"a key with a blank", "a b=1", "", false},
		{"no key", "=1", "", false},
		{"no value", "a=", "", false},
		{"no equals", "a", "", false},
		{"two equals", "a=b=c", "", false},
		{"a control character", "a=b\x00", "", false},
		{"a line end", "a=b\r\nX-Evil: 1", "", false},
		{"not ASCII", "a=é", "", false},
	} {
		if got, ok := ParseTraceState(tt.in); got != tt.want || ok != tt.ok {
			t.Errorf("%s: ParseTraceState(%.60q) = %q, %v, want %q, %v", tt.rule, tt.in, got, ok, tt.want, tt.ok)
		}
	}
}

func TestBaggage(t *testing.T) {
	for _, tt := range []struct {
		rule, in, want string
	}{
		{"one", "userId=alice", "userId=alice"},
		{"several", "a=1 , b=2,c=%20x", "a=1,b=2,c=%20x"},
		{"properties", "a=1;p;q=2", "a=1;p;q=2"},
		{"an empty value", "a=", "a="},
		{"equals in a value", "a=b=c", "a=b=c"},
		{"64 members", members(64), members(64)},
		{"65 members", members(65), ""},
		{"8192 bytes", "a=" + strings.Repeat("b", 8190), "a=" + strings.Repeat("b", 8190)},
		{"8193 bytes", "a=" + strings.Repeat("b", 8191), ""},
		{"nothing", "", ""},
		{"an empty member", "a=1,,b=2", ""},
		{"no value", "a", ""},
		{"a blank in a value", "a=b c", ""},
		{"a quote", `a="b"`, ""},
		{"a backslash", `a=\`, ""},
		{"a line end", "a=b\r\nX: 1", ""},
		{"a key that is no token", "a(b)=1", ""},
		{"not ASCII", "a=é", ""},
	} {
		if got, ok := ParseBaggage(tt.in); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: ParseBaggage(%.60q) = %.60q, %v, want %.60q", tt.rule, tt.in, got, ok, tt.want)
		}
	}
}

func TestTraceOf(t *testing.T) {
	head := func(pairs ...string) http.Header {
		h := http.Header{"X-Other": {"1"}}
		for i := 0; i < len(pairs); i += 2 {
			h.Add(pairs[i], pairs[i+1])
		}
		return TraceHeaders(h)
	}
	for _, tt := range []struct {
		rule, params         string
		head                 http.Header
		want, state, baggage string
	}{
		{"nothing", `{}`, nil, "", "", ""},
		{"_meta", `{"_meta":{"traceparent":"` + parentA + `","tracestate":"a=1","baggage":"b=2"}}`, nil, parentA, "a=1", "b=2"},
		{"headers", `{}`, head("traceparent", parentB, "tracestate", "a=1", "tracestate", "c=3", "baggage", "b=2", "baggage", "d=4"), parentB, "a=1,c=3", "b=2,d=4"},
		{"_meta before headers", `{"_meta":{"traceparent":"` + parentA + `"}}`, head("traceparent", parentB, "tracestate", "a=1", "baggage", "b=2"), parentA, "", "b=2"},
		{"headers where _meta is malformed", `{"_meta":{"traceparent":"x","tracestate":"m=1","baggage":"x"}}`, head("traceparent", parentB, "tracestate", "a=1", "baggage", "b=2"), parentB, "a=1", "b=2"},
		{"no text", `{"_meta":{"traceparent":7,"tracestate":["a=1"],"baggage":null}}`, nil, "", "", ""},
		{"_meta is no object", `{"_meta":"` + parentA + `"}`, nil, "", "", ""},
		{"a malformed state alone is dropped", `{"_meta":{"traceparent":"` + parentA + `","tracestate":"A=1"}}`, nil, parentA, "", ""},
		{"a state without a parent", `{"_meta":{"tracestate":"a=1"}}`, nil, "", "", ""},
		{"two parents in headers", `{}`, head("traceparent", parentA, "traceparent", parentB), "", "", ""},
		{"states too long together", `{}`, head("traceparent", parentA, "tracestate", "a="+strings.Repeat("x", 250), "tracestate", "b="+strings.Repeat("x", 256), "tracestate", "c=1"), parentA, "", ""},
		{"baggage that is far too long", `{"_meta":{"baggage":"a=` + strings.Repeat("b", 100_000) + `"}}`, nil, "", "", ""},
	} {
		m, fault := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + tt.params + `}`))
		if fault != nil {
			t.Fatal(fault)
		}
		got, baggage := TraceOf(Inbound{Msg: m, Trace: tt.head})
		if got.String() != tt.want || got.State != tt.state || baggage != tt.baggage {
			t.Errorf("%s: TraceOf = %q, %q, %.60q, want %q, %q, %q", tt.rule, got, got.State, baggage, tt.want, tt.state, tt.baggage)
		}
	}
}

func FuzzTraceParent(f *testing.F) {
	f.Add(parentA)
	f.Add("cc" + parentB[2:] + "-more")
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := ParseTraceParent(s)
		if ok == got.IsZero() {
			t.Fatalf("%q: %v, %q", s, ok, got)
		}
		if again, same := ParseTraceParent(got.String()); ok && (!same || again != got) {
			t.Fatalf("%q is %q, and that is %q", s, got, again)
		}
	})
}

func FuzzTraceState(f *testing.F) {
	f.Add("rojo=00f0 , congo=t61,,")
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := ParseTraceState(s)
		if again, same := ParseTraceState(got); !same || again != got || !ok && got != "" || len(got) > len(s) {
			t.Fatalf("%q is %q, and that is %q", s, got, again)
		}
		if strings.ContainsFunc(got, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Fatalf("%q holds what no header may", got)
		}
	})
}

func FuzzBaggage(f *testing.F) {
	f.Add("a=1;p;q=2 , b=%20")
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := ParseBaggage(s)
		if again, same := ParseBaggage(got); ok && (!same || again != got) || len(got) > len(s) {
			t.Fatalf("%q is %q, and that is %q", s, got, again)
		}
		if strings.ContainsFunc(got, func(c rune) bool { return c != '\t' && c < ' ' || c > '~' }) {
			t.Fatalf("%q holds what no header may", got)
		}
	})
}
