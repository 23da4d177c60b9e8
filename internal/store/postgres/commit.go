package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/scope"
	"navra/internal/store"
)

var (
	_ store.Store = (*DB)(nil)
	_ store.Log   = (*DB)(nil)
)

// A draft is what a transaction is about to write. It starts as what the database holds, under the head lock.
type draft struct {
	now    func() time.Time
	seq    blackbox.Seq
	hash   [32]byte
	scopes map[scope.ID]*held

	seqs         []int64
	bodies       [][]byte
	hashes       [][]byte
	payloadSeqs  []int64
	payloadNames []string
	payloads     [3][][]byte // stored, stored salt, whole salt
}

// A held is a scope as the commits before have left it.
type held struct {
	scope.Scope
	text  string // of the label
	used  int64
	dirty bool
}

// write writes a group in one transaction of two round trips: what is there, under the lock, and what comes to it.
func (db *DB) write(ctx context.Context, group []*waiting) ([]outcome, error) {
	conn, err := db.commits.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release() // one that is left in a transaction is closed
	d, err := db.begin(ctx, conn, group)
	if err != nil {
		return nil, err
	}
	out := make([]outcome, len(group))
	for i, w := range group {
		out[i] = d.judge(w.commit)
	}
	if len(d.seqs) == 0 {
		_, err := conn.Exec(ctx, "ROLLBACK")
		return out, err
	}
	return out, db.finish(ctx, conn, d)
}

// begin takes the head lock and reads the head and the scopes of a group. Each statement sees what was committed before it began.
func (db *DB) begin(ctx context.Context, conn *pgxpool.Conn, group []*waiting) (*draft, error) {
	d := &draft{now: db.now, scopes: map[scope.ID]*held{}}
	ids := []string{}
	for _, w := range group {
		if id := w.commit.Scope; id != "" && d.scopes[id] == nil && storable(string(id)) {
			d.scopes[id] = &held{}
			ids = append(ids, string(id))
		}
	}
	clear(d.scopes) // until they are found
	var b pgx.Batch
	b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
	b.Queue(settings)
	b.Queue(lock, db.head())
	b.Queue(db.in("SELECT seq, hash FROM @entries ORDER BY seq DESC LIMIT 1")).QueryRow(func(row pgx.Row) error {
		var seq int64
		var hash []byte
		if err := row.Scan(&seq, &hash); errors.Is(err, pgx.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		if copy(d.hash[:], hash) != len(d.hash) {
			return fmt.Errorf("entry %d has no whole hash", seq)
		}
		d.seq = blackbox.Seq(seq)
		return nil
	})
	b.Queue(db.in("SELECT id, version, label FROM @scopes WHERE id = ANY($1)"), ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			s, text, err := scanScope(rows)
			if err != nil {
				return err
			}
			d.scopes[s.ID] = &held{Scope: s, text: text}
		}
		return rows.Err()
	})
	return d, conn.SendBatch(ctx, &b).Close()
}

// judge adds one commit to the draft, or refuses it and leaves the draft as it was.
func (d *draft) judge(c store.Commit) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = outcome{panicked: p}
		}
	}()
	entry, raise := c.Entry, c.Raise
	s := d.scopes[c.Scope]
	switch {
	case c.Scope != "" && s == nil:
		return outcome{err: fmt.Errorf("scope %q: %w", c.Scope, store.ErrNotFound)}
	case c.Judge != nil && s == nil:
		entry, _ = c.Judge(scope.Scope{Label: ifc.Bottom()})
	case c.Judge != nil:
		entry, raise = c.Judge(s.Scope)
	case s != nil && s.Version != c.IfScope:
		return outcome{err: store.ErrStale}
	}
	if err := checkPayloads(entry.Payloads); err != nil {
		return outcome{err: err}
	}
	if entry.Time.IsZero() {
		entry.Time = d.now()
	}
	if s != nil {
		if err := s.raise(raise, entry.Time); err != nil {
			return outcome{err: err}
		}
	}
	return outcome{receipt: d.append(entry)}
}

// raise joins a label into a scope and notes its use. The version grows if the label does.
func (s *held) raise(l ifc.Label, at time.Time) error {
	if !s.Label.Covers(l) {
		joined := s.Label.Join(l)
		text, err := joined.MarshalText()
		if err != nil {
			return err
		}
		if !storable(string(text)) {
			return fmt.Errorf("scope %q: its label cannot be stored as text", s.ID)
		}
		s.Label, s.text, s.Version = joined, string(text), s.Version+1
	}
	s.used, s.dirty = max(s.used, at.UnixMicro()), true
	return nil
}

func (d *draft) append(e blackbox.Entry) store.Receipt {
	e.Seq, e.Prev = d.seq+1, d.hash
	body := e.Encode()
	d.seq, d.hash = e.Seq, blackbox.Hash(body)
	r := store.Receipt{Seq: d.seq, Hash: d.hash}
	d.seqs, d.bodies, d.hashes = append(d.seqs, int64(r.Seq)), append(d.bodies, body), append(d.hashes, r.Hash[:])
	for _, p := range e.Payloads {
		d.payloadSeqs, d.payloadNames = append(d.payloadSeqs, int64(r.Seq)), append(d.payloadNames, p.Name)
		for i, b := range [][]byte{p.Stored, p.StoredSalt, p.WholeSalt} {
			d.payloads[i] = append(d.payloads[i], orEmpty(b))
		}
	}
	return r
}

// finish writes a draft and commits.
func (db *DB) finish(ctx context.Context, conn *pgxpool.Conn, d *draft) error {
	var b pgx.Batch
	b.Queue(db.in("INSERT INTO @entries (seq, body, hash) SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[])"), d.seqs, d.bodies, d.hashes)
	if len(d.payloadSeqs) > 0 {
		b.Queue(db.in("INSERT INTO @payloads (seq, name, stored, stored_salt, whole_salt) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bytea[], $5::bytea[])"),
			d.payloadSeqs, d.payloadNames, d.payloads[0], d.payloads[1], d.payloads[2])
	}
	if ids, versions, labels, used := d.raised(); len(ids) > 0 {
		b.Queue(db.in(`UPDATE @scopes AS s SET version = n.version, label = n.label, used = greatest(s.used, n.used)
			FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[]) AS n (id, version, label, used) WHERE s.id = n.id`), ids, versions, labels, used)
	}
	committed := false
	b.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		committed = tag.String() == "COMMIT" // a transaction that was aborted says ROLLBACK
		return nil
	})
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	if !committed {
		return errors.New("the server rolled the transaction back")
	}
	return nil
}

func (d *draft) raised() (ids []string, versions []int64, labels []string, used []int64) {
	for id, s := range d.scopes {
		if s.dirty {
			ids, versions, labels, used = append(ids, string(id)), append(versions, int64(s.Version)), append(labels, s.text), append(used, s.used)
		}
	}
	return ids, versions, labels, used
}

// checkPayloads refuses what the server would: in a group it would refuse the others with it.
func checkPayloads(ps []blackbox.Payload) error {
	for i, p := range ps {
		if !storable(p.Name) {
			return fmt.Errorf("payload %q: the name cannot be stored as text", p.Name)
		}
		for _, q := range ps[:i] {
			if p.Name == q.Name {
				return fmt.Errorf("payload %q is there twice", p.Name)
			}
		}
	}
	return nil
}

// storable reports whether PostgreSQL takes s as text.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
