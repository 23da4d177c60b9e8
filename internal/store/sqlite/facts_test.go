package sqlite_test

import (
	"database/sql"
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"navra/internal/blackbox"
)

// numbers are those of facts.
func numbers(t *testing.T, facts iter.Seq2[blackbox.Fact, error]) (out []blackbox.Seq) {
	t.Helper()
	for f, err := range facts {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f.Number())
	}
	return out
}

// TestFactsAreThoseOfRows: what is found out within SQLite is what is found out of rows that were read, whatever was done to them.
func TestFactsAreThoseOfRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "navra.db")
	db := open(t, path)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			for j := range 20 {
				if _, err := db.Commit(t.Context(), entry(fmt.Sprint("method ", i, " ", j))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	attacker, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer attacker.Close()
	do := func(statement string, args ...any) {
		t.Helper()
		if _, err := attacker.Exec(statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	do("CREATE TABLE good AS SELECT * FROM entries")
	found := map[string]int{}
	for round := range 150 {
		var seq int64
		var parts [3][]byte // bodies, hashes, payloads
		if err := attacker.QueryRow("SELECT * FROM good ORDER BY random() LIMIT 1").Scan(&seq, &parts[0], &parts[1], &parts[2]); err != nil {
			t.Fatal(err)
		}
		which := rand.IntN(len(parts))
		switch at := rand.IntN(len(parts[which])); rand.IntN(3) {
		case 0:
			parts[which][at] ^= byte(1 + rand.IntN(255))
		case 1:
			parts[which] = slices.Delete(parts[which], at, at+1)
		default:
			parts[which] = slices.Insert(parts[which], at, byte(rand.IntN(256)))
		}
		if round > 0 {
			do("UPDATE entries SET bodies = ?, hashes = ?, payloads = ? WHERE seq = ?", parts[0], parts[1], parts[2], seq)
		}
		got, err := blackbox.Verify(db.Facts(t.Context(), 0))
		want, err2 := blackbox.Verify(blackbox.Facts(db.Rows(t.Context(), 0)))
		if !reflect.DeepEqual(got, want) || err != nil || err2 != nil {
			t.Fatalf("round %d, %s of row %d: %+v, %v; of rows that were read %+v, %v", round, [...]string{"bodies", "hashes", "payloads"}[which], seq, got, err, want, err2)
		}
		if got.OK() != (round == 0) { // a salt of the whole is held against nothing: see below
			found["not"]++
		}
		found[strings.SplitN(got.Problem, ":", 2)[0]]++
		do("UPDATE entries SET (bodies, hashes, payloads) = (SELECT bodies, hashes, payloads FROM good WHERE good.seq = entries.seq) WHERE seq = ?", seq)
	}
	if len(found) < 4 || found["not"] > 40 { // of the 150 about 50 are of payloads, of which a sixth is such a salt
		t.Errorf("not much was tried: %v", found)
	}
}

// TestFactsOfATableMadeAnew: without its key, and in another order than that of numbers.
func TestFactsOfATableMadeAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "navra.db")
	db := open(t, path)
	const n = 1500
	for i := range n {
		if _, err := db.Commit(t.Context(), entry(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for _, order := range []string{"seq DESC", "random()"} {
		for _, s := range []string{"CREATE TABLE loose AS SELECT * FROM entries ORDER BY " + order, "DROP TABLE entries", "ALTER TABLE loose RENAME TO entries"} {
			raw(t, path, s)
		}
		if rep, err := db.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != n {
			t.Errorf("%s: Verify = %+v, %v", order, rep, err)
		}
		for _, from := range []blackbox.Seq{0, 1, 700, n, n + 1} {
			got := numbers(t, db.Facts(t.Context(), from))
			if want := numbers(t, blackbox.Facts(db.Rows(t.Context(), from))); !slices.Equal(got, want) || len(got) != int(n+1-max(from, 1)) {
				t.Errorf("%s, from %d: %d facts, %d rows", order, from, len(got), len(want))
			}
		}
	}
}

// TestFactsAreFoundByNavraAlone: what a file says is not taken for a call of its own.
func TestFactsAreFoundByNavraAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "navra.db")
	db := open(t, path)
	if _, err := db.Commit(t.Context(), entry("x")); err != nil {
		t.Fatal(err)
	}
	raw(t, path, "ALTER TABLE entries RENAME TO hidden")
	raw(t, path, "CREATE VIEW entries AS SELECT seq, bodies, hashes, payloads, navra_facts(1, seq, bodies, hashes, payloads) FROM hidden WHERE navra_facts(1, seq, bodies, hashes, payloads) >= 0")
	if rep, err := db.Verify(t.Context()); err == nil {
		t.Errorf("Verify = %+v of a view that calls navra_facts, want an error", rep)
	} else if !strings.Contains(err.Error(), "navra_facts") {
		t.Errorf("Verify = %v, want an error that names navra_facts", err)
	}
}
