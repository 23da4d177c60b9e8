package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"modernc.org/sqlite"

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
	head:     "SELECT seq, hashes, (SELECT value FROM kept WHERE key = 'generation') FROM entries ORDER BY seq DESC LIMIT 1",
	hashAt:   "SELECT seq, hashes FROM entries WHERE seq >= ? ORDER BY seq LIMIT 1",
	readOne:  scopeQuery,
	insert:   "INSERT OR ABORT INTO entries (seq, bodies, hashes, payloads) VALUES (?, ?, ?, ?)", // whatever a table made anew says of conflicts
	update:   "UPDATE OR ABORT scopes SET version = ?, label = ?, used = max(used, ?) WHERE id = ?",
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
	args  []driver.NamedValue      // of the statement that runs
	files [len(beside)]os.FileInfo // that it has open beside the database
	pack  packer

	// What it knows of the database at a version: SQLite gives it another with each commit, of this connection or of anyone.
	known   bool
	version uint32
	top     store.Before
	scopes  map[scope.ID]store.Used
}

// maxScopes is how many scopes are remembered.
const maxScopes = 4096

// writeGroup writes a group in one transaction. It runs on one goroutine at a time.
func (db *DB) writeGroup(commits []store.Commit) (results []store.Result, err error) {
	if err := db.there(); err != nil {
		return nil, err
	}
	conn, err := db.writer(context.Background(), time.Now())
	if err != nil {
		return nil, troubled(err)
	}
	defer conn.Close() // what is wrong with it is known by then
	var failed error
	began := time.Now()
	err = conn.Raw(func(dc any) error {
		g, err := db.groupOn(dc.(driver.Conn))
		if err == nil {
			err = db.together()
		}
		if err == nil {
			results, err = g.write(commits, db)
		}
		if failed = db.waited(began, err); stale(err) {
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
	for i, end := range beside { // to prepare is to read, which has opened them
		g.files[i], _ = os.Stat(db.path + end)
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
	if err := g.recall(db); err != nil {
		return nil, err
	}
	top := g.top
	at, err := g.hashOf(top.Head, db.tail.At())
	if err != nil {
		return nil, err
	}
	group := db.gatherer.Gather(top, db.tail.Hold(top.Head, at, commits, db.now()), g.scope)
	if err := g.put(group); err != nil {
		return nil, err
	}
	if err := g.exec(commit); err != nil {
		return nil, err
	}
	done = true
	results := db.tail.Wrote(group)
	db.recent.add(top.Head.Seq, group.Entries)
	g.remember(group)
	if db.committed != nil && len(group.Entries) > 0 {
		err = db.committed(group.Head)
	}
	return results, err
}

// put writes the rows of a group.
func (g *groupConn) put(group store.Group) error {
	for list := range slices.Chunk(group.Entries, maxRow) {
		r := g.pack.pack(list)
		if err := g.exec(insert, r.seq, r.bodies, r.hashes, orNull(r.payloads)); err != nil {
			return err
		}
	}
	for _, s := range group.Scopes {
		text, err := s.Label.MarshalText()
		if err != nil {
			return err
		}
		if err := g.exec(update, int64(s.Version), string(text), s.At.UnixMicro(), string(s.ID)); err != nil {
			return err
		}
	}
	return nil
}

// recall is called when a transaction has begun. What was remembered holds where nothing was committed since. Until remember is called
// nothing is known again.
func (g *groupConn) recall(db *DB) error {
	version, err := g.conn.(sqlite.FileControl).FileControlDataVersion("main")
	if err != nil {
		return err
	}
	was := g.known && g.version == version
	g.known = false
	if was {
		return nil
	}
	g.scopes = map[scope.ID]store.Used{}
	g.top, err = g.before(db)
	return err
}

// remember takes what a group has left behind, once it is committed.
func (g *groupConn) remember(group store.Group) {
	version, err := g.conn.(sqlite.FileControl).FileControlDataVersion("main")
	for _, s := range group.Scopes {
		g.scopes[s.ID] = s
	}
	if len(g.scopes) > maxScopes {
		clear(g.scopes)
	}
	g.top.Head, g.version, g.known = group.Head, version, err == nil
}

// orNull is a column's bytes, NULL for none.
func orNull(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

func (g *groupConn) exec(which int, args ...driver.Value) error {
	_, err := g.stmts[which].(driver.StmtExecContext).ExecContext(context.Background(), g.named(args))
	return err
}

func (g *groupConn) named(args []driver.Value) []driver.NamedValue {
	g.args = g.args[:0]
	for i, a := range args {
		g.args = append(g.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return g.args
}

// row reads the one row of a query; ok is false where there is none.
func (g *groupConn) row(which int, to []driver.Value, args ...driver.Value) (ok bool, err error) {
	rows, err := g.stmts[which].(driver.StmtQueryContext).QueryContext(context.Background(), g.named(args))
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

// before reads the head and the generation, in one row: what operators have said has an entry, so that without one nothing was said.
func (g *groupConn) before(db *DB) (b store.Before, err error) {
	b.Generation = 1
	b.Controls = func() (store.Controls, error) { return db.Controls(context.Background()) } // over another connection: nobody writes now
	var to [3]driver.Value
	ok, err := g.row(head, to[:])
	if err != nil || !ok {
		return b, err
	}
	seq, ok := to[0].(int64)
	if !ok {
		return b, errNoNumber
	}
	kept, _ := to[2].([]byte)
	b.Head.Seq = blackbox.Seq(seq)
	if b.Head.Hash, err = lastHash(raw(to[1])); err != nil {
		return b, fmt.Errorf("entry %d: %w", seq, err)
	}
	b.Generation, err = store.ParseGeneration(kept)
	return b, err
}

// hashOf returns the hash of the entry of a number, zero where it is not there.
func (g *groupConn) hashOf(top store.Receipt, n blackbox.Seq) ([32]byte, error) {
	if n == 0 || n == top.Seq {
		return top.Hash, nil
	}
	var to [2]driver.Value
	if ok, err := g.row(hashAt, to[:], int64(n)); err != nil || !ok {
		return [32]byte{}, err
	}
	seq, ok := to[0].(int64)
	if !ok {
		return [32]byte{}, errNoNumber
	}
	return hashIn(seq, raw(to[1]), n), nil
}

func (g *groupConn) scope(id scope.ID) (u store.Used, err error) {
	if u, ok := g.scopes[id]; ok {
		return u, nil
	}
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
	g.scopes[id] = u
	return u, nil
}

// appendPayloads packs what payloads hold besides the commitments: for each its name, stored form and both salts, each as a length (unsigned
// LEB128) and bytes.
func appendPayloads(b []byte, list []blackbox.Payload) []byte {
	for _, p := range list {
		b = append(binary.AppendUvarint(b, uint64(len(p.Name))), p.Name...)
		for _, part := range [...][]byte{p.Stored, p.StoredSalt, p.WholeSalt} {
			b = appendPart(b, part)
		}
	}
	return b
}

var errPayloads = errors.New("the payloads are damaged")

// nameOf is a payload's name; the usual ones are not made anew.
func nameOf(b []byte) string {
	for _, name := range [...]string{"arguments", "result"} {
		if string(b) == name {
			return name
		}
	}
	return string(b)
}

// decodePayloads takes apart what appendPayloads packs, into room, which is empty, as far as it goes.
func decodePayloads(b []byte, room []blackbox.Payload) (out []blackbox.Payload, err error) {
	part := func() (p []byte) {
		var ok bool
		if p, b, ok = cutPart(b); !ok {
			err = errPayloads
		}
		return p
	}
	out = room
	for len(b) > 0 && err == nil {
		if len(out) == blackbox.MaxPayloads {
			return nil, errPayloads
		}
		out = append(out, blackbox.Payload{Name: nameOf(part()), Stored: part(), StoredSalt: part(), WholeSalt: part()})
	}
	if err != nil || len(out) == 0 {
		return nil, err
	}
	return slices.Clip(out), nil
}
