package blackbox

import (
	"bytes"
	"errors"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// full is an entry in which no field is zero.
func full(t *testing.T) Entry {
	e := Entry{Payloads: []Payload{NewPayload("arguments", []byte(`{"a":1}`), []byte(`{"a":1}`))}, Findings: []Count{{"jwt", 2}}, Notes: []Count{{"n", 3}}, Durations: []Count{{"filter", 17}}}
	v := reflect.ValueOf(&e).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Kind() == reflect.String:
			f.SetString("v" + v.Type().Field(i).Name)
		case f.Kind() == reflect.Uint64:
			f.SetUint(uint64(i) + 1)
		}
	}
	e.Time = time.Date(2026, 11, 30, 1, 2, 3, 456000, time.UTC)
	e.Prev = [32]byte{1, 2, 3}
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Fatalf("field %s is zero: set it here, and cover it in the encoding", v.Type().Field(i).Name)
		}
	}
	return e
}

func TestEveryFieldIsEncoded(t *testing.T) {
	e := full(t)
	got, err := Decode(e.Encode())
	if err != nil {
		t.Fatal(err)
	}
	want := e
	want.Payloads = []Payload{{Name: "arguments", Length: 7, StoredProof: e.Payloads[0].StoredProof, WholeProof: e.Payloads[0].WholeProof}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Decode(Encode) (-want +got):\n%s", diff)
	}
}

func TestHostileText(t *testing.T) {
	e := Entry{Method: "x\n{\"seq\":99}\u2028\x1b[0m\xff", Target: strings.Repeat("é", 5000), Time: time.Unix(0, 0).UTC()}
	b := e.Encode()
	if bytes.ContainsAny(b, "\n\x1b") {
		t.Errorf("control characters are in the encoding: %q", b)
	}
	if len(b) > 8<<10 {
		t.Errorf("%d bytes for one long field", len(b))
	}
	if _, err := Decode(b); err != nil {
		t.Error(err)
	}
}

func TestDecodeTakesOneEncodingOnly(t *testing.T) {
	b := string(full(t).Encode())
	for name, s := range map[string]string{
		"white space":     strings.Replace(b, `":`, `": `, 1),
		"another order":   strings.Replace(b, `{"seq":1,`, `{"kind":"x","seq":1,`, 1),
		"an extra member": strings.Replace(b, `{"seq"`, `{"extra":1,"seq"`, 1),
		"trailing":        b + "{}",
		"another case":    strings.Replace(b, `"kind"`, `"Kind"`, 1),
	} {
		if _, err := Decode([]byte(s)); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
}

func chain(n int) []Row {
	var rows []Row
	var prev [32]byte
	for i := range n {
		p := NewPayload("result", []byte("whole"), []byte("stored"))
		e := Entry{Seq: Seq(i + 1), Time: time.Unix(int64(i), 0), Kind: Request, Prev: prev, Payloads: []Payload{p}}
		b := e.Encode()
		prev = Hash(b)
		rows = append(rows, Row{Seq: e.Seq, Encoded: b, Hash: prev, Payloads: []Payload{p}})
	}
	return rows
}

func seq(rows []Row) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func TestVerifyFindsTampering(t *testing.T) {
	edit := func(from, to string) func([]Row) []Row {
		return func(rows []Row) []Row {
			rows[4].Encoded = bytes.Replace(rows[4].Encoded, []byte(from), []byte(to), 1)
			return rows
		}
	}
	for name, tt := range map[string]struct {
		tamper func([]Row) []Row
		at     Seq
	}{
		"untouched": {func(r []Row) []Row { return r }, 0},
		"edited":    {edit(`"kind":"request"`, `"kind":"answer"`), 5},
		"edited and hashed again": {func(r []Row) []Row {
			r = edit(`"kind":"request"`, `"kind":"answer"`)(r)
			r[4].Hash = Hash(r[4].Encoded)
			return r
		}, 6},
		"removed first":     {func(r []Row) []Row { return r[1:] }, 1},
		"removed":           {func(r []Row) []Row { return slices.Delete(r, 4, 5) }, 5},
		"swapped":           {func(r []Row) []Row { r[4], r[5] = r[5], r[4]; return r }, 5},
		"swapped by number": {func(r []Row) []Row { r[4], r[5] = r[5], r[4]; r[4].Seq, r[5].Seq = 5, 6; return r }, 5},
		"doubled":           {func(r []Row) []Row { return slices.Insert(r, 5, r[4]) }, 6},
		"another chain's":   {func(r []Row) []Row { r[4] = chain(10)[4]; return r }, 5},
		"payload edited":    {func(r []Row) []Row { r[4].Payloads[0].Stored = []byte("nothing"); return r }, 5},
		"payload added": {func(r []Row) []Row {
			p := r[4].Payloads[0]
			p.Name = "more"
			r[4].Payloads = append(r[4].Payloads, p)
			return r
		}, 5},
		"payload removed":   {func(r []Row) []Row { r[4].Payloads = nil; return r }, 0}, // retention does that
		"garbage":           {func(r []Row) []Row { r[4].Encoded = []byte("{"); r[4].Hash = Hash(r[4].Encoded); return r }, 5},
		"garbage, unhashed": {func(r []Row) []Row { r[4].Encoded = nil; return r }, 5},
	} {
		rep, err := Verify(Facts(seq(tt.tamper(chain(10)))))
		if err != nil || rep.At != tt.at || rep.OK() != (tt.at == 0) {
			t.Errorf("%s: Verify = %+v, %v, want the first bad entry %d", name, rep, err, tt.at)
		}
	}
}

func TestPayloadIsCutAtACharacter(t *testing.T) {
	p := NewPayload("x", nil, []byte(strings.Repeat("é", MaxStored)+"\xff"))
	if len(p.Stored) > MaxStored || !strings.HasSuffix(string(p.Stored), "é") {
		t.Errorf("%d bytes, ending %q", len(p.Stored), p.Stored[len(p.Stored)-2:])
	}
	if q := NewPayload("x", nil, []byte("a")); bytes.Equal(p.StoredSalt, q.StoredSalt) || p.WholeProof == q.WholeProof {
		t.Error("two payloads have one salt")
	}
}

// TestVerificationEndsAtTheFirstProblem: whatever stands behind it, in its batch or in later ones, and an error of the store where it stands; and
// nothing of it goes on afterwards.
func TestVerificationEndsAtTheFirstProblem(t *testing.T) {
	const n = 5 * batchRows
	var rows []Row
	var prev [32]byte
	for i := range n {
		e := Entry{Seq: Seq(i + 1), Prev: prev, Kind: Request, Time: time.Unix(int64(i), 0)}
		b := e.Encode()
		prev = Hash(b)
		rows = append(rows, Row{Seq: e.Seq, Encoded: b, Hash: prev})
	}
	broken := errors.New("the disk")
	for _, bad := range []int{0, 1, batchRows - 1, batchRows, 3*batchRows + 7, n - 1, n} {
		for name, fails := range map[string]bool{"edited": false, "unreadable": true} {
			asked, ended := 0, false
			r, err := VerifyEach(Facts(func(yield func(Row, error) bool) {
				defer func() { ended = true }()
				for i, row := range rows {
					switch {
					case i == bad && fails:
						yield(Row{}, broken)
						return
					case i >= bad && (i-bad)%3 == 0: // others follow
						row.Hash[0]++
					}
					if !yield(row, nil) {
						return
					}
				}
			}), func(Seq, [32]byte) string { asked++; return "" })
			switch {
			case !ended:
				t.Errorf("%s at %d: the rows are still read", name, bad)
			case asked != bad || r.Entries != uint64(bad):
				t.Errorf("%s at %d: %d entries were good, %d asked about", name, bad, r.Entries, asked)
			case bad == n && (err != nil || !r.OK()), bad < n && fails && !errors.Is(err, broken), bad < n && !fails && (err != nil || r.At != Seq(bad+1)):
				t.Errorf("%s at %d: %+v, %v", name, bad, r, err)
			}
		}
	}
}
