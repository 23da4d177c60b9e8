package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"navra/internal/ifc"
	"navra/internal/scope"
	"navra/internal/store"
)

var _ store.Store = (*DB)(nil)

// Commit implements store.Store.
func (db *DB) Commit(ctx context.Context, c store.Commit) (store.Receipt, error) {
	if db.group == nil {
		return store.Receipt{}, errReadOnly
	}
	return db.group.Commit(ctx, c)
}

var errReadOnly = errors.New("the store was opened to be read only")

const scopeQuery = "SELECT version, label, used FROM scopes WHERE id = ?"

func scanScope(id scope.ID, row interface{ Scan(...any) error }) (u store.Used, err error) {
	u.ID = id
	var text string
	var used int64
	if err := row.Scan(&u.Version, &text, &used); errors.Is(err, sql.ErrNoRows) {
		return u, store.ErrNotFound
	} else if err != nil {
		return u, err
	}
	u.At = time.UnixMicro(used)
	_ = u.Label.UnmarshalText([]byte(text)) // a damaged label is the top
	return u, nil
}

// Scope implements store.Store. A scope that is there and has not ended is only read.
func (db *DB) Scope(ctx context.Context, o scope.Opening) (scope.Scope, error) {
	if o.ID == "" {
		return scope.Scope{}, errors.New("scope without an id")
	}
	oldest := db.now().Add(-scope.IdleLimit)
	fresh := func(u store.Used, err error) (scope.Scope, bool, error) {
		if errors.Is(err, store.ErrNotFound) || err == nil && u.At.Before(oldest) && !o.Lasting {
			return scope.Scope{}, false, nil
		}
		return u.Scope, err == nil, err
	}
	s, ok, err := fresh(db.scope(ctx, o.ID))
	if err != nil || ok {
		return s, err
	}
	err = db.tx(ctx, func(tx *sql.Tx) error {
		u, err := scanScope(o.ID, tx.QueryRowContext(ctx, scopeQuery, o.ID))
		if s, ok, err = fresh(u, err); err != nil || ok {
			return err // another process was first
		}
		s, err = db.begin(ctx, tx, o, oldest.UnixMicro())
		return err
	})
	return s, err
}

// scope reads a scope as it was committed last.
func (db *DB) scope(ctx context.Context, id scope.ID) (u store.Used, err error) {
	err = db.ask(ctx, scopeQuery, func(q *sql.Stmt) (err error) {
		u, err = scanScope(id, q.QueryRowContext(ctx, id))
		return err
	})
	return u, err
}

// begin makes a scope, or starts one that has ended anew: under a version that it never had.
func (db *DB) begin(ctx context.Context, tx *sql.Tx, o scope.Opening, oldest int64) (scope.Scope, error) {
	s := scope.Scope{ID: o.ID, Label: ifc.Bottom(), Version: 1}
	if old, err := scanScope(o.ID, tx.QueryRowContext(ctx, scopeQuery, o.ID)); err == nil {
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
func (db *DB) Placeholders(ctx context.Context, id scope.ID) (out []scope.Placeholder, err error) {
	err = db.ask(ctx, "SELECT kind, n, principal, tag, box, objects FROM placeholders WHERE scope = ? ORDER BY kind, n", func(q *sql.Stmt) (err error) {
		out, err = scanPlaceholders(q.QueryContext(ctx, id))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("placeholders: %w", err)
	}
	return out, nil
}

func scanPlaceholders(rows *sql.Rows, err error) (out []scope.Placeholder, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var p scope.Placeholder
		var tag []byte
		var objects string
		if err := rows.Scan(&p.Kind, &p.N, &p.Principal, &tag, &p.Box, &objects); err != nil {
			return nil, err
		}
		copy(p.Tag[:], tag)
		if err := json.Unmarshal([]byte(objects), &p.Objects); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, rows.Err()
}
