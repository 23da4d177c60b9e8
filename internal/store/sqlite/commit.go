package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/scope"
	"navra/internal/store"
)

var _ store.Store = (*DB)(nil)

// Commit implements store.Store.
func (db *DB) Commit(ctx context.Context, c store.Commit) (r store.Receipt, err error) {
	err = db.tx(ctx, func(tx *sql.Tx) error {
		entry, raise := c.Entry, c.Raise
		if c.Scope != "" {
			s, err := readScope(ctx, tx, c.Scope)
			if err != nil {
				return err
			}
			if c.Judge != nil {
				entry, raise = c.Judge(s)
			} else if s.Version != c.IfScope {
				return store.ErrStale
			}
			if err := db.raise(ctx, tx, s, raise, entry.Time); err != nil {
				return err
			}
		} else if c.Judge != nil {
			entry, _ = c.Judge(scope.Scope{Label: ifc.Bottom()})
		}
		r, err = db.append(ctx, tx, entry)
		return err
	})
	if err != nil {
		return store.Receipt{}, fmt.Errorf("commit: %w", err)
	}
	return r, nil
}

// append writes an entry at the head of the chain. The write lock is held: nobody else has the same head.
func (db *DB) append(ctx context.Context, tx *sql.Tx, e blackbox.Entry) (store.Receipt, error) {
	var hash []byte
	err := tx.QueryRowContext(ctx, "SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1").Scan(&e.Seq, &hash)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return store.Receipt{}, err
	}
	if err == nil && copy(e.Prev[:], hash) != len(e.Prev) {
		return store.Receipt{}, fmt.Errorf("entry %d has no whole hash", e.Seq)
	}
	e.Seq++
	if e.Time.IsZero() {
		e.Time = db.now()
	}
	body := e.Encode()
	r := store.Receipt{Seq: e.Seq, Hash: blackbox.Hash(body)}
	if _, err := tx.ExecContext(ctx, "INSERT INTO entries (seq, body, hash) VALUES (?, ?, ?)", e.Seq, body, r.Hash[:]); err != nil {
		return store.Receipt{}, err
	}
	for _, p := range e.Payloads {
		if _, err := tx.ExecContext(ctx, "INSERT INTO payloads (seq, name, stored, stored_salt, whole_salt) VALUES (?, ?, ?, ?, ?)",
			e.Seq, p.Name, orEmpty(p.Stored), p.StoredSalt, p.WholeSalt); err != nil {
			return store.Receipt{}, err
		}
	}
	return r, nil
}

func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// raise joins a label into a scope and notes its use. The version grows if the label does.
func (db *DB) raise(ctx context.Context, tx *sql.Tx, s scope.Scope, l ifc.Label, at time.Time) error {
	if at.IsZero() {
		at = db.now()
	}
	if s.Label.Covers(l) {
		_, err := tx.ExecContext(ctx, "UPDATE scopes SET used = max(used, ?) WHERE id = ?", at.UnixMicro(), s.ID)
		return err
	}
	text, err := s.Label.Join(l).MarshalText()
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "UPDATE scopes SET used = max(used, ?), label = ?, version = version + 1 WHERE id = ?", at.UnixMicro(), string(text), s.ID)
	return err
}

func readScope(ctx context.Context, q queryer, id scope.ID) (scope.Scope, error) {
	s := scope.Scope{ID: id}
	var text string
	err := q.QueryRowContext(ctx, "SELECT version, label FROM scopes WHERE id = ?", id).Scan(&s.Version, &text)
	if errors.Is(err, sql.ErrNoRows) {
		return s, fmt.Errorf("scope %q: %w", id, store.ErrNotFound)
	}
	if err != nil {
		return s, err
	}
	_ = s.Label.UnmarshalText([]byte(text)) // a damaged label is the top
	return s, nil
}

// Scope implements store.Store. A scope that is there and has not ended is only read.
func (db *DB) Scope(ctx context.Context, o scope.Opening) (scope.Scope, error) {
	if o.ID == "" {
		return scope.Scope{}, errors.New("scope without an id")
	}
	oldest := db.now().Add(-scope.IdleLimit).UnixMicro()
	fresh := func(q queryer) (scope.Scope, bool, error) {
		var used int64
		err := q.QueryRowContext(ctx, "SELECT used FROM scopes WHERE id = ?", o.ID).Scan(&used)
		if errors.Is(err, sql.ErrNoRows) || err == nil && used < oldest && !o.Lasting {
			return scope.Scope{}, false, nil
		} else if err != nil {
			return scope.Scope{}, false, err
		}
		s, err := readScope(ctx, q, o.ID)
		return s, true, err
	}
	s, ok, err := fresh(db.read)
	if err != nil || ok {
		return s, err
	}
	err = db.tx(ctx, func(tx *sql.Tx) error {
		if s, ok, err = fresh(tx); err != nil || ok {
			return err // another process was first
		}
		s, err = db.begin(ctx, tx, o, oldest)
		return err
	})
	return s, err
}

// begin makes a scope, or starts one that has ended anew: under a version that it never had.
func (db *DB) begin(ctx context.Context, tx *sql.Tx, o scope.Opening, oldest int64) (scope.Scope, error) {
	s := scope.Scope{ID: o.ID, Label: ifc.Bottom(), Version: 1}
	if old, err := readScope(ctx, tx, o.ID); err == nil {
		s.Version = old.Version + 1
	} else if !errors.Is(err, store.ErrNotFound) {
		return s, err
	}
	if o.Lineage != "" {
		label, err := inherited(ctx, tx, o, oldest)
		if err != nil {
			return s, err
		}
		s.Label = label
	}
	text, err := s.Label.MarshalText()
	if err != nil {
		return s, err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO scopes (id, version, label, lineage, used) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET version = excluded.version, label = excluded.label, used = excluded.used`,
		o.ID, s.Version, string(text), o.Lineage, db.now().UnixMicro())
	return s, err
}

// inherited joins the labels of all scopes of a lineage that were used within the limit.
func inherited(ctx context.Context, tx *sql.Tx, o scope.Opening, oldest int64) (ifc.Label, error) {
	rows, err := tx.QueryContext(ctx, "SELECT label FROM scopes WHERE lineage = ? AND used >= ? AND id <> ?", o.Lineage, oldest, o.ID)
	if err != nil {
		return ifc.Label{}, err
	}
	defer rows.Close()
	label := ifc.Bottom()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return ifc.Label{}, err
		}
		var l ifc.Label
		_ = l.UnmarshalText([]byte(text)) // a damaged label is the top
		label = label.Join(l)
	}
	return label, rows.Err()
}

// Placeholders implements store.Store.
func (db *DB) Placeholders(ctx context.Context, id scope.ID) ([]scope.Placeholder, error) {
	rows, err := db.read.QueryContext(ctx, "SELECT kind, n, principal, tag, box, objects FROM placeholders WHERE scope = ? ORDER BY kind, n", id)
	if err != nil {
		return nil, fmt.Errorf("placeholders: %w", err)
	}
	defer rows.Close()
	var out []scope.Placeholder
	for rows.Next() {
		var p scope.Placeholder
		var tag []byte
		var objects string
		if err := rows.Scan(&p.Kind, &p.N, &p.Principal, &tag, &p.Box, &objects); err != nil {
			return nil, fmt.Errorf("placeholders: %w", err)
		}
		copy(p.Tag[:], tag)
		if err := json.Unmarshal([]byte(objects), &p.Objects); err != nil {
			return nil, fmt.Errorf("placeholders: %w", err)
		}
		out = append(out, p)
	}
	return out, rows.Err()
}
