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
	"navra/internal/scope"
	"navra/internal/store"
)

var (
	_ store.Store = (*DB)(nil)
	_ store.Log   = (*DB)(nil)
)

// groupTimeout bounds one transaction: a server that does not answer denies, and does not hang who waits.
const groupTimeout = 15 * time.Second

// Commit implements store.Store. An error after the connection was lost while the transaction was being committed may stand for a commit
// that is there.
func (db *DB) Commit(ctx context.Context, c store.Commit) (store.Receipt, error) {
	if db.readOnly {
		return store.Receipt{}, errReadOnly
	}
	return db.group.Commit(ctx, c)
}

// writeGroup writes a group in one transaction of two round trips: what is there, under the lock, and what comes to it.
func (db *DB) writeGroup(commits []store.Commit) ([]store.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	results, err := db.write(ctx, commits)
	if err != nil {
		return nil, db.clean(err)
	}
	return results, nil
}

func (db *DB) write(ctx context.Context, commits []store.Commit) ([]store.Result, error) {
	conn, err := db.commits.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release() // one that is left in a transaction is closed
	before, at, scopes, err := db.begin(ctx, conn, commits)
	if err != nil {
		return nil, err
	}
	group := db.gatherer.Gather(before, db.tail.Hold(before.Head, at, commits, db.now()), func(id scope.ID) (store.Used, error) {
		if s, ok := scopes[id]; ok {
			return s, nil
		}
		return store.Used{}, store.ErrNotFound
	})
	if len(group.Entries) == 0 {
		_, err := conn.Exec(ctx, "ROLLBACK")
		return db.tail.Wrote(group), err
	}
	if err = db.finish(ctx, conn, group); err != nil {
		return nil, err
	}
	results := db.tail.Wrote(group)
	if db.committed != nil {
		err = db.committed(group.Head)
	}
	return results, err
}

// begin takes the head lock and reads the head, the hash of the entry that is known, and the scopes of a group. Each statement sees what was committed before it began.
func (db *DB) begin(ctx context.Context, conn *pgxpool.Conn, commits []store.Commit) (before store.Before, at [32]byte, scopes map[scope.ID]store.Used, err error) {
	before.Generation = 1
	before.Controls = func() (store.Controls, error) { return db.controls(ctx, conn) } // of the pool's others all may wait for the lock
	scopes = map[scope.ID]store.Used{}
	ids, seen := []string{}, map[scope.ID]bool{}
	for _, c := range commits {
		if id := c.Scope; id != "" && !seen[id] && storable(string(id)) {
			seen[id] = true
			ids = append(ids, string(id))
		}
	}
	var b pgx.Batch
	b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
	b.Queue(settings)
	b.Queue(lock, db.head())
	b.Queue(db.in("SELECT seq, hash, (SELECT value FROM @kept WHERE key = 'generation') FROM @entries ORDER BY seq DESC LIMIT 1")).QueryRow(func(row pgx.Row) error {
		var seq int64
		var hash, kept []byte
		if err := row.Scan(&seq, &hash, &kept); errors.Is(err, pgx.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		if copy(before.Head.Hash[:], hash) != len(before.Head.Hash) {
			return fmt.Errorf("entry %d has no whole hash", seq)
		}
		before.Head.Seq = blackbox.Seq(seq)
		before.Generation, err = store.ParseGeneration(kept)
		return err
	})
	b.Queue(db.in("SELECT hash FROM @entries WHERE seq = $1"), int64(db.tail.At())).QueryRow(func(row pgx.Row) error {
		var hash []byte
		if err := row.Scan(&hash); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if len(hash) == len(at) {
			copy(at[:], hash)
		}
		return nil
	})
	b.Queue(db.in("SELECT id, version, label, used FROM @scopes WHERE id = ANY($1)"), ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			s, err := scanUsed(rows)
			if err != nil {
				return err
			}
			scopes[s.ID] = s
		}
		return rows.Err()
	})
	err = conn.SendBatch(ctx, &b).Close()
	return before, at, scopes, err
}

func scanUsed(rows pgx.Rows) (u store.Used, err error) {
	var id, text string
	var version, used int64
	if err := rows.Scan(&id, &version, &text, &used); err != nil {
		return u, err
	}
	u.ID, u.Version, u.At = scope.ID(id), scope.Version(version), time.UnixMicro(used)
	_ = u.Label.UnmarshalText([]byte(text)) // a damaged label is the top
	return u, nil
}

// insertAll inserts entries, and has the transaction fail where the table did not take all of them, or where something may take them away again: navra has no
// triggers and no rules. The commit is on its way behind it.
const insertAll = `WITH taken AS (INSERT INTO @entries (seq, body, hash) SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) RETURNING seq)
	SELECT 1 / (count(*) = cardinality($1::bigint[])
		AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE NOT tgisinternal AND tgrelid IN ('@entries'::regclass, '@payloads'::regclass, '@scopes'::regclass, '@kept'::regclass))
		AND NOT EXISTS (SELECT FROM pg_catalog.pg_rewrite WHERE ev_class IN ('@entries'::regclass, '@payloads'::regclass, '@scopes'::regclass, '@kept'::regclass))
	)::int FROM taken`

// finish writes a group and commits.
func (db *DB) finish(ctx context.Context, conn *pgxpool.Conn, g store.Group) error {
	var b pgx.Batch
	var seqs, payloadSeqs []int64
	var bodies, hashes [][]byte
	var names []string
	var parts [3][][]byte // stored, stored salt, whole salt
	for _, w := range g.Entries {
		seqs, bodies, hashes = append(seqs, int64(w.Seq)), append(bodies, w.Encoded), append(hashes, w.Hash[:])
		for _, p := range w.Payloads {
			payloadSeqs, names = append(payloadSeqs, int64(w.Seq)), append(names, p.Name)
			for i, part := range [][]byte{p.Stored, p.StoredSalt, p.WholeSalt} {
				parts[i] = append(parts[i], orEmpty(part))
			}
		}
	}
	b.Queue(db.in(insertAll), seqs, bodies, hashes).QueryRow(func(row pgx.Row) error {
		var one int
		return row.Scan(&one)
	})
	if len(payloadSeqs) > 0 {
		b.Queue(db.in("INSERT INTO @payloads (seq, name, stored, stored_salt, whole_salt) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bytea[], $5::bytea[])"),
			payloadSeqs, names, parts[0], parts[1], parts[2])
	}
	if len(g.Scopes) > 0 {
		var ids, labels []string
		var versions, used []int64
		for _, s := range g.Scopes {
			text, err := s.Label.MarshalText()
			if err != nil {
				return err
			}
			ids, labels, versions, used = append(ids, string(s.ID)), append(labels, string(text)), append(versions, int64(s.Version)), append(used, s.At.UnixMicro())
		}
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

// checkPayloads refuses what the server would: in a group it would refuse the others with it.
func checkPayloads(e *blackbox.Entry) error {
	ps := e.Payloads
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
