package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/store"
)

// A Log is a store that can also be read as package store promises.
type Log interface {
	Verifier
	store.Log
}

// RunLog runs what a store.Log promises. open opens the store of a folder, as for Run.
func RunLog(t *testing.T, open func(t *testing.T, dir string, clock *Clock) Log) {
	fresh := func(t *testing.T) Log { return open(t, t.TempDir(), NewClock()) }
	t.Run("an empty log", func(t *testing.T) {
		s := fresh(t)
		if r, err := s.Head(t.Context()); err != nil || r != (store.Receipt{}) {
			t.Errorf("Head = %+v, %v, want zero", r, err)
		}
		if rows, leaves := drain(t, s.Rows(t.Context(), 1)), drain(t, s.Leaves(t.Context(), 1)); len(rows) != 0 || len(leaves) != 0 {
			t.Errorf("%d rows and %d leaves, want none", len(rows), len(leaves))
		}
		if cs, err := s.Checkpoints(t.Context()); err != nil || len(cs) != 0 {
			t.Errorf("Checkpoints = %v, %v, want none", cs, err)
		}
	})
	t.Run("rows and leaves are in order, from any number on", func(t *testing.T) { order(t, fresh(t)) })
	t.Run("what is committed meanwhile is yielded too", func(t *testing.T) {
		s := fresh(t)
		fill(t, s, 1500)
		n := 0
		for _, err := range s.Rows(t.Context(), 1) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 1 {
				fill(t, s, 1) // no lock is held while a row is looked at
			}
		}
		if n != 1501 {
			t.Errorf("%d rows, want 1501", n)
		}
	})
	t.Run("an error ends the sequence", func(t *testing.T) {
		s := fresh(t)
		fill(t, s, 3)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		n, last := 0, error(nil)
		for _, err := range s.Rows(ctx, 1) {
			n, last = n+1, err
		}
		for _, err := range s.Leaves(ctx, 1) {
			n, last = n+1, errors.Join(last, err)
		}
		if n != 2 || !errors.Is(last, context.Canceled) {
			t.Errorf("%d values, %v, want the error alone from each", n, last)
		}
	})
	t.Run("checkpoints", func(t *testing.T) { checkpoints(t, fresh(t)) })
	t.Run("payloads go, hashes stay", func(t *testing.T) { drop(t, fresh(t)) })
	t.Run("a turn is one's alone", func(t *testing.T) {
		clock := NewClock()
		turns(t, open(t, t.TempDir(), clock), clock)
	})
	t.Run("room", func(t *testing.T) { room(t, fresh(t)) })
}

// fill commits n entries with a payload each, from several goroutines.
func fill(t *testing.T, s store.Store, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for g := range 50 {
		wg.Go(func() {
			for i := g; i < n; i += 50 {
				name := fmt.Sprint("m", i)
				c := store.Commit{Raise: ifc.Bottom(), Entry: blackbox.Entry{Kind: blackbox.Request, Method: name, Payloads: []blackbox.Payload{
					blackbox.NewPayload("arguments", []byte(name), []byte(name)), blackbox.NewPayload("result", nil, nil),
				}}}
				if i%2 == 0 {
					c.Entry.Payloads = c.Entry.Payloads[:1]
				}
				if _, err := s.Commit(t.Context(), c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func drain[T any](t *testing.T, seq iter.Seq2[T, error]) (out []T) {
	t.Helper()
	for v, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

func order(t *testing.T, s Log) {
	const n = 1200
	fill(t, s, n)
	all := drain(t, s.Rows(t.Context(), 1))
	if len(all) != n {
		t.Fatalf("%d rows, want %d", len(all), n)
	}
	for i, r := range all {
		e, err := blackbox.Decode(r.Encoded)
		if err != nil || r.Seq != blackbox.Seq(i+1) || e.Seq != r.Seq || len(r.Payloads) != len(e.Payloads) {
			t.Fatalf("row %d = %d with %d payloads, %v", i+1, r.Seq, len(r.Payloads), err)
		}
	}
	if head, err := s.Head(t.Context()); err != nil || head != (store.Receipt{Seq: n, Hash: all[n-1].Hash}) {
		t.Errorf("Head = %+v, %v, want the last row's", head, err)
	}
	for _, from := range []blackbox.Seq{0, 1, 2, 513, n, n + 1, 1 << 62} {
		want := all[min(max(int(from), 1)-1, n):]
		rows, leaves := drain(t, s.Rows(t.Context(), from)), drain(t, s.Leaves(t.Context(), from))
		if len(rows) != len(want) || len(leaves) != len(want) {
			t.Fatalf("from %d: %d rows, %d leaves, want %d", from, len(rows), len(leaves), len(want))
		}
		for i := range want {
			if rows[i].Seq != want[i].Seq || leaves[i] != want[i].Hash {
				t.Fatalf("from %d: row %d is entry %d, want %d", from, i, rows[i].Seq, want[i].Seq)
			}
		}
	}
	for range s.Rows(t.Context(), 1) {
		break // whoever stops early leaves nothing behind
	}
	if rep, err := s.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != n {
		t.Errorf("Verify = %+v, %v, want %d good entries", rep, err, n)
	}
}

func turns(t *testing.T, s Log, clock *Clock) {
	for i, step := range []struct {
		on   time.Duration
		name string
		want int
	}{{0, "a", 1}, {0, "b", 1}, {59 * time.Minute, "a", 0}, {time.Minute, "a", 1}, {-3 * time.Hour, "a", 1}, {time.Minute, "a", 0}} {
		clock.Turn(step.on)
		var wg sync.WaitGroup
		var took atomic.Int64
		for range 8 {
			wg.Go(func() {
				mine, err := s.Turn(t.Context(), step.name, time.Hour)
				if err != nil {
					t.Error(err)
				} else if mine {
					took.Add(1)
				}
			})
		}
		wg.Wait()
		if n := took.Load(); n != int64(step.want) {
			t.Errorf("step %d: %d took the turn, want %d", i, n, step.want)
		}
	}
}

// room grows with what is committed, and less of it is used when payloads are dropped.
func room(t *testing.T, s Log) {
	used := func() int64 {
		t.Helper()
		r, err := s.Room(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r.Used
	}
	before := used()
	big := make([]byte, 4000)
	for i := range big {
		big[i] = byte(rand.IntN(256)) // nothing is to be gained by compressing it
	}
	for range 1000 {
		c := store.Commit{Raise: ifc.Bottom(), Entry: blackbox.Entry{Kind: blackbox.Request, Payloads: []blackbox.Payload{blackbox.NewPayload("result", nil, big)}}}
		if _, err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	full := used()
	if full-before < 1000*4000 {
		t.Errorf("%d bytes are used after 1000 payloads of 4000, before it were %d", full, before)
	}
	if _, err := s.DropPayloads(t.Context(), 1<<40, 2000); err != nil {
		t.Fatal(err)
	}
	if now := used(); full-now < 1000*3000 {
		t.Errorf("%d bytes are used when the payloads are dropped, before it were %d", now, full)
	}
}

func checkpoints(t *testing.T, s Log) {
	five := blackbox.Checkpoint{Size: 5, Note: []byte("five\n\x00\xff"), Frontier: [][32]byte{{1}, {2}}}
	two := blackbox.Checkpoint{Size: 2, Note: []byte("two"), Frontier: [][32]byte{{3}}}
	for _, c := range []blackbox.Checkpoint{five, two, {Size: 5, Note: []byte("another")}} {
		if err := s.AddCheckpoint(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Checkpoints(t.Context())
	if diff := cmp.Diff([]blackbox.Checkpoint{two, five}, got); err != nil || diff != "" {
		t.Errorf("Checkpoints: %v (-want +got):\n%s", err, diff)
	}
}

func drop(t *testing.T, s Log) {
	fill(t, s, 9)
	payloads := func(rows []blackbox.Row) (n int) {
		for _, r := range rows {
			n += len(r.Payloads)
		}
		return n
	}
	all := drain(t, s.Rows(t.Context(), 1))
	below := 0 // entries that have payloads
	for _, r := range all[:5] {
		below += min(len(r.Payloads), 1)
	}
	for _, tt := range []struct{ limit, want int }{{0, 0}, {2, 2}, {100, below - 2}, {100, 0}} {
		if n, err := s.DropPayloads(t.Context(), 6, tt.limit); err != nil || n != tt.want {
			t.Errorf("DropPayloads(6, %d) = %d, %v, want %d", tt.limit, n, err, tt.want)
		}
		if tt.limit == 2 && len(drain(t, s.Rows(t.Context(), 1))[0].Payloads) != 0 {
			t.Error("the oldest payload is still there")
		}
	}
	after := drain(t, s.Rows(t.Context(), 1))
	if payloads(after[:5]) != 0 || payloads(after[5:]) != payloads(all[5:]) {
		t.Errorf("%d payloads are left below, %d above, want 0 and %d", payloads(after[:5]), payloads(after[5:]), payloads(all[5:]))
	}
	if rep, err := s.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != 9 {
		t.Errorf("Verify = %+v, %v, want 9 good entries", rep, err)
	}
}
