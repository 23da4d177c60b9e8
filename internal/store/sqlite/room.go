package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"navra/internal/blackbox"
	"navra/internal/store"
)

// Room implements store.Log: the file with its write-ahead log, less the pages in it that are free.
func (db *DB) Room(ctx context.Context) (r store.Room, err error) {
	var pages, free, size int64
	err = db.read.QueryRowContext(ctx, "SELECT page_count, freelist_count, page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size").Scan(&pages, &free, &size)
	if err != nil {
		return r, fmt.Errorf("room: %w", db.heard(err))
	}
	r.Used = (pages - free) * size
	if wal, err := os.Stat(db.path + "-wal"); err == nil {
		r.Used += wal.Size()
	}
	r.Free, r.Disk = disk(filepath.Dir(db.path))
	return r, nil
}

// Turn implements store.Log.
func (db *DB) Turn(ctx context.Context, name string, every time.Duration) (mine bool, err error) {
	now := db.now()
	stamp := func(t time.Time) []byte { return fmt.Appendf(nil, "%020d", t.UnixMicro()) }
	err = db.tx(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `INSERT INTO kept (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value
			WHERE kept.value <= ? OR kept.value > ?`, "turn "+name, stamp(now), stamp(now.Add(-every)), stamp(now.Add(every))) // one of a clock that was put back is none
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		mine = n == 1
		return err
	})
	return mine, err
}

// DropPayloads implements store.Log. Rows are taken out and put back without their payloads: a row that only shrinks leaves a gap in its page
// that later entries, which come at the end, cannot use. Where to begin is looked for and not kept: who may write to the file would say where.
func (db *DB) DropPayloads(ctx context.Context, below blackbox.Seq, limit int) (n int, err error) {
	from, ok, err := db.full(ctx, below)
	if err != nil || !ok || limit <= 0 {
		return 0, err
	}
	next := from
	err = db.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TEMP TABLE IF NOT EXISTS bare (seq INTEGER PRIMARY KEY, body BLOB, hash BLOB)`)
		if err != nil {
			return err
		}
		r, err := tx.ExecContext(ctx, `INSERT INTO temp.bare SELECT seq, body, hash FROM main.entries WHERE seq >= ? AND seq < ? AND payloads IS NOT NULL ORDER BY seq LIMIT ?`, from, below, limit)
		if err != nil {
			return err
		}
		dropped, err := r.RowsAffected()
		if n = int(dropped); err != nil {
			return err
		}
		if n > 0 {
			if err := tx.QueryRowContext(ctx, "SELECT max(seq) + 1 FROM temp.bare").Scan(&next); err != nil {
				return err
			}
		}
		for _, statement := range []string{
			"DELETE FROM main.entries WHERE seq IN (SELECT seq FROM temp.bare)",
			"INSERT INTO main.entries (seq, body, hash) SELECT seq, body, hash FROM temp.bare ORDER BY seq",
			"DELETE FROM temp.bare",
		} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	db.bare.Store(int64(next))
	return n, nil
}

// full returns the first entry below a number that has payloads, and holds nobody up meanwhile; ok is false where there is none.
func (db *DB) full(ctx context.Context, below blackbox.Seq) (from blackbox.Seq, ok bool, err error) {
	err = db.read.QueryRowContext(ctx, "SELECT seq FROM entries WHERE seq >= ? AND seq < ? AND payloads IS NOT NULL ORDER BY seq LIMIT 1", db.bare.Load(), below).Scan(&from)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return from, err == nil, db.heard(err)
}
