package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/scope"
	"navra/internal/store"
)

// The statements of a group. They are kept prepared on the one connection that writes, beneath database/sql, which costs
// more than they do.
var groupStatements = [...]string{
	begin:    "BEGIN IMMEDIATE", // the head lock, over all processes
	commit:   "COMMIT",
	rollback: "ROLLBACK",
	head:     "SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1",
	hashAt:   "SELECT hash FROM entries WHERE seq = ?",
	readOne:  scopeQuery,
	insert:   "INSERT INTO entries (seq, body, hash, payloads) VALUES (?, ?, ?, ?)",
	update:   "UPDATE scopes SET version = ?, label = ?, used = max(used, ?) WHERE id = ?",
}

const (
	begin = iota
	commit
	rollback
	head
	hashAt
	readOne
	insert
	update
	groupStatementCount
)

// A groupConn is the writing connection with its statements.
type groupConn struct {
	conn  driver.Conn
	stmts [groupStatementCount]driver.Stmt
}

// writeGroup writes a group in one transaction. It runs on one goroutine at a time.
func (db *DB) writeGroup(commits []store.Commit) (results []store.Result, err error) {
	if err := db.there(); err != nil {
		return nil, err
	}
	conn, err := db.write.Conn(context.Background())
	if err != nil {
		return nil, err
	}
	defer conn.Close() // what is wrong with it is known by then
	var failed error
	err = conn.Raw(func(dc any) error {
		g, err := db.groupOn(dc.(driver.Conn))
		if err == nil {
			results, err = g.write(commits, db)
		}
		if failed = err; stale(err) {
			g.close()
			db.onGroup = nil
			return driver.ErrBadConn // so that it is closed
		}
		return err
	})
	if failed != nil {
		return nil, db.heard(failed)
	}
	return results, err
}

// groupOn returns the statements on a connection, preparing them where it is another than last time.
func (db *DB) groupOn(c driver.Conn) (*groupConn, error) {
	if db.onGroup != nil && db.onGroup.conn == c {
		return db.onGroup, nil
	}
	g := &groupConn{conn: c}
	for i, text := range groupStatements {
		var err error
		if g.stmts[i], err = c.Prepare(text); err != nil {
			g.close()
			return g, err
		}
	}
	db.onGroup = g
	return g, nil
}

// close lets go of the statements, before their connection is closed: it would stay half open, and may not be used any more. What is wrong
// with it is known by then.
func (g *groupConn) close() {
	if g == nil {
		return
	}
	for i, s := range g.stmts {
		if s != nil {
			_ = s.Close()
			g.stmts[i] = nil
		}
	}
}

func (g *groupConn) write(commits []store.Commit, db *DB) (_ []store.Result, err error) {
	if err := g.exec(begin); err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done {
			err = errors.Join(err, g.exec(rollback))
		}
	}()
	top, err := g.head()
	if err != nil {
		return nil, err
	}
	at, err := g.hashOf(top, db.tail.At())
	if err != nil {
		return nil, err
	}
	group := store.Gather(top, db.tail.Hold(top, at, commits, db.now()), g.scope, func(blackbox.Entry) error { return nil }, db.now)
	for _, w := range group.Entries {
		if err := g.exec(insert, int64(w.Seq), w.Encoded, w.Hash[:], encodePayloads(w.Payloads)); err != nil {
			return nil, err
		}
	}
	for _, s := range group.Scopes {
		text, err := s.Label.MarshalText()
		if err != nil {
			return nil, err
		}
		if err := g.exec(update, int64(s.Version), string(text), s.At.UnixMicro(), string(s.ID)); err != nil {
			return nil, err
		}
	}
	if err := g.exec(commit); err != nil {
		return nil, err
	}
	done = true
	results := db.tail.Wrote(group)
	if db.committed != nil && len(group.Entries) > 0 {
		err = db.committed(group.Head)
	}
	return results, err
}

func (g *groupConn) exec(which int, args ...driver.Value) error {
	_, err := g.stmts[which].(driver.StmtExecContext).ExecContext(context.Background(), named(args))
	return err
}

func named(args []driver.Value) []driver.NamedValue {
	out := make([]driver.NamedValue, len(args))
	for i, a := range args {
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	return out
}

// row reads the one row of a query; ok is false where there is none.
func (g *groupConn) row(which int, to []driver.Value, args ...driver.Value) (ok bool, err error) {
	rows, err := g.stmts[which].(driver.StmtQueryContext).QueryContext(context.Background(), named(args))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if err := rows.Next(to); errors.Is(err, io.EOF) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return true, nil
}

func (g *groupConn) head() (r store.Receipt, err error) {
	var to [2]driver.Value
	ok, err := g.row(head, to[:])
	if err != nil || !ok {
		return r, err
	}
	seq, _ := to[0].(int64)
	hash, _ := to[1].([]byte)
	if r.Seq = blackbox.Seq(seq); copy(r.Hash[:], hash) != len(r.Hash) {
		return r, fmt.Errorf("entry %d has no whole hash", seq)
	}
	return r, nil
}

// hashOf returns the hash of the entry of a number, zero where it is not there.
func (g *groupConn) hashOf(top store.Receipt, n blackbox.Seq) ([32]byte, error) {
	if n == 0 || n == top.Seq {
		return top.Hash, nil
	}
	var to [1]driver.Value
	if ok, err := g.row(hashAt, to[:], int64(n)); err != nil || !ok {
		return [32]byte{}, err
	}
	hash, _ := to[0].([]byte)
	return whole(hash), nil
}

func (g *groupConn) scope(id scope.ID) (u store.Used, err error) {
	var to [3]driver.Value
	u.ID = id
	ok, err := g.row(readOne, to[:], string(id))
	if err != nil {
		return u, err
	}
	if !ok {
		return u, store.ErrNotFound
	}
	version, _ := to[0].(int64)
	text, _ := to[1].(string)
	at, _ := to[2].(int64)
	u.Version, u.At, u.Label = scope.Version(version), time.UnixMicro(at), ifc.Label{}
	_ = u.Label.UnmarshalText([]byte(text)) // a damaged label is the top
	return u, nil
}

// encodePayloads packs what payloads hold besides the commitments: for each its name, stored form and both salts, each as a length (unsigned
// LEB128) and bytes. nil for none.
func encodePayloads(list []blackbox.Payload) []byte {
	var b []byte
	for _, p := range list {
		for _, part := range [][]byte{[]byte(p.Name), p.Stored, p.StoredSalt, p.WholeSalt} {
			b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
		}
	}
	return b
}

var errPayloads = errors.New("the payloads are damaged")

func decodePayloads(b []byte) (out []blackbox.Payload, err error) {
	part := func() []byte {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			err = errPayloads
			return nil
		}
		p := b[size : size+int(n)]
		b = b[size+int(n):]
		return p
	}
	for len(b) > 0 && err == nil {
		out = append(out, blackbox.Payload{Name: string(part()), Stored: part(), StoredSalt: part(), WholeSalt: part()})
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}
