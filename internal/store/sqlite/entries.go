package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"navra/internal/blackbox"
)

// batch is how many entries are read at a time, so that a long verification holds no read transaction open for long.
const batch = 512

// Rows yields the entries from number from on, in order, with what their payloads hold. An error ends the sequence.
func (db *DB) Rows(ctx context.Context, from blackbox.Seq) iter.Seq2[blackbox.Row, error] {
	return func(yield func(blackbox.Row, error) bool) {
		for {
			rows, err := db.rows(ctx, from)
			if err != nil {
				yield(blackbox.Row{}, fmt.Errorf("entries: %w", err))
				return
			}
			for _, r := range rows {
				if !yield(r, nil) {
					return
				}
				from = r.Seq + 1
			}
			if len(rows) < batch {
				return
			}
		}
	}
}

// rows reads one batch. Entries and payloads are read in one transaction, so that they belong together.
func (db *DB) rows(ctx context.Context, from blackbox.Seq) (out []blackbox.Row, err error) {
	tx, err := db.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ignoreDone(tx.Rollback())) }()
	rows, err := tx.QueryContext(ctx, "SELECT seq, body, hash FROM entries WHERE seq >= ? ORDER BY seq LIMIT ?", from, batch)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	at := map[blackbox.Seq]int{}
	for rows.Next() {
		var r blackbox.Row
		var hash []byte
		if err := rows.Scan(&r.Seq, &r.Encoded, &hash); err != nil {
			return nil, err
		}
		copy(r.Hash[:], hash)
		at[r.Seq] = len(out)
		out = append(out, r)
	}
	if err := rows.Err(); err != nil || len(out) == 0 {
		return nil, err
	}
	return out, db.payloads(ctx, tx, out, at)
}

func (db *DB) payloads(ctx context.Context, tx *sql.Tx, out []blackbox.Row, at map[blackbox.Seq]int) error {
	rows, err := tx.QueryContext(ctx, "SELECT seq, name, stored, stored_salt, whole_salt FROM payloads WHERE seq BETWEEN ? AND ?", out[0].Seq, out[len(out)-1].Seq)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var seq blackbox.Seq
		var p blackbox.Payload
		if err := rows.Scan(&seq, &p.Name, &p.Stored, &p.StoredSalt, &p.WholeSalt); err != nil {
			return err
		}
		if i, ok := at[seq]; ok {
			out[i].Payloads = append(out[i].Payloads, p)
		}
	}
	return rows.Err()
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// Verify checks the whole chain.
func (db *DB) Verify(ctx context.Context) (blackbox.Report, error) {
	return blackbox.Verify(db.Rows(ctx, 1))
}

// Last returns the number of the newest entry; 0 for none.
func (db *DB) Last(ctx context.Context) (n blackbox.Seq, err error) {
	err = db.read.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM entries").Scan(&n)
	return n, err
}
