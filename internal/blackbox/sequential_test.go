package blackbox

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestVerifyIsAsOneByOne: rows that are checked on all processors are judged as one after the other, whatever was done to them.
func TestVerifyIsAsOneByOne(t *testing.T) {
	broken := errors.New("broken")
	clean := chainOf(t, 5*batchRows+3)
	seen := map[string]int{}
	for round := range 500 {
		r := rand.New(rand.NewPCG(1, uint64(round)))
		rows := slices.Clone(clean[:r.IntN(len(clean)+1)])
		for range r.IntN(4) {
			rows = tampered(r, rows)
		}
		fails := r.IntN(2*len(clean) + 1) // before this row, where there is one
		seq := func(yield func(Row, error) bool) {
			for i, row := range rows {
				if i == fails {
					break
				}
				if !yield(row, nil) {
					return
				}
			}
			if fails <= len(rows) {
				yield(Row{}, broken)
			}
		}
		bad := Seq(r.IntN(3 * len(clean))) // that visit finds fault with
		visits := func(to *[]Seq) func(Seq, [32]byte) string {
			return func(n Seq, _ [32]byte) string {
				if *to = append(*to, n); n == bad {
					return "visited"
				}
				return ""
			}
		}
		var visited, wantVisited []Seq
		got, err := VerifyEach(Facts(seq), visits(&visited))
		want, wantErr := oneByOne(seq, visits(&wantVisited))
		if !reflect.DeepEqual(got, want) || err != wantErr || !slices.Equal(visited, wantVisited) {
			t.Fatalf("round %d: %+v, %v after %d visits, one by one %+v, %v after %d", round, got, err, len(visited), want, wantErr, len(wantVisited))
		}
		seen[fmt.Sprint(err, want.OK())]++
	}
	if len(seen) != 3 { // an error and a problem at once are none
		t.Errorf("not all was tried: %v", seen)
	}
}

// oneByOne is VerifyEach as plainly as can be, by what Decode and Encode say.
func oneByOne(rows iter.Seq2[Row, error], visit func(Seq, [32]byte) string) (r Report, err error) {
	for row, err := range rows {
		if err != nil {
			return r, err
		}
		want := Seq(r.Entries) + 1
		e, unread := Decode(row.Encoded)
		f := Fact{row: row.Seq, edited: Hash(row.Encoded) != row.Hash}
		if !f.edited {
			if f.unread = unread; unread == nil {
				f.seq, f.prev, f.payloads = e.Seq, e.Prev, checkPayloads(&e, row.Payloads)
				f.alarm = e.Kind == Event && (strings.HasPrefix(e.Reason, ChangedLive) || strings.HasPrefix(e.Reason, ChangedSince))
			}
		}
		problem := f.problem(want, r.Head)
		if problem == "" {
			problem = visit(row.Seq, row.Hash)
		}
		if problem != "" {
			r.At, r.Problem = want, problem
			return r, nil
		}
		r.Entries, r.Head = uint64(want), row.Hash
		if f.alarm {
			r.Alarms++
			r.Changed = append(r.Changed, want)
		}
	}
	return r, nil
}

func chainOf(t *testing.T, n int) (rows []Row) {
	t.Helper()
	var prev [32]byte
	for i := range n {
		e := Entry{Seq: Seq(i + 1), Kind: Request, Method: "tools/call", Target: fmt.Sprint("tool ", i), Prev: prev}
		if i%50 == 7 {
			e.Kind, e.Reason = Event, ChangedLive+"it was cut off"
		}
		for p := range i % 3 {
			e.Payloads = append(e.Payloads, NewPayload([]string{"arguments", "result"}[p], []byte("whole"), fmt.Append(nil, i)))
		}
		row := Row{Seq: e.Seq, Encoded: e.Encode(), Payloads: e.Payloads}
		row.Hash = Hash(row.Encoded)
		prev, rows = row.Hash, append(rows, row)
	}
	return rows
}

// tampered does one thing to rows, and leaves those it was given as they are.
func tampered(r *rand.Rand, rows []Row) []Row {
	if len(rows) < 2 {
		return rows
	}
	rows = slices.Clone(rows)
	i, j := r.IntN(len(rows)), r.IntN(len(rows))
	row := &rows[i]
	row.Encoded, row.Payloads = slices.Clone(row.Encoded), slices.Clone(row.Payloads)
	switch r.IntN(11) {
	case 0:
		row.Encoded[r.IntN(len(row.Encoded))] ^= 1 << r.IntN(8)
	case 1:
		row.Encoded[r.IntN(len(row.Encoded))] ^= 1 << r.IntN(8)
		row.Hash = Hash(row.Encoded)
	case 2:
		row.Hash[r.IntN(32)] ^= 1
	case 3:
		rows = slices.Delete(rows, i, i+1)
	case 4:
		rows[i], rows[j] = rows[j], rows[i]
	case 5:
		rows[i].Seq, rows[j].Seq = rows[j].Seq, rows[i].Seq
		rows[i], rows[j] = rows[j], rows[i]
	case 6:
		rows = slices.Insert(rows, i, rows[j])
	case 7:
		row.Payloads = rows[j].Payloads
	case 8:
		row.Payloads = append(row.Payloads, NewPayload("result", nil, nil))
	case 9:
		row.Payloads = nil // as retention does
	case 10:
		row.Seq = Seq(r.Uint64())
	}
	return rows
}
