package sqlite_test

import (
	"path/filepath"
	"slices"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/store/sqlite"
)

func TestRecentIsWhatThisProcessCommitted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "navra.db")
	here, there := open(t, path), open(t, path)
	commit := func(db *sqlite.DB, n int) {
		for range n {
			if _, err := db.Commit(t.Context(), entry("m")); err != nil {
				t.Fatal(err)
			}
		}
	}
	leaves := func(from, to blackbox.Seq) (out [][32]byte) {
		for h, err := range here.Leaves(t.Context(), from) {
			if err != nil {
				t.Fatal(err)
			}
			if out = append(out, h); from+blackbox.Seq(len(out)) > to {
				break
			}
		}
		return out
	}
	for _, step := range []struct {
		name string
		db   *sqlite.DB
		n    int // commits
		from blackbox.Seq
		to   blackbox.Seq // the last that is expected; 0: none are
	}{
		{name: "all", db: here, n: 3, from: 1, to: 3},
		{name: "nothing new", db: here, n: 0, from: 4},
		{name: "from the midst", db: here, n: 3, from: 5, to: 6},
		{name: "forgotten", db: here, n: 1, from: 6},
		{name: "another process's", db: there, n: 2, from: 8},
		{name: "one of another process is between", db: here, n: 2, from: 8},
		{name: "after the other process", db: here, n: 1, from: 12, to: 12},
	} {
		commit(step.db, step.n)
		got := here.Recent(step.from)
		var want [][32]byte
		if step.to > 0 {
			want = leaves(step.from, step.to)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: Recent(%d) = %x, want %x", step.name, step.from, got, want)
		}
	}
}
