package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/store"
)

// filled is a database with some entries, and its path.
func filled(t *testing.T, n int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "navra.db")
	db := open(t, path)
	for i := range n {
		if _, err := db.Commit(t.Context(), entry(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// loosen makes the table of entries anew, without its key and types.
func loosen(t *testing.T, path string) {
	t.Helper()
	for _, s := range []string{"CREATE TABLE loose (seq, bodies, hashes, payloads)", "INSERT INTO loose SELECT * FROM entries", "DROP TABLE entries", "ALTER TABLE loose RENAME TO entries"} {
		raw(t, path, s)
	}
}

// TestTriggersAreRefused: else an entry vanishes that was said to be written, and its call passes.
func TestTriggersAreRefused(t *testing.T) {
	for _, trigger := range []string{
		"CREATE TRIGGER t BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END",
		"CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries WHERE seq = NEW.seq; END",
	} {
		path := filled(t, 3)
		db := open(t, path)
		if _, err := db.Commit(t.Context(), entry("before")); err != nil {
			t.Fatal(err)
		}
		raw(t, path, trigger)
		if r, err := db.Commit(t.Context(), entry("after")); err == nil || store.Why(err) == "" {
			t.Errorf("%s: Commit = %+v, %v, want an error that says why", trigger, r, err)
		}
		raw(t, path, "DROP TRIGGER t")
		if r, err := db.Commit(t.Context(), entry("again")); err != nil || r.Seq != 5 {
			t.Errorf("%s: when it is gone: Commit = %+v, %v", trigger, r, err)
		}
		if rep, err := db.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != 5 {
			t.Errorf("%s: Verify = %+v, %v", trigger, rep, err)
		}
	}
}

// TestConflictsAreRefused: a table made anew may say that a conflict has the new row vanish, or the old one, and no error.
func TestConflictsAreRefused(t *testing.T) {
	for _, way := range []string{"IGNORE", "REPLACE"} {
		path := filled(t, 3)
		db := open(t, path)
		for _, s := range []string{
			"CREATE TABLE anew (seq INTEGER PRIMARY KEY, bodies BLOB, hashes BLOB, payloads BLOB, z INTEGER DEFAULT 7 UNIQUE ON CONFLICT " + way + ")",
			"INSERT INTO anew SELECT seq, bodies, hashes, payloads, seq + 4 FROM entries", "DROP TABLE entries", "ALTER TABLE anew RENAME TO entries",
		} {
			raw(t, path, s)
		}
		if r, err := db.Commit(t.Context(), entry("after")); err == nil || store.Why(err) == "" {
			t.Errorf("%s: Commit = %+v, %v, want an error that says why", way, r, err)
		}
		raw(t, path, "UPDATE entries SET z = -seq")
		if r, err := db.Commit(t.Context(), entry("again")); err != nil || r.Seq != 4 {
			t.Errorf("%s: without a conflict: Commit = %+v, %v", way, r, err)
		}
		if rep, err := db.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != 4 {
			t.Errorf("%s: Verify = %+v, %v", way, rep, err)
		}
	}
}

// TestHeadWithoutANumber: nothing is written after a row whose number is none.
func TestHeadWithoutANumber(t *testing.T) {
	path := filled(t, 3)
	loosen(t, path)
	raw(t, path, "INSERT INTO entries SELECT 'x', bodies, hashes, payloads FROM entries WHERE seq = 3")
	db := open(t, path)
	if r, err := db.Commit(t.Context(), entry("after")); err == nil {
		t.Errorf("Commit = %+v, want an error", r)
	}
	if r, err := db.Head(t.Context()); err == nil {
		t.Errorf("Head = %+v, want an error", r)
	}
}

// TestManyRowsOfANumber: a page ends with all rows of its last number, and there may be as many as somebody wants memory to be used up.
func TestManyRowsOfANumber(t *testing.T) {
	path := filled(t, 3)
	loosen(t, path)
	raw(t, path, "INSERT INTO entries WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT 2, x'', zeroblob(64), NULL FROM n")
	db := open(t, path)
	if rep, err := db.Verify(t.Context()); err == nil && rep.OK() {
		t.Errorf("Verify = %+v", rep)
	}
	n := 0
	var err error
	for _, err = range db.Rows(t.Context(), 1) {
		n++
	}
	if err == nil || n > 3000 {
		t.Errorf("Rows yields %d, %v, want an error before all of them", n, err)
	}
}

// TestLargeRows: a page of rows that take up much ends early, and none is left out.
func TestLargeRows(t *testing.T) {
	const n = 40
	path := filled(t, n)
	raw(t, path, "UPDATE entries SET bodies = zeroblob(3000000)")
	db := open(t, path)
	for _, from := range []blackbox.Seq{0, 1, n / 2} {
		want := max(from, 1)
		for r, err := range db.Rows(t.Context(), from) {
			if err != nil || r.Seq != want || len(r.Encoded) != 3000000 {
				t.Fatalf("from %d: entry %d of %d bytes, %v, want %d", from, r.Seq, len(r.Encoded), err, want)
			}
			want++
		}
		if want != n+1 {
			t.Errorf("from %d: the last entry is %d", from, want-1)
		}
	}
}

// TestRetentionOfDamagedRows: who empties what a row has holds up no retention, and what is there twice stays for who verifies.
func TestRetentionOfDamagedRows(t *testing.T) {
	const n = 20
	for _, set := range []string{"bodies = x''", "hashes = x''", "bodies = x'', hashes = x''"} {
		path := filled(t, n)
		raw(t, path, "UPDATE entries SET "+set+" WHERE seq = 5")
		db := open(t, path)
		if dropped, err := db.DropPayloads(t.Context(), 11, n); dropped != 10 || err != nil {
			t.Errorf("%s: DropPayloads = %d, %v, want 10", set, dropped, err)
		}
		if rep, err := db.Verify(t.Context()); err != nil || rep.At != 5 {
			t.Errorf("%s: Verify = %+v, %v, want entry 5", set, rep, err)
		}
	}
	path := filled(t, n)
	loosen(t, path)
	raw(t, path, "INSERT INTO entries SELECT seq, x'', x'', NULL FROM entries WHERE seq = 5")
	db := open(t, path)
	if dropped, err := db.DropPayloads(t.Context(), 11, n); err == nil {
		t.Errorf("DropPayloads = %d of a table with an entry twice, want an error", dropped)
	}
	if got := count(t, path); got != n+1 {
		t.Errorf("%d rows are left, want %d", got, n+1)
	}
}

// count is how many rows of entries there are.
func count(t *testing.T, path string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT count(*) FROM entries").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLastNumber: what operators say is no more written behind an entry that none can follow than what calls do.
func TestLastNumber(t *testing.T) {
	path := filled(t, 2)
	raw(t, path, "UPDATE entries SET seq = 9223372036854775807 WHERE seq = 2")
	db := open(t, path)
	if r, err := db.Commit(t.Context(), entry("after")); err == nil {
		t.Errorf("Commit = %+v, want an error", r)
	}
	r, err := db.Control(t.Context(), store.Change{Apply: func(*store.Controls) (blackbox.Entry, error) {
		return blackbox.Entry{Kind: blackbox.Event}, nil
	}})
	if err == nil || count(t, path) != 2 {
		t.Errorf("Control = %+v, %v, and there are %d rows, want an error and 2", r, err, count(t, path))
	}
}
