package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"navra/internal/blackbox"
	"navra/internal/store"
	"navra/internal/store/postgres"
	server "navra/test/postgres"
)

// next is a step as a later navra may have it: it rewrites a table, and takes its old form away.
const next = `CREATE TABLE @later AS SELECT seq, name, stored, stored_salt, whole_salt, octet_length(stored) AS size FROM @payloads;
	DROP TABLE @payloads; ALTER TABLE @later RENAME TO payloads`

// plain is an entry without payloads.
func plain(method string) store.Commit {
	c := entry(method)
	c.Entry.Payloads = nil
	return c
}

// upgrades counts the entries that say that the schema was upgraded.
func upgrades(t *testing.T, db *postgres.DB) (n int) {
	t.Helper()
	for r, err := range db.Rows(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := blackbox.Decode(r.Encoded)
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == blackbox.Event && strings.Contains(e.Reason, "upgraded from version 1 to 2") {
			n++
		}
	}
	return n
}

// content is all that a schema holds.
func content(t *testing.T, c *pgx.Conn, schema string) (out []string) {
	t.Helper()
	for _, q := range []string{
		"SELECT format('%s.%s %s', c.relname, a.attname, a.atttypid::regtype) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE a.attnum > 0 AND c.relnamespace = '" + schema + "'::regnamespace ORDER BY 1",
		"SELECT e::text FROM " + schema + ".entries e ORDER BY seq", "SELECT p::text FROM " + schema + ".payloads p ORDER BY seq, name", "SELECT v::text FROM " + schema + ".schema_version v",
	} {
		rows, _ := c.Query(t.Context(), q)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, list...)
	}
	return out
}

// filled makes a schema of version 1 with entries.
func filled(t *testing.T, n int) *postgres.DB {
	t.Helper()
	db := open(t, server.Start(t), postgres.Options{})
	for i := range n {
		if _, err := db.Commit(t.Context(), entry(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

// TestReplicasUpgradeOnce: several that start at once, while one of the old version still runs.
func TestReplicasUpgradeOnce(t *testing.T) {
	const replicas, each = 4, 10
	old, o := filled(t, 20), postgres.Options{Schema: schemaOf(t)}
	readers := o
	readers.ReadOnly = true
	if _, err := postgres.OpenNext(t.Context(), server.Start(t), readers, next); err == nil || !strings.Contains(err.Error(), "older navra") {
		t.Errorf("to be read: %v", err)
	}
	var wg sync.WaitGroup
	for r := range replicas {
		wg.Go(func() {
			db, err := postgres.OpenNext(t.Context(), server.Start(t), o, next)
			if err != nil {
				t.Error(err)
				return
			}
			defer db.Close()
			for i := range each {
				if _, err := db.Commit(t.Context(), plain(fmt.Sprint(r, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := old.Commit(t.Context(), plain("event")); err != nil {
		t.Errorf("what the step has not taken away is refused: %v", err)
	}
	db, err := postgres.OpenNext(t.Context(), server.Start(t), o, next)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rep, err := db.Verify(t.Context())
	if n := upgrades(t, db); err != nil || !rep.OK() || rep.Entries != 20+1+replicas*each+1 || n != 1 {
		t.Errorf("Verify = %+v, %v, with %d upgrades", rep, err, n)
	}
	if _, err := postgres.Open(t.Context(), server.Start(t), o); err == nil || !strings.Contains(err.Error(), "newer navra") {
		t.Errorf("the old version: %v", err)
	}
}

// TestFailedUpgrade: one that cannot be leaves the schema as it was, and the version before goes on with it.
func TestFailedUpgrade(t *testing.T) {
	for name, step := range map[string]string{"a statement fails": next + "; SELECT 1 / 0", "another table is in the way": "CREATE TABLE @entries (x int)"} {
		t.Run(name, func(t *testing.T) {
			old, c := filled(t, 5), raw(t, server.Start(t))
			before := content(t, c, schemaOf(t))
			_, err := postgres.OpenNext(t.Context(), server.Start(t), postgres.Options{Schema: schemaOf(t)}, step)
			if err == nil || !strings.Contains(err.Error(), "could not be brought to 2; it is as it was") {
				t.Errorf("Open = %v", err)
			}
			if diff := cmp.Diff(before, content(t, c, schemaOf(t))); diff != "" {
				t.Errorf("the schema was changed: -before +after\n%s", diff)
			}
			if _, err := old.Commit(t.Context(), entry("on")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEndedUpgrade loses the connection while the upgrade runs.
func TestEndedUpgrade(t *testing.T) {
	filled(t, 5)
	c := raw(t, server.Start(t))
	before := content(t, c, schemaOf(t))
	ended := make(chan error, 1)
	go func() {
		_, err := postgres.OpenNext(t.Context(), server.Start(t), postgres.Options{Schema: schemaOf(t)}, next+"; SELECT pg_sleep(600) /* "+schemaOf(t)+" */")
		ended <- err
	}()
	for killed := false; !killed; time.Sleep(5 * time.Millisecond) {
		err := c.QueryRow(t.Context(), "SELECT coalesce(bool_or(pg_terminate_backend(pid)), false) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state = 'active' AND wait_event = 'PgSleep' AND query LIKE '%' || $1 || '%'", schemaOf(t)).Scan(&killed)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if !killed {
				t.Fatalf("it ended by itself: %v", err)
			}
			ended <- err
		default:
		}
	}
	if err := <-ended; err == nil {
		t.Fatal("an upgrade that lost its connection is taken for done")
	}
	if diff := cmp.Diff(before, content(t, c, schemaOf(t))); diff != "" {
		t.Errorf("the schema was changed: -before +after\n%s", diff)
	}
	db, err := postgres.OpenNext(context.Background(), server.Start(t), postgres.Options{Schema: schemaOf(t)}, next)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if rep, err := db.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != 6 {
		t.Errorf("Verify = %+v, %v", rep, err)
	}
}
