package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"navra/internal/blackbox"
)

// pack brings a database from version 1, which had a table of payloads and no checkpoints, to 2.
func pack(ctx context.Context, tx *sql.Tx) error {
	if err := readable(ctx, tx); err != nil {
		return err
	}
	if err := belong(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `ALTER TABLE entries ADD COLUMN payloads BLOB;
		CREATE TABLE checkpoints (
			size INTEGER PRIMARY KEY,
			note BLOB NOT NULL,
			frontier BLOB NOT NULL
		) STRICT`); err != nil {
		return err
	}
	if err := packAll(ctx, tx); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "DROP TABLE payloads")
	return err
}

// readable refuses a chain of before the first release, whose entries have another encoding: they would all be called edited. One that does
// not have its hash is for verification to find.
func readable(ctx context.Context, tx *sql.Tx) (err error) {
	rows, err := tx.QueryContext(ctx, "SELECT seq, body, hash FROM entries ORDER BY seq")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var body, hash []byte
		if err := rows.Scan(&seq, &body, &hash); err != nil {
			return err
		}
		if _, err := blackbox.Decode(body); err != nil && blackbox.Hash(body) == whole(hash) {
			return fmt.Errorf("entry %d was written by a navra before the first release, and this one cannot read it: keep the file for its record, and name another", seq)
		}
	}
	return rows.Err()
}

// belong refuses payloads of no entry: they are a trace of something, which packing would lose.
func belong(ctx context.Context, tx *sql.Tx) error {
	var seq int64
	var name string
	err := tx.QueryRowContext(ctx, "SELECT seq, name FROM payloads WHERE seq NOT IN (SELECT seq FROM entries) ORDER BY seq LIMIT 1").Scan(&seq, &name)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}
	return fmt.Errorf("payload %q belongs to entry %d, which is not there: it was put there, or the entry was taken away", name, seq)
}

// packAll writes the payloads of each entry into its row.
func packAll(ctx context.Context, tx *sql.Tx) error {
	set, err := tx.PrepareContext(ctx, "UPDATE entries SET payloads = ? WHERE seq = ?")
	if err != nil {
		return err
	}
	defer set.Close()
	rows, err := tx.QueryContext(ctx, "SELECT seq, name, stored, stored_salt, whole_salt FROM payloads ORDER BY seq, name")
	if err != nil {
		return err
	}
	defer rows.Close()
	var at int64
	var list []blackbox.Payload
	write := func() error {
		if len(list) == 0 {
			return nil
		}
		_, err := set.ExecContext(ctx, appendPayloads(nil, list), at)
		return err
	}
	for rows.Next() {
		var seq int64
		var p blackbox.Payload
		if err := rows.Scan(&seq, &p.Name, &p.Stored, &p.StoredSalt, &p.WholeSalt); err != nil {
			return err
		}
		if seq != at {
			if err := write(); err != nil {
				return err
			}
			at, list = seq, nil
		}
		list = append(list, p)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return write()
}

// share brings a database from version 2, which had a row for each entry, to 3: such a row is as good as before. The names say that there may be several.
func share(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "ALTER TABLE entries RENAME COLUMN body TO bodies; ALTER TABLE entries RENAME COLUMN hash TO hashes")
	return err
}
