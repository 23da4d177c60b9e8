package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/ifc"
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
