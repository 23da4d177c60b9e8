package blackbox

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestEncodingIsJSON reads the encoding with another reader.
func TestEncodingIsJSON(t *testing.T) {
	e := full(t)
	e.Reason = "a \"quoted\" \\ line\nwith \x7f and é\u2028"
	var m map[string]any
	if err := json.Unmarshal(e.Encode(), &m); err != nil {
		t.Fatal(err)
	}
	if m["reason"] != e.Reason || m["prev"] != "0102030000000000000000000000000000000000000000000000000000000000" || len(m) != 32 {
		t.Errorf("read %d members: %v", len(m), m)
	}
}

func TestCountsAreBounded(t *testing.T) {
	var e Entry
	for range maxCounts + 10 {
		e.Notes = append(e.Notes, Count{"n", 1})
	}
	got, err := Decode(e.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Count{"others", 11}, got.Notes[maxCounts-1]); len(got.Notes) != maxCounts || diff != "" {
		t.Errorf("%d counts (-want +got):\n%s", len(got.Notes), diff)
	}
}

// FuzzDecode shows that what is decoded has one encoding, and that nothing else is taken.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add(Entry{Reason: "a\"\\\x01", Target: strings.Repeat("x", maxText)}.Encode())
	f.Add(Entry{Findings: []Count{{"a", -1}}, Payloads: []Payload{NewPayload("result", nil, []byte("x"))}}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Decode(b)
		seen := Entry{Payloads: make([]Payload, 3)}
		if looked := decode(b, &seen, false); (looked == nil) != (err == nil) {
			t.Errorf("%q: decoded %v, and looked at %v", b, err, looked)
		}
		if err != nil {
			return
		}
		want := Entry{Seq: e.Seq, Time: e.Time, Cause: e.Cause, Payloads: e.Payloads, Prev: e.Prev}
		if diff := cmp.Diff(want, seen, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-decoded +looked at):\n%s", b, diff)
		}
		if again := e.Encode(); string(again) != string(b) {
			t.Errorf("%q is decoded, and encoded as %q", b, again)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	e := Entry{Seq: 123456, Kind: Request, Principal: "agent", Method: "tools/call", Target: "files/read_file", Upstream: "files", Scope: "principal/agent", Verdict: "allow", Stage: "name"}
	b.ReportAllocs()
	for b.Loop() {
		e.Encode()
	}
}

func BenchmarkDecode(b *testing.B) {
	enc := Entry{Seq: 123456, Kind: Request, Principal: "agent", Method: "tools/call", Target: "files/read_file", Upstream: "files", Scope: "principal/agent", Verdict: "allow", Stage: "name"}.Encode()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(enc); err != nil {
			b.Fatal(err)
		}
	}
}
