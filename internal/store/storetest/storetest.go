// Package storetest is the suite that every store passes: what package store promises, one test a promise.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"navra/internal/auth"
	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/scope"
	"navra/internal/store"
)

// A Verifier can check its own chain.
type Verifier interface {
	store.Store
	Verify(context.Context) (blackbox.Report, error)
	Close() error
}

// A Clock is a clock that the suite turns. It may be read concurrently.
type Clock struct {
	mu sync.Mutex
	t  time.Time
}

// NewClock returns a clock that shows some day.
func NewClock() *Clock { return &Clock{t: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)} }

// Now returns what the clock shows.
func (c *Clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.t }

// Turn moves the clock on.
func (c *Clock) Turn(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.t = c.t.Add(d) }

var private = ifc.Of("files", ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.Sensitive})

// Run runs the suite. open opens the store of a folder: the same folder is the same store.
func Run(t *testing.T, open func(t *testing.T, dir string, clock *Clock) Verifier) {
	fresh := func(t *testing.T) (Verifier, *Clock, string) {
		clock, dir := NewClock(), t.TempDir()
		return open(t, dir, clock), clock, dir
	}
	t.Run("commits from many goroutines are one chain", func(t *testing.T) {
		s, _, _ := fresh(t)
		var wg sync.WaitGroup
		seen := make([]blackbox.Seq, 16*20)
		for g := range 16 {
			wg.Go(func() {
				for i := range 20 {
					r, err := s.Commit(t.Context(), store.Commit{Entry: blackbox.Entry{Kind: blackbox.Request, Method: fmt.Sprint(g, i), Payloads: []blackbox.Payload{blackbox.NewPayload("arguments", []byte("w"), []byte("s"))}}})
					if err != nil {
						t.Error(err)
					}
					seen[g*20+i] = r.Seq
				}
			})
		}
		wg.Wait()
		rep, err := s.Verify(t.Context())
		if err != nil || !rep.OK() || rep.Entries != 320 {
			t.Errorf("Verify = %+v, %v, want 320 good entries", rep, err)
		}
		unique := map[blackbox.Seq]bool{}
		for _, n := range seen {
			unique[n] = true
		}
		if len(unique) != 320 {
			t.Errorf("%d numbers for 320 commits", len(unique))
		}
	})
	t.Run("a stale scope is refused whole", func(t *testing.T) {
		s, _, _ := fresh(t)
		sc := mustScope(t, s, scope.Opening{ID: "a"})
		if _, err := s.Commit(t.Context(), store.Commit{Scope: "a", IfScope: sc.Version, Raise: private}); err != nil {
			t.Fatal(err)
		}
		_, err := s.Commit(t.Context(), store.Commit{Scope: "a", IfScope: sc.Version, Raise: ifc.Bottom()})
		if !errors.Is(err, store.ErrStale) {
			t.Errorf("Commit on an old version: %v, want ErrStale", err)
		}
		if rep, _ := s.Verify(t.Context()); rep.Entries != 1 {
			t.Errorf("%d entries, want 1: the refused one must leave nothing", rep.Entries)
		}
		now := mustScope(t, s, scope.Opening{ID: "a"})
		if now.Version == sc.Version || !now.Label.Equal(private) {
			t.Errorf("scope = %+v, want a new version with the label", now)
		}
		if _, err := s.Commit(t.Context(), store.Commit{Scope: "a", IfScope: now.Version, Raise: private}); err != nil {
			t.Fatal(err)
		}
		if again := mustScope(t, s, scope.Opening{ID: "a"}); again.Version != now.Version {
			t.Error("a raise that changes nothing made a new version")
		}
	})
	t.Run("judge sees the scope as it stands", func(t *testing.T) {
		s, _, _ := fresh(t)
		mustScope(t, s, scope.Opening{ID: "a"})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				c := store.Commit{Scope: "a", Judge: func(sc scope.Scope, _ *store.Controls) (blackbox.Entry, ifc.Label) {
					return blackbox.Entry{Before: fmt.Sprint(sc.Version)}, ifc.Of(fmt.Sprint("s", i), ifc.Level{Confidentiality: ifc.PII, Integrity: ifc.Trusted})
				}}
				if _, err := s.Commit(t.Context(), c); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := mustScope(t, s, scope.Opening{ID: "a"}); len(got.Label.Sources()) != 8 || got.Version != 9 {
			t.Errorf("scope = %+v, want eight sources in version 9", got)
		}
	})
	t.Run("a commit on a scope that is not there is refused", func(t *testing.T) {
		s, _, _ := fresh(t)
		if _, err := s.Commit(t.Context(), store.Commit{Scope: "nowhere"}); err == nil {
			t.Error("committed")
		}
	})
	t.Run("what another process commits is seen", func(t *testing.T) {
		s, clock, dir := fresh(t)
		turns := []Verifier{s, open(t, dir, clock)}
		sc := mustScope(t, s, scope.Opening{ID: "a"})
		for i := range 6 { // each has remembered what was before the other's commit
			here, there := turns[i%2], turns[(i+1)%2]
			l := ifc.Of(fmt.Sprint("s", i), ifc.Level{Confidentiality: ifc.PII, Integrity: ifc.Trusted})
			if _, err := here.Commit(t.Context(), store.Commit{Scope: "a", IfScope: sc.Version, Raise: l}); err != nil {
				t.Fatal(err)
			}
			if _, err := there.Commit(t.Context(), store.Commit{Scope: "a", IfScope: sc.Version, Raise: l}); !errors.Is(err, store.ErrStale) {
				t.Errorf("Commit on a version that another process has raised: %v, want ErrStale", err)
			}
			clock.Turn(13 * time.Hour) // the scope ends
			sc = mustScope(t, there, scope.Opening{ID: "a"})
			if _, err := here.Commit(t.Context(), store.Commit{Scope: "a", IfScope: sc.Version, Raise: ifc.Bottom()}); err != nil {
				t.Errorf("Commit on a scope that another process began: %v", err)
			}
			clock.Turn(13 * time.Hour)
			sc = mustScope(t, here, scope.Opening{ID: "a"})
			if _, err := here.Commit(t.Context(), store.Commit{Scope: "a", IfScope: sc.Version, Raise: ifc.Bottom()}); err != nil {
				t.Errorf("Commit on a scope that was begun between groups: %v", err)
			}
		}
		if rep, err := s.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != 18 {
			t.Errorf("Verify = %+v, %v, want 18 good entries", rep, err)
		}
	})
	t.Run("labels and chain survive a restart", func(t *testing.T) {
		s, clock, dir := fresh(t)
		sc := mustScope(t, s, scope.Opening{ID: "a"})
		if _, err := s.Commit(t.Context(), store.Commit{Scope: "a", IfScope: sc.Version, Raise: private}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, clock)
		if got := mustScope(t, s, scope.Opening{ID: "a"}); !got.Label.Equal(private) {
			t.Errorf("label after a restart: %v", got.Label)
		}
		if _, err := s.Commit(t.Context(), store.Commit{}); err != nil {
			t.Fatal(err)
		}
		if rep, err := s.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != 2 {
			t.Errorf("Verify = %+v, %v", rep, err)
		}
	})
	t.Run("scopes", func(t *testing.T) { scopes(t, fresh) })
	t.Run("state", func(t *testing.T) { state(t, fresh) })
	runControls(t, open)
}

func mustScope(t *testing.T, s store.Store, o scope.Opening) scope.Scope {
	t.Helper()
	sc, err := s.Scope(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// scopes tests how scopes begin, are inherited, and end.
func scopes(t *testing.T, fresh func(*testing.T) (Verifier, *Clock, string)) {
	raise := func(t *testing.T, s store.Store, o scope.Opening, c *Clock) {
		sc := mustScope(t, s, o)
		if _, err := s.Commit(t.Context(), store.Commit{Entry: blackbox.Entry{Time: c.Now()}, Scope: o.ID, IfScope: sc.Version, Raise: private}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		rule     string
		old, new scope.Opening
		after    time.Duration
		tainted  bool
	}{
		{"a new scope is clean", scope.Opening{ID: "a"}, scope.Opening{ID: "b"}, 0, false},
		{"the same scope is tainted", scope.Opening{ID: "a"}, scope.Opening{ID: "a"}, 11 * time.Hour, true},
		{"a scope ends after 12 idle hours", scope.Opening{ID: "a"}, scope.Opening{ID: "a"}, 13 * time.Hour, false},
		{"a named conversation does not end", scope.Opening{ID: "a", Lasting: true}, scope.Opening{ID: "a", Lasting: true}, 1000 * time.Hour, true},
		{"a new host process inherits", scope.Opening{ID: "a", Lineage: "l"}, scope.Opening{ID: "b", Lineage: "l"}, 11 * time.Hour, true},
		{"for 12 hours", scope.Opening{ID: "a", Lineage: "l"}, scope.Opening{ID: "b", Lineage: "l"}, 13 * time.Hour, false},
		{"not from another folder", scope.Opening{ID: "a", Lineage: "l"}, scope.Opening{ID: "b", Lineage: "m"}, 0, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			s, clock, _ := fresh(t)
			raise(t, s, tt.old, clock)
			was := mustScope(t, s, tt.old)
			clock.Turn(tt.after)
			got := mustScope(t, s, tt.new)
			if got.Label.Equal(private) != tt.tainted || !tt.tainted && !got.Label.Equal(ifc.Bottom()) {
				t.Errorf("label %v, want tainted %v", got.Label, tt.tainted)
			}
			if tt.old.ID == tt.new.ID && !tt.tainted && got.Version <= was.Version {
				t.Errorf("version %d after %d: a permit judged on the old one would still fit", got.Version, was.Version)
			}
		})
	}
	t.Run("a use keeps a scope alive", func(t *testing.T) {
		s, clock, _ := fresh(t)
		o := scope.Opening{ID: "a"}
		raise(t, s, o, clock)
		for range 3 {
			clock.Turn(10 * time.Hour)
			raise(t, s, o, clock)
		}
		if got := mustScope(t, s, o); !got.Label.Equal(private) {
			t.Errorf("label %v", got.Label)
		}
	})
	t.Run("inheritance joins all that ran side by side", func(t *testing.T) {
		s, clock, _ := fresh(t)
		mustScope(t, s, scope.Opening{ID: "a", Lineage: "l"})
		mustScope(t, s, scope.Opening{ID: "b", Lineage: "l"})
		raise(t, s, scope.Opening{ID: "a", Lineage: "l"}, clock)
		clock.Turn(time.Minute)
		sc := mustScope(t, s, scope.Opening{ID: "b", Lineage: "l"})
		if _, err := s.Commit(t.Context(), store.Commit{Entry: blackbox.Entry{Time: clock.Now()}, Scope: "b", IfScope: sc.Version, Raise: ifc.Bottom()}); err != nil {
			t.Fatal(err)
		}
		if got := mustScope(t, s, scope.Opening{ID: "c", Lineage: "l"}); !got.Label.Equal(private) {
			t.Errorf("label %v, want what a has read, though b was used last", got.Label)
		}
	})
}

// state tests what is kept beside entries and scopes.
func state(t *testing.T, fresh func(*testing.T) (Verifier, *Clock, string)) {
	t.Run("placeholders", func(t *testing.T) {
		s, _, _ := fresh(t)
		p := func(kind string, tag byte, path string) scope.Placeholder {
			return scope.Placeholder{Kind: kind, Principal: "ann", Tag: [32]byte{tag}, Box: []byte{tag}, Objects: []scope.Object{{Upstream: "files", Path: path}}}
		}
		got, err := s.AddPlaceholders(t.Context(), "a", []scope.Placeholder{p("jwt", 1, "/x"), p("jwt", 2, "/x"), p("aws", 1, "/x"), p("jwt", 1, "/y")})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{1, 2, 1, 1} {
			if got[i].N != want {
				t.Errorf("placeholder %d has number %d, want %d", i, got[i].N, want)
			}
		}
		all, err := s.Placeholders(t.Context(), "a")
		if err != nil || len(all) != 3 {
			t.Fatalf("Placeholders = %v, %v, want three", all, err)
		}
		if diff := cmp.Diff([]scope.Object{{Upstream: "files", Path: "/x"}, {Upstream: "files", Path: "/y"}}, all[1].Objects); diff != "" {
			t.Errorf("objects (-want +got):\n%s", diff)
		}
		if other, err := s.Placeholders(t.Context(), "b"); err != nil || len(other) != 0 {
			t.Errorf("another scope's: %v, %v", other, err)
		}
	})
	t.Run("kept", func(t *testing.T) {
		s, _, _ := fresh(t)
		if _, err := s.Kept(t.Context(), "k"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Kept of nothing: %v", err)
		}
		for _, v := range []string{"one", "two"} {
			if err := s.Keep(t.Context(), "k", []byte(v)); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Kept(t.Context(), "k"); err != nil || string(got) != v {
				t.Errorf("Kept = %q, %v, want %q", got, err, v)
			}
		}
	})
	t.Run("of those who swap at once one does", func(t *testing.T) {
		s, _, _ := fresh(t)
		if done, err := s.Swap(t.Context(), "k", []byte("0"), []byte("1")); done || err != nil {
			t.Errorf("Swap of what is not there = %v, %v", done, err)
		}
		old := []byte(nil)
		for round := range 5 {
			next := []byte(fmt.Sprint(round))
			var wg sync.WaitGroup
			var mu sync.Mutex
			won := 0
			for range 8 {
				wg.Go(func() {
					done, err := s.Swap(t.Context(), "k", old, next)
					if err != nil {
						t.Error(err)
					}
					if done {
						mu.Lock()
						won++
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			if got, err := s.Kept(t.Context(), "k"); won != 1 || err != nil || string(got) != string(next) {
				t.Errorf("round %d: %d won, %q is kept, %v", round, won, got, err)
			}
			old = next
		}
	})
	t.Run("sessions", func(t *testing.T) {
		s, clock, _ := fresh(t)
		if err := s.EndSession(t.Context(), "n", clock.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		for nonce, want := range map[string]bool{"n": true, "m": false} {
			if got, err := s.SessionEnded(t.Context(), nonce); err != nil || got != want {
				t.Errorf("SessionEnded(%s) = %v, %v, want %v", nonce, got, err, want)
			}
		}
	})
	t.Run("tokens", func(t *testing.T) {
		s, clock, _ := fresh(t)
		tok := auth.Token{ID: "1", Hash: [32]byte{1}, Principal: "ann", Created: clock.Now(), Expires: clock.Now().Add(time.Hour)}
		if err := s.AddToken(t.Context(), tok); err != nil {
			t.Fatal(err)
		}
		got, err := s.TokenByHash(t.Context(), tok.Hash)
		if diff := cmp.Diff(tok, got); err != nil || diff != "" {
			t.Errorf("TokenByHash: %v\n%s", err, diff)
		}
		if _, err := s.TokenByHash(t.Context(), [32]byte{2}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("an unknown token: %v", err)
		}
		if err := revoke(t, s, "1"); err != nil {
			t.Fatal(err)
		}
		if got, _ := s.TokenByHash(t.Context(), tok.Hash); got.Valid(clock.Now()) {
			t.Error("a revoked token is valid")
		}
		if err := revoke(t, s, "2"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("revoke of nothing: %v", err)
		}
		if all, err := s.Tokens(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("Tokens = %v, %v", all, err)
		}
	})
}
