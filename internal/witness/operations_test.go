package witness

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/seal"
)

// An operation is something that somebody may do to a log, what it takes to find it, and which entry is named first.
type operation struct {
	done  string // as docs/blackbox.md lists it
	what  string // where one line of the list stands for several
	do    func(t *testing.T, l *log)
	needs int
	at    blackbox.Seq // 0: any
	only  string       // the store in which it can be done; "": both
}

func operations(key, other seal.Key) []operation {
	var list []operation
	for _, group := range [][]operation{edits(), places(), rows(), payloads(), checkpoints(), tails(), wholes(key, other)} {
		list = append(list, group...)
	}
	return list
}

// A change is a member of the sample entry, and what it is changed to.
type change struct{ member, from, to string }

var changes = []change{
	{"seq", `7`, `8`}, {"time", `"20`, `"19`}, {"kind", `"request"`, `"answer"`}, {"ref", `"`, `"x`}, {"cause", `0`, `1`}, {"principal", `"ann"`, `"bob"`}, {"actor", `"cron"`, `""`},
	{"auth", `"token"`, `"none"`}, {"role", `"dev"`, `"ops"`}, {"session", `"s"`, `"t"`}, {"scope", `"principal/ann"`, `"principal/bob"`}, {"transport", `"http"`, `"stdio"`},
	{"era", `"stateful"`, `"stateless"`}, {"version", `"2025-11-25"`, `"2025-06-18"`}, {"upstream", `"files"`, `"mail"`}, {"method", `"tools/call"`, `"ping"`},
	{"target", `"files/t6"`, `"files/t7"`}, {"request_id", `"6"`, `"7"`}, {"trace", `"4bf9"`, `""`}, {"verdict", `"allow"`, `"deny"`}, {"stage", `"name"`, `"flow"`},
	{"reason", `"because"`, `""`}, {"outcome", `"ran"`, `"not-sent"`}, {"findings", `[{"name":"jwt","n":2}]`, `[]`}, {"notes", `[{"name":"progress","n":2}]`, `[]`},
	{"label_before", `"trusted"`, `"suspect"`}, {"label_after", `"untrusted"`, `"trusted"`}, {"policy", `"abc"`, `"abd"`}, {"approval", `"x"`, `""`},
	{"durations_us", `[{"name":"flow","n":2}]`, `[]`}, {"payloads", `[{"name":"arguments","length":14`, `[{"name":"arguments","length":15`}, {"prev", `"`, `"0`},
}

func edits() (list []operation) {
	for _, c := range changes {
		list = append(list, operation{"a member of an entry's body is edited (each was tried)", c.member, func(t *testing.T, l *log) {
			l.edit(t, 7, `"`+c.member+`":`+c.from, `"`+c.member+`":`+c.to, false)
		}, needsDatabase, 7, ""})
	}
	return append(list,
		operation{"an entry is edited, and its hash made to fit", "", func(t *testing.T, l *log) { l.edit(t, 7, `"allow"`, `"deny"`, true) }, needsDatabase, 8, ""},
		operation{"an entry's body is written in another form, and its hash made to fit", "", func(t *testing.T, l *log) { l.edit(t, 7, `,"ref"`, `, "ref"`, true) }, needsDatabase, 7, ""},
		operation{"an entry's body is emptied", "", func(t *testing.T, l *log) { l.body(t, 7, []byte{}, false) }, needsDatabase, 7, ""},
		operation{"a hash is edited, or made longer or shorter", "edited", func(t *testing.T, l *log) {
			l.exec(t, "UPDATE @entries SET hash = $1 WHERE seq = 7", make([]byte, 32))
		}, needsDatabase, 7, ""},
		operation{"a hash is edited, or made longer or shorter", "longer", func(t *testing.T, l *log) {
			h := l.one(t, "SELECT hash FROM @entries WHERE seq = 7")
			l.exec(t, "UPDATE @entries SET hash = $1 WHERE seq = 7", append(h, 0))
		}, needsDatabase, 7, ""},
		operation{"a hash is edited, or made longer or shorter", "shorter", func(t *testing.T, l *log) {
			h := l.one(t, "SELECT hash FROM @entries WHERE seq = 40")
			l.exec(t, "UPDATE @entries SET hash = $1 WHERE seq = 40", h[:31])
		}, needsDatabase, entries, ""},
	)
}

func places() []operation {
	return []operation{
		{"the first entry is removed", "", func(t *testing.T, l *log) { l.drop(t, "seq = 1") }, needsDatabase, 1, ""},
		{"one in the middle is removed", "", func(t *testing.T, l *log) { l.drop(t, "seq = 7") }, needsDatabase, 7, ""},
		{"one in the middle is removed, and the others moved up", "", func(t *testing.T, l *log) {
			l.drop(t, "seq = 7")
			for n := 8; n <= entries; n++ {
				l.move(t, n, n-1)
			}
		}, needsDatabase, 7, ""},
		{"two are swapped", "", func(t *testing.T, l *log) {
			l.move(t, 7, 99)
			l.move(t, 8, 7)
			l.move(t, 99, 8)
		}, needsDatabase, 7, ""},
		{"one is inserted, and the others moved down", "", func(t *testing.T, l *log) {
			for n := entries; n >= 7; n-- {
				l.move(t, n, n+1)
			}
			l.forge(t, 7, 6)
		}, needsDatabase, 8, ""},
		{"one is copied to the end", "", func(t *testing.T, l *log) {
			l.exec(t, "INSERT INTO @entries (seq, body, hash) SELECT 41, body, hash FROM @entries WHERE seq = 7")
		}, needsDatabase, 41, ""},
		{"one is put below the first", "", func(t *testing.T, l *log) {
			l.exec(t, "INSERT INTO @entries (seq, body, hash) SELECT -3, body, hash FROM @entries WHERE seq = 7")
		}, needsDatabase, 1, ""},
		{"one is put beyond the last, with a gap", "", func(t *testing.T, l *log) { l.forge(t, 50, 40) }, needsDatabase, 41, ""},
		{"a second branch is put beside the end", "", func(t *testing.T, l *log) { l.forge(t, 41, 39) }, needsDatabase, 41, ""},
		{"an entry is there twice, after the table's key was taken away", "the same", func(t *testing.T, l *log) {
			l.loosen(t)
			l.exec(t, "INSERT INTO @entries (seq, body, hash) SELECT seq, body, hash FROM @entries WHERE seq = 7")
		}, needsDatabase, 8, ""},
		{"an entry is there twice, after the table's key was taken away", "another", func(t *testing.T, l *log) {
			l.loosen(t)
			l.forge(t, 40, 39)
		}, needsDatabase, 0, ""},
	}
}

// stored changes what is kept of an entry's first payload.
func stored(seq int, f func(p *blackbox.Payload)) func(t *testing.T, l *log) {
	return func(t *testing.T, l *log) {
		list := l.payloads(t, seq)
		f(&list[0])
		l.put(t, seq, list)
	}
}

// kept has something else be kept under a key of the state.
func kept(t *testing.T, l *log, key, value string) {
	t.Helper()
	l.with(t, func(db database) {
		if err := db.Keep(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	})
}

func payloads() []operation {
	retain := func(t *testing.T, l *log) {
		l.with(t, func(db database) {
			if n, err := db.DropPayloads(t.Context(), 20, 100); err != nil || n != 19 {
				t.Fatalf("DropPayloads = %d, %v", n, err)
			}
		})
	}
	const fitted = "a payload is edited, or its salt, or where the salt ends"
	return []operation{
		{fitted, "text", stored(7, func(p *blackbox.Payload) { p.Stored[2] = 'x' }), needsDatabase, 7, ""},
		{fitted, "salt", stored(7, func(p *blackbox.Payload) { p.StoredSalt[2] ^= 1 }), needsDatabase, 7, ""},
		{fitted, "text moved into the salt", stored(7, func(p *blackbox.Payload) {
			p.StoredSalt, p.Stored = append(p.StoredSalt, p.Stored[0]), p.Stored[1:]
		}), needsDatabase, 7, ""},
		{fitted, "salt of the whole is cut", stored(7, func(p *blackbox.Payload) { p.WholeSalt = p.WholeSalt[:8] }), needsDatabase, 7, ""},
		{"a payload is another entry's, has another name, or two have changed places", "another's", func(t *testing.T, l *log) { l.put(t, 7, l.payloads(t, 8)) }, needsDatabase, 7, ""},
		{"a payload is another entry's, has another name, or two have changed places", "name", stored(7, func(p *blackbox.Payload) { p.Name = "other" }), needsDatabase, 7, ""},
		{"a payload is another entry's, has another name, or two have changed places", "places", func(t *testing.T, l *log) {
			list := l.payloads(t, 7)
			list[0].Name, list[1].Name = list[1].Name, list[0].Name
			l.put(t, 7, list)
		}, needsDatabase, 7, ""},
		{"a payload is there twice", "", func(t *testing.T, l *log) {
			list := l.payloads(t, 7)
			if _, ok := l.vault.(*schema); ok {
				l.loosen(t)
			}
			l.put(t, 7, append(list, list[0]))
		}, needsDatabase, 7, ""},
		{"packed payloads are damaged", "", func(t *testing.T, l *log) {
			b := l.one(t, "SELECT payloads FROM @entries WHERE seq = 7")
			l.exec(t, "UPDATE @entries SET payloads = $1 WHERE seq = 7", b[:len(b)-3])
		}, needsDatabase, 7, "SQLite"},
		{"a payload is edited after retention took others", "", func(t *testing.T, l *log) {
			retain(t, l)
			stored(25, func(p *blackbox.Payload) { p.Stored[2] = 'x' })(t, l)
		}, needsDatabase, 25, ""},
		{"a payload that retention took is put back, edited", "", func(t *testing.T, l *log) {
			list := l.payloads(t, 7)
			retain(t, l)
			list[0].Stored[2] = 'x'
			l.put(t, 7, list)
		}, needsDatabase, 7, ""},
		{"payloads are put that no entry has", "beyond the last", func(t *testing.T, l *log) { l.put(t, 99, l.payloads(t, 7)) }, needsDatabase, 99, "PostgreSQL"},
		{"payloads are put that no entry has", "below the first", func(t *testing.T, l *log) { l.put(t, -5, l.payloads(t, 7)) }, needsDatabase, 1, "PostgreSQL"},
		{"payloads are put that no entry has", "without a number", func(t *testing.T, l *log) {
			l.loosen(t)
			l.exec(t, "INSERT INTO @payloads (seq, name, stored, stored_salt, whole_salt) SELECT NULL, name, stored, stored_salt, whole_salt FROM @payloads WHERE seq = 7")
		}, needsDatabase, 1, "PostgreSQL"},
		{"payloads are put that no entry has", "without a name", func(t *testing.T, l *log) {
			l.loosen(t)
			l.exec(t, "INSERT INTO @payloads (seq, name, stored, stored_salt, whole_salt) SELECT 7, NULL, stored, stored_salt, whole_salt FROM @payloads WHERE seq = 7")
		}, needsDatabase, 7, "PostgreSQL"},
		{"the last entries are cut off, and their payloads left", "", func(t *testing.T, l *log) {
			l.exec(t, "DELETE FROM @entries WHERE seq > 35")
		}, needsDatabase, 36, "PostgreSQL"},
		{"how far retention is said to be, or who is at it, is edited: it goes on all the same", "forward", func(t *testing.T, l *log) {
			kept(t, l, "payloads dropped below", "30") // as was kept once
			retain(t, l)
		}, never, 0, ""},
		{"how far retention is said to be, or who is at it, is edited: it goes on all the same", "back", func(t *testing.T, l *log) {
			retain(t, l)
			kept(t, l, "payloads dropped below", "1")
			l.with(t, func(db database) {
				if n, err := db.DropPayloads(t.Context(), 25, 100); err != nil || n != 5 {
					t.Fatalf("DropPayloads = %d, %v", n, err)
				}
			})
		}, never, 0, ""},
		{"how far retention is said to be, or who is at it, is edited: it goes on all the same", "whose turn it is", func(t *testing.T, l *log) {
			for turn, want := range map[time.Time]bool{time.Now().AddDate(100, 0, 0): true, time.Now().AddDate(-100, 0, 0): true, time.Now().Add(retainEvery / 2): false} {
				kept(t, l, "turn "+retainTurn, fmt.Sprintf("%020d", turn.UnixMicro()))
				l.with(t, func(db database) {
					if mine, err := db.Turn(t.Context(), retainTurn, retainEvery); err != nil || mine != want {
						t.Errorf("the turn of %s: %v, %v, want %v", turn, mine, err, want)
					}
				})
			}
			retain(t, l)
		}, never, 0, ""},
		{"a payload is removed: it looks like retention", "", func(t *testing.T, l *log) { l.put(t, 7, nil) }, never, 0, ""},
		{"`whole_salt` is edited: it is held against nothing that is kept", "", stored(7, func(p *blackbox.Payload) { p.WholeSalt[2] ^= 1 }), never, 0, ""},
	}
}

func checkpoints() []operation {
	const edited = "a checkpoint is edited, moved to another size, or signed with another key"
	return []operation{
		{edited, "size", func(t *testing.T, l *log) { l.note(t, "\n30\n", "\n29\n") }, needsDatabase, 30, ""},
		{edited, "root", func(t *testing.T, l *log) { l.note(t, "\n30\n", "\n30\nAAAA") }, needsDatabase, 30, ""},
		{edited, "moved", func(t *testing.T, l *log) { l.exec(t, "UPDATE @checkpoints SET size = 29") }, needsDatabase, 29, ""},
		{edited, "another key", func(t *testing.T, l *log) {
			theirs, err := blackbox.NewSigner(seal.New().Seed("checkpoints"))
			if err != nil {
				t.Fatal(err)
			}
			tree := new(blackbox.Tree)
			for _, r := range l.rows(t)[:signedAt] {
				tree.Append(r.Hash)
			}
			c, err := theirs.Sign(tree)
			if err != nil {
				t.Fatal(err)
			}
			l.exec(t, "UPDATE @checkpoints SET note = $1", c.Note)
		}, needsDatabase, 30, ""},
		{"a checkpoint is edited, and an entry before it too", "", func(t *testing.T, l *log) {
			l.note(t, "\n30\n", "\n30\nAAAA")
			l.edit(t, 7, `"allow"`, `"deny"`, false)
		}, needsDatabase, 7, ""},
		{"a checkpoint is said to be of a number of entries that there cannot be", "negative", func(t *testing.T, l *log) { l.exec(t, "UPDATE @checkpoints SET size = -3") }, needsDatabase, 1, ""},
		{"a checkpoint is said to be of a number of entries that there cannot be", "none", func(t *testing.T, l *log) { l.exec(t, "UPDATE @checkpoints SET size = 0") }, needsDatabase, 1, ""},
		{"a checkpoint is removed, and nothing else", "", func(t *testing.T, l *log) { l.exec(t, "DELETE FROM @checkpoints") }, never, 0, ""},
		{"a checkpoint's `frontier` is edited: it proves nothing", "", func(t *testing.T, l *log) {
			l.exec(t, "UPDATE @checkpoints SET frontier = $1", []byte("x"))
		}, never, 0, ""},
		{"the heads file is edited", "", func(t *testing.T, l *log) { l.write(t, bytes.Replace(l.read(t), []byte(" 40 "), []byte(" 20 "), 1)) }, needsHeads, 0, ""},
		{"the heads file is removed: `verify` says that there is none, and the next start records it", "", func(t *testing.T, l *log) {
			if err := os.Remove(l.heads); err != nil {
				t.Fatal(err)
			}
		}, never, 0, ""},
	}
}

func tails() []operation {
	cut := func(t *testing.T, l *log) {
		l.drop(t, "seq > 20")
		l.exec(t, "DELETE FROM @checkpoints")
	}
	return []operation{
		{"the last entry is cut off", "", func(t *testing.T, l *log) { l.drop(t, "seq = 40") }, needsHeads, entries, ""},
		{"the last entries are cut off, above the newest checkpoint", "", func(t *testing.T, l *log) { l.drop(t, "seq > 35") }, needsHeads, 36, ""},
		{"the last entries are cut off, below a checkpoint", "", func(t *testing.T, l *log) { l.drop(t, "seq > 20") }, needsDatabase, 21, ""},
		{"the last entries are cut off, and the checkpoints", "", cut, needsHeads, 21, ""},
		{"the last entries are cut off, and the checkpoints and the heads file", "", func(t *testing.T, l *log) {
			cut(t, l)
			if err := os.Remove(l.heads); err != nil {
				t.Fatal(err)
			}
		}, needsCopy, 21, ""},
		{"all entries and checkpoints are removed", "", func(t *testing.T, l *log) {
			l.drop(t, "seq > 0")
			l.exec(t, "DELETE FROM @checkpoints")
		}, needsHeads, 1, ""},
		{"the last entry is edited, and its hash made to fit", "", func(t *testing.T, l *log) { l.edit(t, 40, `"allow"`, `"deny"`, true) }, needsHeads, entries, ""},
		{"all entries from one on are written anew, from above the newest checkpoint", "", func(t *testing.T, l *log) { l.rewrite(t, 35) }, needsHeads, entries, ""},
		{"all entries from one on are written anew, from below a checkpoint", "", func(t *testing.T, l *log) { l.rewrite(t, 7) }, needsDatabase, signedAt, ""},
		{"all entries from one on are written anew, and the checkpoints removed", "", func(t *testing.T, l *log) {
			l.rewrite(t, 7)
			l.exec(t, "DELETE FROM @checkpoints")
		}, needsHeads, 0, ""},
		{"an entry that fits is added at the end", "", func(t *testing.T, l *log) { l.forge(t, 41, 40) }, never, 0, ""},
	}
}

// wholes replace the database, or what lies beside it.
func wholes(key, other seal.Key) []operation {
	return []operation{
		{"the database is rolled back to an old copy", "", func(t *testing.T, l *log) {
			back := l.copied(t)
			l.with(t, func(db database) { l.grow(t, db, 5) })
			back()
		}, needsHeads, 41, ""},
		{"the log is forked: rolled back, and continued otherwise", "", func(t *testing.T, l *log) {
			back := l.copied(t)
			l.with(t, func(db database) { l.grow(t, db, 3) })
			back()
			l.with(t, func(db database) { commit(t, db, 5) }) // by somebody without the heads file
		}, needsHeads, 43, ""},
		{"database and heads file are rolled back together", "", func(t *testing.T, l *log) {
			back, mark := l.copied(t), l.read(t)
			l.with(t, func(db database) {
				l.grow(t, db, 5)
				l.sign(t, db)
			})
			back()
			l.write(t, mark)
		}, needsCopy, 41, ""},
		{"database and heads file are replaced by another log of this key", "", func(t *testing.T, l *log) {
			theirs := newLog(t, l.another(t), key)
			l.vault, l.heads = theirs.vault, theirs.heads
		}, needsCopy, signedAt, ""},
		{"database, heads file and key are replaced: by the verifier key that was noted down", "", func(t *testing.T, l *log) {
			theirs := newLog(t, l.another(t), other)
			l.vault, l.heads, l.tag = theirs.vault, theirs.heads, theirs.tag
		}, needsDatabase, signedAt, ""},
		{"the key is replaced", "", func(t *testing.T, l *log) {
			signer, err := blackbox.NewSigner(other.Seed("checkpoints"))
			if err != nil {
				t.Fatal(err)
			}
			l.key, l.tag = signer.Key(), other.For("heads").Tag
		}, needsDatabase, 0, ""},
		{"state is changed, such as a token added", "", func(t *testing.T, l *log) {
			l.exec(t, "INSERT INTO @tokens (id, hash, principal, created, expires, revoked) VALUES ('x', $1, 'mallory', 0, 0, 0)", make([]byte, 32))
		}, never, 0, ""},
	}
}

// another is an empty vault of the same store.
func (l *log) another(t *testing.T) vault {
	if _, ok := l.vault.(*file); ok {
		return vaults["SQLite"](t)
	}
	return vaults["PostgreSQL"](t)
}
