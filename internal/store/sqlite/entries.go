package sqlite

import (
	"cmp"
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
	return pages(from, func(r blackbox.Row) blackbox.Seq { return r.Seq }, func(s span) pageOf[blackbox.Row] { return db.rows(ctx, s) })
}

// Leaves implements store.Log.
func (db *DB) Leaves(ctx context.Context, from blackbox.Seq) iter.Seq2[[32]byte, error] {
	return func(yield func([32]byte, error) bool) {
		for r, err := range pages(from, func(r blackbox.Row) blackbox.Seq { return r.Seq }, func(s span) pageOf[blackbox.Row] { return db.leaves(ctx, s) }) {
			if !yield(r.Hash, err) {
				return
			}
		}
	}
}

// ahead is how many pages are read while one is worked on.
const ahead = 3

// A span is the numbers of a page's rows, both included, and how many entries suffice. They are those of the table, which has room for numbers
// below the first.
type span struct {
	from, to int64
	most     int
}

// A pageOf is what reading a page came to: a T for each entry.
type pageOf[T any] struct {
	list []T
	last int64 // number of the last row, if there is any
	to   int64 // of the span
	more bool  // it has more, which was not read
	err  error
}

// pages yields what read gives, page after page. Where entries follow one another without a gap, as they do unless somebody has taken some away,
// several pages are read at once.
func pages[T any](from blackbox.Seq, number func(T) blackbox.Seq, read func(span) pageOf[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		at := int64(from) // the row that is next has this number or a higher one
		switch {
		case from == 0:
			at = math.MinInt64
		case from > math.MaxInt64:
			return
		}
		begin := at
		give := func(r pageOf[T]) bool {
			for _, v := range r.list {
				if int64(number(v)) >= begin && !yield(v, nil) {
					return false
				}
			}
			if r.err != nil {
				yield(*new(T), fmt.Errorf("entries: %w", r.err))
			}
			if r.err != nil || len(r.list) > 0 && r.last == math.MaxInt64 {
				return false
			}
			if len(r.list) > 0 {
				at = r.last + 1
			}
			return true
		}
		for {
			r := read(span{at, math.MaxInt64, first})
			if !give(r) || len(r.list) < first && !r.more {
				return
			}
			reading := []chan pageOf[T]{}
			size := int64(first)
			for next, whole := at, true; whole; {
				for ; len(reading) < ahead && next <= math.MaxInt64-page; size = min(2*size, page) {
					reading = append(reading, readAhead(span{next, next + size - 1, page + maxRow}, read))
					next += size
				}
				if len(reading) == 0 {
					break
				}
				r := <-reading[0]
				reading = reading[1:]
				if len(r.list) > 0 && int64(number(r.list[0])) > at {
					break // what lies between was committed after the page before was read: it is looked for anew
				}
				if !give(r) {
					return
				}
				whole = !r.more && at > r.to-maxRow // the rest may be in the next row
			}
		}
	}
}

// readAhead reads a page on another goroutine, which ends also where nobody waits for it.
func readAhead[T any](s span, read func(span) pageOf[T]) chan pageOf[T] {
	out := make(chan pageOf[T], 1)
	go func() { out <- read(s) }()
	return out
}

// Limits of a page, besides how many entries it has, since whoever may write to the file could have one use up memory: of bytes that are copied, and of
// rows, of which there are so many only where they have one number.
const (
	maxPage = 16 << 20
	maxRows = 2 * page
)

// odd tells whether there are rows whose number is none, or far away: no range has them. In a table with its key it looks at no row.
const odd = "SELECT 1 FROM entries WHERE seq IS NULL OR seq < -9223372036854775808 OR seq > 9223372036854775807 LIMIT 1"

var (
	errNoNumber = errors.New("a row of entries has a number that is none: somebody made the table anew")
	errNoSize   = errors.New("a checkpoint has a size that is no number: somebody made the table anew")
	errOneRow   = errors.New("several rows of entries have one number: somebody made the table anew")
)

// readPage hands the columns of a page's rows, of which the first is the number, to each, beneath database/sql, which would copy all bytes once more.
// It ends with all rows of its last number: there are several where somebody made the table anew without its key.
func readPage[T any](ctx context.Context, db *DB, columns string, s span, to []driver.Value, each func(p *pageOf[T], seq int64)) (p pageOf[T]) {
	p = pageOf[T]{list: make([]T, 0, page+maxRow), to: s.to}
	conn, err := db.read.Conn(ctx)
	if err != nil {
		p.err = err
		return p
	}
	err = conn.Raw(func(c any) (err error) {
		q := c.(driver.QueryerContext)
		if s.from == math.MinInt64 { // all rows are asked for
			if err := none(ctx, q, odd); err != nil {
				return err
			}
		}
		args := []driver.NamedValue{{Ordinal: 1, Value: s.from}, {Ordinal: 2, Value: s.to}, {Ordinal: 3, Value: int64(maxRows)}}
		rows, err := q.QueryContext(ctx, "SELECT "+columns+" FROM entries WHERE seq BETWEEN ? AND ? ORDER BY seq LIMIT ?", args)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for n, size := 1, 0; ; n++ {
			if err := rows.Next(to); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			seq, ok := to[0].(int64)
			if !ok {
				return errNoNumber
			}
			full := len(p.list) >= s.most || size >= maxPage
			if full && seq != p.last {
				p.more = true
				return nil
			}
			if n == maxRows || size >= 4*maxPage {
				return errOneRow
			}
			for _, v := range to {
				size += length(v)
			}
			p.last = seq
			each(&p, seq)
		}
	})
	p.err = errors.Join(err, conn.Close())
	return p
}

// none returns an error where a query finds something.
func none(ctx context.Context, q driver.QueryerContext, query string) (err error) {
	rows, err := q.QueryContext(ctx, query, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if err := rows.Next(make([]driver.Value, 1)); !errors.Is(err, io.EOF) {
		return cmp.Or(err, errNoNumber)
	}
	return nil
}

func (db *DB) rows(ctx context.Context, s span) pageOf[blackbox.Row] {
	var to [4]driver.Value
	return readPage(ctx, db, "seq, bodies, hashes, payloads", s, to[:], func(p *pageOf[blackbox.Row], seq int64) {
		r := stored{seq: seq, bodies: raw(to[1]), hashes: raw(to[2]), payloads: raw(to[3])}
		_, n := r.first()
		p.list = r.entries(p.list, make([]blackbox.Payload, 0, n))
	})
}

func (db *DB) leaves(ctx context.Context, s span) pageOf[blackbox.Row] {
	var to [2]driver.Value
	return readPage(ctx, db, "seq, hashes", s, to[:], func(p *pageOf[blackbox.Row], seq int64) {
		p.list = stored{seq: seq, hashes: raw(to[1])}.entries(p.list, nil)
	})
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

// length is how many bytes raw returns.
func length(v driver.Value) int {
	switch v := v.(type) {
	case []byte:
		return len(v)
	case string:
		return len(v)
	}
	return 0
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
	var hashes []byte
	err = db.ask(ctx, headQuery, func(q *sql.Stmt) error { return q.QueryRowContext(ctx).Scan(&r.Seq, &hashes) })
	if errors.Is(err, sql.ErrNoRows) {
		return store.Receipt{}, nil
	} else if err != nil {
		return r, err
	}
	r.Hash, _ = lastHash(hashes) // zero, which fits nothing, where it has none
	return r, nil
}

// Verify checks the whole chain.
func (db *DB) Verify(ctx context.Context) (blackbox.Report, error) {
	return blackbox.Verify(db.Facts(ctx, 0))
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
		var size any
		var frontier []byte
		if err := rows.Scan(&size, &c.Note, &frontier); err != nil {
			return nil, fmt.Errorf("checkpoints: %w", err)
		}
		n, ok := size.(int64)
		if !ok {
			return nil, errNoSize
		}
		c.Size = blackbox.Seq(n) // one below 0 fits no note
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
