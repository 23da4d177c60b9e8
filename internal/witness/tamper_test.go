package witness

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/heads"
	"navra/internal/seal"
)

var update = flag.Bool("update", false, "write the table of docs/blackbox.md anew")

// TestTampering does to a log what the table of docs/blackbox.md lists.
func TestTampering(t *testing.T) {
	key, other := seal.New(), seal.New()
	for store, empty := range vaults {
		for _, o := range operations(key, other) {
			if o.only != "" && o.only != store {
				continue
			}
			t.Run(strings.Join([]string{store, o.done, o.what}, "/"), func(t *testing.T) {
				t.Parallel()
				l := newLog(t, empty(t), key)
				for _, f := range l.levels(t) {
					if !f.OK() {
						t.Fatalf("untouched, it is flagged: %+v", f)
					}
				}
				o.do(t, l)
				after := l.levels(t)
				for level, f := range after {
					if found := !f.OK(); found != (level >= o.needs) {
						t.Errorf("with %s: found %v (%s), want it found with %s", needsWords[level], found, f.Problem, needsWords[o.needs])
					} else if found && o.at != 0 && f.At != o.at {
						t.Errorf("with %s: the first bad entry is %d (%s), want %d", needsWords[level], f.At, f.Problem, o.at)
					} else if f.Unclean {
						t.Errorf("with %s: it is called an unclean stop", needsWords[level])
					} else if found {
						checkDescribed(t, f.Problem)
					}
				}
				if f, ok := l.vault.(*file); ok {
					checkScript(t, f.path, l.key, after[needsDatabase])
				}
			})
		}
	}
}

// signatures reports whether verify.py can check them.
var signatures = sync.OnceValue(func() bool { return exec.Command("python3", "-c", "import cryptography").Run() == nil })

// checkScript runs contrib/verify.py, which has the database and the verifier key: it finds the same.
func checkScript(t *testing.T, path, key string, want Finding) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	args := []string{"../../contrib/verify.py", path}
	if signatures() {
		args = append(args, "--key", key)
	} else if strings.Contains(want.Problem, "signed with another key") {
		t.Skip("verify.py needs the Python module cryptography to check signatures")
	}
	out, err := exec.Command(python, args...).Output()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("verify.py: %v, %s", err, out)
	}
	var at blackbox.Seq
	_, _ = fmt.Sscanf(string(out), "entry %d:", &at)
	named := at > 0 || strings.HasPrefix(string(out), "checkpoint of size ")
	if (err == nil) != want.OK() || err != nil && !named {
		t.Errorf("verify.py: %s, %v; navra: %+v", out, err, want.Report)
	}
	if strings.HasPrefix(string(out), "entry ") && at != want.At {
		t.Errorf("verify.py: %s; navra: entry %d", out, want.At)
	}
}

// TestTable: what docs/blackbox.md says of these operations is what the test above shows.
func TestTable(t *testing.T) {
	const path, begin, end = "../../docs/blackbox.md", "<!-- go test ./internal/witness -run TestTable -update -->\n", "<!-- until here -->\n"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	is, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	want := table(operations(seal.Key{}, seal.Key{}))
	if is == want {
		return
	}
	if !*update {
		t.Fatalf("the table of %s is another than the operations say; go test ./internal/witness -run TestTable -update", path)
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// table is a line for each thing done, with all entries that its operations have named.
func table(list []operation) string {
	var b strings.Builder
	b.WriteString("| done | found with | first bad entry |\n|---|---|---|\n")
	for len(list) > 0 {
		o, n := list[0], 0
		var named []string
		for ; n < len(list) && list[n].done == o.done; n++ {
			if at := fmt.Sprint(list[n].at); list[n].at != 0 && !slices.Contains(named, at) {
				named = append(named, at)
			}
		}
		with := needsWords[o.needs]
		if o.needs == never {
			with = "**nothing**"
		}
		if o.only != "" {
			with += "; in " + o.only + " alone it can be done"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", o.done, with, strings.Join(named, ", "))
		list = list[n:]
	}
	return b.String()
}

// TestLinesAreOne: what shares a line of the table needs the same to be found.
func TestLinesAreOne(t *testing.T) {
	lines := map[string]operation{}
	for _, o := range operations(seal.Key{}, seal.Key{}) {
		if first, ok := lines[o.done]; ok && (first.needs != o.needs || first.only != o.only || o.what == "" || first.what == o.what) {
			t.Errorf("%q and %q share a line of the table, and are not found alike", first.what, o.what)
		} else if !ok {
			lines[o.done] = o
		}
	}
}

// TestUncleanStop: a tail that is missing after the machine was started anew is no tampering, where the disk need not hold it.
func TestUncleanStop(t *testing.T) {
	for _, tt := range []struct {
		name    string
		boot    string // of the heads file
		sign    bool   // a checkpoint of the lost tail was copied elsewhere
		keep    bool   // and is in the database
		unclean bool
	}{
		{"power cut", "another", false, false, true},
		{"power cut, with a checkpoint of what is lost", "another", true, false, true},
		{"no power cut", heads.Boot(), false, false, false},
		{"no power cut, with a checkpoint of what is lost", heads.Boot(), true, false, false},
		{"power cut, but the disk is promised", "", false, false, false},
		{"power cut, but a checkpoint outlived it", "another", true, true, false},
	} {
		for store, empty := range vaults {
			t.Run(tt.name+"/"+store, func(t *testing.T) {
				t.Parallel()
				l := newLog(t, empty(t), seal.New())
				if tt.sign {
					l.with(t, func(db database) { l.sign(t, db) })
				}
				l.drop(t, "seq > 35")
				if !tt.keep {
					l.exec(t, "DELETE FROM @checkpoints WHERE size > 35")
				}
				m, ok, err := heads.Read(l.heads, l.tag)
				if !ok || err != nil {
					t.Fatal(ok, err)
				}
				m.Boot = tt.boot
				f := l.against(t, Evidence{Key: l.key, Mark: &m, Since: [][]byte{l.since}})
				checkDescribed(t, f.Problem)
				if f.At != 36 || f.Unclean != tt.unclean || strings.Contains(f.Problem, "tail lost in an unclean stop") != tt.unclean || strings.Contains(f.Problem, "cut off") == tt.unclean {
					t.Errorf("%+v, want entry 36, unclean %v", f, tt.unclean)
				}
			})
		}
	}
	t.Run("an edited entry stays one", func(t *testing.T) {
		l := newLog(t, vaults["SQLite"](t), seal.New())
		l.edit(t, 7, `"allow"`, `"deny"`, false)
		l.drop(t, "seq > 35")
		if f := l.against(t, Evidence{Mark: &heads.Mark{Size: 40, Boot: "another"}}); f.At != 7 || f.Unclean {
			t.Errorf("%+v, want entry 7", f)
		}
	})
}

// TestRetentionIsNoTampering drops payloads: the log stays whole, and proofs hold.
func TestRetentionIsNoTampering(t *testing.T) {
	for store, empty := range vaults {
		t.Run(store, func(t *testing.T) {
			l := newLog(t, empty(t), seal.New())
			l.with(t, func(db database) {
				before, err := ProofOf(t.Context(), db, l.signer, 7, Evidence{Key: l.key})
				if err != nil {
					t.Fatal(err)
				}
				if n, err := db.DropPayloads(t.Context(), 20, 100); err != nil || n != 19 {
					t.Fatalf("DropPayloads = %d, %v", n, err)
				}
				if e, s, err := before.Check(l.key); err != nil || e.Seq != 7 || s.Size != entries {
					t.Errorf("Check = %+v, %+v, %v", e, s, err)
				}
				before.Entry = []byte(strings.Replace(string(before.Entry), `"allow"`, `"deny"`, 1))
				if _, _, err := before.Check(l.key); err == nil {
					t.Error("an edited entry is proved")
				}
			})
			if f := l.verify(t, needsCopy); !f.OK() || f.Checkpoints != 2 {
				t.Errorf("%+v, want whole with both checkpoints", f)
			}
		})
	}
}

// TestNothingIsSignedForAChangedLog: of a log that disagrees with itself, its checkpoint or the heads file no proof is made, and its key is not changed.
func TestNothingIsSignedForAChangedLog(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, l *log){
		"against the checkpoint": func(t *testing.T, l *log) { l.rewrite(t, 7) },
		"against the heads file": func(t *testing.T, l *log) {
			l.rewrite(t, 7)
			l.exec(t, "DELETE FROM @checkpoints")
		},
		"against itself":   func(t *testing.T, l *log) { l.edit(t, 7, `"allow"`, `"deny"`, false) },
		"another's member": func(t *testing.T, l *log) { l.edit(t, 9, `"allow"`, `"deny"`, false) },
		"shorter":          func(t *testing.T, l *log) { l.drop(t, "seq > 35") },
	} {
		for store, empty := range vaults {
			t.Run(name+"/"+store, func(t *testing.T) {
				l := newLog(t, empty(t), seal.New())
				m, ok, err := heads.Read(l.heads, l.tag)
				if err != nil || !ok {
					t.Fatal(err)
				}
				do(t, l)
				l.with(t, func(db database) {
					e := Evidence{Key: l.key, Mark: &m}
					if p, err := ProofOf(t.Context(), db, l.signer, 7, e); !errors.Is(err, errDisagrees) {
						t.Errorf("a proof of a changed log: %+v, %v", p, err)
					}
					r := Rotation{Log: db, Store: db, Old: l.signer, Next: signer(t), Held: e, Use: func() error { return nil }}
					if _, err := r.Run(t.Context()); !errors.Is(err, errDisagrees) {
						t.Errorf("the key of a changed log was changed: %v", err)
					}
				})
			})
		}
	}
}

// TestStraysAreNamed: who looks for them finds them by the message.
func TestStraysAreNamed(t *testing.T) {
	l := newLog(t, vaults["PostgreSQL"](t), seal.New())
	kept := l.payloads(t, 7)
	for n := 101; n <= 104; n++ {
		l.put(t, n, kept)
	}
	f := l.verify(t, needsDatabase)
	for _, want := range []string{`"arguments" of entry 101`, `"result" of entry 102`, "and more"} {
		if !strings.Contains(f.Problem, want) || f.At != 101 {
			t.Errorf("At %d, %q, want 101 and %q in it", f.At, f.Problem, want)
		}
	}
}

// TestPagesHideNothing puts an entry twice where a page of entries ends.
func TestPagesHideNothing(t *testing.T) {
	const many, at = 1100, 1024 // the pages of both stores end there
	for store, empty := range vaults {
		t.Run(store, func(t *testing.T) {
			l := &log{vault: empty(t)}
			l.with(t, func(db database) { commit(t, db, many) })
			if f := l.against(t, Evidence{}); !f.OK() || f.Entries != many {
				t.Fatalf("untouched: %+v", f)
			}
			l.loosen(t)
			l.exec(t, "INSERT INTO @entries (seq, body, hash) SELECT seq, body, hash FROM @entries WHERE seq = $1", at)
			if f := l.against(t, Evidence{}); f.At != at+1 {
				t.Errorf("%+v, want entry %d", f, at+1)
			}
		})
	}
}
