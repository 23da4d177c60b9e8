package witness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/seal"
	"navra/internal/store"
)

func signer(t *testing.T) blackbox.Signer {
	t.Helper()
	s, err := blackbox.NewSigner(seal.New().Seed("checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// keysOf is Keys, sorted.
func keysOf(t *testing.T, db database, from string) []string {
	t.Helper()
	keys, err := Keys(t.Context(), db, db, from)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(slices.Values(keys))
}

// TestTheLogLeadsFromKeyToKey changes the key twice, once cut short before the new key was in its place.
func TestTheLogLeadsFromKeyToKey(t *testing.T) {
	l := newLog(t, vaults["SQLite"](t), seal.New())
	a, b, c, stranger := l.signer, signer(t), signer(t), signer(t)
	cut := errors.New("cut short")
	l.with(t, func(db database) {
		rotate := func(old, next blackbox.Signer, fail error) error {
			_, err := Rotation{Log: db, Store: db, Old: old, Next: next, Held: Evidence{Key: old.Key(), Also: keysOf(t, db, old.Key())}, Use: func() error { return fail }}.Run(t.Context())
			return err
		}
		if err := rotate(a, b, cut); !errors.Is(err, cut) {
			t.Fatalf("cut short: %v", err)
		}
		for _, change := range [][2]blackbox.Signer{{a, b}, {b, c}} {
			if err := rotate(change[0], change[1], nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := rotate(stranger, signer(t), nil); err == nil {
			t.Error("a key that the log does not know could be changed")
		}
		all := slices.Sorted(slices.Values([]string{a.Key(), b.Key(), c.Key()}))
		for _, s := range []blackbox.Signer{a, b, c} {
			keys, err := Keys(t.Context(), db, db, s.Key())
			if got := slices.Sorted(slices.Values(keys)); err != nil || !slices.Equal(got, all) || keys[2] != c.Key() {
				t.Errorf("from one of three keys: %v, %v, want all, and last %s", keys, err, c.Key())
			}
			f, err := Verify(t.Context(), db, Evidence{Key: s.Key(), Also: keys, Since: [][]byte{l.since}})
			if err != nil || !f.OK() || f.Checkpoints < 5 {
				t.Errorf("Verify = %+v, %v", f, err)
			}
		}
		for _, s := range []blackbox.Signer{a, b, c} { // of which none is told of the others
			if f, err := Verify(t.Context(), db, Evidence{Key: s.Key(), Since: [][]byte{l.since}}); err != nil || !f.OK() || f.Checkpoints < 5 {
				t.Errorf("Verify by one of three keys alone = %+v, %v", f, err)
			}
		}
		if f, err := Verify(t.Context(), db, Evidence{Key: stranger.Key(), Also: keysOf(t, db, stranger.Key())}); err != nil || !strings.Contains(f.Problem, "a swapped key") {
			t.Errorf("a swapped key: %+v, %v", f, err)
		}
		p, err := ProofOf(t.Context(), db, c, 7, Evidence{Key: c.Key(), Also: keysOf(t, db, c.Key())})
		if err != nil {
			t.Fatal(err)
		}
		if e, _, err := p.Check(c.Key()); err != nil || e.Seq != 7 {
			t.Errorf("a proof under the new key: %+v, %v", e, err)
		}
	})
}

// TestForgedChangesLeadNowhere notes entries that claim a change which one of the keys has not signed.
func TestForgedChangesLeadNowhere(t *testing.T) {
	l := newLog(t, vaults["SQLite"](t), seal.New())
	a, thief, other := l.signer, signer(t), signer(t)
	good, err := blackbox.Rotate(thief, other)
	if err != nil {
		t.Fatal(err)
	}
	honest, err := blackbox.Rotate(a, other)
	if err != nil {
		t.Fatal(err)
	}
	sigs := strings.Fields(good)
	for name, reason := range map[string]string{
		"the old key's name in the place of the thief's": strings.Replace(good, thief.Key(), a.Key(), 1),
		"the thief's key in the place of the new":        strings.Replace(honest, other.Key(), thief.Key(), 1),
		"one signature twice":                            strings.Replace(good, sigs[8], sigs[9], 1),
		"more behind it":                                 honest + " ",
		"another form":                                   strings.Replace(honest, "changed", "moved", 1),
		"nothing":                                        "",
	} {
		if old, next, ok := blackbox.ReadRotation(reason); ok {
			t.Errorf("%s: it is read as a change from %s to %s", name, old, next)
		}
		l.with(t, func(db database) {
			r, err := db.Commit(t.Context(), store.Commit{Entry: blackbox.Entry{Kind: blackbox.Event, Reason: reason}})
			if err != nil {
				t.Fatal(err)
			}
			if err := note(t.Context(), db, r.Seq); err != nil {
				t.Fatal(err)
			}
			if keys := keysOf(t, db, a.Key()); len(keys) != 1 {
				t.Errorf("%s: keys %v", name, keys)
			}
		})
	}
	l.with(t, func(db database) { // notes that lead to no entry, or are none
		old, err := db.Kept(t.Context(), rotations)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Keep(t.Context(), rotations, fmt.Appendf(old, "99999 x -1 ")); err != nil {
			t.Fatal(err)
		}
		if keys := keysOf(t, db, a.Key()); len(keys) != 1 {
			t.Errorf("keys %v", keys)
		}
	})
}

// TestKeeperTakesUpAKey gives a keeper another signer while it runs.
func TestKeeperTakesUpAKey(t *testing.T) {
	l := newLog(t, vaults["SQLite"](t), seal.New())
	now, next := l.signer, signer(t)
	l.with(t, func(db database) {
		k := &Keeper{o: Options{Log: db, Signer: now, Logger: slog.New(slog.DiscardHandler), Renew: func() (blackbox.Signer, error) { return now, nil }}}
		for _, s := range []blackbox.Signer{now, next} {
			now = s
			if _, err := db.Commit(context.Background(), store.Commit{Entry: blackbox.Entry{Kind: blackbox.Event}}); err != nil {
				t.Fatal(err)
			}
			if err := k.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			kept, err := db.Checkpoints(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := blackbox.OpenNote(kept[len(kept)-1].Note, s.Key()); err != nil {
				t.Errorf("the newest checkpoint: %v", err)
			}
		}
	})
}
