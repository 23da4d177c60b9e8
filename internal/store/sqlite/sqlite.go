// Package sqlite keeps entries and state in one SQLite file that several processes may use at once. Appending is
// serialised over all of them by SQLite's own write lock, taken when a transaction begins.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the database/sql driver "sqlite"

	"navra/internal/store"
)

// Options vary how a database is opened. The zero value is for use.
type Options struct {
	Logger   *slog.Logger     // nil: none
	Now      func() time.Time // nil: time.Now
	ReadOnly bool             // the file must be there and is not written to
	Fsync    bool             // a commit is on the disk before it is answered
}

// busyTimeout is how long a process waits for another's write lock.
const busyTimeout = 10 * time.Second

// pageSize is that of a new file, in bytes. What an entry has beyond it lies in pages that are read straight to where they are wanted; with larger ones an entry
// with a payload of 4 KiB would leave half of its page empty.
const pageSize = 4096

// walSize is what the write-ahead log keeps of its size, in bytes, once its pages are in the main file: what SQLite lets it grow to, of pages of that
// size, where nobody reads for long. Without a limit it would stay as large as it has ever been, and count as room that is used.
const walSize = 1000 * pageSize

// readers is how many connections read at once.
const readers = 4

// A DB is an open database. Its methods may be called concurrently.
type DB struct {
	path  string
	write *sql.DB // one connection: BEGIN IMMEDIATE
	read  *sql.DB
	now   func() time.Time
	file  os.FileInfo // as it was opened

	vain atomic.Pointer[waitedFor]

	group *store.Committer // nil where the file is read only
	// Of who holds the connection that writes:
	onGroup  *groupConn
	gatherer store.Gatherer

	committed func(store.Receipt) error // nil: nobody is told
	recent    recent
	tail      store.Tail   // of who holds the head lock
	bare      atomic.Int64 // below this entry DropPayloads has left no payload

	reading *turns // on read
	writing *turns // on write, beside the one group

	mu    sync.Mutex
	stmts map[string]*sql.Stmt // on read; guarded by mu
}

// Open opens the database at path, making it, its folder (0700) and its tables where they are not there, and upgrading those of an older navra.
// A file that is no database of navra's, or of a newer navra, is an error.
func Open(ctx context.Context, path string, o Options) (*DB, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	if err := prepareFile(abs, o); err != nil {
		return nil, err
	}
	if err := register(); err != nil {
		return nil, fmt.Errorf("store %s: %w", abs, err)
	}
	db := &DB{path: abs, now: o.Now, reading: newTurns(readers), writing: newTurns(1), stmts: map[string]*sql.Stmt{}}
	if db.write, err = sql.Open("sqlite", dsn(abs, o, true)); err != nil {
		return nil, fmt.Errorf("store %s: %w", abs, err)
	}
	db.write.SetMaxOpenConns(1)
	if db.read, err = sql.Open("sqlite", dsn(abs, o, false)); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", abs, err), db.write.Close())
	}
	db.read.SetMaxOpenConns(readers)
	db.read.SetMaxIdleConns(readers)
	if err := db.patiently(ctx, func() error { return db.migrate(ctx, o.ReadOnly) }); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", abs, err), db.Close())
	}
	if db.file, err = os.Stat(abs); err != nil {
		return nil, errors.Join(fmt.Errorf("store: %w", err), db.Close())
	}
	if !o.ReadOnly {
		db.gatherer.Now = db.now
		db.group = store.NewCommitter(db.writeGroup)
	}
	return db, nil
}

// prepared returns a statement on the connections that read, prepared once.
func (db *DB) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if s := db.stmts[query]; s != nil {
		return s, nil
	}
	s, err := db.read.PrepareContext(ctx, query)
	if err == nil {
		db.stmts[query] = s
	}
	return s, err
}

// OnCommit has f told of the newest entry after each group, before those whose commits it holds are; an error is theirs too. It is called
// before the first commit.
func (db *DB) OnCommit(f func(store.Receipt) error) { db.committed = f }

// Expect says what the log was last seen to have: see store.Tail.
func (db *DB) Expect(known store.Receipt, found func(problem string)) { db.tail.Expect(known, found) }

// prepareFile makes the folder and the file, so that nobody else may ever read it.
func prepareFile(path string, o Options) error {
	switch info, err := os.Stat(path); {
	case err == nil && !info.Mode().IsRegular(): // to open a pipe may wait for ever
		return fmt.Errorf("store %s: it is no file", path)
	case o.ReadOnly && errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("store %s: it is not there: nothing was recorded in it yet, or the database is another file", path)
	case o.ReadOnly && err != nil:
		return fmt.Errorf("store: %w", err)
	case o.ReadOnly: // the system says why it cannot be opened, and SQLite does not
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		return f.Close()
	}
	there := filepath.Dir(path)
	for there != filepath.Dir(there) && !exists(there) {
		there = filepath.Dir(there)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("store %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("store %s: %w", path, err)
	}
	err = f.Close()
	if o.Fsync {
		err = errors.Join(err, syncFolders(filepath.Dir(path), there))
	}
	if err != nil {
		return fmt.Errorf("store %s: %w", path, err)
	}
	return nil
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// syncFolders puts the names in a folder on the disk, and in those above it up to one: SQLite does not for a file that was there when it
// came, and what was committed to a file without a name is lost.
func syncFolders(dir, upto string) error {
	if runtime.GOOS == "windows" { // which has no such thing
		return nil
	}
	for ; ; dir = filepath.Dir(dir) {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil || dir == upto {
			return err
		}
	}
}

func dsn(path string, o Options, immediate bool) string {
	q := url.Values{}
	synchronous := "synchronous(NORMAL)"
	if o.Fsync {
		synchronous = "synchronous(FULL)"
	}
	for _, p := range []string{
		fmt.Sprintf("page_size(%d)", pageSize), fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()), synchronous, fmt.Sprintf("journal_size_limit(%d)", walSize), "foreign_keys(ON)", "trusted_schema(OFF)", "temp_store(MEMORY)",
	} {
		q.Add("_pragma", p)
	}
	if o.ReadOnly {
		q.Set("mode", "ro")
	} else {
		q.Set("mode", "rw")           // prepareFile has made it: where it is moved away, no other is made in its place, which would take its write-ahead log
		q.Set("_journal_mode", "WAL") // after the pragmas, which are sorted: it makes the first page, with its size
	}
	if immediate {
		q.Set("_txlock", "immediate")
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// Close writes what waits, and closes the database.
func (db *DB) Close() error {
	if db.group != nil {
		db.group.Close()
		db.letGo()
	}
	return errors.Join(db.write.Close(), db.read.Close())
}

// closeTime is how long Close waits for who holds the connection that writes.
const closeTime = 100 * time.Millisecond

// letGo closes the statements of groups. Where somebody holds their connection it stays half open until the process ends, which loses nothing.
func (db *DB) letGo() {
	ctx, end := context.WithTimeout(context.Background(), closeTime)
	defer end()
	conn, err := db.write.Conn(ctx)
	if err != nil {
		return
	}
	db.onGroup.close()
	db.onGroup = nil
	_ = conn.Close() // it goes back to the pool, which is closed next
}
