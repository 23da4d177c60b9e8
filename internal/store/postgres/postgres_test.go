package postgres_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/scope"
	"navra/internal/store"
	"navra/internal/store/postgres"
	"navra/internal/store/storetest"
	server "navra/test/postgres"
)

func entry(method string) store.Commit {
	return store.Commit{Raise: ifc.Bottom(), Entry: blackbox.Entry{Kind: blackbox.Request, Method: method, Time: time.Now(), Payloads: []blackbox.Payload{blackbox.NewPayload("arguments", []byte(method), []byte(method))}}}
}

var schemas sync.Map // by the test that they are for

// schemaOf is the schema of one run of a test.
func schemaOf(t testing.TB) string {
	s, _ := schemas.LoadOrStore(t, schemaFor(rand.Text()))
	return s.(string)
}

// schemaFor is a schema for a name that may be longer than PostgreSQL's.
func schemaFor(name string) string { return fmt.Sprintf("t_%x", sha256.Sum256([]byte(name)))[:18] }

func open(t testing.TB, url string, o postgres.Options) *postgres.DB {
	t.Helper()
	if o.Schema == "" {
		o.Schema = schemaOf(t)
	}
	db, err := postgres.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// raw is a connection of somebody else's.
func raw(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func exec(t testing.TB, c *pgx.Conn, statement string, args ...any) {
	t.Helper()
	if _, err := c.Exec(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

func openDir(t *testing.T, dir string, clock *storetest.Clock) storetest.Log {
	db, err := postgres.Open(t.Context(), server.Start(t), postgres.Options{Now: clock.Now, Schema: schemaFor(dir)})
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

// TestReplicasAreOneChain also under settings that would break it, were they not set for each transaction.
func TestReplicasAreOneChain(t *testing.T) {
	for name, params := range map[string]string{"plain": "", "serializable": "&default_transaction_isolation=serializable&synchronous_commit=off"} {
		t.Run(name, func(t *testing.T) {
			const replicas, callers, each = 3, 20, 100
			var wg sync.WaitGroup
			for r := range replicas {
				wg.Go(func() {
					db, err := postgres.Open(t.Context(), server.Start(t)+params, postgres.Options{Schema: schemaOf(t)}) // all make the tables at once
					if err != nil {
						t.Error(err)
						return
					}
					defer db.Close()
					var callersDone sync.WaitGroup
					for c := range callers {
						callersDone.Go(func() {
							for i := range each {
								if _, err := db.Commit(t.Context(), entry(fmt.Sprint(r, c, i))); err != nil {
									t.Error(err)
									return
								}
							}
						})
					}
					callersDone.Wait()
				})
			}
			wg.Wait()
			rep, err := open(t, server.Start(t), postgres.Options{ReadOnly: true}).Verify(t.Context())
			if err != nil || !rep.OK() || rep.Entries != replicas*callers*each {
				t.Errorf("Verify = %+v, %v, want %d good entries", rep, err, replicas*callers*each)
			}
		})
	}
}

func TestRaiseOnOneReplicaIsSeenOnTheOther(t *testing.T) {
	url := server.Start(t)
	a, b := open(t, url, postgres.Options{}), open(t, url, postgres.Options{})
	first, stale := 0, 0
	for i := range 200 {
		o := scope.Opening{ID: scope.ID(fmt.Sprint("s", i))}
		s, err := b.Scope(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		var raised, used store.Receipt
		var raiseErr, useErr error
		var wg sync.WaitGroup
		wg.Go(func() {
			c := entry("raise")
			c.Scope, c.IfScope, c.Raise = s.ID, s.Version, ifc.Of("files", ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.Secret})
			raised, raiseErr = a.Commit(t.Context(), c)
		})
		old := entry("old")
		old.Scope, old.IfScope = s.ID, s.Version
		wg.Go(func() { used, useErr = b.Commit(t.Context(), old) })
		wg.Wait()
		switch {
		case raiseErr != nil:
			t.Fatal(raiseErr)
		case errors.Is(useErr, store.ErrStale):
			stale++
		case useErr != nil || used.Seq > raised.Seq:
			t.Fatalf("the old version was used by entry %d after it was raised by %d, %v", used.Seq, raised.Seq, useErr)
		default:
			first++
		}
		if _, err := b.Commit(t.Context(), old); !errors.Is(err, store.ErrStale) {
			t.Fatalf("Commit on B of the version before A's raise: %v, want ErrStale", err)
		}
		if now, err := b.Scope(t.Context(), o); err != nil || now.Version != s.Version+1 {
			t.Fatalf("Scope on B = %+v, %v, want version %d", now, err, s.Version+1)
		}
	}
	t.Logf("B was first %d times, stale %d times", first, stale)
}

// held opens a store and keeps its head lock from it, so that a group waits in its transaction, until free is called.
func held(t *testing.T) (db *postgres.DB, free func()) {
	t.Helper()
	db = open(t, server.Start(t), postgres.Options{})
	if _, err := db.Scope(t.Context(), scope.Opening{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	c := raw(t, server.Start(t))
	exec(t, c, "SELECT pg_advisory_lock($1)", db.HeadLock())
	return db, func() { exec(t, c, "SELECT pg_advisory_unlock($1)", db.HeadLock()) }
}

// start commits in the background and returns once the committer has it (taken) or it waits in the queue.
func start(ctx context.Context, t *testing.T, db *postgres.DB, c store.Commit, queue int) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("panic: %v", p)
			}
		}()
		_, err := db.Commit(ctx, c)
		done <- err
	}()
	for end := time.Now().Add(10 * time.Second); db.Queued() != queue || !db.Writing(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d commits wait, want %d", db.Queued(), queue)
		}
	}
	return done
}

func TestEndOfACallerDecidesOnce(t *testing.T) {
	db, free := held(t)
	ctx, cancel := context.WithCancel(t.Context())
	taken := start(ctx, t, db, entry("taken"), 0)
	waits := start(ctx, t, db, entry("waits"), 1)
	stays := start(t.Context(), t, db, entry("stays"), 2)
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("a commit that no group had taken: %v, want Canceled", err)
	}
	free()
	if err := errors.Join(<-taken, <-stays); err != nil {
		t.Errorf("commits that were written: %v", err)
	}
	var got []string
	for row, err := range db.Rows(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		e, _ := blackbox.Decode(row.Encoded)
		got = append(got, e.Method)
	}
	if want := "taken stays"; strings.Join(got, " ") != want {
		t.Errorf("entries %q, want %q", got, want)
	}
	if _, err := db.Commit(ctx, entry("late")); !errors.Is(err, context.Canceled) {
		t.Errorf("a commit after its caller's end: %v", err)
	}
}

// TestOneOfAGroupIsRefusedAlone commits in one transaction what the store must refuse, and what it must not.
func TestOneOfAGroupIsRefusedAlone(t *testing.T) {
	db, free := held(t)
	dones := []<-chan error{start(t.Context(), t, db, entry("first"), 0)}
	on := func(id scope.ID, v scope.Version, change func(*store.Commit)) store.Commit {
		c := entry("x")
		c.Scope, c.IfScope = id, v
		if change != nil {
			change(&c)
		}
		return c
	}
	raise := ifc.Of("files", ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.PII})
	cases := []struct {
		rule string
		c    store.Commit
		want string
	}{
		{"the scope as it was", on("a", 1, nil), ""},
		{"a raise", on("a", 1, func(c *store.Commit) { c.Raise = raise }), ""},
		{"the version before the raise in the same group", on("a", 1, nil), "scope moved on"},
		{"the version after it", on("a", 2, nil), ""},
		{"a scope that is not there", on("none", 1, nil), "not found"},
		{"an id that is no text", on("a\x00", 1, nil), "not found"},
		{"a payload's name that is no text", on("", 0, func(c *store.Commit) { c.Entry.Payloads[0].Name = "a\x00" }), "cannot be stored"},
		{"a payload twice", on("", 0, func(c *store.Commit) { c.Entry.Payloads = append(c.Entry.Payloads, c.Entry.Payloads...) }), "twice"},
		{"a judge that panics", on("a", 0, func(c *store.Commit) {
			c.Judge = func(scope.Scope, *store.Controls) (blackbox.Entry, ifc.Label) { panic("judge") }
		}), "panic: judge"},
		{"a judge that sees the raise", on("a", 0, func(c *store.Commit) {
			c.Judge = func(s scope.Scope, _ *store.Controls) (blackbox.Entry, ifc.Label) {
				if s.Version != 2 || !s.Label.Equal(raise) {
					panic(fmt.Sprintf("scope %+v", s))
				}
				return blackbox.Entry{}, ifc.Bottom()
			}
		}), ""},
	}
	for i, tt := range cases {
		dones = append(dones, start(t.Context(), t, db, tt.c, i+1))
	}
	free()
	if err := <-dones[0]; err != nil {
		t.Error(err)
	}
	good := uint64(1)
	for i, tt := range cases {
		err := <-dones[i+1]
		if tt.want == "" {
			good++
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.rule, err, tt.want)
		}
	}
	if rep, err := db.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != good {
		t.Errorf("Verify = %+v, %v, want %d good entries", rep, err, good)
	}
}

// TestVanishingEntriesAreRefused: else a call passes whose entry a rule or trigger has taken away.
func TestVanishingEntriesAreRefused(t *testing.T) {
	url := server.Start(t)
	db, other, schema := open(t, url, postgres.Options{}), raw(t, url), schemaOf(t)
	function := "CREATE FUNCTION " + schema + ".none() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
	exec(t, other, function)
	exec(t, other, "CREATE FUNCTION "+schema+".gone() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DELETE FROM "+schema+".entries WHERE seq > 0; RETURN NULL; END'")
	for i, tt := range []struct{ make, drop string }{
		{"CREATE RULE r AS ON INSERT TO @ DO INSTEAD NOTHING", "DROP RULE r ON @"},
		{"CREATE TRIGGER t BEFORE INSERT ON @ FOR EACH ROW EXECUTE FUNCTION " + schema + ".none()", "DROP TRIGGER t ON @"},
		{"CREATE TRIGGER t AFTER INSERT ON @ FOR EACH STATEMENT EXECUTE FUNCTION " + schema + ".gone()", "DROP TRIGGER t ON @"},
		{"CREATE CONSTRAINT TRIGGER t AFTER INSERT ON @ DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION " + schema + ".gone()", "DROP TRIGGER t ON @"},
		{"CREATE TRIGGER t AFTER UPDATE ON " + schema + ".scopes FOR EACH STATEMENT EXECUTE FUNCTION " + schema + ".gone()", "DROP TRIGGER t ON " + schema + ".scopes"},
		{"CREATE RULE r AS ON INSERT TO " + schema + ".payloads DO ALSO DELETE FROM @", "DROP RULE r ON " + schema + ".payloads"},
	} {
		on := func(s string) string { return strings.ReplaceAll(s, "@", schema+".entries") }
		exec(t, other, on(tt.make))
		for range 2 { // the second prepares the statement with the rule there
			if r, err := db.Commit(t.Context(), entry("lost")); err == nil || !strings.Contains(store.Why(err), "rules or triggers") {
				t.Errorf("%s: Commit = %+v, %v, want an error that says why", tt.make, r, err)
			}
		}
		exec(t, other, on(tt.drop))
		if r, err := db.Commit(t.Context(), entry("again")); err != nil || r.Seq != blackbox.Seq(i+1) {
			t.Errorf("%s: when it is gone: Commit = %+v, %v", tt.make, r, err)
		}
	}
	if rep, err := db.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != 6 {
		t.Errorf("Verify = %+v, %v", rep, err)
	}
}

func TestCloseRefusesWhatNoGroupHasTaken(t *testing.T) {
	db, free := held(t)
	taken, waits := start(t.Context(), t, db, entry("taken"), 0), start(t.Context(), t, db, entry("waits"), 1)
	closed := make(chan error, 1)
	go func() { closed <- db.Close() }()
	for !db.Stopping() {
		time.Sleep(time.Millisecond)
	}
	free()
	if err := errors.Join(<-taken, <-closed); err != nil {
		t.Error(err)
	}
	if err := <-waits; err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a commit that waited: %v, want that the store is closed", err)
	}
	if _, err := db.Commit(t.Context(), entry("late")); err == nil {
		t.Error("a closed store committed")
	}
}

// TestKilledServer kills the server under load: what was promised is there, what was not is there at most once, and it goes on.
func TestKilledServer(t *testing.T) {
	s := server.New(t)
	a, b := open(t, s.URL(), postgres.Options{}), open(t, s.URL(), postgres.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	promised, failed := map[string]store.Receipt{}, 0
	var wg sync.WaitGroup
	for g := range 24 {
		db := []*postgres.DB{a, b}[g%2]
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprint(g, "-", i)
				r, err := db.Commit(t.Context(), entry(name))
				mu.Lock()
				if err == nil {
					promised[name] = r
				} else {
					failed++
				}
				mu.Unlock()
				if err != nil {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	count := func() (int, int) { mu.Lock(); defer mu.Unlock(); return len(promised), failed }
	await := func(what string, ok func(good, bad int) bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			if good, bad := count(); ok(good, bad) {
				return
			} else if time.Now().After(end) {
				t.Fatalf("%s: %d good, %d failed", what, good, bad)
			}
		}
	}
	for range 3 {
		before, _ := count()
		await("load", func(good, _ int) bool { return good > before+200 })
		_, bad := count()
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		await("while it is down", func(_, now int) bool { return now > bad+24 })
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	before, _ := count()
	await("after the last start", func(good, _ int) bool { return good > before+200 })
	cancel()
	wg.Wait()
	seen := map[string]bool{}
	for row, err := range a.Rows(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := blackbox.Decode(row.Encoded)
		if err != nil || seen[e.Method] {
			t.Fatalf("entry %d: %q is there twice, or %v", row.Seq, e.Method, err)
		}
		seen[e.Method] = true
		if r, ok := promised[e.Method]; ok && r != (store.Receipt{Seq: row.Seq, Hash: row.Hash}) {
			t.Errorf("%s is entry %d, %d was promised", e.Method, row.Seq, r.Seq)
		}
	}
	for name := range promised {
		if !seen[name] {
			t.Errorf("%s was promised and is lost", name)
		}
	}
	if rep, err := b.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries < uint64(len(promised)) {
		t.Errorf("Verify = %+v, %v, want at least %d good entries", rep, err, len(promised))
	}
	t.Logf("%d promised, %d errors, %d entries", len(promised), failed, len(seen))
}

func BenchmarkCommit(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			db := open(b, server.Start(b), postgres.Options{})
			if _, err := db.Scope(b.Context(), scope.Opening{ID: "a"}); err != nil {
				b.Fatal(err)
			}
			work := make(chan struct{})
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range work {
						c := entry(strings.Repeat("x", 600))
						c.Scope, c.IfScope = "a", 1
						if _, err := db.Commit(b.Context(), c); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ResetTimer()
			for range b.N {
				work <- struct{}{}
			}
			close(work)
			wg.Wait()
		})
	}
}
