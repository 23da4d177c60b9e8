package witness

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"navra/internal/blackbox"
	"navra/internal/store"
	"navra/internal/store/postgres"
	"navra/internal/store/sqlite"
	server "navra/test/postgres"
)

type database interface {
	store.Store
	store.Log
	OnCommit(func(store.Receipt) error)
	Expect(store.Receipt, func(problem string))
	Close() error
}

// A vault is a store as somebody has it who can write to it past navra. In statements @ stands before a table, and $1 for an argument.
type vault interface {
	open(t *testing.T) database
	exec(t *testing.T, statement string, args ...any)
	one(t *testing.T, statement string, args ...any) []byte // the one value of a query
	drop(t *testing.T, where string)                        // entries, with what lies beside them
	move(t *testing.T, from, to int)                        // an entry, with what lies beside it
	put(t *testing.T, seq int, list []blackbox.Payload)     // in the place of an entry's payloads
	loosen(t *testing.T)                                    // no key keeps rows from being there twice
	copied(t *testing.T) (back func())                      // an old copy of the whole
}

var vaults = map[string]func(t *testing.T) vault{
	"SQLite":     func(t *testing.T) vault { return &file{filepath.Join(t.TempDir(), "navra.db")} },
	"PostgreSQL": newSchema,
}

// A file is a vault in SQLite.
type file struct{ path string }

func (f *file) open(t *testing.T) database {
	t.Helper()
	db, err := sqlite.Open(t.Context(), f.path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func (f *file) raw(t *testing.T, do func(*sql.DB) error) {
	t.Helper()
	db, err := sql.Open("sqlite", f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := do(db); err != nil {
		t.Fatal(err)
	}
}

func (f *file) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	f.raw(t, func(db *sql.DB) error { _, err := db.Exec(f.own(statement), args...); return err })
}

func (f *file) one(t *testing.T, statement string, args ...any) (b []byte) {
	t.Helper()
	f.raw(t, func(db *sql.DB) error { return db.QueryRow(f.own(statement), args...).Scan(&b) })
	return b
}

func (f *file) own(statement string) string {
	if strings.Contains(statement, "@entries") {
		statement = strings.NewReplacer("body", "bodies", "hash", "hashes").Replace(statement)
	}
	return strings.NewReplacer("@", "", "$", "?").Replace(statement)
}

func (f *file) drop(t *testing.T, where string) {
	t.Helper()
	f.exec(t, "DELETE FROM entries WHERE "+where)
}

func (f *file) move(t *testing.T, from, to int) {
	t.Helper()
	f.exec(t, "UPDATE entries SET seq = $2 WHERE seq = $1", from, to)
}

func (f *file) put(t *testing.T, seq int, list []blackbox.Payload) {
	t.Helper()
	f.exec(t, "UPDATE entries SET payloads = $2 WHERE seq = $1", seq, pack(list))
}

// pack packs payloads as docs/blackbox.md says.
func pack(list []blackbox.Payload) (b []byte) {
	for _, p := range list {
		for _, part := range [][]byte{[]byte(p.Name), p.Stored, p.StoredSalt, p.WholeSalt} {
			b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
		}
	}
	return b
}

func (f *file) loosen(t *testing.T) {
	t.Helper()
	for _, s := range []string{"CREATE TABLE loose AS SELECT * FROM entries", "DROP TABLE entries", "ALTER TABLE loose RENAME TO entries"} {
		f.exec(t, s)
	}
}

func (f *file) copied(t *testing.T) func() {
	t.Helper()
	old := filepath.Join(t.TempDir(), "old.db")
	f.exec(t, "VACUUM INTO $1", old)
	return func() {
		t.Helper()
		for _, more := range []string{"-wal", "-shm"} {
			_ = os.Remove(f.path + more)
		}
		if err := os.Rename(old, f.path); err != nil {
			t.Fatal(err)
		}
	}
}

// A schema is a vault in PostgreSQL.
type schema struct {
	name string
	conn *pgx.Conn
}

func newSchema(t *testing.T) vault {
	t.Helper()
	c, err := pgx.Connect(t.Context(), server.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return &schema{"w_" + strings.ToLower(rand.Text()[:16]), c}
}

func (s *schema) open(t *testing.T) database {
	t.Helper()
	db, err := postgres.Open(t.Context(), server.Start(t), postgres.Options{Schema: s.name})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func (s *schema) own(statement string) string { return strings.ReplaceAll(statement, "@", s.name+".") }

func (s *schema) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := s.conn.Exec(t.Context(), s.own(statement), args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (s *schema) one(t *testing.T, statement string, args ...any) (b []byte) {
	t.Helper()
	if err := s.conn.QueryRow(t.Context(), s.own(statement), args...).Scan(&b); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return b
}

func (s *schema) drop(t *testing.T, where string) {
	t.Helper()
	s.exec(t, "DELETE FROM @entries WHERE "+where)
	s.exec(t, "DELETE FROM @payloads WHERE "+where)
}

func (s *schema) move(t *testing.T, from, to int) {
	t.Helper()
	s.exec(t, "UPDATE @entries SET seq = $2 WHERE seq = $1", from, to)
	s.exec(t, "UPDATE @payloads SET seq = $2 WHERE seq = $1", from, to)
}

func (s *schema) put(t *testing.T, seq int, list []blackbox.Payload) {
	t.Helper()
	s.exec(t, "DELETE FROM @payloads WHERE seq = $1", seq)
	for _, p := range list {
		s.exec(t, "INSERT INTO @payloads (seq, name, stored, stored_salt, whole_salt) VALUES ($1, $2, $3, $4, $5)", seq, p.Name, p.Stored, p.StoredSalt, p.WholeSalt)
	}
}

func (s *schema) loosen(t *testing.T) {
	t.Helper()
	for _, statement := range []string{
		"ALTER TABLE @entries DROP CONSTRAINT entries_pkey", "ALTER TABLE @payloads DROP CONSTRAINT payloads_pkey",
		"ALTER TABLE @payloads ALTER COLUMN seq DROP NOT NULL", "ALTER TABLE @payloads ALTER COLUMN name DROP NOT NULL",
	} {
		s.exec(t, statement)
	}
}

func (s *schema) copied(t *testing.T) func() {
	t.Helper()
	tables := []string{"entries", "payloads", "checkpoints"}
	for _, table := range tables {
		s.exec(t, "CREATE TABLE @old_"+table+" AS SELECT * FROM @"+table)
	}
	return func() {
		t.Helper()
		for _, table := range tables {
			s.exec(t, "DELETE FROM @"+table)
			s.exec(t, "INSERT INTO @"+table+" SELECT * FROM @old_"+table)
		}
	}
}
