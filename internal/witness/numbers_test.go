package witness

import (
	"fmt"
	"iter"
	"math"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/store"
)

// TestRowsOfStrangeNumbers: rows that somebody has put below the first entry, or at the largest number there is, keep nobody from the entries: these
// are yielded once each, in order, and what reads them ends. Who verifies is given all. Nothing is written after the largest number.
func TestRowsOfStrangeNumbers(t *testing.T) {
	const entries, below, put = 300, 1500, "WITH RECURSIVE n(i) AS (SELECT -1499 UNION ALL SELECT i+1 FROM n WHERE i < 0) INSERT INTO @entries (seq, body, hash) SELECT i, body, hash FROM n, @entries WHERE seq = 7"
	for name, make := range vaults {
		t.Run(name, func(t *testing.T) {
			v := make(t)
			db := v.open(t)
			defer db.Close()
			commit := func() error {
				_, err := db.Commit(t.Context(), store.Commit{Raise: ifc.Bottom(), Entry: blackbox.Entry{Kind: blackbox.Event}})
				return err
			}
			for range entries {
				if err := commit(); err != nil {
					t.Fatal(err)
				}
			}
			v.exec(t, put)
			v.exec(t, "INSERT INTO @entries (seq, body, hash) SELECT 9223372036854775807, body, hash FROM @entries WHERE seq = 7")
			for range 2 {
				if err := commit(); err == nil {
					t.Error("an entry was committed after the largest number")
				}
			}
			inOrder(t, "from 1 on", db.Rows(t.Context(), 1), 1, entries, true)
			inOrder(t, "from 0 on", db.Rows(t.Context(), 0), 1-below, entries, true)
			inOrder(t, "from the largest on", db.Rows(t.Context(), math.MaxInt64), 1, 0, true)
			inOrder(t, "from more than that on", db.Rows(t.Context(), math.MaxInt64+1), 1, 0, false)
			leaves := 0
			for _, err := range db.Leaves(t.Context(), 1) {
				if leaves++; err != nil || leaves > entries+1 {
					t.Fatalf("leaf %d of %d: %v", leaves, entries+1, err)
				}
			}
			v.exec(t, "DELETE FROM @entries WHERE seq > 0")
			inOrder(t, "below alone, from 1 on", db.Rows(t.Context(), 1), 1, 0, false)
			inOrder(t, "below alone, from 0 on", db.Rows(t.Context(), 0), 1-below, 0, false)
			f, err := Verify(t.Context(), db, Evidence{})
			if want := fmt.Sprintf("entry %d stands where entry 1 should", 1-below); err != nil || f.At != 1 || f.Problem != want {
				t.Errorf("Verify = %+v, %v, want %q at entry 1", f.Report, err, want)
			}
		})
	}
}

// inOrder wants rows from a number to another, and the largest where there is that too.
func inOrder(t *testing.T, what string, rows iter.Seq2[blackbox.Row, error], from, to int64, largest bool) {
	t.Helper()
	at := from
	for row, err := range rows {
		switch n := int64(row.Seq); {
		case err != nil:
			t.Fatalf("%s: %v", what, err)
		case n == at && at <= to:
			at++
		case n == math.MaxInt64 && at == to+1 && largest:
			largest = false
		default:
			t.Fatalf("%s: row %d, want %d", what, n, at)
		}
	}
	if at != to+1 || largest {
		t.Errorf("%s: the rows end before %d; the largest is missing: %v", what, at, largest)
	}
}
