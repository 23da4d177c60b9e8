package witness

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"slices"
	"testing"

	"navra/internal/blackbox"
)

// A shared is a row of SQLite that several entries share, taken apart as docs/blackbox.md says.
type shared struct {
	seq                    int64 // of its last entry
	bodies, hashes, parts  [][]byte
	beyond, packed, hashed []byte // what is put behind the parts, in the place of all that is packed, and of all hashes
}

// together puts n entries into each row, of those that have one each.
func (f *file) together(t *testing.T, n int) {
	t.Helper()
	f.raw(t, func(db *sql.DB) error {
		rows, err := db.Query("SELECT seq, bodies, hashes, payloads FROM entries ORDER BY seq")
		if err != nil {
			return err
		}
		defer rows.Close()
		var all []shared
		for i := 0; rows.Next(); i++ {
			if i%n == 0 {
				all = append(all, shared{})
			}
			var body, hash, part []byte
			r := &all[len(all)-1]
			if err := rows.Scan(&r.seq, &body, &hash, &part); err != nil {
				return err
			}
			r.bodies, r.hashes, r.parts = append(r.bodies, body), append(r.hashes, hash), append(r.parts, part)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if _, err := db.Exec("DELETE FROM entries"); err != nil {
			return err
		}
		for _, r := range all {
			if err := r.put(db); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r shared) put(db *sql.DB) error {
	payloads := r.packed
	for _, part := range r.parts {
		if len(r.bodies) == 1 {
			payloads = part
			break
		}
		if r.packed == nil {
			payloads = append(binary.AppendUvarint(payloads, uint64(len(part))), part...)
		}
	}
	hashes := r.hashed
	if hashes == nil {
		hashes = slices.Concat(r.hashes...)
	}
	_, err := db.Exec("INSERT INTO entries (seq, bodies, hashes, payloads) VALUES (?, ?, ?, ?)", r.seq, bytes.Join(r.bodies, []byte("\n")), hashes, append(payloads, r.beyond...))
	return err
}

// The row that is changed has the entries 9 to 16. The one at in is entry 13.
const inRow, in = 8, 4

// row makes an operation that changes it.
func row(what string, at blackbox.Seq, change func(t *testing.T, l *log, r *shared)) operation {
	const done = "a row that several entries share is changed: what belongs to one of them, or which it has"
	return operation{done, what, func(t *testing.T, l *log) {
		f := l.vault.(*file)
		var r shared
		rows := l.rows(t)[inRow : 2*inRow]
		f.together(t, inRow)
		if got := l.verify(t, needsDatabase); !got.OK() || got.Entries != entries {
			t.Fatalf("with rows of %d: %+v", inRow, got)
		}
		checkScript(t, f.path, l.key, Finding{Report: blackbox.Report{Entries: entries}})
		for _, e := range rows {
			r.seq, r.bodies, r.hashes, r.parts = int64(e.Seq), append(r.bodies, e.Encoded), append(r.hashes, e.Hash[:]), append(r.parts, pack(e.Payloads))
		}
		change(t, l, &r)
		f.raw(t, func(db *sql.DB) error {
			if _, err := db.Exec("DELETE FROM entries WHERE seq = ?", 2*inRow); err != nil {
				return err
			}
			return r.put(db)
		})
	}, needsDatabase, at, "SQLite"}
}

func swap(list [][]byte) { list[in-1], list[in] = list[in], list[in-1] }

func rows() []operation {
	return []operation{
		row("a body", 13, func(t *testing.T, _ *log, r *shared) {
			r.bodies[in] = bytes.Replace(r.bodies[in], []byte("allow"), []byte("deny"), 1)
		}),
		row("a line more in a body", 13, func(_ *testing.T, _ *log, r *shared) { r.bodies[in] = slices.Insert(r.bodies[in], 9, '\n') }),
		row("a line more at the end", 16, func(_ *testing.T, _ *log, r *shared) { r.bodies = append(r.bodies, r.bodies[in]) }),
		row("a line less", 13, func(_ *testing.T, _ *log, r *shared) { r.bodies = slices.Delete(r.bodies, in, in+1) }),
		row("a hash", 13, func(_ *testing.T, _ *log, r *shared) { r.hashes[in] = make([]byte, 32) }),
		row("a hash that fits an edited body", 14, func(_ *testing.T, _ *log, r *shared) {
			r.bodies[in] = bytes.Replace(r.bodies[in], []byte("allow"), []byte("deny"), 1)
			h := blackbox.Hash(r.bodies[in])
			r.hashes[in] = h[:]
		}),
		row("a byte less of hashes", 9, func(_ *testing.T, _ *log, r *shared) { r.hashes[7] = r.hashes[7][1:] }),
		row("a byte more of hashes", 16, func(_ *testing.T, _ *log, r *shared) { r.hashes[7] = append(r.hashes[7], 0) }),
		row("no hashes", 9, func(_ *testing.T, _ *log, r *shared) { r.hashed = []byte{} }),
		row("bodies are swapped", 12, func(_ *testing.T, _ *log, r *shared) { swap(r.bodies) }),
		row("entries are swapped", 12, func(_ *testing.T, _ *log, r *shared) { swap(r.bodies); swap(r.hashes); swap(r.parts) }),
		row("the first entry is removed", 9, func(_ *testing.T, _ *log, r *shared) {
			r.bodies, r.hashes, r.parts = r.bodies[1:], r.hashes[1:], r.parts[1:]
		}),
		row("one in the middle is removed", 9, func(_ *testing.T, _ *log, r *shared) {
			r.bodies, r.hashes, r.parts = slices.Delete(r.bodies, in, in+1), slices.Delete(r.hashes, in, in+1), slices.Delete(r.parts, in, in+1)
		}),
		row("the last entry is removed", 16, func(_ *testing.T, _ *log, r *shared) {
			r.seq--
			r.bodies, r.hashes, r.parts = r.bodies[:7], r.hashes[:7], r.parts[:7]
		}),
		row("one is put in", 9, func(_ *testing.T, _ *log, r *shared) {
			r.bodies, r.hashes, r.parts = slices.Insert(r.bodies, in, r.bodies[0]), slices.Insert(r.hashes, in, r.hashes[0]), slices.Insert(r.parts, in, r.parts[0])
		}),
		row("it is moved", 9, func(_ *testing.T, _ *log, r *shared) { r.seq-- }),
		row("an entry is put before it that it has too", 9, func(t *testing.T, l *log, r *shared) {
			f := l.vault.(*file)
			f.raw(t, shared{seq: 13, bodies: r.bodies[in : in+1], hashes: r.hashes[in : in+1], parts: r.parts[in : in+1]}.put)
		}),
		row("a payload", 13, func(_ *testing.T, _ *log, r *shared) {
			r.parts[in] = bytes.Replace(r.parts[in], []byte("true"), []byte("null"), 1)
		}),
		row("payloads are swapped", 12, func(_ *testing.T, _ *log, r *shared) { swap(r.parts) }),
		row("payloads are damaged", 13, func(_ *testing.T, _ *log, r *shared) { r.parts[in] = r.parts[in][:len(r.parts[in])-3] }),
		row("a length is damaged", 13, func(_ *testing.T, _ *log, r *shared) {
			for _, part := range r.parts[:in] {
				r.packed = append(binary.AppendUvarint(r.packed, uint64(len(part))), part...)
			}
			r.packed = append(r.packed, 0xff)
		}),
		row("payloads end early", 13, func(_ *testing.T, _ *log, r *shared) { r.parts = r.parts[:in] }),
		row("more behind the payloads", 16, func(_ *testing.T, _ *log, r *shared) { r.beyond = []byte{0} }),
		{"the same entries are put into rows of another size: nothing of them is changed", "", func(t *testing.T, l *log) { l.vault.(*file).together(t, 5) }, never, 0, "SQLite"},
	}
}
