package witness

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/seal"
	"navra/internal/store"
	"navra/internal/store/sqlite"
)

func TestRetainDropsWhatIsOld(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "navra.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	began := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for i := range 30 {
		e := blackbox.Entry{Kind: blackbox.Request, Time: began.AddDate(0, 0, i), Payloads: []blackbox.Payload{blackbox.NewPayload("arguments", []byte("w"), []byte("s"))}}
		if _, err := db.Commit(t.Context(), store.Commit{Entry: e, Raise: ifc.Bottom()}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := Retain(t.Context(), db, began.AddDate(0, 0, 10)); err != nil || n != 10 {
		t.Errorf("Retain = %d, %v, want the 10 that are older", n, err)
	}
	for row, err := range db.Rows(t.Context(), 1) {
		if err != nil || (len(row.Payloads) == 0) != (row.Seq <= 10) {
			t.Errorf("entry %d has %d payloads, %v", row.Seq, len(row.Payloads), err)
		}
	}
	if rep, err := db.Verify(t.Context()); err != nil || !rep.OK() {
		t.Errorf("Verify = %+v, %v", rep, err)
	}
	for name, at := range map[string]time.Time{"nothing is old": began, "all is": began.AddDate(1, 0, 0)} {
		want := map[string]int{"nothing is old": 0, "all is": 20}[name]
		if n, err := Retain(t.Context(), db, at); err != nil || n != want {
			t.Errorf("%s: Retain = %d, %v, want %d", name, n, err, want)
		}
	}
}

// TestRetainGoesOnBehindDamage: an entry that somebody has damaged has no age, and is as old as what follows it; the payloads of others go.
func TestRetainGoesOnBehindDamage(t *testing.T) {
	l := newLog(t, vaults["SQLite"](t), seal.New())
	for _, n := range []int{7, 40} {
		l.exec(t, "UPDATE @entries SET body = $2 WHERE seq = $1", n, []byte("{}"))
	}
	db := l.open(t)
	defer db.Close()
	if n, err := Retain(t.Context(), db, time.Now().Add(time.Hour)); err != nil || n == 0 {
		t.Fatalf("Retain = %d, %v", n, err)
	}
	for row, err := range db.Rows(t.Context(), 1) {
		if kept := len(row.Payloads) > 0; err != nil || kept && row.Seq != 40 {
			t.Errorf("entry %d has %d payloads, %v", row.Seq, len(row.Payloads), err)
		}
	}
}

// TestKeeperGoesOn keeps a log over two lives: the second goes on from the first's checkpoint, also where somebody has put a wrong frontier
// there; the newest checkpoint is in the operator's file.
func TestKeeperGoesOn(t *testing.T) {
	key := seal.New()
	l := newLog(t, vaults["SQLite"](t), key)
	to := filepath.Join(t.TempDir(), "checkpoint")
	for life := range 3 {
		if life == 2 {
			l.exec(t, "UPDATE @checkpoints SET frontier = zeroblob(length(frontier)) WHERE size > 30")
		}
		l.with(t, func(db database) {
			told := func(context.Context, string) error { return nil }
			k := Keep(Options{Log: db, Signer: l.signer, Logger: slog.New(slog.DiscardHandler), To: to, Keep: time.Hour, Tell: told, Interval: time.Hour})
			if _, err := db.Commit(t.Context(), store.Commit{Entry: blackbox.Entry{Kind: blackbox.Event, Time: time.Now()}, Raise: ifc.Bottom()}); err != nil {
				t.Fatal(err)
			}
			if err := k.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		note, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := blackbox.OpenNote(note, l.signer.Key()); err != nil || s.Size != blackbox.Seq(entries+life+1) {
			t.Errorf("life %d: the file holds %+v, %v", life, s, err)
		}
		if f := l.verify(t, needsDatabase); !f.OK() || f.Checkpoints != life+2 {
			t.Errorf("life %d: %+v", life, f)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(to), ".checkpoint*")); len(left) > 0 {
		t.Errorf("left behind: %s", strings.Join(left, " "))
	}
}

// TestRetentionIsOnesAlone has four keepers on one log, as four processes: one removes what is old, and records it once.
func TestRetentionIsOnesAlone(t *testing.T) {
	db := vaults["SQLite"](t).open(t)
	defer db.Close()
	began := time.Now().Add(-1000 * time.Hour)
	var told []string
	var mu sync.Mutex
	gone := make(chan struct{}, 4)
	tell := func(_ context.Context, text string) error {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, text)
		gone <- struct{}{}
		return nil
	}
	for range 2 * retainBatch {
		e := blackbox.Entry{Kind: blackbox.Request, Time: began, Payloads: []blackbox.Payload{blackbox.NewPayload("arguments", []byte("w"), []byte("s"))}}
		if _, err := db.Commit(t.Context(), store.Commit{Entry: e, Raise: ifc.Bottom()}); err != nil {
			t.Fatal(err)
		}
	}
	var keepers []*Keeper
	for range 4 {
		keepers = append(keepers, Keep(Options{Log: db, Signer: signer(t), Logger: slog.New(slog.DiscardHandler), Keep: 999 * time.Hour, Tell: tell, Interval: time.Hour}))
	}
	<-gone
	for _, k := range keepers {
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for row, err := range db.Rows(t.Context(), 1) {
		if err != nil || len(row.Payloads) > 0 {
			t.Fatalf("entry %d has %d payloads, %v", row.Seq, len(row.Payloads), err)
		}
	}
	if f, err := Verify(t.Context(), db, Evidence{}); err != nil || !f.OK() {
		t.Errorf("verify: %+v, %v", f, err)
	}
	if len(told) != 1 || !strings.Contains(told[0], "entries were removed, which are older than 999h") {
		t.Errorf("told: %q", told)
	}
}

// A clock that is put back makes no entry older than those before it, and one that ran ahead keeps nothing for ever.
func TestRetainAndClocks(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "navra.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	date := func(y, m int) time.Time { return time.Date(y, time.Month(m), 1, 0, 0, 0, 0, time.UTC) }
	for _, at := range []time.Time{date(2026, 1), date(2099, 1), date(2026, 2), date(2026, 9), date(2020, 1), date(2020, 2), date(2026, 10)} {
		e := blackbox.Entry{Kind: blackbox.Request, Time: at, Payloads: []blackbox.Payload{blackbox.NewPayload("arguments", []byte("w"), []byte("s"))}}
		if _, err := db.Commit(t.Context(), store.Commit{Entry: e, Raise: ifc.Bottom()}); err != nil {
			t.Fatal(err)
		}
	}
	var a ages
	for _, tt := range []struct {
		before time.Time
		want   int
	}{{date(2025, 1), 0}, {date(2026, 6), 3}, {date(2026, 6), 0}, {date(2026, 10), 3}, {date(2026, 11), 1}} {
		if n, err := a.retain(t.Context(), db, tt.before); err != nil || n != tt.want {
			t.Errorf("before %s: %d, %v, want %d", tt.before, n, err, tt.want)
		}
	}
}
