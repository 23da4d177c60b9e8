package contrib_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/store/sqlite"
)

// loose makes the table of entries anew, without its key and types.
func loose(f file) {
	f.exec("CREATE TABLE loose (seq, bodies, hashes, payloads)")
	f.exec("INSERT INTO loose SELECT * FROM entries")
	f.exec("DROP TABLE entries")
	f.exec("ALTER TABLE loose RENAME TO entries")
}

// TestOddColumns: a table that was made anew may hold anything. Text counts as its bytes, and what has none as no bytes.
func TestOddColumns(t *testing.T) {
	for _, tt := range []struct {
		set string
		bad int
	}{
		{"bodies = CAST(bodies AS TEXT)", 0},
		{"hashes = CAST(hashes AS TEXT)", 0},
		{"payloads = CAST(payloads AS TEXT)", 0},
		{"bodies = NULL", 5},
		{"hashes = NULL", 5},
		{"bodies = 7", 5},
		{"hashes = 7.5", 5},
		{"payloads = 7", 0},
		{"bodies = ''", 5},
		{"payloads = ''", 0},
		{"payloads = zeroblob(4 * 65)", 5},
		{"payloads = zeroblob(100000000)", 5}, // 25 million payloads
		{"bodies = zeroblob(20000000)", 5},
	} {
		t.Run(tt.set, func(t *testing.T) {
			path := makeDatabase(t)
			edit(t, path, func(f file) {
				loose(f)
				f.exec("UPDATE entries SET " + tt.set + " WHERE seq = 5")
			})
			agree(t, path, tt.bad)
		})
	}
}

// agree has navra and verify.py find the same entry to be the first that is bad; 0 for none.
func agree(t *testing.T, path string, bad int) {
	t.Helper()
	want, wantStatus := navra(t, path)
	if bad > 0 && want != fmt.Sprintf("entry %d: ", bad) || bad == 0 && wantStatus != 0 {
		t.Errorf("navra: %q, want entry %d", want, bad)
	}
	if got, status := script(t, path); status != wantStatus || status == 0 && got != want || !strings.HasPrefix(got, want) {
		t.Errorf("verify.py: %q, exit %d; navra: %q, %d", got, status, want, wantStatus)
	}
}

// TestManyPayloads: an entry has 64 payloads at most, so that none can be made that takes for ever to verify.
func TestManyPayloads(t *testing.T) {
	for _, n := range []int{64, 65} {
		path := makeDatabase(t)
		edit(t, path, func(f file) {
			e, err := blackbox.Decode(f.bytes("bodies", entries))
			if err != nil {
				t.Fatal(err)
			}
			e.Payloads = nil
			for i := range n {
				e.Payloads = append(e.Payloads, blackbox.NewPayload(fmt.Sprint(i), nil, nil))
			}
			var packed bytes.Buffer
			for _, p := range e.Payloads {
				fmt.Fprintf(&packed, "%c%s\x00\x10%s\x10%s", len(p.Name), p.Name, p.StoredSalt, p.WholeSalt)
			}
			f.rewrite(entries, e.Encode())
			f.exec("UPDATE entries SET payloads = ? WHERE seq = ?", packed.Bytes(), entries)
		})
		agree(t, path, map[int]int{64: 0, 65: entries}[n])
	}
}

// TestCannotBeVerified: rows that no range of numbers has, and what is no table, are not passed over.
func TestCannotBeVerified(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tamper func(file)
	}{
		{"a number is NULL", func(f file) { loose(f); f.exec("INSERT INTO entries VALUES (NULL, x'', x'', NULL)") }},
		{"a number is a text", func(f file) { loose(f); f.exec("INSERT INTO entries VALUES ('x', x'', x'', NULL)") }},
		{"a number is bytes", func(f file) { loose(f); f.exec("INSERT INTO entries VALUES (x'00', x'', x'', NULL)") }},
		{"a number is infinite", func(f file) { loose(f); f.exec("INSERT INTO entries VALUES (9e999, x'', x'', NULL)") }},
		{"a number is very small", func(f file) { loose(f); f.exec("INSERT INTO entries VALUES (-1e300, x'', x'', NULL)") }},
		{"a number has a fraction", func(f file) { loose(f); f.exec("UPDATE entries SET seq = 5.5 WHERE seq = 5") }},
		{"numbers are no integers", func(f file) { loose(f); f.exec("UPDATE entries SET seq = CAST(seq AS REAL)") }},
		{"a view", func(f file) {
			f.exec("ALTER TABLE entries RENAME TO hidden")
			f.exec("CREATE VIEW entries AS SELECT * FROM hidden WHERE seq < 5 OR sqlite_version() < '1'")
		}},
		{"a view without an end", func(f file) {
			f.exec("DROP TABLE entries")
			f.exec("CREATE VIEW entries AS WITH RECURSIVE n (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n) SELECT seq, x'' AS bodies, x'' AS hashes, x'' AS payloads FROM n")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := makeDatabase(t)
			edit(t, path, tt.tamper)
			db, err := sqlite.Open(t.Context(), path, sqlite.Options{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if rep, err := db.Verify(t.Context()); err == nil {
				t.Errorf("navra: %+v, want an error", rep)
			}
			for _, err = range db.Rows(t.Context(), 0) {
			}
			if err == nil {
				t.Error("navra: all rows were read")
			}
			if got, status := script(t, path); status != 2 {
				t.Errorf("verify.py: %q, exit %d, want 2", got, status)
			}
		})
	}
}

// TestOddCheckpoints: one without a note is a bad one, and of one without a size nothing can be said.
func TestOddCheckpoints(t *testing.T) {
	path := makeDatabase(t)
	edit(t, path, func(f file) {
		f.exec("DROP TABLE checkpoints")
		f.exec("CREATE TABLE checkpoints (size, note, frontier)")
		f.exec("INSERT INTO checkpoints VALUES (5, NULL, NULL)")
	})
	if got, status := script(t, path); status != 1 || !strings.HasPrefix(got, "checkpoint of size 5: ") {
		t.Errorf("without a note: %q, exit %d", got, status)
	}
	edit(t, path, func(f file) { f.exec("UPDATE checkpoints SET size = 'five'") })
	if got, status := script(t, path); status != 2 {
		t.Errorf("without a size: %q, exit %d, want 2", got, status)
	}
}
