package stores

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/heads"
	"navra/internal/ifc"
	"navra/internal/scope"
)

// TestSoakAppending: all that several processes append is one chain without a gap or a fork, each entry once.
func TestSoakAppending(t *testing.T) {
	both(t, func(t *testing.T, where string, processes int) {
		each := size(1000, 20_000)
		var all sync.WaitGroup
		for i := range processes {
			p := start(t, where)
			all.Go(func() { p.done(p.tell(fmt.Sprintf("append p%d %d", i, each))) })
		}
		all.Wait()
		times := map[string]int{}
		for _, e := range chain(t, where, processes*each) {
			times[e.Method]++
		}
		for i := range processes {
			for k := range each {
				if n := times[fmt.Sprintf("p%d-%d", i, k)]; n != 1 {
					t.Fatalf("p%d-%d is there %d times", i, k, n)
				}
			}
		}
	})
}

// chain verifies that a store holds so many entries, of which the heads file knows the last, and returns them.
func chain(t *testing.T, where string, want int) (out []blackbox.Entry) {
	t.Helper()
	db, err := open(where)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rep, err := db.Verify(t.Context())
	if err != nil || !rep.OK() || rep.Entries != uint64(want) {
		t.Fatalf("Verify = %+v, %v, want %d good entries", rep, err, want)
	}
	if m, ok, err := heads.Read(headsOf(where), tag); err != nil || !ok || m.Size != blackbox.Seq(want) || m.Head != rep.Head {
		t.Errorf("heads file: %+v, %v, %v, want the last of %d entries", m, ok, err, want)
	}
	for row, err := range db.Rows(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := blackbox.Decode(row.Encoded)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// TestSoakRaces: what one process raises is in the label of each permit that comes after it in the chain, whichever process it is
// committed by, and whatever was read before.
func TestSoakRaces(t *testing.T) {
	both(t, func(t *testing.T, where string, processes int) {
		races := size(100, 1000)
		var all []*process
		for range processes {
			all = append(all, start(t, where))
		}
		db, err := open(where)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		counts := &outcomes{}
		var workers sync.WaitGroup
		for w := range 8 { // so that groups hold commits of several races
			workers.Go(func() {
				for i := w; i < races; i += 8 {
					s, err := db.Scope(t.Context(), scope.Opening{ID: scope.ID(fmt.Sprint("s", i))})
					if err != nil {
						t.Error(err)
						return
					}
					race(t, all[i%processes], all[(i+1)%processes], s, i%2 == 0, counts)
				}
			})
		}
		workers.Wait()
		if counts.known != races/2 { // who is first of the others is the machine's
			t.Errorf("%d permits were judged again after a raise that was known, want %d", counts.known, races/2)
		}
		t.Logf("%d races: at the same moment the permit was first %d times and judged again %d times; %d times the raise was known before", races, counts.first, counts.stale, counts.known)
		judgedOnTheNewest(t, chain(t, where, 4*races))
	})
}

type outcomes struct {
	mu                  sync.Mutex
	first, stale, known int
}

// race raises a scope by one process while another commits permits that were judged before. Where after is set the permit comes once the raise was
// committed, which is before its answer leaves; else both come at the same moment.
func race(t *testing.T, a, b *process, s scope.Scope, after bool, counts *outcomes) {
	label, err := s.Label.MarshalText()
	if err != nil {
		t.Error(err)
		return
	}
	old := fmt.Sprintf("permit %s %d/%s", s.ID, s.Version, label)
	raised := a.tell(fmt.Sprintf("raise %s files", s.ID))
	var raise, permit, stale int
	if after {
		fmt.Sscan(a.done(raised), &raise)
	}
	permitted, again := b.tell(old), b.tell("judge "+string(s.ID))
	if !after {
		fmt.Sscan(a.done(raised), &raise)
	}
	fmt.Sscan(b.done(permitted), &permit, &stale)
	b.done(again)
	a.done(a.tell(old)) // and once more, by who raised it
	counts.mu.Lock()
	defer counts.mu.Unlock()
	switch {
	case permit < raise && after:
		t.Errorf("%s: permit %d came after raise %d, and is before it", s.ID, permit, raise)
	case permit < raise:
		counts.first++
	case stale == 0:
		t.Errorf("%s: permit %d was judged before raise %d, and stood", s.ID, permit, raise)
	case after:
		counts.known++
	default:
		counts.stale++
	}
}

// judgedOnTheNewest goes through a chain: the label that an entry was judged on covers each raise before it.
func judgedOnTheNewest(t *testing.T, entries []blackbox.Entry) {
	t.Helper()
	labels := map[string]ifc.Label{}
	for _, e := range entries {
		var before, after ifc.Label
		if err := before.UnmarshalText([]byte(e.Before)); err != nil {
			t.Fatalf("entry %d: %v", e.Seq, err)
		}
		if err := after.UnmarshalText([]byte(e.After)); err != nil {
			t.Fatalf("entry %d: %v", e.Seq, err)
		}
		raised, ok := labels[e.Scope]
		if !ok {
			raised = ifc.Bottom()
		}
		if !before.Covers(raised) {
			t.Errorf("entry %d of %s was judged on %q, and %q was raised before it", e.Seq, e.Scope, before, raised)
		}
		labels[e.Scope] = raised.Join(after)
	}
	for id, l := range labels {
		if strings.Join(l.Sources(), " ") != "files" {
			t.Errorf("%s ends as %q", id, l)
		}
	}
}
