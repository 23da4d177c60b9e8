package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"navra/internal/auth"
	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/scope"
	"navra/internal/store"
)

// pause pauses a principal, and revoke revokes a token.
func pause(t *testing.T, s store.Store, who string) (store.Receipt, error) {
	return s.Control(t.Context(), store.Change{Apply: func(c *store.Controls) (blackbox.Entry, error) {
		c.Pauses = append(c.Pauses, store.Pause{Principal: who, By: "uid:1", At: time.Unix(1, 0).UTC()})
		return blackbox.Entry{Kind: blackbox.Event, Reason: "paused " + who}, nil
	}})
}

func revoke(t *testing.T, s store.Store, id string) error {
	_, err := s.Control(t.Context(), store.Change{Revoke: id, Apply: func(*store.Controls) (blackbox.Entry, error) {
		return blackbox.Entry{Kind: blackbox.Event, Reason: "revoked " + id}, nil
	}})
	return err
}

// runControls runs what a store promises of what operators say.
func runControls(t *testing.T, open func(t *testing.T, dir string, clock *Clock) Verifier) {
	fresh := func(t *testing.T) (Verifier, *Clock, string) {
		clock, dir := NewClock(), t.TempDir()
		return open(t, dir, clock), clock, dir
	}
	t.Run("controls begin empty, are kept with their entry, and seen through another handle", func(t *testing.T) {
		s, clock, dir := fresh(t)
		other := open(t, dir, clock)
		before, err := other.Controls(t.Context())
		if err != nil || before.Generation != 1 || len(before.Pauses)+len(before.Policies)+len(before.Revoked) != 0 {
			t.Errorf("Controls = %+v, %v, want none, of generation 1", before, err)
		}
		r, err := pause(t, s, "ann")
		if err != nil || r.Seq != 1 {
			t.Fatalf("Control = %+v, %v", r, err)
		}
		now, err := other.Controls(t.Context())
		if _, paused := now.Paused("ann", "files"); err != nil || now.Generation != 2 || !paused {
			t.Errorf("Controls = %+v, %v, want the pause, of generation 2", now, err)
		}
		if p := now.Pauses[0]; p.By != "uid:1" || !p.At.Equal(time.Unix(1, 0)) {
			t.Errorf("the pause came back as %+v", p)
		}
		if rep, err := s.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != 1 {
			t.Errorf("Verify = %+v, %v, want the one entry", rep, err)
		}
	})
	t.Run("a commit of an older generation is refused whole", func(t *testing.T) {
		s, clock, dir := fresh(t)
		other := open(t, dir, clock)
		sc := mustScope(t, s, scope.Opening{ID: "a"})
		c := store.Commit{Scope: "a", IfScope: sc.Version, IfGeneration: 1, Raise: private}
		unheld := store.Commit{Scope: "a", IfScope: sc.Version, Raise: ifc.Bottom()}
		if _, err := pause(t, other, "ann"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(t.Context(), c); !errors.Is(err, store.ErrChanged) || !errors.Is(err, store.ErrStale) {
			t.Errorf("Commit of generation 1: %v, want ErrChanged", err)
		}
		if now := mustScope(t, s, scope.Opening{ID: "a"}); now.Version != sc.Version {
			t.Error("the refused commit has raised its scope")
		}
		if _, err := s.Commit(t.Context(), unheld); err != nil {
			t.Errorf("a commit that is held against no generation: %v", err)
		}
		c.IfGeneration = 2
		if _, err := s.Commit(t.Context(), c); err != nil {
			t.Errorf("Commit of generation 2: %v", err)
		}
		if rep, err := s.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != 3 {
			t.Errorf("Verify = %+v, %v, want 3 entries", rep, err)
		}
	})
	t.Run("judge sees what operators have said since", func(t *testing.T) {
		s, clock, dir := fresh(t)
		sc := mustScope(t, s, scope.Opening{ID: "a"})
		var said []*store.Controls
		judge := func(_ scope.Scope, c *store.Controls) (blackbox.Entry, ifc.Label) {
			said = append(said, c)
			return blackbox.Entry{}, ifc.Bottom()
		}
		same := store.Commit{Scope: "a", IfScope: sc.Version, IfGeneration: 1, Judge: judge}
		if _, err := s.Commit(t.Context(), same); err != nil {
			t.Fatal(err)
		}
		if _, err := pause(t, open(t, dir, clock), "ann"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(t.Context(), same); err != nil {
			t.Fatal(err)
		}
		if len(said) != 2 || said[0] != nil || said[1] == nil || said[1].Generation != 2 || len(said[1].Pauses) != 1 {
			t.Errorf("judge was told %v, want nothing, and then the pause", said)
		}
	})
	t.Run("a change that fails changes nothing", func(t *testing.T) {
		s, _, _ := fresh(t)
		no := errors.New("no")
		_, err := s.Control(t.Context(), store.Change{Apply: func(c *store.Controls) (blackbox.Entry, error) {
			c.Pauses = append(c.Pauses, store.Pause{})
			return blackbox.Entry{}, no
		}})
		if !errors.Is(err, no) {
			t.Errorf("Control: %v", err)
		}
		if err := revoke(t, s, "nobody"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a token that is not there: %v", err)
		}
		if c, err := s.Controls(t.Context()); err != nil || c.Generation != 1 || len(c.Pauses) != 0 {
			t.Errorf("Controls = %+v, %v, want none", c, err)
		}
		if rep, err := s.Verify(t.Context()); err != nil || rep.Entries != 0 {
			t.Errorf("Verify = %+v, %v, want no entry", rep, err)
		}
	})
	t.Run("a revoked token is among the controls", func(t *testing.T) {
		s, clock, _ := fresh(t)
		for i := range 3 {
			tok := auth.Token{ID: fmt.Sprint("t", i), Hash: [32]byte{byte(i)}, Principal: "ann", Created: clock.Now()}
			if err := s.AddToken(t.Context(), tok); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := revoke(t, s, "t1"); err != nil {
				t.Fatal(err)
			}
		}
		if c, err := s.Controls(t.Context()); err != nil || c.Generation != 3 || len(c.Revoked) != 1 || !c.Revoked["t1"] {
			t.Errorf("Controls = %+v, %v, want t1 revoked, of generation 3", c, err)
		}
	})
	t.Run("changes at once are all kept, and order what is committed", func(t *testing.T) { controlRace(t, open) })
}

// controlRace has two handles pause and commit at once: behind a pause there is no permit that does not know of it.
func controlRace(t *testing.T, open func(t *testing.T, dir string, clock *Clock) Verifier) {
	clock, dir := NewClock(), t.TempDir()
	handles := []Verifier{open(t, dir, clock), open(t, dir, clock)}
	const callers, changes = 8, 10
	var all, changing sync.WaitGroup
	done := make(chan struct{})
	var mu sync.Mutex
	behind := map[blackbox.Seq]store.Generation{} // permits, with the generation they were judged on
	starts := map[store.Generation]blackbox.Seq{} // the entry with which each generation begins
	for i := range callers {
		all.Go(func() {
			s := handles[i%2]
			for {
				select {
				case <-done:
					return
				default:
				}
				c, err := s.Controls(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				r, err := s.Commit(context.Background(), store.Commit{Entry: blackbox.Entry{Kind: blackbox.Request}, IfGeneration: c.Generation})
				if errors.Is(err, store.ErrStale) {
					continue
				} else if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				behind[r.Seq] = c.Generation
				mu.Unlock()
			}
		})
	}
	for i := range 2 {
		changing.Go(func() {
			for n := range changes {
				var at store.Generation
				r, err := handles[i].Control(context.Background(), store.Change{Apply: func(c *store.Controls) (blackbox.Entry, error) {
					c.Pauses = append(c.Pauses, store.Pause{Principal: fmt.Sprint(i, "-", n)})
					at = c.Generation + 1
					return blackbox.Entry{Kind: blackbox.Event}, nil
				}})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				starts[at] = r.Seq
				mu.Unlock()
			}
		})
	}
	changing.Wait()
	close(done)
	all.Wait()
	c, err := handles[0].Controls(t.Context())
	if err != nil || len(c.Pauses) != 2*changes || c.Generation != 1+2*changes {
		t.Errorf("%d pauses of generation %d, %v, want all %d", len(c.Pauses), c.Generation, err, 2*changes)
	}
	for seq, judged := range behind {
		if next, ok := starts[judged+1]; ok && seq > next {
			t.Errorf("entry %d was judged on generation %d, which ended with entry %d", seq, judged, next)
		}
	}
	if rep, err := handles[1].Verify(t.Context()); err != nil || !rep.OK() {
		t.Errorf("Verify = %+v, %v", rep, err)
	}
}
