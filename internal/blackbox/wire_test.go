package blackbox

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

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

// TestTimesAreAsTheirForm: of all years, also those that have more or less than four digits.
func TestTimesAreAsTheirForm(t *testing.T) {
	for _, at := range []time.Time{
		{}, time.Unix(0, 0), time.Date(2026, 11, 30, 23, 59, 59, 999_999_999, time.UTC), time.Date(2024, 2, 29, 1, 2, 3, 4_005_006, time.FixedZone("", -5*3600)),
		time.Date(0, 1, 1, 0, 0, 0, 1000, time.UTC), time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -3600)), time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(33333, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		if got, want := string(appendTime([]byte("x"), at)), "x"+at.UTC().Format(timeForm); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for range 10_000 {
		at := time.Unix(rand.Int64N(300e9)-62e9, rand.Int64N(1e9))
		if got, want := string(appendTime(nil, at)), at.UTC().Format(timeForm); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
}

// TestOneCommitmentWhereAllIsKept: and two, with salts of their own, where it is not.
func TestOneCommitmentWhereAllIsKept(t *testing.T) {
	long := bytes.Repeat([]byte("x"), MaxStored+1)
	for _, tt := range []struct {
		name          string
		whole, stored []byte
		one           bool
	}{
		{"the whole", []byte("whole"), []byte("whole"), true}, {"nothing", nil, []byte{}, true}, {"redacted", []byte("secret"), []byte("[redacted]"), false},
		{"cut", long, long, false}, {"no UTF-8", []byte("\xff"), []byte("\xff"), false}, {"all that may be kept", long[1:], long[1:], true},
	} {
		p := NewPayload("result", tt.whole, tt.stored)
		if p.StoredProof != commit(p.StoredSalt, p.Stored) || p.WholeProof != commit(p.WholeSalt, tt.whole) || len(p.StoredSalt) != saltBytes || len(p.WholeSalt) != saltBytes {
			t.Errorf("%s: its commitments are not those of its salts", tt.name)
		}
		if same := bytes.Equal(p.StoredSalt, p.WholeSalt); same != tt.one || (p.StoredProof == p.WholeProof) != tt.one {
			t.Errorf("%s: one commitment %v, want %v", tt.name, same, tt.one)
		}
		if again := NewPayload("result", tt.whole, tt.stored); bytes.Equal(again.StoredSalt, p.StoredSalt) || bytes.Equal(again.WholeSalt, p.WholeSalt) {
			t.Errorf("%s: a salt was used twice", tt.name)
		}
		if len(tt.stored) > 0 {
			tt.stored[0] ^= 1
			if p.StoredProof != commit(p.StoredSalt, p.Stored) {
				t.Errorf("%s: what is kept is the caller's memory", tt.name)
			}
		}
	}
}
