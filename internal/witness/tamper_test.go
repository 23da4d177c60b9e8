package witness

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/heads"
	"navra/internal/ifc"
	"navra/internal/seal"
	"navra/internal/store"
	"navra/internal/store/sqlite"
)

// A log is a database with a heads file, a checkpoint in it at 30 of its 40 entries, and one that was copied elsewhere.
type log struct {
	path   string
	signer blackbox.Signer
	tag    func([]byte) [32]byte
	copied []byte
}

const entries, signedAt = 40, 30

func newLog(t *testing.T, key seal.Key) *log {
	t.Helper()
	l := &log{path: filepath.Join(t.TempDir(), "navra.db"), tag: key.For("heads").Tag}
	var err error
	if l.signer, err = blackbox.NewSigner(key.Seed("checkpoints")); err != nil {
		t.Fatal(err)
	}
	l.with(t, func(db *sqlite.DB) {
		h, err := heads.Open(l.path+".heads", l.tag, false)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		db.OnCommit(func(r store.Receipt) error { return h.Note(r.Seq, r.Hash) })
		k := &Keeper{o: Options{Log: db, Signer: l.signer, Logger: slog.New(slog.DiscardHandler)}}
		for i := range entries {
			e := blackbox.Entry{
				Time: time.Now(), Kind: blackbox.Request, Ref: blackbox.NewRef(), Principal: "ann", Auth: "token", Role: "dev", Session: "s", Scope: "principal/ann",
				Transport: "http", Era: "stateful", Version: "2025-11-25", Upstream: "files", Method: "tools/call", Target: fmt.Sprint("files/t", i), RequestID: fmt.Sprint(i),
				Verdict: "allow", Stage: "name", Reason: "because", Outcome: "ran", Findings: []blackbox.Count{{Name: "jwt", N: 2}}, Before: "trusted", After: "untrusted", Policy: "abc",
				Payloads: []blackbox.Payload{blackbox.NewPayload("arguments", []byte(`{"whole":true}`), []byte(`{"stored":true}`))},
			}
			if _, err := db.Commit(t.Context(), store.Commit{Entry: e, Raise: ifc.Bottom()}); err != nil {
				t.Fatal(err)
			}
			if i+1 == signedAt {
				if err := k.Checkpoint(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		kept, err := db.Checkpoints(t.Context())
		if err != nil || len(kept) != 1 {
			t.Fatalf("%d checkpoints, %v", len(kept), err)
		}
		l.copied = kept[0].Note
	})
	return l
}

func (l *log) with(t *testing.T, f func(*sqlite.DB)) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), l.path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	f(db)
}

func (l *log) sql(t *testing.T, statements ...string) {
	t.Helper()
	raw, err := sql.Open("sqlite", l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	for _, s := range statements {
		if _, err := raw.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// rewrite makes the entries from n on anew, with a chain that fits, as somebody with the database alone can.
func (l *log) rewrite(t *testing.T, n int, change func(e *blackbox.Entry)) {
	t.Helper()
	var rows []blackbox.Row
	l.with(t, func(db *sqlite.DB) {
		for r, err := range db.Rows(t.Context(), 1) {
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, r)
		}
	})
	raw, err := sql.Open("sqlite", l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	prev := rows[n-2].Hash
	for _, r := range rows[n-1:] {
		e, err := blackbox.Decode(r.Encoded)
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == blackbox.Seq(n) {
			change(&e)
		}
		e.Prev = prev
		b := e.Encode()
		prev = blackbox.Hash(b)
		if _, err := raw.Exec("UPDATE entries SET body = ?, hash = ? WHERE seq = ?", b, prev[:], e.Seq); err != nil {
			t.Fatal(err)
		}
	}
}

// What it takes to find an operation: the database alone (with the key beside it), the heads file, or a checkpoint that was copied elsewhere.
const (
	needsDatabase = iota
	needsHeads
	needsCopy
)

func (l *log) verify(t *testing.T, level int, key string) Finding {
	t.Helper()
	e := Evidence{Key: key}
	if level >= needsHeads {
		if m, ok, err := heads.Read(l.path+".heads", l.tag); ok && err == nil {
			e.Mark = &m
		} else if err != nil {
			return Finding{Report: blackbox.Report{Problem: err.Error()}}
		}
	}
	if level >= needsCopy {
		e.Since = [][]byte{l.copied}
	}
	var f Finding
	l.with(t, func(db *sqlite.DB) {
		var err error
		if f, err = Verify(context.Background(), db, e); err != nil {
			f.Problem = err.Error()
		}
	})
	return f
}

func edit(member, from, to string) []string {
	return []string{fmt.Sprintf(`UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), '"%[1]s":%[2]s', '"%[1]s":%[3]s') AS BLOB) WHERE seq = 7`, member, from, to)}
}

// TestTampering lists what somebody may do to the file, what it takes to find it, and which entry is named first.
func TestTampering(t *testing.T) {
	key, other := seal.New(), seal.New()
	type row struct {
		name  string
		do    func(t *testing.T, l *log)
		needs int
		at    blackbox.Seq // 0: any
	}
	run := func(statements ...string) func(*testing.T, *log) {
		return func(t *testing.T, l *log) { l.sql(t, statements...) }
	}
	rows := []row{
		{"drop the first", run("DELETE FROM entries WHERE seq = 1"), needsDatabase, 1},
		{"drop one in the middle", run("DELETE FROM entries WHERE seq = 7"), needsDatabase, 7},
		{"drop one and close the gap", run("DELETE FROM entries WHERE seq = 7", "UPDATE entries SET seq = seq - 1000 WHERE seq > 7", "UPDATE entries SET seq = seq + 999 WHERE seq < 0"), needsDatabase, 7},
		{"swap two", run("UPDATE entries SET seq = 99 WHERE seq = 7", "UPDATE entries SET seq = 7 WHERE seq = 8", "UPDATE entries SET seq = 8 WHERE seq = 99"), needsDatabase, 7},
		{"insert a copy", run("INSERT INTO entries SELECT 41, body, hash, payloads FROM entries WHERE seq = 7"), needsDatabase, 41},
		{"insert below the first", run("INSERT INTO entries SELECT -3, body, hash, payloads FROM entries WHERE seq = 7"), needsDatabase, 1},
		{"lengthen a hash", run("UPDATE entries SET hash = CAST(hash || x'00' AS BLOB) WHERE seq = 7"), needsDatabase, 7},
		{"move stored text into the salt", run("UPDATE entries SET payloads = CAST(substr(payloads, 1, 10) || x'0e' || substr(payloads, 13, 14) || x'11' || substr(payloads, 12, 1) || substr(payloads, 28) AS BLOB) WHERE seq = 7"), needsDatabase, 7},
		{"edit a hash", run("UPDATE entries SET hash = zeroblob(32) WHERE seq = 7"), needsDatabase, 7},
		{"edit a payload", run("UPDATE entries SET payloads = CAST(substr(payloads, 1, 14) || x'78' || substr(payloads, 16) AS BLOB) WHERE seq = 7"), needsDatabase, 7},
		{"put another's payload", run("UPDATE entries SET payloads = (SELECT payloads FROM entries WHERE seq = 8) WHERE seq = 7"), needsDatabase, 7},
		{"add a payload where there is none", run("UPDATE entries SET payloads = NULL WHERE seq = 7", "UPDATE entries SET payloads = (SELECT payloads FROM entries WHERE seq = 8) WHERE seq = 7"), needsDatabase, 7},
		{"edit an entry and its hash", func(t *testing.T, l *log) {
			l.sql(t, edit("verdict", `"allow"`, `"deny"`)...)
			var b []byte
			l.with(t, func(db *sqlite.DB) {
				for r := range db.Rows(t.Context(), 7) {
					b = r.Encoded
					break
				}
			})
			h := blackbox.Hash(b)
			l.sql(t, fmt.Sprintf("UPDATE entries SET hash = x'%x' WHERE seq = 7", h))
		}, needsDatabase, 8},
		{"edit a checkpoint", run("UPDATE checkpoints SET note = CAST(replace(CAST(note AS TEXT), char(10) || '30' || char(10), char(10) || '29' || char(10)) AS BLOB)"), needsDatabase, 0},
		{"move a checkpoint", run("UPDATE checkpoints SET size = 29"), needsDatabase, 29},
		{"rewrite all from an entry below a checkpoint on", func(t *testing.T, l *log) { l.rewrite(t, 7, func(e *blackbox.Entry) { e.Verdict = "deny" }) }, needsDatabase, signedAt},
		{"the same, and drop the checkpoint", func(t *testing.T, l *log) {
			l.rewrite(t, 7, func(e *blackbox.Entry) { e.Verdict = "deny" })
			l.sql(t, "DELETE FROM checkpoints")
		}, needsHeads, 0},
		{"rewrite all from an entry above the checkpoint on", func(t *testing.T, l *log) { l.rewrite(t, 35, func(e *blackbox.Entry) { e.Verdict = "deny" }) }, needsHeads, entries},
		{"cut the tail above the checkpoint", run("DELETE FROM entries WHERE seq > 35"), needsHeads, 36},
		{"cut the last", run("DELETE FROM entries WHERE seq = 40"), needsHeads, entries},
		{"cut the tail below the checkpoint", run("DELETE FROM entries WHERE seq > 20"), needsDatabase, 21},
		{"cut the tail, and drop the checkpoint", run("DELETE FROM entries WHERE seq > 20", "DELETE FROM checkpoints"), needsHeads, 21},
		{"cut the tail, and drop checkpoint and heads file", func(t *testing.T, l *log) {
			l.sql(t, "DELETE FROM entries WHERE seq > 20", "DELETE FROM checkpoints")
			if err := os.Remove(l.path + ".heads"); err != nil {
				t.Fatal(err)
			}
		}, needsCopy, 21},
		{"empty the log", run("DELETE FROM entries", "DELETE FROM checkpoints"), needsHeads, 0},
		{"edit the heads file", func(t *testing.T, l *log) {
			b, _ := os.ReadFile(l.path + ".heads")
			if err := os.WriteFile(l.path+".heads", []byte(strings.Replace(string(b), " 40 ", " 20 ", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, needsHeads, 0},
		{"replace everything with another log of this key", func(t *testing.T, l *log) {
			l.path = newLog(t, key).path
		}, needsCopy, signedAt},
		{"replace everything and the key", func(t *testing.T, l *log) {
			l.path = newLog(t, other).path
		}, needsDatabase, 0}, // held against the key that the operator knows
	}
	for _, f := range []struct{ member, from, to string }{
		{"time", `"20`, `"19`}, {"kind", `"request"`, `"answer"`}, {"principal", `"ann"`, `"bob"`}, {"auth", `"token"`, `"none"`}, {"role", `"dev"`, `"ops"`},
		{"session", `"s"`, `"t"`}, {"scope", `"principal/ann"`, `"principal/bob"`}, {"transport", `"http"`, `"stdio"`}, {"era", `"stateful"`, `"stateless"`},
		{"version", `"2025-11-25"`, `"2025-06-18"`}, {"upstream", `"files"`, `"mail"`}, {"method", `"tools/call"`, `"ping"`}, {"target", `"files/t6"`, `"files/t7"`},
		{"request_id", `"6"`, `"7"`}, {"verdict", `"allow"`, `"deny"`}, {"stage", `"name"`, `"flow"`}, {"reason", `"because"`, `""`}, {"outcome", `"ran"`, `"not-sent"`},
		{"findings", `[{"name":"jwt","n":2}]`, `[]`}, {"label_before", `"trusted"`, `"suspect"`}, {"label_after", `"untrusted"`, `"trusted"`}, {"policy", `"abc"`, `"abd"`},
		{"payloads", `[{"name":"arguments","length":14`, `[{"name":"arguments","length":15`}, {"prev", `"`, `"0`}, {"seq", `7`, `8`}, {"cause", `0`, `1`},
	} {
		rows = append(rows, row{"edit " + f.member, run(edit(f.member, f.from, f.to)...), needsDatabase, 7})
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			l := newLog(t, key)
			trusted := l.signer.Key()
			for level := needsDatabase; level <= needsCopy; level++ {
				if f := l.verify(t, level, trusted); !f.OK() {
					t.Fatalf("untouched, it is flagged: %+v", f)
				}
			}
			r.do(t, l)
			for level := needsDatabase; level <= needsCopy; level++ {
				f := l.verify(t, level, trusted)
				if found := !f.OK(); found != (level >= r.needs) {
					t.Errorf("with evidence %d: found %v (%s), want it found from %d on", level, found, f.Problem, r.needs)
				} else if found && r.at != 0 && f.At != r.at {
					t.Errorf("with evidence %d: the first bad entry is %d (%s), want %d", level, f.At, f.Problem, r.at)
				}
			}
		})
	}
}

// TestRetentionIsNoTampering drops payloads: the log stays whole, and proofs hold.
func TestRetentionIsNoTampering(t *testing.T) {
	l := newLog(t, seal.New())
	l.with(t, func(db *sqlite.DB) {
		before, err := ProofOf(t.Context(), db, l.signer, 7)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := db.DropPayloads(t.Context(), 20, 100); err != nil || n != 19 {
			t.Fatalf("DropPayloads = %d, %v", n, err)
		}
		if e, s, err := before.Check(l.signer.Key()); err != nil || e.Seq != 7 || s.Size != entries {
			t.Errorf("Check = %+v, %+v, %v", e, s, err)
		}
		before.Entry = []byte(strings.Replace(string(before.Entry), `"allow"`, `"deny"`, 1))
		if _, _, err := before.Check(l.signer.Key()); err == nil {
			t.Error("an edited entry is proved")
		}
	})
	if f := l.verify(t, needsCopy, l.signer.Key()); !f.OK() || f.Checkpoints != 2 {
		t.Errorf("%+v, want whole with both checkpoints", f)
	}
}

// TestNothingIsSignedForAChangedLog: a proof of a log that disagrees with its checkpoint is refused.
func TestNothingIsSignedForAChangedLog(t *testing.T) {
	l := newLog(t, seal.New())
	l.rewrite(t, 7, func(e *blackbox.Entry) { e.Verdict = "deny" })
	l.with(t, func(db *sqlite.DB) {
		if _, err := ProofOf(t.Context(), db, l.signer, 7); err == nil {
			t.Error("a changed entry is proved")
		}
	})
}
