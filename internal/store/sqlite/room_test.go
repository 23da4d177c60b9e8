package sqlite_test

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/store"
	"navra/internal/store/sqlite"
)

// TestDroppedRoomIsUsedAgain: of small payloads too, which share their pages with bodies. A log whose payloads are dropped as it grows
// takes up little more than its bodies.
func TestDroppedRoomIsUsedAgain(t *testing.T) {
	const n, body, payload = 12000, 900, 1500
	db := open(t, filepath.Join(t.TempDir(), "navra.db"))
	grow := func() store.Room {
		t.Helper()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for range n / 50 {
					e := blackbox.Entry{Kind: blackbox.Request, Reason: string(bytes.Repeat([]byte("r"), body-600)), Payloads: []blackbox.Payload{blackbox.NewPayload("arguments", nil, make([]byte, payload))}}
					if _, err := db.Commit(t.Context(), store.Commit{Entry: e, Raise: ifc.Bottom()}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		r, err := db.Room(t.Context())
		if err != nil || r.Used <= 0 || r.Disk <= r.Free || r.Free <= 0 {
			t.Fatalf("Room = %+v, %v", r, err)
		}
		return r
	}
	first := grow()
	dropAll(t, db)
	bare, err := db.Room(t.Context())
	if err != nil || bare.Used > first.Used-n*payload/2 {
		t.Errorf("%d bytes are used after %d, %v: want that payloads of %d bytes are free", bare.Used, first.Used, err, n*payload)
	}
	second := grow()
	if grown := second.Used - first.Used; grown > n*2000 { // a body with its hash takes up 1700
		t.Errorf("%d bytes more for another %d entries, want that what was free is used", grown, n)
	}
	if rep, err := db.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != 2*n {
		t.Errorf("Verify = %+v, %v", rep, err)
	}
}

func dropAll(t *testing.T, db *sqlite.DB) {
	t.Helper()
	for {
		n, err := db.DropPayloads(t.Context(), 1<<40, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if n < 1000 {
			return
		}
	}
}

// TestWriteAheadLogShrinks: who reads for long lets the write-ahead log grow, which counts as room that is used; when they are gone it becomes small
// again while navra runs, or a database with a limit would be full for ever.
func TestWriteAheadLogShrinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "navra.db")
	db := open(t, path)
	fill := func(n int) {
		for range n {
			e := blackbox.Entry{Kind: blackbox.Request, Payloads: []blackbox.Payload{blackbox.NewPayload("result", nil, make([]byte, 4096))}}
			if _, err := db.Commit(t.Context(), store.Commit{Entry: e, Raise: ifc.Bottom()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	size := func() int64 {
		info, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	fill(1)
	reader, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	tx, err := reader.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("SELECT count(*) FROM entries"); err != nil {
		t.Fatal(err)
	}
	const most = 9 << 20
	for size() <= 2*most {
		fill(100)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	fill(1000)
	if n := size(); n > most {
		t.Errorf("the write-ahead log still takes up %d bytes, want at most %d", n, most)
	}
}
