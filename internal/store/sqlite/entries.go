package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"

	"navra/internal/blackbox"
	"navra/internal/store"
)

var (
	_ store.Store = (*DB)(nil)
	_ store.Log   = (*DB)(nil)
)

// page is how many entries are read at a time, so that a long verification holds no read transaction open for long. The first pages have fewer, so
// that work on them begins at once.
const (
	page  = 512
	first = 64
)

// Rows implements store.Log.
func (db *DB) Rows(ctx context.Context, from blackbox.Seq) iter.Seq2[blackbox.Row, error] {
	return pages(from, func(from, to blackbox.Seq) ([]blackbox.Row, error) { return db.rows(ctx, from, to) }, func(r blackbox.Row) blackbox.Seq { return r.Seq })
}

// Leaves implements store.Log.
func (db *DB) Leaves(ctx context.Context, from blackbox.Seq) iter.Seq2[[32]byte, error] {
	return func(yield func([32]byte, error) bool) {
		for r, err := range pages(from, func(from, to blackbox.Seq) ([]blackbox.Row, error) { return db.leaves(ctx, from, to) }, func(r blackbox.Row) blackbox.Seq { return r.Seq }) {
			if !yield(r.Hash, err) {
				return
			}
		}
	}
}

// ahead is how many pages are read while one is worked on.
const ahead = 3

// A pageResult is what reading a page came to.
type pageResult[T any] struct {
	list []T
	to   blackbox.Seq
	err  error
}

// pages yields what read gives, page after page. Where entries follow one another without a gap, as they do unless somebody has taken some away,
// several pages are read at once. read reads from a number on, up to another, 0 for what the first page holds.
func pages[T any](from blackbox.Seq, read func(from, to blackbox.Seq) ([]T, error), seq func(T) blackbox.Seq) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		give := func(r pageResult[T]) bool {
			for _, t := range r.list {
				if !yield(t, nil) {
					return false
				}
				from = seq(t) + 1
			}
			if r.err != nil {
				var none T
				yield(none, fmt.Errorf("entries: %w", r.err))
			}
			return r.err == nil
		}
		for {
			list, err := read(from, 0)
			if !give(pageResult[T]{list: list, err: err}) || len(list) < first || from > math.MaxInt64 {
				return
			}
			reading := []chan pageResult[T]{}
			size := blackbox.Seq(first)
			for next, whole := from, true; whole; {
				for ; len(reading) < ahead && next <= math.MaxInt64-page; size = min(2*size, page) {
					reading = append(reading, readAhead(next, next+size, read))
					next += size
				}
				if len(reading) == 0 {
					break
				}
				r := <-reading[0]
				reading = reading[1:]
				if !give(r) {
					return
				}
				whole = from == r.to
			}
		}
	}
}

// readAhead reads a page on another goroutine, which ends also where nobody waits for it.
func readAhead[T any](from, to blackbox.Seq, read func(from, to blackbox.Seq) ([]T, error)) chan pageResult[T] {
	out := make(chan pageResult[T], 1)
	go func() {
		r := pageResult[T]{to: to}
		r.list, r.err = read(from, to)
		out <- r
	}()
	return out
}

// readPage hands the columns of a page's rows to each, beneath database/sql, which would copy all bytes once more. It ends with all rows of its last
// number: there are several where somebody made the table anew without its key.
func (db *DB) readPage(ctx context.Context, columns string, from, upTo blackbox.Seq, to []driver.Value, each func(blackbox.Seq)) (err error) {
	conn, err := db.read.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return conn.Raw(func(c any) (err error) {
		args := []driver.NamedValue{{Ordinal: 1, Value: lowest(from)}, {Ordinal: 2, Value: highest(upTo)}}
		rows, err := c.(driver.QueryerContext).QueryContext(ctx, "SELECT "+columns+" FROM entries WHERE seq BETWEEN ? AND ? ORDER BY seq", args)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		last, most := int64(0), page
		if upTo == 0 {
			most = first
		}
		for n := 0; ; n++ {
			if err := rows.Next(to); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			seq, ok := to[0].(int64)
			if !ok {
				return fmt.Errorf("the number of an entry is not one: %v", to[0])
			}
			if n >= most && seq != last {
				return nil
			}
			last = seq
			each(blackbox.Seq(seq))
		}
	})
}

func (db *DB) rows(ctx context.Context, from, upTo blackbox.Seq) ([]blackbox.Row, error) {
	out := make([]blackbox.Row, 0, page)
	var to [4]driver.Value
	err := db.readPage(ctx, "seq, body, hash, payloads", from, upTo, to[:], func(seq blackbox.Seq) {
		r := blackbox.Row{Seq: seq, Encoded: raw(to[1]), Hash: whole(raw(to[2]))}
		var err error
		if r.Payloads, err = decodePayloads(raw(to[3])); err != nil {
			r.Payloads = []blackbox.Payload{{Name: err.Error()}} // found by whoever verifies
		}
		out = append(out, r)
	})
	return out, err
}

func (db *DB) leaves(ctx context.Context, from, upTo blackbox.Seq) ([]blackbox.Row, error) {
	out := make([]blackbox.Row, 0, page)
	var to [2]driver.Value
	err := db.readPage(ctx, "seq, hash", from, upTo, to[:], func(seq blackbox.Seq) {
		out = append(out, blackbox.Row{Seq: seq, Hash: whole(raw(to[1]))})
	})
	return out, err
}

// raw is a column's bytes; none for what no bytes are kept in.
func raw(v driver.Value) []byte {
	switch v := v.(type) {
	case []byte:
		return v
	case string:
		return []byte(v)
	}
	return nil
}

// lowest is the number to read from: for the first entry also those below it, which nobody but an intruder has written.
func lowest(from blackbox.Seq) int64 {
	if from <= 1 {
		return math.MinInt64
	}
	return int64(from)
}

// highest is the number before one; the highest there may be for 0.
func highest(upTo blackbox.Seq) int64 {
	if upTo == 0 {
		return math.MaxInt64
	}
	return int64(upTo) - 1
}

// whole is a hash as it is stored; zero, which fits nothing, for one of another length.
func whole(b []byte) (h [32]byte) {
	if len(b) == len(h) {
		copy(h[:], b)
	}
	return h
}

// Head implements store.Log.
func (db *DB) Head(ctx context.Context) (r store.Receipt, err error) {
	q, err := db.prepared(ctx, headQuery)
	if err != nil {
		return r, db.heard(err)
	}
	var hash []byte
	if err := q.QueryRowContext(ctx).Scan(&r.Seq, &hash); errors.Is(err, sql.ErrNoRows) {
		return store.Receipt{}, nil
	} else if err != nil {
		return r, db.heard(err)
	}
	copy(r.Hash[:], hash)
	return r, nil
}

// Verify checks the whole chain.
func (db *DB) Verify(ctx context.Context) (blackbox.Report, error) {
	return blackbox.Verify(db.Rows(ctx, 1))
}

// Last returns the number of the newest entry; 0 for none.
func (db *DB) Last(ctx context.Context) (blackbox.Seq, error) {
	r, err := db.Head(ctx)
	return r.Seq, err
}

// Checkpoints implements store.Log.
func (db *DB) Checkpoints(ctx context.Context) (out []blackbox.Checkpoint, err error) {
	rows, err := db.read.QueryContext(ctx, "SELECT size, note, frontier FROM checkpoints ORDER BY size")
	if err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var c blackbox.Checkpoint
		var frontier []byte
		if err := rows.Scan(&c.Size, &c.Note, &frontier); err != nil {
			return nil, fmt.Errorf("checkpoints: %w", err)
		}
		for len(frontier) >= 32 {
			c.Frontier = append(c.Frontier, [32]byte(frontier))
			frontier = frontier[32:]
		}
		out = append(out, c)
	}
	return out, rows.Err()
}

// AddCheckpoint implements store.Log.
func (db *DB) AddCheckpoint(ctx context.Context, c blackbox.Checkpoint) error {
	frontier := []byte{} // NULL is none
	for _, h := range c.Frontier {
		frontier = append(frontier, h[:]...)
	}
	return db.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO checkpoints (size, note, frontier) VALUES (?, ?, ?) ON CONFLICT (size) DO NOTHING", c.Size, c.Note, frontier)
		return err
	})
}

// Strays implements store.Log. Payloads lie in the row of their entry: there are none.
func (db *DB) Strays(context.Context, int) ([]store.Stray, error) { return nil, nil }
