package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
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

// DropPayloads implements store.Log. Rows are taken out and put back without payloads: a row that only shrinks leaves a gap in its page
// that later entries, which come at the end, cannot use. Where to begin is looked for and not kept: who may write to the file would say where.
func (db *DB) DropPayloads(ctx context.Context, below blackbox.Seq, limit int) (n int, err error) {
	from, ok, err := db.full(ctx, below)
	if err != nil || !ok || limit <= 0 {
		return 0, err
	}
	next := from
	err = db.tx(ctx, func(tx *sql.Tx) error {
		var bare []stored
		if bare, next, n, err = drop(ctx, tx, from, below, limit); err != nil {
			return err
		}
		return putBack(ctx, tx, bare)
	})
	if err != nil {
		return 0, err
	}
	db.bare.Store(next)
	return n, nil
}

// some is which rows have payloads of entries in a range.
const some = " FROM entries WHERE seq BETWEEN ? AND ? AND payloads IS NOT NULL AND seq - max(length(hashes) / 32, 1) + 1 < ? ORDER BY seq"

// payloadRange are the arguments of some.
func payloadRange(from int64, below blackbox.Seq) []any {
	b := int64(min(below, math.MaxInt64-maxRow))
	return []any{from, b + maxRow - 2, b}
}

// drop returns rows from a number on without the payloads of their entries below another, of limit entries at most, and of how many; and before which
// row there are none any more.
func drop(ctx context.Context, tx *sql.Tx, from int64, below blackbox.Seq, limit int) (bare []stored, next int64, n int, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT seq, bodies, hashes, payloads"+some, payloadRange(from, below)...)
	if err != nil {
		return nil, from, 0, err
	}
	defer rows.Close()
	next = from
	for all := true; n < limit && rows.Next(); {
		var r stored
		if err := rows.Scan(&r.seq, &r.bodies, &r.hashes, &r.payloads); err != nil {
			return nil, from, 0, err
		}
		if dropped := r.drop(int64(min(below, math.MaxInt64)), limit-n); dropped > 0 {
			bare, n = append(bare, r), n+dropped
		}
		if all = all && len(r.payloads) == 0; all {
			next = r.seq + 1
		}
	}
	return bare, next, n, rows.Err()
}

// putBack takes rows out and puts them back as they are given.
func putBack(ctx context.Context, tx *sql.Tx, rows []stored) error {
	out := int64(0)
	for _, r := range rows {
		done, err := tx.ExecContext(ctx, "DELETE FROM entries WHERE seq = ?", r.seq)
		if err != nil {
			return err
		}
		n, err := done.RowsAffected()
		if err != nil {
			return err
		}
		out += n
	}
	if out != int64(len(rows)) { // what is there twice is a trace of something
		return errOneRow
	}
	for _, r := range rows {
		if _, err := tx.ExecContext(ctx, groupStatements[insert], r.seq, notNull(r.bodies), notNull(r.hashes), orNull(r.payloads)); err != nil {
			return err
		}
	}
	return nil
}

// notNull is a column's bytes, of which there may be none: the driver reads such a column as if it held nothing.
func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// full returns the first row that has payloads of entries below a number, and holds nobody up meanwhile; ok is false where there is none.
func (db *DB) full(ctx context.Context, below blackbox.Seq) (from int64, ok bool, err error) {
	err = db.read.QueryRowContext(ctx, "SELECT seq"+some+" LIMIT 1", payloadRange(db.bare.Load(), below)...).Scan(&from)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return from, err == nil, db.heard(err)
}
