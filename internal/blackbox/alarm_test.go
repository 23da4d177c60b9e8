package blackbox

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

// TestChangesAreCounted: events that record a change are named, and what others say in their words is not taken for one.
func TestChangesAreCounted(t *testing.T) {
	var rows []Row
	var prev [32]byte
	add := func(e Entry) {
		e.Seq, e.Time, e.Prev = Seq(len(rows)+1), time.Now(), prev
		b := e.Encode()
		prev = Hash(b)
		rows = append(rows, Row{Seq: e.Seq, Encoded: b, Hash: prev})
	}
	verify := func() Report {
		t.Helper()
		r, err := Verify(Facts(seq(rows)))
		if err != nil || !r.OK() {
			t.Fatalf("%+v, %v", r, err)
		}
		return r
	}
	add(Entry{Kind: Request, Reason: ChangedLive + "said by somebody else"})
	add(Entry{Kind: Event, Reason: "it is not true that " + ChangedSince})
	if r := verify(); r.Alarms != 0 || r.Changed != nil {
		t.Errorf("%+v, want no change", r)
	}
	var want []Seq
	for i := range maxAlarms + 5 {
		add(Entry{Kind: Event, Reason: []string{ChangedLive, ChangedSince}[i%2] + fmt.Sprint(i)})
		if i < maxAlarms {
			want = append(want, Seq(len(rows)))
		}
		add(Entry{Kind: Request})
	}
	if r := verify(); r.Alarms != maxAlarms+5 || !reflect.DeepEqual(r.Changed, want) {
		t.Errorf("%+v, want %d changes, the first %v", r, maxAlarms+5, want)
	}
}
