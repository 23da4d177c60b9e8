package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/jackc/pgx/v5"

	"navra/internal/blackbox"
	"navra/internal/store"
)

// How many entries and hashes are read at a time: each page is one statement, and no connection is held between two.
const (
	rowsPage   = 512
	leavesPage = 8192
)

// pages yields what read returns from a number on, page after page, until one is empty. Numbers are those of the table, which has room for
// some below the first.
func pages[T any](ctx context.Context, from blackbox.Seq, read func(context.Context, int64) (page []T, last int64, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		at := int64(from)
		switch {
		case from == 0:
			at = math.MinInt64
		case from > math.MaxInt64:
			return
		}
		for {
			page, last, err := read(ctx, at)
			if err != nil {
				yield(*new(T), fmt.Errorf("entries: %w", err))
				return
			}
			for _, t := range page {
				if !yield(t, nil) {
					return
				}
			}
			if len(page) == 0 || last == math.MaxInt64 {
				return
			}
			at = last + 1
		}
	}
}

// Rows implements store.Log.
func (db *DB) Rows(ctx context.Context, from blackbox.Seq) iter.Seq2[blackbox.Row, error] {
	return pages(ctx, from, db.rows)
}

// Facts implements store.Log.
func (db *DB) Facts(ctx context.Context, from blackbox.Seq) iter.Seq2[blackbox.Fact, error] {
	return blackbox.Facts(db.Rows(ctx, from))
}

// Leaves implements store.Log.
func (db *DB) Leaves(ctx context.Context, from blackbox.Seq) iter.Seq2[[32]byte, error] {
	return pages(ctx, from, db.leaves)
}

// rows reads entries and payloads with one statement, so that they belong together. Where somebody dropped the primary keys, the rows of a number
// that is there twice are told apart, and a page ends with all rows of its last number.
func (db *DB) rows(ctx context.Context, from int64) (out []blackbox.Row, last int64, err error) {
	ctx, end := context.WithTimeout(ctx, readTimeout)
	defer end()
	rows, _ := db.pool.Query(ctx, db.in(`SELECT e.n, e.seq, e.body, e.hash, p.seq IS NOT NULL, p.name, p.stored, p.stored_salt, p.whole_salt
		FROM (
			SELECT row_number() OVER (ORDER BY seq) AS n, seq, body, hash FROM @entries
			WHERE seq >= $1 AND seq <= (SELECT max(seq) FROM (SELECT seq FROM @entries WHERE seq >= $1 ORDER BY seq LIMIT $2) AS page)
		) AS e LEFT JOIN @payloads AS p USING (seq) ORDER BY e.seq, e.n, p.name`), from, rowsPage)
	var n, seq int64
	var kept bool
	var body, hash []byte
	var name *string
	var p blackbox.Payload
	_, err = pgx.ForEachRow(rows, []any{&n, &seq, &body, &hash, &kept, &name, &p.Stored, &p.StoredSalt, &p.WholeSalt}, func() error {
		if last = seq; int64(len(out)) < n {
			r := blackbox.Row{Seq: blackbox.Seq(seq), Encoded: body}
			if len(hash) == len(r.Hash) { // one of another length fits nothing
				copy(r.Hash[:], hash)
			}
			out = append(out, r)
		}
		if kept {
			p.Name = ""
			if name != nil {
				p.Name = *name
			}
			r := &out[len(out)-1]
			r.Payloads = append(r.Payloads, p)
		}
		return nil
	})
	return out, last, db.clean(err)
}

func (db *DB) leaves(ctx context.Context, from int64) (out [][32]byte, last int64, err error) {
	ctx, end := context.WithTimeout(ctx, readTimeout)
	defer end()
	rows, _ := db.pool.Query(ctx, db.in("SELECT seq, hash FROM @entries WHERE seq >= $1 ORDER BY seq LIMIT $2"), from, leavesPage)
	var seq int64
	var hash []byte
	_, err = pgx.ForEachRow(rows, []any{&seq, &hash}, func() error {
		var h [32]byte
		if len(hash) != len(h) || copy(h[:], hash) != len(h) {
			return fmt.Errorf("entry %d has no whole hash", seq)
		}
		last, out = seq, append(out, h)
		return nil
	})
	return out, last, db.clean(err)
}

// Head implements store.Log.
func (db *DB) Head(ctx context.Context) (store.Receipt, error) {
	ctx, end := context.WithTimeout(ctx, readTimeout)
	defer end()
	r, err := db.headOf(ctx, db.pool)
	if err != nil {
		return r, fmt.Errorf("head: %w", db.clean(err))
	}
	return r, nil
}

func (db *DB) headOf(ctx context.Context, q queryer) (r store.Receipt, err error) {
	var seq int64
	var hash []byte
	err = q.QueryRow(ctx, db.in("SELECT seq, hash FROM @entries ORDER BY seq DESC LIMIT 1")).Scan(&seq, &hash)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, nil
	} else if err != nil {
		return r, err
	}
	if len(hash) != len(r.Hash) {
		return r, fmt.Errorf("entry %d has no whole hash", seq)
	}
	return store.Receipt{Seq: blackbox.Seq(seq), Hash: [32]byte(hash)}, nil
}

// Last returns the number of the newest entry; 0 for none.
func (db *DB) Last(ctx context.Context) (blackbox.Seq, error) {
	r, err := db.Head(ctx)
	return r.Seq, err
}

// Verify checks the whole chain.
func (db *DB) Verify(ctx context.Context) (blackbox.Report, error) {
	return blackbox.Verify(db.Facts(ctx, 0))
}

// Checkpoints implements store.Log.
func (db *DB) Checkpoints(ctx context.Context) ([]blackbox.Checkpoint, error) {
	ctx, end := context.WithTimeout(ctx, readTimeout)
	defer end()
	rows, _ := db.pool.Query(ctx, db.in("SELECT size, note, frontier FROM @checkpoints ORDER BY size"))
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c blackbox.Checkpoint, err error) {
		var size int64
		var frontier []byte
		if err := row.Scan(&size, &c.Note, &frontier); err != nil {
			return c, err
		}
		c.Size = blackbox.Seq(size)
		for ; len(frontier) >= 32; frontier = frontier[32:] {
			c.Frontier = append(c.Frontier, [32]byte(frontier))
		}
		return c, nil
	})
	if err != nil {
		return nil, fmt.Errorf("checkpoints: %w", db.clean(err))
	}
	return out, nil
}

// AddCheckpoint implements store.Log.
func (db *DB) AddCheckpoint(ctx context.Context, c blackbox.Checkpoint) error {
	frontier := []byte{}
	for _, h := range c.Frontier {
		frontier = append(frontier, h[:]...)
	}
	if _, err := db.exec(ctx, "INSERT INTO @checkpoints (size, note, frontier) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", int64(c.Size), orEmpty(c.Note), frontier); err != nil {
		return fmt.Errorf("checkpoint %d: %w", c.Size, err)
	}
	return nil
}

// Strays implements store.Log.
func (db *DB) Strays(ctx context.Context, limit int) ([]store.Stray, error) {
	rows, _ := db.pool.Query(ctx, db.in(`SELECT coalesce(p.seq, 0), coalesce(p.name, '') FROM @payloads AS p LEFT JOIN @entries AS e USING (seq)
		WHERE e.seq IS NULL ORDER BY p.seq NULLS FIRST, p.name LIMIT $1`), max(limit, 0))
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[store.Stray])
	if err != nil {
		return nil, fmt.Errorf("payloads: %w", db.clean(err))
	}
	return out, nil
}
