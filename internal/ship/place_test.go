package ship

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"navra/internal/seal"
	"navra/internal/store"
	"navra/internal/store/postgres"
	pg "navra/test/postgres"
)

// newPostgresBench is a bench on PostgreSQL.
func newPostgresBench(t *testing.T) *bench {
	b := newBench(t)
	db, err := postgres.Open(t.Context(), pg.New(t).URL(), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	b.db, b.path = db, ""
	return b
}

// TestEditedPlace has somebody who may write to the store say that all was shipped, or something else, while navra is down and while it runs: every entry
// arrives all the same, and it is told.
func TestEditedPlace(t *testing.T) {
	sealed := func(p place) func(*turn, store.Receipt) []byte {
		return func(at *turn, head store.Receipt) []byte {
			q := p
			q.at.Seq += head.Seq
			return at.seal(q)
		}
	}
	text := func(format string) func(*turn, store.Receipt) []byte {
		return func(_ *turn, head store.Receipt) []byte { return fmt.Appendf(nil, format, head.Seq, head.Hash) }
	}
	for name, tt := range map[string]struct {
		edit func(*turn, store.Receipt) []byte
		why  distrust
	}{
		"forward":                        {text("%d - 0 7 %x 00"), untagged},
		"forward, in the form of before": {text("%d - 0 7%.0s"), untagged},
		"no place":                       {text("shipped%.0d%.0s"), untagged},
		"nothing":                        {func(*turn, store.Receipt) []byte { return []byte{} }, untagged},
		"that of another collector": {func(at *turn, head store.Receipt) []byte {
			return newTurn(nil, "shipped/other", tag).seal(place{at: head, Holder: nobody})
		}, untagged},
		"tagged with another key": {func(at *turn, head store.Receipt) []byte {
			return newTurn(nil, at.key, seal.New().For("shipped").Tag).seal(place{at: head, Holder: nobody})
		}, untagged},
		"a lease of another's, untagged":  {text("%d them 3600000 7 %x 00"), untagged},
		"the entry is another":            {sealed(place{Holder: nobody}), astray},
		"the log was cut off":             {sealed(place{at: store.Receipt{Seq: 9}, Holder: nobody}), beyond},
		"removed, or the whole of a copy": {nil, gone},
	} {
		for where, bench := range map[string]func(*testing.T) *bench{"SQLite": newBench, "PostgreSQL": newPostgresBench} {
			t.Run(name+", "+where, func(t *testing.T) {
				if where != "SQLite" && name != "forward" && name != "nothing" && tt.why != astray { // a server for each takes a while
					t.Skip("on SQLite alone")
				}
				b := bench(t)
				s := b.start(nil)
				b.rests(s, b.add(12))
				b.to.Stop()
				last := b.add(15)
				b.edit(s.turn, tt.edit)
				b.to.Start()
				b.to.UntilSeq(last)
				b.told1(string(tt.why), "again from 13 on") // it knew how far it was
				b.allCame(last)
				if err := s.Close(t.Context()); err != nil {
					t.Fatal(err)
				}

				b.told = nil
				last = b.add(5)
				b.edit(s.turn, tt.edit)
				s = b.start(nil)
				b.to.UntilSeq(last)
				b.rests(s, last)
				if tt.why == gone { // as if there never was one
					return
				}
				b.told1(string(tt.why), "again from 1 on")
			})
		}
	}
}

// allCame wants entries 1 to n, each at least once: what was sent while the place was edited is sent again.
func (b *bench) allCame(n int64) {
	b.t.Helper()
	seen := map[int64]bool{}
	for _, r := range b.to.Took() {
		seen[r.Seq] = true
	}
	for i := int64(1); i <= n; i++ {
		if !seen[i] {
			b.t.Errorf("entry %d did not come", i)
		}
	}
}

// edit replaces the place, or removes it.
func (b *bench) edit(at *turn, edit func(*turn, store.Receipt) []byte) {
	b.t.Helper()
	if edit == nil {
		db, err := sql.Open("sqlite", "file:"+b.path+"?_pragma=busy_timeout(5000)")
		if err != nil {
			b.t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec("DELETE FROM kept WHERE key = ?", at.key); err != nil {
			b.t.Fatal(err)
		}
		return
	}
	head, err := b.db.Head(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.db.Keep(context.Background(), at.key, edit(at, head)); err != nil {
		b.t.Fatal(err)
	}
}

// told1 wants one event that has all of some texts.
func (b *bench) told1(texts ...string) {
	b.t.Helper()
	until(b.t, "it is recorded", func() bool { told, _ := b.said(); return len(told) > 0 })
	told, log := b.said()
	for _, text := range texts {
		if len(told) != 1 || !strings.Contains(told[0], text) {
			b.t.Errorf("told %q, want one with %q", told, text)
		}
	}
	if !strings.Contains(log, "are shipped again") {
		b.t.Errorf("logged\n%s", log)
	}
}
