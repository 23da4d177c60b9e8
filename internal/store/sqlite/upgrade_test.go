package sqlite_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"navra/internal/blackbox"
	"navra/internal/scope"
	"navra/internal/store"
	"navra/internal/store/sqlite"
)

// testdata/schema1.db is what the navra of schema 1 wrote, its last commit, cda8e3d; schema2.db is what that of schema 2, ad906a7, made of it, which added the
// entry that says so and three of its own. testdata/prerelease.db is of bee3654, when entries had another encoding.
const oldEntries = 12

// oldFile copies a file of testdata.
func oldFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "navra.db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func reach(t *testing.T, path string, do func(*sql.DB) error) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := do(db); err != nil {
		t.Fatal(err)
	}
}

// texts returns the rows of a query, each as one text.
func texts(t *testing.T, path, query string) (out []string) {
	t.Helper()
	reach(t, path, func(db *sql.DB) error {
		rows, err := db.Query(query)
		if err != nil {
			return err
		}
		defer rows.Close()
		names, err := rows.Columns()
		if err != nil {
			return err
		}
		for rows.Next() {
			row := make([]any, len(names))
			to := make([]any, len(names))
			for i := range row {
				to[i] = &row[i]
			}
			if err := rows.Scan(to...); err != nil {
				return err
			}
			out = append(out, fmt.Sprintf("%q", row))
		}
		return rows.Err()
	})
	return out
}

var state = []string{"scopes", "placeholders", "kept", "sessions_ended", "tokens"}

// all is what a file of schema 1 holds.
func all(t *testing.T, path string) (out []string) {
	t.Helper()
	queries := []string{"PRAGMA user_version", "SELECT name, sql FROM sqlite_schema ORDER BY name"}
	for _, table := range append([]string{"entries", "payloads"}, state...) {
		queries = append(queries, "SELECT * FROM "+table+" ORDER BY 1, 2")
	}
	for _, q := range queries {
		out = append(out, texts(t, path, q)...)
	}
	return out
}

// shape is what tables and indexes a file has.
func shape(t *testing.T, path string) []string {
	return append(texts(t, path, "SELECT t.name, t.wr, t.strict, c.* FROM pragma_table_list AS t JOIN pragma_table_xinfo(t.name) AS c ON true WHERE t.schema = 'main' AND t.name NOT LIKE 'sqlite%' ORDER BY t.name, c.cid"),
		texts(t, path, `SELECT m.name, i.name, i."unique", i.origin, c.name FROM sqlite_schema AS m JOIN pragma_index_list(m.name) AS i JOIN pragma_index_info(i.name) AS c WHERE m.type = 'table' ORDER BY 1, 2, c.seqno`)...)
}

// added counts the entries that say that the file was upgraded to what it is now.
func added(t *testing.T, db *sqlite.DB) (n int) {
	t.Helper()
	for r, err := range db.Rows(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := blackbox.Decode(r.Encoded)
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == blackbox.Event && strings.HasPrefix(e.Reason, "schema: upgraded from version ") && strings.Contains(e.Reason, " to 3;") {
			n++
		}
	}
	return n
}

func TestUpgrade(t *testing.T) {
	path, fresh := oldFile(t, "schema1.db"), filepath.Join(t.TempDir(), "fresh.db")
	if _, err := sqlite.Open(t.Context(), path, sqlite.Options{ReadOnly: true}); err == nil || !strings.Contains(err.Error(), "older navra") {
		t.Errorf("to be read: %v", err)
	}
	bodies := func(columns string) []string {
		return texts(t, path, "SELECT "+columns+" FROM entries WHERE seq <= 12 ORDER BY seq")
	}
	entriesBefore := bodies("seq, body, hash")
	var queries []string
	for _, table := range state {
		queries = append(queries, "SELECT * FROM "+table)
	}
	before := map[string][]string{}
	for _, q := range queries {
		before[q] = texts(t, path, q)
	}
	payloads := texts(t, path, "SELECT seq, name, stored, stored_salt, whole_salt FROM payloads ORDER BY seq, name")
	open(t, fresh)
	db := open(t, path)
	for q, was := range before {
		if diff := cmp.Diff(was, texts(t, path, q)); diff != "" || len(was) == 0 {
			t.Errorf("%s (%d rows): -was +is\n%s", q, len(was), diff)
		}
	}
	if diff := cmp.Diff(entriesBefore, bodies("seq, bodies, hashes")); diff != "" || len(entriesBefore) != oldEntries {
		t.Errorf("entries (%d): -was +is\n%s", len(entriesBefore), diff)
	}
	if diff := cmp.Diff(shape(t, fresh), shape(t, path)); diff != "" {
		t.Errorf("the tables are not those of a new file: -new +upgraded\n%s", diff)
	}
	var packed []string
	for r, err := range db.Rows(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Payloads {
			packed = append(packed, fmt.Sprintf("%q", []any{int64(r.Seq), p.Name, p.Stored, p.StoredSalt, p.WholeSalt}))
		}
	}
	if diff := cmp.Diff(payloads, packed); diff != "" {
		t.Errorf("payloads: -was +is\n%s", diff)
	}
	if _, err := db.Commit(t.Context(), entry("after")); err != nil {
		t.Fatal(err)
	}
	rep, err := db.Verify(t.Context())
	if n := added(t, db); err != nil || !rep.OK() || rep.Entries != oldEntries+2 || n != 1 {
		t.Errorf("Verify = %+v, %v, with %d upgrades, want %d good entries and one", rep, err, n, oldEntries+2)
	}
	if s, err := db.Scope(t.Context(), scope.Opening{ID: "principal/ann", Lasting: true}); err != nil || s.Version != 2 || s.Label.String() == "" {
		t.Errorf("Scope = %+v, %v", s, err)
	}
	if again := open(t, path); added(t, again) != 1 {
		t.Error("it was upgraded again")
	}
}

// TestUpgradeFromRowsOfOne: a file of schema 2, which had a row for each entry, keeps what it has, takes rows of several, and takes nothing from the navra
// that wrote it.
func TestUpgradeFromRowsOfOne(t *testing.T) {
	const before = oldEntries + 4
	path, fresh := oldFile(t, "schema2.db"), filepath.Join(t.TempDir(), "fresh.db")
	was := texts(t, path, "SELECT seq, body, hash, payloads FROM entries ORDER BY seq")
	open(t, fresh)
	db := open(t, path)
	if diff := cmp.Diff(was, texts(t, path, "SELECT seq, bodies, hashes, payloads FROM entries WHERE seq <= 16 ORDER BY seq")); diff != "" || len(was) != before {
		t.Errorf("entries (%d): -was +is\n%s", len(was), diff)
	}
	if diff := cmp.Diff(shape(t, fresh), shape(t, path)); diff != "" {
		t.Errorf("the tables are not those of a new file: -new +upgraded\n%s", diff)
	}
	const callers = 400
	var wg, coming sync.WaitGroup
	coming.Add(callers)
	reach(t, path, func(other *sql.DB) error { // who holds the lock until all are there: they share rows then, however busy the machine is
		conn, err := other.Conn(t.Context())
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
			return err
		}
		for i := range callers {
			wg.Go(func() {
				coming.Done()
				if _, err := db.Commit(t.Context(), entry(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
		}
		coming.Wait()
		_, err = conn.ExecContext(t.Context(), "ROLLBACK")
		return err
	})
	wg.Wait()
	rep, err := db.Verify(t.Context())
	if want := uint64(before + 1 + callers); err != nil || !rep.OK() || rep.Entries != want || added(t, db) != 1 {
		t.Errorf("Verify = %+v, %v, with %d upgrades, want %d good entries and one", rep, err, added(t, db), want)
	}
	rows := texts(t, path, "SELECT seq, length(hashes) / 32 FROM entries WHERE seq > 17")
	if len(rows) >= callers/2 {
		t.Errorf("%d entries that were committed together have %d rows", callers, len(rows))
	}
	reach(t, path, func(db *sql.DB) error {
		_, err := db.Exec("INSERT INTO entries (seq, body, hash, payloads) VALUES (1000, x'00', x'00', NULL)")
		if err == nil || !strings.Contains(err.Error(), "no column named") {
			t.Errorf("what the navra before writes: %v, want it refused", err)
		}
		return nil
	})
}

// TestFailedUpgrade: one that cannot be leaves the file as it was.
func TestFailedUpgrade(t *testing.T) {
	for _, tt := range []struct{ name, file, statement, want string }{
		{"the database refuses", "schema1.db", "CREATE TRIGGER no BEFORE UPDATE ON entries WHEN old.seq = 10 BEGIN SELECT RAISE(ABORT, 'no'); END", "could not be brought to 3; the file is as it was"},
		{"payloads of no entry", "schema1.db", "INSERT INTO payloads SELECT 99, name, stored, stored_salt, whole_salt FROM payloads WHERE seq = 1", `payload "arguments" belongs to entry 99`},
		{"entries in another encoding", "prerelease.db", "SELECT 1", "entry 1 was written by a navra before the first release"},
		{"the last entry has no whole hash", "schema1.db", "UPDATE entries SET hash = x'00' WHERE seq = 12", "no whole hash"},
		{"the last entry has the last number", "schema1.db", "INSERT INTO entries (seq, body, hash) SELECT 9223372036854775807, body, hash FROM entries WHERE seq = 12", "a number that none can follow"},
		{"another program's", "schema1.db", "ALTER TABLE payloads RENAME TO theirs", "no such table"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := oldFile(t, tt.file)
			reach(t, path, func(db *sql.DB) error { _, err := db.Exec(tt.statement); return err })
			if tt.name == "another program's" {
				reach(t, path, func(db *sql.DB) error { _, err := db.Exec("CREATE VIEW v AS SELECT 1"); return err })
			}
			read := func() []string {
				if tt.name == "another program's" {
					return texts(t, path, "SELECT name, sql FROM sqlite_schema ORDER BY name")
				}
				return all(t, path)
			}
			before := read()
			db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err == nil {
				db.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open = %v, want an error with %q", err, tt.want)
			}
			if diff := cmp.Diff(before, read()); diff != "" {
				t.Errorf("the file was changed: -before +after\n%s", diff)
			}
		})
	}
}

// TestAnEditedEntryIsStillFound: an upgrade is no way to hide one.
func TestAnEditedEntryIsStillFound(t *testing.T) {
	path := oldFile(t, "schema1.db")
	raw(t, path, "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), 'files/t4', 'files/t9') AS BLOB) WHERE seq = 5")
	if rep, err := open(t, path).Verify(t.Context()); err != nil || rep.At != 5 {
		t.Errorf("Verify = %+v, %v, want entry 5", rep, err)
	}
}

// enlarge adds entries to a file of schema 1, as a navra of then did.
func enlarge(t *testing.T, path string, n int) {
	t.Helper()
	reach(t, path, func(db *sql.DB) error {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		defer tx.Rollback()
		var seq int64
		var prev []byte
		if err := tx.QueryRow("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1").Scan(&seq, &prev); err != nil {
			return err
		}
		stored := bytes.Repeat([]byte("x"), 600)
		for range n {
			p := blackbox.NewPayload("arguments", stored, stored)
			e := entry("x").Entry
			e.Seq, e.Prev, e.Payloads = blackbox.Seq(seq+1), [32]byte(prev), []blackbox.Payload{p}
			body := e.Encode()
			h := blackbox.Hash(body)
			seq, prev = seq+1, h[:]
			if _, err := tx.Exec("INSERT INTO entries (seq, body, hash) VALUES (?, ?, ?)", seq, body, prev); err != nil {
				return err
			}
			if _, err := tx.Exec("INSERT INTO payloads (seq, name, stored, stored_salt, whole_salt) VALUES (?, ?, ?, ?, ?)", seq, p.Name, p.Stored, p.StoredSalt, p.WholeSalt); err != nil {
				return err
			}
		}
		return tx.Commit()
	})
}

// another starts a process that opens a file and appends n entries.
func another(t *testing.T, path string, n int) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), appendTo+"="+path, fmt.Sprint("NAVRA_TEST_COUNT=", n))
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, &out
}

// TestProcessesUpgradeOnce opens an old file by several processes at once, of which one upgrades while the others wait.
func TestProcessesUpgradeOnce(t *testing.T) {
	const processes, each, more = 4, 10, 1000
	path := oldFile(t, "schema1.db")
	enlarge(t, path, more)
	var wg sync.WaitGroup
	for range processes {
		cmd, out := another(t, path, each)
		wg.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	db := open(t, path)
	rep, err := db.Verify(t.Context())
	if want := uint64(oldEntries + more + 1 + processes*each); err != nil || !rep.OK() || rep.Entries != want || added(t, db) != 1 {
		t.Errorf("Verify = %+v, %v, with %d upgrades, want %d good entries and one", rep, err, added(t, db), want)
	}
}

// TestKilledUpgrade kills a process when its upgrade has begun to write: the file is as it was, and the next one upgrades it.
func TestKilledUpgrade(t *testing.T) {
	for more := 2_500; ; more *= 2 {
		path := oldFile(t, "schema1.db")
		enlarge(t, path, more)
		before, version := all(t, path), texts(t, path, "PRAGMA user_version")
		if !killed(t, path) || !slices.Equal(texts(t, path, "PRAGMA user_version"), version) { // it had ended, or was killed when all was done
			if more > 80_000 {
				t.Fatal("it always ended before it could be killed")
			}
			continue
		}
		if diff := cmp.Diff(before, all(t, path)); diff != "" {
			t.Fatalf("the file was changed: -before +after\n%.2000s", diff)
		}
		db := open(t, path)
		if rep, err := db.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != uint64(oldEntries+more+1) || added(t, db) != 1 {
			t.Errorf("Verify = %+v, %v", rep, err)
		}
		return
	}
}

// killed reports whether a process could be killed while it upgraded a file.
func killed(t *testing.T, path string) bool {
	t.Helper()
	cmd, _ := another(t, path, 0)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for { // what does not fit its cache is written before the transaction ends
		select {
		case <-ended:
			return false
		case <-time.After(time.Millisecond):
		}
		if info, err := os.Stat(path + "-wal"); err == nil && info.Size() > 1<<20 {
			_ = cmd.Process.Kill()
			return <-ended != nil
		}
	}
}

// TestUpgradedMeanwhile: a process whose database a newer navra has upgraded denies, and says why.
func TestUpgradedMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "navra.db")
	db := open(t, path)
	if _, err := db.Commit(t.Context(), entry("before")); err != nil {
		t.Fatal(err)
	}
	raw(t, path, "ALTER TABLE entries RENAME COLUMN hashes TO newer")
	if _, err := db.Commit(t.Context(), entry("after")); err == nil || !strings.Contains(err.Error(), "a newer one has most likely upgraded it") || store.Why(err) == "" {
		t.Errorf("Commit = %v, want an error that names the upgrade, in public too", err)
	}
	raw(t, path, "ALTER TABLE entries RENAME COLUMN newer TO hashes")
	if _, err := db.Commit(t.Context(), entry("after")); err != nil {
		t.Errorf("when that is undone: %v", err)
	}
}
