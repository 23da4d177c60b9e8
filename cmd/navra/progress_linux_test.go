package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"navra/internal/blackbox"
	"navra/internal/store"
	"navra/internal/store/sqlite"
	"navra/internal/witness"
)

// openPTY returns both ends of a terminal.
func openPTY(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

func logOf(t *testing.T, n int) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "navra.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for range n {
		if _, err := db.Commit(t.Context(), store.Commit{Entry: blackbox.Entry{Kind: blackbox.Event}}); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

// TestProgressIsShownToAPerson verifies before a terminal, by a clock on which an entry takes a millisecond and its asking 64.
func TestProgressIsShownToAPerson(t *testing.T) {
	db := logOf(t, 1000)
	person, program := openPTY(t)
	log, err := watching(t.Context(), db, program)
	if err != nil {
		t.Fatal(err)
	}
	w, ok := log.(watched)
	if !ok {
		t.Fatalf("on a terminal nothing is shown: %T", log)
	}
	at := time.Unix(0, 0)
	w.now = func() time.Time { at = at.Add(64 * time.Millisecond); return at }
	if f, err := witness.Verify(t.Context(), w, witness.Evidence{}); err != nil || !f.OK() || f.Entries != 1000 {
		t.Fatalf("Verify = %+v, %v", f, err)
	}
	fmt.Fprint(program, "END")
	var got bytes.Buffer
	for b := make([]byte, 4096); !strings.Contains(got.String(), "END"); {
		n, err := person.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got.Write(b[:n])
	}
	want := "\r\x1b[K256 of 1000 entries, 1000 a second" + "\r\x1b[K512 of 1000 entries, 1000 a second" + "\r\x1b[K768 of 1000 entries, 1000 a second" + "\r\x1b[KEND"
	if got.String() != want {
		t.Errorf("shown: %q, want %q", got.String(), want)
	}
}

func TestNoProgressWithoutATerminal(t *testing.T) {
	db := logOf(t, 3)
	var out, err bytes.Buffer
	if e := verify(context.Background(), std{out: &out, err: &err}, db, witness.Evidence{}, ""); e != nil {
		t.Fatal(e)
	}
	if err.Len() > 0 || !strings.HasPrefix(out.String(), "whole: 3 entries") {
		t.Errorf("%q, and on stderr %q", out.String(), err.String())
	}
}
