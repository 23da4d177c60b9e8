package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"navra/internal/ifc"
	"navra/internal/scope"
)

// Scope implements store.Store. A scope that is there and has not ended is only read; one that begins does so under the head lock.
func (db *DB) Scope(ctx context.Context, o scope.Opening) (scope.Scope, error) {
	if o.ID == "" {
		return scope.Scope{}, errors.New("scope without an id")
	}
	oldest := db.now().Add(-scope.IdleLimit).UnixMicro()
	reading, end := context.WithTimeout(ctx, readTimeout)
	s, ok, err := db.alive(reading, db.pool, o, oldest)
	end()
	if err == nil && !ok {
		err = db.tx(ctx, db.head(), func(tx pgx.Tx) error {
			if s, ok, err = db.alive(ctx, tx, o, oldest); err != nil || ok {
				return err // another replica was first
			}
			s, err = db.start(ctx, tx, o, s.Version, oldest)
			return err
		})
	}
	if err != nil {
		return scope.Scope{}, fmt.Errorf("scope %q: %w", o.ID, db.clean(err))
	}
	return s, nil
}

// alive reads a scope. ok is false where it is not there, or has ended: then its version is the last that it had.
func (db *DB) alive(ctx context.Context, q queryer, o scope.Opening, oldest int64) (s scope.Scope, ok bool, err error) {
	var version, used int64
	var text string
	err = q.QueryRow(ctx, db.in("SELECT version, label, used FROM @scopes WHERE id = $1"), string(o.ID)).Scan(&version, &text, &used)
	if errors.Is(err, pgx.ErrNoRows) {
		return s, false, nil
	} else if err != nil {
		return s, false, err
	}
	s.ID, s.Version = o.ID, scope.Version(version)
	_ = s.Label.UnmarshalText([]byte(text)) // a damaged label is the top
	return s, used >= oldest || o.Lasting, nil
}

// start makes a scope, or starts one that has ended anew: under a version that it never had.
func (db *DB) start(ctx context.Context, tx pgx.Tx, o scope.Opening, last scope.Version, oldest int64) (scope.Scope, error) {
	s := scope.Scope{ID: o.ID, Label: ifc.Bottom(), Version: last + 1}
	if o.Lineage != "" {
		label, err := db.inherited(ctx, tx, o, oldest)
		if err != nil {
			return s, err
		}
		s.Label = label
	}
	text, err := s.Label.MarshalText()
	if err != nil {
		return s, err
	}
	_, err = tx.Exec(ctx, db.in(`INSERT INTO @scopes (id, version, label, lineage, used) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (id) DO UPDATE SET version = excluded.version, label = excluded.label, used = excluded.used`),
		string(o.ID), int64(s.Version), string(text), o.Lineage, db.now().UnixMicro())
	return s, err
}

// inherited joins the labels of all scopes of a lineage that were used within the limit.
func (db *DB) inherited(ctx context.Context, tx pgx.Tx, o scope.Opening, oldest int64) (ifc.Label, error) {
	rows, err := tx.Query(ctx, db.in("SELECT label FROM @scopes WHERE lineage = $1 AND used >= $2 AND id <> $3"), o.Lineage, oldest, string(o.ID))
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
	ctx, end := context.WithTimeout(ctx, readTimeout)
	defer end()
	rows, _ := db.pool.Query(ctx, db.in("SELECT kind, n, principal, tag, box, objects FROM @placeholders WHERE scope = $1 ORDER BY kind, n"), string(id))
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p scope.Placeholder, err error) {
		var tag []byte
		var objects string
		if err := row.Scan(&p.Kind, &p.N, &p.Principal, &tag, &p.Box, &objects); err != nil {
			return p, err
		}
		copy(p.Tag[:], tag)
		return p, json.Unmarshal([]byte(objects), &p.Objects)
	})
	if err != nil {
		return nil, fmt.Errorf("placeholders: %w", db.clean(err))
	}
	return out, nil
}

// AddPlaceholders implements store.Store. Numbers are given under a lock of the scope's own.
func (db *DB) AddPlaceholders(ctx context.Context, id scope.ID, ps []scope.Placeholder) ([]scope.Placeholder, error) {
	out := slices.Clone(ps)
	err := db.tx(ctx, db.lockKey("placeholders\x00"+string(id)), func(tx pgx.Tx) error {
		for i := range out {
			if err := db.addPlaceholder(ctx, tx, id, &out[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("placeholders: %w", err)
	}
	return out, nil
}

func (db *DB) addPlaceholder(ctx context.Context, tx pgx.Tx, id scope.ID, p *scope.Placeholder) error {
	var objects string
	err := tx.QueryRow(ctx, db.in("SELECT n, objects FROM @placeholders WHERE scope = $1 AND kind = $2 AND tag = $3"), string(id), p.Kind, p.Tag[:]).Scan(&p.N, &objects)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		if err := tx.QueryRow(ctx, db.in("SELECT coalesce(max(n), 0) + 1 FROM @placeholders WHERE scope = $1 AND kind = $2"), string(id), p.Kind).Scan(&p.N); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		var had []scope.Object
		if err := json.Unmarshal([]byte(objects), &had); err != nil {
			return err
		}
		for _, o := range p.Objects {
			if !slices.Contains(had, o) {
				had = append(had, o)
			}
		}
		p.Objects = had
	}
	text, err := json.Marshal(p.Objects)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, db.in(`INSERT INTO @placeholders (scope, kind, n, principal, tag, box, objects) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (scope, kind, n) DO UPDATE SET objects = excluded.objects`), string(id), p.Kind, p.N, p.Principal, p.Tag[:], orEmpty(p.Box), string(text))
	return err
}
