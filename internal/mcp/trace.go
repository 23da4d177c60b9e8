package mcp

import (
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"navra/internal/jsonrpc"
)

// The names of trace context, in _meta and as headers. They have no prefix by exception. MCP 2026-07-28, basic/index §_meta.
const (
	TraceParent = "traceparent"
	TraceState  = "tracestate"
	Baggage     = "baggage"
)

// Bounds on trace context, checked before anything of it is kept. W3C Trace Context §3.3.1.1, Baggage §3.3.2.
const (
	maxParent       = 512 // bytes; a later version may add to the 55 of this one
	maxState        = 512 // bytes
	maxStateMembers = 32
	maxBaggage      = 8192 // bytes
	maxBaggageItems = 64
	maxStateText    = 256 // bytes of a key or value
)

// Flags of a Trace. W3C Trace Context Level 2 §3.2.2.5.
const (
	Sampled   = 1 << 0
	RandomID  = 1 << 1
	flagsKept = Sampled | RandomID
)

// A Trace is a place in a distributed trace. The zero Trace is none.
type Trace struct {
	ID    [16]byte
	Span  [8]byte // the span that is going on there
	Flags byte
	State string // the tracestate that goes with it, valid; "" for none
}

// IsZero reports whether t is none.
func (t Trace) IsZero() bool { return t.ID == [16]byte{} || t.Span == [8]byte{} }

// String is t as a traceparent, without its state; "" for none.
func (t Trace) String() string {
	if t.IsZero() {
		return ""
	}
	b := make([]byte, 0, 55)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, t.ID[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, t.Span[:])
	b = append(b, '-')
	return string(hex.AppendEncode(b, []byte{t.Flags}))
}

// ParseTraceParent reads a traceparent: that of this version, or the part of a later one that is known here. ok is false for what
// is malformed. W3C Trace Context §3.2.
func ParseTraceParent(s string) (t Trace, ok bool) {
	if len(s) < 55 || len(s) > maxParent || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return Trace{}, false
	}
	var version, flags [1]byte
	ok = lowerHex(version[:], s[:2]) && lowerHex(t.ID[:], s[3:35]) && lowerHex(t.Span[:], s[36:52]) && lowerHex(flags[:], s[53:55])
	switch v := version[0]; {
	case !ok || t.IsZero() || v == 0xff:
		return Trace{}, false
	case len(s) > 55 && (v == 0 || s[55] != '-'):
		return Trace{}, false
	case v == 0:
		t.Flags = flags[0] & flagsKept
	default:
		t.Flags = flags[0] & Sampled // the one that is sure to keep its meaning
	}
	return t, true
}

// lowerHex fills out from exactly so many lower-case digits.
func lowerHex(out []byte, s string) bool {
	for i := range out {
		high, low := nibble(s[2*i]), nibble(s[2*i+1])
		if high > 15 || low > 15 {
			return false
		}
		out[i] = high<<4 | low
	}
	return true
}

func nibble(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// ParseTraceState reads a tracestate and returns it without what needs not be there; ok is false for one that is malformed, over a
// limit, or has a key twice. Members are not looked into. W3C Trace Context Level 2 §3.3.1, whose keys include those of Level 1.
func ParseTraceState(s string) (state string, ok bool) {
	if len(s) > maxState {
		return "", false
	}
	var keys [maxStateMembers]string
	var members [maxStateMembers]string
	n := 0
	for m := range strings.SplitSeq(s, ",") {
		m = trim(m)
		if m == "" {
			continue
		}
		key, value, has := strings.Cut(m, "=")
		if n == maxStateMembers || !has || !isStateKey(key) || !isStateValue(value) || slices.Contains(keys[:n], key) {
			return "", false
		}
		keys[n], members[n] = key, m
		n++
	}
	return strings.Join(members[:n], ","), true
}

func isStateKey(s string) bool {
	for i, c := range []byte(s) {
		lead := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !lead && (i == 0 || strings.IndexByte("_-*/@", c) < 0) {
			return false
		}
	}
	return s != "" && len(s) <= maxStateText
}

func isStateValue(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == ',' || c == '=' {
			return false
		}
	}
	return s != "" && len(s) <= maxStateText && s[len(s)-1] != ' '
}

// ParseBaggage reads a baggage and returns it without the blanks around its members; ok is false for one that is malformed, over a
// limit or empty. W3C Baggage §3.3.
func ParseBaggage(s string) (baggage string, ok bool) {
	if len(s) > maxBaggage || strings.Count(s, ",") >= maxBaggageItems {
		return "", false
	}
	var b strings.Builder
	for m := range strings.SplitSeq(s, ",") {
		m = trim(m)
		if !isBaggageMember(m) {
			return "", false
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(m)
	}
	return b.String(), true
}

// isBaggageMember: a key with its value, and properties, which may be keys alone.
func isBaggageMember(m string) bool {
	first := true
	for part := range strings.SplitSeq(m, ";") {
		key, value, has := strings.Cut(part, "=")
		if first && !has || !isToken(trim(key)) || !isBaggageValue(trim(value)) {
			return false
		}
		first = false
	}
	return true
}

func isBaggageValue(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '"' || c == ',' || c == ';' || c == '\\' {
			return false
		}
	}
	return true
}

var traceHeaders = []string{"Traceparent", "Tracestate", "Baggage"}

// TraceHeaders returns what headers say of trace context, as it came; nil where they say nothing.
func TraceHeaders(h http.Header) http.Header {
	var out http.Header
	for _, name := range traceHeaders {
		if values := h[name]; len(values) > 0 {
			if out == nil {
				out = http.Header{}
			}
			out[name] = values
		}
	}
	return out
}

// TraceOf returns the trace context that a client sent with a message: that of its _meta, which is about the message, before that of
// its headers, which are about the request or the connection. What is malformed is as good as not there: it is no reason to refuse a
// call. A tracestate counts only beside the traceparent that it came with.
func TraceOf(in Inbound) (t Trace, baggage string) {
	meta, _ := in.Msg.Params.Get("_meta")
	if meta == nil && in.Trace == nil {
		return t, ""
	}
	t, ok := ParseTraceParent(metaText(meta, TraceParent))
	if ok {
		t.State, _ = ParseTraceState(metaText(meta, TraceState))
	} else if parents := in.Trace["Traceparent"]; len(parents) == 1 {
		if t, ok = ParseTraceParent(parents[0]); ok {
			t.State, _ = ParseTraceState(joined(in.Trace["Tracestate"], maxState))
		}
	}
	baggage, ok = ParseBaggage(metaText(meta, Baggage))
	if !ok {
		baggage, _ = ParseBaggage(joined(in.Trace["Baggage"], maxBaggage))
	}
	return t, baggage
}

// metaText is a text in _meta; "" where there is none, or one that is too long for any of the three however it is escaped.
func metaText(meta jsonrpc.Raw, name string) string {
	v, _ := meta.Get(name)
	if len(v) > 6*maxBaggage+2 {
		return ""
	}
	s, _ := v.Text()
	return s
}

// joined is a header that is a list; where it comes to more than limit, something that is over it too.
func joined(values []string, limit int) string {
	if len(values) == 1 {
		return values[0]
	}
	size := 0
	for _, v := range values {
		if size += len(v) + 1; size > limit+1 {
			return strings.Repeat(",", limit+1)
		}
	}
	return strings.Join(values, ",")
}
