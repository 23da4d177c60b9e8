package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/scope"
	"navra/internal/store"
)

// TestCloseLetsGo: of the file, which the last that closes it brings into order: what is in the write-ahead log goes into the main file.
func TestCloseLetsGo(t *testing.T) {
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "navra.db"))
	if _, err := db.Commit(t.Context(), store.Commit{Entry: blackbox.Entry{Kind: blackbox.Event}, Raise: ifc.Bottom()}); err != nil {
		t.Fatal(err)
	}
	for _, err := range db.Rows(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Controls(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("there are %v, %v, want the database alone", left, err)
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, dir) {
			t.Errorf("%s is still open", to)
		}
	}
}

// TestFilesBesideAreMissed: what is written to a write-ahead log that has no name any more is lost with the process, and who has another index of it
// writes over it.
func TestFilesBesideAreMissed(t *testing.T) {
	path := filled(t, 3)
	db := open(t, path)
	if _, err := db.Commit(t.Context(), entry("before")); err != nil {
		t.Fatal(err)
	}
	n := 4
	for _, end := range []string{"-wal", "-shm"} {
		if err := os.Rename(path+end, path+".away"); err != nil {
			t.Fatal(err)
		}
		if r, err := db.Commit(t.Context(), entry("meanwhile")); err == nil || !strings.Contains(store.Why(err), "beside the database") {
			t.Errorf("without %s: Commit = %+v, %v", end, r, err)
		}
		if s, err := db.Scope(t.Context(), scope.Opening{ID: scope.ID(end)}); err == nil {
			t.Errorf("without %s: Scope = %+v", end, s)
		}
		if err := os.Rename(path+".away", path+end); err != nil {
			t.Fatal(err)
		}
		n++
		if r, err := db.Commit(t.Context(), entry("after")); err != nil || int(r.Seq) != n {
			t.Errorf("with %s again: Commit = %+v, %v", end, r, err)
		}
	}
	if rep, err := db.Verify(t.Context()); err != nil || !rep.OK() || int(rep.Entries) != n {
		t.Errorf("Verify = %+v, %v", rep, err)
	}
}
