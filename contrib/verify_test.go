// Package contrib_test holds what stands beside navra against navra itself.
package contrib_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/store"
	"navra/internal/store/sqlite"
)

const entries = 11

// makeDatabase returns a database with entries of every sort, of which the first two have lost their payloads.
func makeDatabase(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a database?.db")
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	long := strings.Repeat("é", 4000)
	for i := range entries {
		e := blackbox.Entry{Kind: blackbox.Request, Ref: blackbox.NewRef(), Method: "tools/call", Target: fmt.Sprint("tool ", i), Time: time.Now()}
		switch i % 3 {
		case 0:
			e.Reason = "\x00\t\n\x1f\x7f \"quoted\" \\ </script> \u2028 é 😀 \xff" + long
			e.Payloads = []blackbox.Payload{blackbox.NewPayload("arguments", []byte("a"), []byte(long)), blackbox.NewPayload("result", nil, nil)}
		case 1:
			e.Kind, e.Cause = blackbox.Answer, 1
			e.Payloads = []blackbox.Payload{blackbox.NewPayload("result", []byte("secret"), []byte("redacted"))}
			for n := range 70 {
				e.Findings = append(e.Findings, blackbox.Count{Name: fmt.Sprint("kind ", n), N: int64(n)})
			}
			e.Durations = []blackbox.Count{{Name: "filter", N: -1}, {Name: "flow", N: 1 << 62}}
		}
		if _, err := db.Commit(t.Context(), store.Commit{Entry: e, Raise: ifc.Bottom()}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.DropPayloads(t.Context(), 3, 10); err != nil {
		t.Fatal(err)
	}
	return path
}

// script runs verify.py and returns the first line that it prints.
func script(t *testing.T, args ...string) (line string, status int) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	cmd := exec.Command(python, append([]string{"verify.py"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if status = cmd.ProcessState.ExitCode(); strings.Contains(stderr.String(), "Traceback") {
		t.Fatalf("verify.py failed:\n%s", &stderr)
	}
	return strings.TrimSpace(string(out)), status
}

// navra is blackbox.Verify's verdict, written as verify.py begins to write its own.
func navra(t *testing.T, path string) (line string, status int) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rep, err := db.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK() {
		return fmt.Sprintf("entry %d: ", rep.At), 1
	}
	var leaves [][32]byte
	for h, err := range db.Leaves(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, h)
	}
	return fmt.Sprintf("whole: %d entries, root %s", rep.Entries, root(leaves)), 0
}

// tree is the recursive definition of RFC 6962, section 2.1.
func tree(leaves [][32]byte) [32]byte {
	switch len(leaves) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return leaves[0]
	}
	k := 1
	for 2*k < len(leaves) {
		k *= 2
	}
	l, r := tree(leaves[:k]), tree(leaves[k:])
	return sha256.Sum256(append(append([]byte{1}, l[:]...), r[:]...))
}

func root(leaves [][32]byte) string {
	r := tree(leaves)
	return base64.StdEncoding.EncodeToString(r[:])
}

// A file is a database as somebody sees it who may write to it past navra.
type file struct {
	t  *testing.T
	db *sql.DB
}

func edit(t *testing.T, path string, f func(file)) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+strings.ReplaceAll(path, "?", "%3f"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	f(file{t, db})
}

func (f file) exec(query string, args ...any) {
	f.t.Helper()
	if _, err := f.db.Exec(query, args...); err != nil {
		f.t.Fatal(err)
	}
}

func (f file) bytes(column string, seq int) (b []byte) {
	f.t.Helper()
	if err := f.db.QueryRow("SELECT "+column+" FROM entries WHERE seq = ?", seq).Scan(&b); err != nil {
		f.t.Fatal(err)
	}
	return b
}

// rewrite puts a body in place of an entry's, with the hash that it then has.
func (f file) rewrite(seq int, body []byte) {
	f.t.Helper()
	h := blackbox.Hash(body)
	f.exec("UPDATE entries SET bodies = ?, hashes = ? WHERE seq = ?", body, h[:], seq)
}

func TestVerdictsAreNavras(t *testing.T) {
	for _, tt := range []struct {
		name   string
		bad    int // 0: none
		tamper func(file)
	}{
		{"nothing is cut", 0, func(f file) { f.exec("DELETE FROM entries WHERE seq > ?", entries) }},
		{"body is edited", 5, func(f file) {
			f.exec("UPDATE entries SET bodies = ? WHERE seq = 5", bytes.Replace(f.bytes("bodies", 5), []byte("tool 4"), []byte("tool 5"), 1))
		}},
		{"hash is edited", 5, func(f file) { f.exec("UPDATE entries SET hashes = ? WHERE seq = 5", make([]byte, 32)) }},
		{"entry is removed", 5, func(f file) { f.exec("DELETE FROM entries WHERE seq = 5") }},
		{"entries are swapped", 5, func(f file) {
			f.exec("UPDATE entries SET seq = -5 WHERE seq = 5")
			f.exec("UPDATE entries SET seq = 5 WHERE seq = 6")
			f.exec("UPDATE entries SET seq = 6 WHERE seq = -5")
		}},
		{"payload is edited", 5, func(f file) {
			f.exec("UPDATE entries SET payloads = ? WHERE seq = 5", bytes.Replace(f.bytes("payloads", 5), []byte("redacted"), []byte("Redacted"), 1))
		}},
		{"entry is inserted", 6, func(f file) {
			for seq := entries; seq > 4; seq-- {
				f.exec("UPDATE entries SET seq = seq + 1 WHERE seq = ?", seq)
			}
			e, err := blackbox.Decode(f.bytes("bodies", 6)) // what was 5
			if err != nil {
				f.t.Fatal(err)
			}
			e.Target = "forged"
			f.exec("INSERT INTO entries (seq, bodies, hashes) VALUES (5, x'', x'')")
			f.rewrite(5, e.Encode())
		}},
		{"prev is edited and rehashed", 5, func(f file) {
			e, err := blackbox.Decode(f.bytes("bodies", 5))
			if err != nil {
				f.t.Fatal(err)
			}
			e.Prev[0] ^= 1
			f.rewrite(5, e.Encode())
		}},
		{"last entry has another number", entries, func(f file) {
			f.rewrite(entries, bytes.Replace(f.bytes("bodies", entries), []byte(`{"seq":11,`), []byte(`{"seq":12,`), 1))
		}},
		{"numbers begin at 2", 1, func(f file) {
			f.exec("DELETE FROM entries WHERE seq > 1")
			f.exec("UPDATE entries SET seq = 2")
			f.rewrite(2, bytes.Replace(f.bytes("bodies", 2), []byte(`{"seq":1,`), []byte(`{"seq":2,`), 1))
		}},
		{"payload is added", 3, func(f file) {
			f.exec("UPDATE entries SET payloads = ? WHERE seq = 3", f.bytes("payloads", 5))
		}},
		{"payloads are cut", 4, func(f file) {
			f.exec("UPDATE entries SET payloads = ? WHERE seq = 4", f.bytes("payloads", 4)[:30])
		}},
		{"tail is cut", 0, func(f file) { f.exec("DELETE FROM entries WHERE seq > 5") }},
		{"everything is cut", 0, func(f file) { f.exec("DELETE FROM entries") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := makeDatabase(t)
			edit(t, path, tt.tamper)
			want, wantStatus := navra(t, path)
			if tt.bad > 0 && want != fmt.Sprintf("entry %d: ", tt.bad) || tt.bad == 0 && wantStatus != 0 {
				t.Errorf("navra: %q, want entry %d", want, tt.bad)
			}
			if got, status := script(t, path); status != wantStatus || status == 0 && got != want || !strings.HasPrefix(got, want) {
				t.Errorf("verify.py: %q, exit %d; navra: %q, %d", got, status, want, wantStatus)
			}
		})
	}
}

// TestOneEncoding rewrites the last entry, with its hash, to what any JSON reader, or almost any, takes for the same.
func TestOneEncoding(t *testing.T) {
	path := makeDatabase(t)
	var last []byte
	edit(t, path, func(f file) { last = f.bytes("bodies", entries) })
	prev := string(last[len(last)-66 : len(last)-2])
	text := func(raw string) []string { return []string{`"reason":""`, `"reason":"` + raw + `"`} }
	for _, tt := range []struct {
		name string
		repl []string // old, new
		ok   bool
	}{
		{"as it was", []string{"x", "x"}, true},
		{"another text", text("é 😀 \u2028 </>"), true},
		{"all escapes", text(`\"\\\u0000\u001f\u007f`), true},
		{"longest text", text(strings.Repeat("x", 4096)), true},
		{"text too long", text(strings.Repeat("x", 4097)), false},
		{"escape nobody needs", text(`\u0041`), false},
		{"short escape", text(`\n`), false},
		{"escaped solidus", text(`\/`), false},
		{"escape in capitals", text(`\u001F`), false},
		{"raw control", text("\x01"), false},
		{"raw delete", text("\x7f"), false},
		{"half a surrogate pair", text(`\ud83d`), false},
		{"not UTF-8", text("\xff"), false},
		{"surrogate in UTF-8", text("\xed\xa0\x80"), false},
		{"space", []string{`"reason":""`, `"reason": ""`}, false},
		{"end of line", []string{`"}`, "\"}\n"}, false},
		{"byte order mark", []string{`{"seq"`, "\ufeff" + `{"seq"`}, false},
		{"null", []string{`"reason":""`, `"reason":null`}, false},
		{"member twice", []string{`"reason":""`, `"reason":"","reason":""`}, false},
		{"member nobody knows", []string{`"reason":""`, `"reason":"","why":""`}, false},
		{"member missing", []string{`"reason":"",`, ``}, false},
		{"members out of order", []string{`"stage":"","reason":""`, `"reason":"","stage":""`}, false},
		{"largest number", []string{`"cause":1`, `"cause":18446744073709551615`}, true},
		{"number too large", []string{`"cause":1`, `"cause":18446744073709551616`}, false},
		{"number below zero", []string{`"cause":1`, `"cause":-1`}, false},
		{"number of zero below zero", []string{`"n":-1`, `"n":-0`}, false},
		{"fraction", []string{`"cause":1`, `"cause":1.0`}, false},
		{"exponent", []string{`"cause":1`, `"cause":1e0`}, false},
		{"true", []string{`"cause":1`, `"cause":true`}, false},
		{"smallest count", []string{`"n":-1`, `"n":-9223372036854775808`}, true},
		{"count too small", []string{`"n":-1`, `"n":-9223372036854775809`}, false},
		{"a count too many", []string{`"findings":[`, `"findings":[{"name":"","n":0},`}, false},
		{"leap day", []string{`"time":"`, `"time":"2024-02-29T23:59:59.000000Z`}, true},
		{"year 0", []string{`"time":"`, `"time":"0000-02-29T00:00:00.000000Z`}, true},
		{"no leap day", []string{`"time":"`, `"time":"2100-02-29T00:00:00.000000Z`}, false},
		{"leap second", []string{`"time":"`, `"time":"2016-12-31T23:59:60.000000Z`}, false},
		{"zone", []string{`"time":"`, `"time":"2024-02-29T23:59:59.000000+00:00`}, false},
		{"fewer digits", []string{`"time":"`, `"time":"2024-02-29T23:59:59.000Z`}, false},
		{"other digits", []string{`"time":"`, `"time":"２024-02-29T23:59:59.000000Z`}, false},
		{"hash in capitals", []string{prev, strings.ToUpper(prev)}, false},
		{"hash too long", []string{`"stored_sha256":"`, `"stored_sha256":"0`}, false},
		{"hash too short", []string{`"prev":"`, `"prev":`}, false},
		{"nested too deep", []string{`"findings":[`, `"findings":` + strings.Repeat("[", 100000)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := string(last)
			if tt.repl[0] == `"time":"` {
				at := strings.Index(body, tt.repl[0])
				body = body[:at] + tt.repl[1] + body[at+len(`"time":"2006-01-02T15:04:05.000000Z`):]
			} else if body = strings.Replace(body, tt.repl[0], tt.repl[1], 1); body == string(last) && !tt.ok {
				t.Fatalf("there is no %s in %s", tt.repl[0], last)
			}
			edit(t, path, func(f file) { f.rewrite(entries, []byte(body)) })
			want, wantStatus := navra(t, path)
			if (wantStatus == 0) != tt.ok {
				t.Errorf("navra: %q, want ok %v", want, tt.ok)
			}
			if got, status := script(t, path); status != wantStatus || status == 0 && got != want || !strings.HasPrefix(got, want) {
				t.Errorf("verify.py: %q, exit %d; navra: %q, %d", got, status, want, wantStatus)
			}
		})
	}
}

// TestStrict tampers with what a careless verifier does not look at.
func TestStrict(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		tamper     func(file)
	}{
		{"salt takes the beginning of what is stored", "entry 5: ", func(f file) { // the commitment stays right
			b := f.bytes("payloads", 5)
			at := bytes.Index(b, []byte("\x08redacted\x10"))
			salt := b[at+10 : at+26]
			moved := append([]byte("\x06dacted\x12"), salt...)
			f.exec("UPDATE entries SET payloads = ? WHERE seq = 5", slices.Concat(b[:at], moved, []byte("re"), b[at+26:]))
		}},
		{"more behind the hash", "entry 5: ", func(f file) { f.exec("UPDATE entries SET hashes = ? WHERE seq = 5", append(f.bytes("hashes", 5), 0)) }},
		{"row before the first", "entry 1: ", func(f file) { f.exec("INSERT INTO entries (seq, bodies, hashes) VALUES (-7, x'', x'')") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := makeDatabase(t)
			edit(t, path, tt.tamper)
			if got, status := script(t, path); !strings.HasPrefix(got, tt.want) || status != 1 {
				t.Errorf("verify.py: %q, exit %d, want %q", got, status, tt.want)
			}
			if line, _ := navra(t, path); line != tt.want {
				t.Errorf("navra: %q, want %q", line, tt.want)
			}
		})
	}
}

func TestCheckpoints(t *testing.T) {
	path := makeDatabase(t)
	var leaves [][32]byte
	edit(t, path, func(f file) {
		for seq := 1; seq <= entries; seq++ {
			leaves = append(leaves, [32]byte(f.bytes("hashes", seq)))
		}
	})
	seed := sha256.Sum256([]byte("a key of this test"))
	private := ed25519.NewKeyFromSeed(seed[:])
	public := append([]byte{1}, private.Public().(ed25519.PublicKey)...)
	id := sha256.Sum256(append([]byte("navra/test\n"), public...))
	key := "navra/test+" + hex.EncodeToString(id[:4]) + "+" + base64.StdEncoding.EncodeToString(public)
	note := func(size int, root string) string {
		body := fmt.Sprintf("navra/test\n%d\n%s\n", size, root)
		sig := append(id[:4:4], ed25519.Sign(private, []byte(body))...)
		return body + "\n— navra/test " + base64.StdEncoding.EncodeToString(sig) + "\n"
	}
	set := func(size int, note string) {
		edit(t, path, func(f file) {
			f.exec("INSERT OR REPLACE INTO checkpoints (size, note, frontier) VALUES (?, ?, x'')", size, []byte(note))
		})
	}
	whole := "whole: "
	check := func(name, want string, args ...string) {
		t.Helper()
		status := 1
		if want == whole {
			status = 0
		}
		if got, s := script(t, append(args, path)...); !strings.HasPrefix(got, want) || s != status {
			t.Errorf("%s: %q, exit %d, want %q", name, got, s, want)
		}
	}
	for size := 1; size <= entries; size++ {
		set(size, note(size, root(leaves[:size])))
	}
	check("good", whole)
	signatures := exec.Command("python3", "-c", "import cryptography").Run() == nil
	if signatures {
		check("good, with key", whole, "--key", key)
	} else if _, status := script(t, "--key", key, path); status != 2 {
		t.Errorf("without the module, signatures count as checked: exit %d", status)
	}
	good := note(7, root(leaves[:7]))
	for _, tt := range []struct{ name, note string }{
		{"root of another size", note(7, root(leaves[:6]))},
		{"note of another size", note(6, root(leaves[:6]))},
		{"another's log", strings.Replace(good, "navra/", "other/", 1)},
		{"a line more", strings.Replace(good, "\n\n", "\nmore\n\n", 1)},
		{"no signature", good[:strings.Index(good, "—")]},
		{"nothing", ""},
		{"not UTF-8", "\xff" + good},
	} {
		set(7, tt.note)
		check(tt.name, "checkpoint of size 7: ")
	}
	set(7, strings.Replace(good, "navra/test\n", "navra/prod\n", 1))
	check("changed under the signature, without the key", whole)
	if signatures {
		check("changed under the signature", "checkpoint of size 7: ", "--key", key)
	}
	set(7, good)
	edit(t, path, func(f file) { f.exec("DELETE FROM entries WHERE seq > 9") })
	check("cut below a checkpoint", "checkpoint of size 10: ")
}

func TestUsage(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.db")
	edit(t, other, func(f file) { f.exec("CREATE TABLE entries (seq INTEGER PRIMARY KEY)") })
	for _, args := range [][]string{{}, {"a", "b"}, {"--key", "x", "a"}, {filepath.Join(t.TempDir(), "none.db")}, {other}, {"verify.py"}} {
		if out, status := script(t, args...); status != 2 || out != "" {
			t.Errorf("verify.py %q: %q, exit %d, want 2", args, out, status)
		}
	}
}

// TestUpgraded verifies a file that an older navra wrote: as it is, nothing is said of it, and once it is upgraded it is whole.
func TestUpgraded(t *testing.T) {
	b, err := os.ReadFile("../internal/store/sqlite/testdata/schema1.db")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "old.db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, status := script(t, path); status != 2 || out != "" {
		t.Errorf("verify.py: %q, exit %d, want 2", out, status)
	}
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	want, _ := navra(t, path)
	if got, status := script(t, path); got != want || status != 0 || !strings.HasPrefix(got, "whole: 13 ") {
		t.Errorf("verify.py: %q, exit %d, want %q", got, status, want)
	}
}

// TestWhileItIsWritten verifies a database that is open, without changing it.
func TestWhileItIsWritten(t *testing.T) {
	path := makeDatabase(t)
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Commit(context.Background(), store.Commit{Entry: blackbox.Entry{Kind: blackbox.Event, Time: time.Now()}, Raise: ifc.Bottom()}); err != nil {
		t.Fatal(err)
	}
	want, _ := navra(t, path)
	if got, status := script(t, path); got != want || status != 0 || !strings.HasPrefix(got, fmt.Sprintf("whole: %d ", entries+1)) {
		t.Errorf("verify.py: %q, exit %d, want %q", got, status, want)
	}
}
