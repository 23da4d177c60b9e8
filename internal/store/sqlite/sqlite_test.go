package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/scope"
	"navra/internal/store"
	"navra/internal/store/sqlite"
	"navra/internal/store/storetest"
)

// When set, the test binary is another process that appends to the file that it names.
const appendTo = "NAVRA_TEST_APPEND"

func TestMain(m *testing.M) {
	if path := os.Getenv(appendTo); path != "" {
		os.Exit(appender(path))
	}
	os.Exit(m.Run())
}

func appender(path string) int {
	n := 0
	db, err := sqlite.Open(background(), path, sqlite.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer db.Close()
	fmt.Sscan(os.Getenv("NAVRA_TEST_COUNT"), &n)
	for i := range n {
		if _, err := db.Commit(background(), entry(fmt.Sprint(os.Getpid(), "-", i))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

func background() context.Context { return context.Background() }

func entry(method string) store.Commit {
	return store.Commit{Raise: ifc.Bottom(), Entry: blackbox.Entry{Kind: blackbox.Request, Method: method, Time: time.Now(), Payloads: []blackbox.Payload{blackbox.NewPayload("arguments", []byte(method), []byte(method))}}}
}

func open(t testing.TB, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(background(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func openDir(t *testing.T, dir string, clock *storetest.Clock) storetest.Log {
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "state", "navra.db"), sqlite.Options{Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestSuite(t *testing.T) {
	storetest.Run(t, func(t *testing.T, dir string, clock *storetest.Clock) storetest.Verifier {
		return openDir(t, dir, clock)
	})
}

func TestLog(t *testing.T) { storetest.RunLog(t, openDir) }

func TestSeveralProcessesAreOneChain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "navra.db")
	const processes, each = 4, 150
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), appendTo+"="+path, fmt.Sprint("NAVRA_TEST_COUNT=", each))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	rep, err := open(t, path).Verify(background())
	if err != nil || !rep.OK() || rep.Entries != processes*each {
		t.Errorf("Verify = %+v, %v, want %d good entries", rep, err, processes*each)
	}
}

func TestKilledWriterLeavesAWholeChain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "navra.db")
	db := open(t, path)
	for round := range 10 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), appendTo+"="+path, "NAVRA_TEST_COUNT=1000000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		before, err := db.Last(background())
		if err != nil {
			t.Fatal(err)
		}
		for now := before; now < before+blackbox.Seq(5+round); {
			if now, err = db.Last(background()); err != nil {
				t.Fatal(err)
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
	}
	if _, err := db.Commit(background(), entry("after")); err != nil {
		t.Fatal(err)
	}
	if rep, err := db.Verify(background()); err != nil || !rep.OK() || rep.Entries < 50 {
		t.Errorf("Verify = %+v, %v", rep, err)
	}
}

func TestFilesAreForTheOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "navra.db")
	db := open(t, path)
	if _, err := db.Commit(background(), entry("x")); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"", "-wal", "-shm"} {
		if info, err := os.Stat(path + f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want 0600", path+f, info, err)
		}
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v, want 0700", info, err)
	}
}

func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	garbage, foreign, newer := filepath.Join(dir, "garbage"), filepath.Join(dir, "foreign"), filepath.Join(dir, "newer")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, stmt := range map[string]string{foreign: "CREATE TABLE theirs (x)", newer: "PRAGMA user_version = 99"} {
		raw(t, path, stmt)
	}
	for path, want := range map[string]string{garbage: "database", foreign: "another program", newer: "newer navra", filepath.Join(dir, "a", "b", "\x00"): "store"} {
		_, err := sqlite.Open(background(), path, sqlite.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q) = %v, want an error with %q", path, err, want)
		}
	}
	if _, err := sqlite.Open(background(), filepath.Join(dir, "none"), sqlite.Options{ReadOnly: true}); err == nil {
		t.Error("a file that is not there was opened to be read")
	}
}

// raw runs SQL on the file as an attacker would.
func raw(t *testing.T, path, stmt string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(stmt); err != nil {
		t.Fatal(err)
	}
}

// TestWhoWaitsBehindALockFailsWithIt: in the time that one waits for it, however many there are; whether they begin a scope or commit.
func TestWhoWaitsBehindALockFailsWithIt(t *testing.T) {
	path := filled(t, 1)
	db := open(t, path)
	before := db.Queued()
	holder, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	holder.SetMaxOpenConns(1)
	if _, err := holder.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	const callers = 4
	done := make(chan error, callers)
	for i := range callers {
		go func() {
			var err error
			if i == 0 {
				_, err = db.Commit(background(), entry("x"))
			} else {
				_, err = db.Scope(background(), scope.Opening{ID: scope.ID(fmt.Sprint(i))})
			}
			done <- err
		}()
	}
	for db.Queued() < before+callers-1 {
		time.Sleep(time.Millisecond)
	}
	first := <-done
	if _, err := holder.Exec("ROLLBACK"); err != nil { // who now waited anew would come through
		t.Fatal(err)
	}
	for range callers - 1 {
		if err := <-done; err == nil || first == nil || store.Why(err) != store.Why(first) || store.Why(err) == "" {
			t.Errorf("%v, want as the first: %v", err, first)
		}
	}
	if _, err := db.Scope(t.Context(), scope.Opening{ID: "later"}); err != nil {
		t.Error(err)
	}
}

func TestFullDiskDeniesAndRecovers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "navra.db")
	db := open(t, path)
	sc, err := db.Scope(background(), scope.Opening{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	db.LimitPages(t, 40)
	good := 0
	for range 500 {
		c := entry(strings.Repeat("x", 2000))
		c.Scope, c.IfScope = "a", sc.Version
		if _, err = db.Commit(background(), c); err != nil {
			break
		}
		good++
	}
	if err == nil || !strings.Contains(err.Error(), "full") {
		t.Fatalf("a full disk: %v after %d entries", err, good)
	}
	db.LimitPages(t, 1<<30)
	if _, err := db.Commit(background(), entry("again")); err != nil {
		t.Errorf("after there is room again: %v", err)
	}
	if rep, err := db.Verify(background()); err != nil || !rep.OK() || rep.Entries != uint64(good)+1 {
		t.Errorf("Verify = %+v, %v, want %d good entries", rep, err, good+1)
	}
}

func TestTamperingIsFound(t *testing.T) {
	for name, stmt := range map[string]string{
		"edited":          "UPDATE entries SET bodies = CAST(replace(CAST(bodies AS TEXT), 'request', 'answer') AS BLOB) WHERE seq = 5",
		"hash edited":     "UPDATE entries SET hashes = zeroblob(32) WHERE seq = 5",
		"removed":         "PRAGMA foreign_keys = OFF; DELETE FROM entries WHERE seq = 5",
		"swapped":         "PRAGMA foreign_keys = OFF; UPDATE entries SET seq = 99 WHERE seq = 5; UPDATE entries SET seq = 5 WHERE seq = 6; UPDATE entries SET seq = 6 WHERE seq = 99",
		"payload edited":  "UPDATE entries SET payloads = CAST(substr(payloads, 1, 11) || x'78' || substr(payloads, 13) AS BLOB) WHERE seq = 5",
		"payload damaged": "UPDATE entries SET payloads = x'ff' WHERE seq = 5",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "navra.db")
			db := open(t, path)
			for i := range 10 {
				if _, err := db.Commit(background(), entry(fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
			}
			raw(t, path, stmt)
			if rep, err := db.Verify(background()); err != nil || rep.OK() || rep.At != 5 {
				t.Errorf("Verify = %+v, %v, want the first bad entry 5", rep, err)
			}
		})
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			db := open(b, filepath.Join(b.TempDir(), "navra.db"))
			if _, err := db.Scope(background(), scope.Opening{ID: "a"}); err != nil {
				b.Fatal(err)
			}
			b.SetParallelism(callers)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c := entry(strings.Repeat("x", 600))
					c.Scope, c.IfScope = "a", 1
					if _, err := db.Commit(background(), c); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
