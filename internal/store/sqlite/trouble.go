package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"modernc.org/sqlite"

	"navra/internal/store"
)

// Primary result codes of SQLite; extended ones have them in their low byte.
const (
	codeError      = 1
	codePerm       = 3
	codeBusy       = 5
	codeLocked     = 6
	codeReadOnly   = 8
	codeIO         = 10
	codeCorrupt    = 11
	codeFull       = 13
	codeCantOpen   = 14
	codeConstraint = 19
	codeAuth       = 23
	codeNotADB     = 26
)

func codeOf(err error) int {
	if e := (*sqlite.Error)(nil); errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// troubled adds to an error of the driver, in words, why the database cannot be used.
func troubled(err error) error {
	why := ""
	switch codeOf(err) {
	case codeError:
		if !otherTables(err) {
			return err
		}
		why = "the database has other tables than this navra knows: a newer one has most likely upgraded it, and is to be started instead"
		err = fmt.Errorf("%w: %s", err, why)
	case codeBusy, codeLocked:
		why = "the database is locked by another process"
	case codeReadOnly, codePerm:
		why = "the database is read-only"
	case codeIO, codeCantOpen:
		why = "the disk or folder of the database cannot be used"
	case codeCorrupt, codeNotADB:
		why = "the database file is damaged"
	case codeAuth:
		why = "the database has views or triggers in the place of navra's tables"
	case codeConstraint:
		why = "the database has other tables in the place of navra's, which refuse what it writes"
	case codeFull:
		why = "the disk is full"
	default:
		return err
	}
	return &store.Trouble{Why: why, Err: err}
}

// otherTables reports whether SQLite misses a table or column. It has no code for that.
func otherTables(err error) bool {
	return slices.ContainsFunc([]string{"no such table", "no such column", "has no column named"}, func(s string) bool { return strings.Contains(err.Error(), s) })
}

// stale reports whether what a connection remembers of the file may be what is wrong: it is opened anew then, so that it sees when that was put right.
func stale(err error) bool {
	switch codeOf(err) {
	case codeCorrupt, codeNotADB, codeIO, codeCantOpen, codeReadOnly:
		return true
	}
	return false
}

// heard takes an error of either kind of connection. Those that read are opened anew where it is in what they remember; those in use end with their use.
func (db *DB) heard(err error) error {
	if err != nil && stale(err) {
		db.read.SetMaxIdleConns(0)
		db.read.SetMaxIdleConns(readers)
	}
	return troubled(err)
}

// there returns an error where the file is not the one that was opened: what is written then is lost with it.
func (db *DB) there() error {
	if now, err := os.Stat(db.path); err != nil || !os.SameFile(now, db.file) {
		return &store.Trouble{Why: "the database file was moved, removed or replaced", Err: fmt.Errorf("store %s is not the file that was opened: it was moved, removed or replaced", db.path)}
	}
	return nil
}

// beside are the ends of the names of what SQLite keeps beside a database while it is open.
var beside = [...]string{"-wal", "-shm"}

// together returns an error where the files beside the database are not those that the connection which writes has open: what it writes is lost with
// them, or another process does not see it. Who holds that connection calls it.
func (db *DB) together() error {
	if db.onGroup == nil {
		return nil
	}
	for i, was := range db.onGroup.files {
		path := db.path + beside[i]
		if now, err := os.Stat(path); was != nil && (err != nil || !os.SameFile(now, was)) {
			return &store.Trouble{Why: "a file beside the database was moved, removed or replaced", Err: fmt.Errorf("%s is not the file that was opened: it was moved, removed or replaced", path)}
		}
	}
	return nil
}

// tx runs f in a write transaction: all of it or nothing is kept.
func (db *DB) tx(ctx context.Context, f func(*sql.Tx) error) error {
	if db.file != nil { // else it is being made
		if err := db.there(); err != nil {
			return err
		}
	}
	came := time.Now()
	if err := db.writing.take(ctx); err != nil {
		return err
	}
	defer db.writing.give()
	conn, err := db.writer(ctx, came)
	if err != nil {
		return db.heard(err)
	}
	began := time.Now()
	if err = db.together(); err == nil {
		err = db.waited(began, within(ctx, conn, f))
	}
	if stale(err) {
		err = errors.Join(err, db.drop(conn))
	}
	return db.heard(errors.Join(err, conn.Close()))
}

// A waitedFor is that somebody has waited for the lock in vain, and when that was over.
type waitedFor struct {
	err  error
	over time.Time
}

// slow is how long is waited for the lock, at least, before those behind fail with who did.
const slow = time.Second

// waited remembers an error that came of waiting for the lock.
func (db *DB) waited(began time.Time, err error) error {
	if codeOf(err) == codeBusy && time.Since(began) >= slow {
		db.vain.Store(&waitedFor{err, time.Now()})
	}
	return err
}

// writer returns the connection that writes. Who came, and waited behind one that waited for the lock in vain, fails with it: else each would wait as long
// once more.
func (db *DB) writer(ctx context.Context, came time.Time) (*sql.Conn, error) {
	conn, err := db.write.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if v := db.vain.Load(); v != nil && v.over.After(came) {
		return nil, errors.Join(v.err, conn.Close())
	}
	return conn, nil
}

func within(ctx context.Context, conn *sql.Conn, f func(*sql.Tx) error) error {
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), nil) // else its end would have the connection closed, under the statements of groups
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit it does nothing
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// drop has the pool close the connection that writes. Who holds it may touch the statements of groups on it.
func (db *DB) drop(conn *sql.Conn) error {
	if err := conn.Raw(func(any) error {
		db.onGroup.close()
		db.onGroup = nil
		return driver.ErrBadConn
	}); !errors.Is(err, driver.ErrBadConn) {
		return err
	}
	return nil
}
