package witness

import (
	"bytes"

	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/heads"
	"navra/internal/ifc"
	"navra/internal/seal"
	"navra/internal/store"
)

// A log is a database with a heads file, a checkpoint in it at 30 of its 40 entries, and one that was copied elsewhere.
type log struct {
	vault
	heads  string // file
	signer blackbox.Signer
	tag    func([]byte) [32]byte
	since  []byte // the checkpoint that was copied
	key    string // that checkpoints are held against
}

const entries, signedAt = 40, 30

func newLog(t *testing.T, v vault, key seal.Key) *log {
	t.Helper()
	l := &log{vault: v, heads: filepath.Join(t.TempDir(), "navra.heads"), tag: key.For("heads").Tag}
	var err error
	if l.signer, err = blackbox.NewSigner(key.Seed("checkpoints")); err != nil {
		t.Fatal(err)
	}
	l.key = l.signer.Key()
	l.with(t, func(db database) {
		l.grow(t, db, signedAt)
		l.sign(t, db)
		l.grow(t, db, entries-signedAt)
	})
	return l
}

// grow commits n entries as the gateway does.
func (l *log) grow(t *testing.T, db database, n int) {
	t.Helper()
	h, err := heads.Open(l.heads, l.tag, false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	db.OnCommit(func(r store.Receipt) error { return h.Note(r.Seq, r.Hash) })
	commit(t, db, n)
}

// commit adds n entries, one after the other, so that each has a row of its own: all are alike.
func commit(t *testing.T, db database, n int) {
	t.Helper()
	for range n {
		if _, err := db.Commit(t.Context(), store.Commit{Entry: sample(), Raise: ifc.Bottom()}); err != nil {
			t.Fatal(err)
		}
	}
}

func sample() blackbox.Entry {
	return blackbox.Entry{
		Time: time.Now(), Kind: blackbox.Request, Ref: blackbox.NewRef(), Principal: "ann", Actor: "cron", Auth: "token", Role: "dev", Session: "s", Scope: "principal/ann",
		Transport: "http", Era: "stateful", Version: "2025-11-25", Upstream: "files", Method: "tools/call", Target: "files/t6", RequestID: "6", Trace: "4bf9",
		Verdict: "allow", Stage: "name", Reason: "because", Outcome: "ran", Findings: []blackbox.Count{{Name: "jwt", N: 2}}, Notes: []blackbox.Count{{Name: "progress", N: 2}},
		Before: "trusted", After: "untrusted", Policy: "abc", Approval: "x", Durations: []blackbox.Count{{Name: "flow", N: 2}},
		Payloads: []blackbox.Payload{
			blackbox.NewPayload("arguments", []byte(`{"whole":true}`), []byte(`{"stored":true}`)), blackbox.NewPayload("result", []byte("whole"), []byte("stored")),
		},
	}
}

// sign makes a checkpoint, and copies it elsewhere.
func (l *log) sign(t *testing.T, db database) {
	t.Helper()
	k := &Keeper{o: Options{Log: db, Signer: l.signer, Logger: slog.New(slog.DiscardHandler)}}
	if err := k.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept, err := db.Checkpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.since = kept[len(kept)-1].Note
}

func (l *log) with(t *testing.T, f func(database)) {
	t.Helper()
	db := l.open(t)
	defer db.Close()
	f(db)
}

func (l *log) rows(t *testing.T) (out []blackbox.Row) {
	t.Helper()
	l.with(t, func(db database) {
		for r, err := range db.Rows(t.Context(), 1) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, r)
		}
	})
	return out
}

func (l *log) payloads(t *testing.T, seq int) []blackbox.Payload {
	t.Helper()
	return l.rows(t)[seq-1].Payloads
}

// body puts a body in the place of an entry's, with the hash that it then has where rehash says so.
func (l *log) body(t *testing.T, seq int, b []byte, rehash bool) {
	t.Helper()
	l.exec(t, "UPDATE @entries SET body = $2 WHERE seq = $1", seq, b)
	if h := blackbox.Hash(b); rehash {
		l.exec(t, "UPDATE @entries SET hash = $2 WHERE seq = $1", seq, h[:])
	}
}

// edit changes a member of an entry's body.
func (l *log) edit(t *testing.T, seq int, from, to string, rehash bool) {
	t.Helper()
	old := l.one(t, "SELECT body FROM @entries WHERE seq = $1", seq)
	edited := bytes.Replace(old, []byte(from), []byte(to), 1)
	if bytes.Equal(edited, old) {
		t.Fatalf("there is no %s in %s", from, old)
	}
	l.body(t, seq, edited, rehash)
}

// note changes the text of a checkpoint.
func (l *log) note(t *testing.T, from, to string) {
	t.Helper()
	old := l.one(t, "SELECT note FROM @checkpoints")
	edited := bytes.Replace(old, []byte(from), []byte(to), 1)
	if bytes.Equal(edited, old) {
		t.Fatalf("there is no %q in %s", from, old)
	}
	l.exec(t, "UPDATE @checkpoints SET note = $1", edited)
}

// rewrite makes the entries from n on anew, with a chain that fits, as somebody with the database alone can.
func (l *log) rewrite(t *testing.T, n int) {
	t.Helper()
	all := l.rows(t)
	prev := all[n-2].Hash
	for _, r := range all[n-1:] {
		e, err := blackbox.Decode(r.Encoded)
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == blackbox.Seq(n) {
			e.Verdict = "deny"
		}
		e.Prev = prev
		b := e.Encode()
		prev = blackbox.Hash(b)
		l.body(t, int(e.Seq), b, true)
	}
}

// forge adds an entry with a number that follows another entry.
func (l *log) forge(t *testing.T, seq, follows int) {
	t.Helper()
	e := sample()
	e.Payloads = nil
	e.Seq, e.Prev = blackbox.Seq(seq), [32]byte(l.one(t, "SELECT hash FROM @entries WHERE seq = $1", follows))
	b := e.Encode()
	h := blackbox.Hash(b)
	l.exec(t, "INSERT INTO @entries (seq, body, hash) VALUES ($1, $2, $3)", seq, b, h[:])
}

// Evidence that an operation may need to be found.
const (
	needsDatabase = iota // with the verifier key
	needsHeads
	needsCopy
	never
)

var needsWords = [...]string{"the database alone", "the heads file", "a copied checkpoint", "nothing"}

func (l *log) verify(t *testing.T, level int) Finding {
	t.Helper()
	return l.levels(t)[level]
}

// levels verifies with each evidence.
func (l *log) levels(t *testing.T) (out [never]Finding) {
	t.Helper()
	m, ok, err := heads.Read(l.heads, l.tag)
	l.with(t, func(db database) {
		for level := range out {
			e := Evidence{Key: l.key}
			if level >= needsHeads && err != nil {
				out[level].Problem = err.Error()
				continue
			}
			if level >= needsHeads && ok {
				e.Mark = &m
			}
			if level >= needsCopy {
				e.Since = [][]byte{l.since}
			}
			out[level] = found(t, db, e)
		}
	})
	return out
}

func found(t *testing.T, db database, e Evidence) Finding {
	t.Helper()
	f, err := Verify(t.Context(), db, e)
	if err != nil {
		f.Problem = err.Error()
	}
	return f
}

func (l *log) against(t *testing.T, e Evidence) (f Finding) {
	t.Helper()
	l.with(t, func(db database) { f = found(t, db, e) })
	return f
}

func (l *log) read(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(l.heads)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (l *log) write(t *testing.T, b []byte) {
	t.Helper()
	if err := os.WriteFile(l.heads, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
