package e2e

import (
	"bufio"
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"navra/test/postgres"
)

// An outage is something that keeps the blackbox from being written, and that passes.
type outage struct {
	name string
	// open says where the store is, and how the outage begins and ends.
	open func(t *testing.T, s *setup) (store string, cause, cure func())
	why  string // what /readyz says of it
}

var outages = []outage{
	{"a full disk", fullDisk, "low space: only the reserve of the disk is left"},
	{"a file that is locked", lockedFile, "the database is locked by another process"},
	{"a file that was moved", movedFile, "the database file was moved, removed or replaced"},
	{"a damaged page", damagedPage, "the database file is damaged"},
	{"a server that was stopped", stoppedServer, "the database server cannot be reached"},
	{"a server that is read-only", frozenServer, "the database is read-only"},
	{"tables that are locked", lockedTables, "the database is locked by another process"},
	{"a server that is silent", silentServer, "does not answer in time"},
}

// TestBlackboxOutages: while the blackbox cannot be written nothing passes; who calls, who asks /readyz and the log are told why; and
// when the cause is gone navra goes on by itself, with nothing lost and nothing doubled.
func TestBlackboxOutages(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for _, o := range outages { // at once, as one test of those that may run at once: they do little but wait
		all.Go(func() { t.Run(o.name, o.run) })
	}
	all.Wait()
}

func (o outage) run(t *testing.T) {
	s := newSetup(t)
	store, cause, cure := o.open(t, s)
	config := s.failingConfig(store, "")
	g := s.serve(config)
	c := (&web{t: t, addr: g.Addr}).open()
	if a := c.call("odd__echo", map[string]any{"text": "before"}); a.text() != "before" {
		t.Fatal(a.text())
	}
	before := descriptors(t, g.cmd.Process.Pid)
	late := make(chan answer, 1)
	go func() { late <- c.call("odd__nonce", map[string]any{"nonce": "late", "ms": 1500}) }()
	waitFor(t, "the slow call to reach its server", func() bool { return s.everReached("nonce") })
	cause()
	s.denied(c, 8)
	if a := <-late; a.text() != "late" && (!a.IsError || outcome(t, a) != "ran" || !strings.Contains(a.text(), "has run")) {
		t.Errorf("a call that was let through before: %+v, want its answer or that it has run", a)
	}
	waitFor(t, "/readyz to say "+o.why, func() bool {
		resp, body := ask(t, http.DefaultClient, "GET", "http://"+g.Addr+"/readyz", nil)
		return resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(body, o.why)
	})
	if resp, _ := ask(t, http.DefaultClient, "GET", "http://"+g.Addr+"/healthz", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %d", resp.StatusCode)
	}
	if m := c.request("tools/list", map[string]any{}); m.Error == nil || m.Error.Code != 403 || !strings.Contains(string(m.Error.Data), `"outcome":"not-sent"`) {
		t.Errorf("a list that could not be recorded: %s %+v", m.Result, m.Error)
	}
	waitFor(t, "the log to say that calls are denied", func() bool { return strings.Contains(g.stderr.String(), "could not be recorded") })
	cure()
	waitFor(t, "/readyz", func() bool {
		resp, _ := ask(t, http.DefaultClient, "GET", "http://"+g.Addr+"/readyz", nil)
		return resp.StatusCode == http.StatusOK
	})
	if a := c.call("odd__echo", map[string]any{"text": "after"}); a.text() != "after" {
		t.Errorf("after it was put right: %s", a.text())
	}
	s.accounts(config)
	left(t, g, before)
	s.verify(config)
}

// failingConfig is a gateway without authentication on a store, before one server.
func (s *setup) failingConfig(store, more string) string {
	config := filepath.Join(s.Dir, "navra.yaml")
	write(s.t, config, fmt.Sprintf("listen: 127.0.0.1:0\nauth: none\nstore: %q\nkey: %s\nprincipals: {local: {roles: [local-default]}}\nifc: {on_violation: observe}\nupstreams: {odd: {command: [%q, odd, -log, %q], tools: {nonce: {class: read}}}}\n%s",
		store, filepath.Join(s.Home, "navra.key"), fixtureBin, s.log(), more))
	return config
}

// denied makes several calls at once until all of one round are denied, and says of each what became of it.
func (s *setup) denied(c *web, callers int) {
	s.t.Helper()
	for round := range 100 {
		answers := make([]answer, callers)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				answers[i] = c.call("odd__echo", map[string]any{"text": fmt.Sprintf("during-%d-%d.%s", round, i, strings.Repeat(".", 2000))})
			})
		}
		all.Wait()
		passed := 0
		for i, a := range answers {
			ran := strings.Contains(strings.Join(s.reached(), "\n"), fmt.Sprintf("during-%d-%d.", round, i))
			if !a.IsError {
				passed++
				continue
			}
			want := map[bool]string{true: "ran", false: "not-sent"}[ran]
			if got := outcome(s.t, a); got != want || !strings.HasPrefix(a.text(), "denied by navra: it could not be recorded in the blackbox") || !strings.Contains(a.text(), "outcome: "+want) {
				s.t.Errorf("a call that ran: %v, is told %s, %s", ran, got, a.text())
			}
		}
		if passed == 0 {
			return
		}
	}
	s.t.Fatal("calls still pass")
}

func outcome(t testing.TB, a answer) string {
	t.Helper()
	var about struct{ Stage, Outcome, Ref string }
	if err := json.Unmarshal(a.Meta["dev.navra/denied"], &about); err != nil || about.Stage != "record" || about.Ref == "" {
		t.Errorf("denied with %s, %v", a.Meta["dev.navra/denied"], err)
	}
	return about.Outcome
}

// accounts holds the entries against what the server has executed: none without its permit, none twice.
func (s *setup) accounts(config string) {
	s.t.Helper()
	permits, answers, requests := 0, 0, map[string]int{}
	for _, e := range s.entriesOf(config) {
		if e.Kind == "request" && e.Upstream == "odd" {
			requests[e.RequestID]++
		}
		if e.Kind == "request" && e.Upstream == "odd" && e.Verdict == "allow" {
			permits++
		}
		if e.Kind == "answer" && e.Upstream == "odd" {
			answers++
		}
	}
	for id, n := range requests {
		if n > 1 {
			s.t.Errorf("request %s is recorded %d times", id, n)
		}
	}
	ran := slices.DeleteFunc(s.reached(), func(line string) bool { return strings.Contains(line, `"name":"cancelled"`) })
	if len(ran) > permits || answers > permits || len(ran) < 2 {
		s.t.Errorf("%d calls ran with %d permits and %d answers", len(ran), permits, answers)
	}
	seen := map[string]bool{}
	for _, line := range ran {
		if seen[line] {
			s.t.Errorf("it ran twice: %.80s", line)
		}
		seen[line] = true
	}
}

// fullDisk fills a file system of one MiB to the last byte.
func fullDisk(t *testing.T, _ *setup) (string, func(), func()) {
	disk := smallDisk(t)
	filler := filepath.Join(disk, "filler")
	return filepath.Join(disk, "navra.db"), func() { fill(t, filler) }, func() { give(t, os.Remove(filler)) }
}

func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	give(t, err)
	for _, size := range []int{64 << 10, 4 << 10, 512, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	f.Close()
}

func give(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lockedFile(t *testing.T, s *setup) (string, func(), func()) {
	var tx *sql.Tx
	return s.db(), func() {
			db, err := sql.Open("sqlite", "file:"+s.db()+"?_txlock=immediate&_pragma=busy_timeout(5000)")
			give(t, err)
			t.Cleanup(func() { db.Close() })
			tx, err = db.Begin()
			give(t, err)
		}, func() {
			give(t, tx.Rollback())
		}
}

func movedFile(t *testing.T, s *setup) (string, func(), func()) {
	return s.db(), func() { give(t, os.Rename(s.db(), s.db()+".away")) }, func() { give(t, os.Rename(s.db()+".away", s.db())) }
}

// damagedPage overwrites the page by which entries are found.
func damagedPage(t *testing.T, s *setup) (string, func(), func()) {
	var was []byte
	var at int64
	put := func(b []byte) {
		f, err := os.OpenFile(s.db(), os.O_RDWR, 0)
		give(t, err)
		if was == nil {
			was = make([]byte, len(b))
			_, err = f.ReadAt(was, at)
			give(t, err)
		}
		_, err = f.WriteAt(b, at)
		give(t, err)
		give(t, f.Close())
	}
	return s.db(), func() {
			db, err := sql.Open("sqlite", "file:"+s.db()+"?_pragma=busy_timeout(5000)")
			give(t, err)
			defer db.Close()
			var page, size int64
			give(t, db.QueryRow("SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = 'entries'").Scan(&page, &size))
			at = (page - 1) * size
			waitFor(t, "the write-ahead log to be empty", func() bool {
				var busy, in, done int
				give(t, db.QueryRow("PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &in, &done))
				return busy == 0
			})
			put(bytes.Repeat([]byte{0xa5}, int(size)))
		}, func() {
			put(was)
		}
}

func stoppedServer(t *testing.T, _ *setup) (string, func(), func()) {
	p := postgres.New(t)
	return p.URL(), func() { give(t, p.Kill()) }, func() { give(t, p.Restart()) }
}

func frozenServer(t *testing.T, _ *setup) (string, func(), func()) {
	p := postgres.New(t)
	return p.URL(), func() { give(t, p.Freeze()) }, func() { give(t, p.Thaw()) }
}

func lockedTables(t *testing.T, _ *setup) (string, func(), func()) {
	p := postgres.New(t)
	var conn *pgx.Conn
	return p.URL(), func() {
		var err error
		conn, err = pgx.Connect(t.Context(), p.URL())
		give(t, err)
		t.Cleanup(func() { conn.Close(t.Context()) })
		_, err = conn.Exec(t.Context(), "BEGIN")
		give(t, err)
		_, err = conn.Exec(t.Context(), "LOCK TABLE navra.entries IN ACCESS EXCLUSIVE MODE")
		give(t, err)
	}, func() { give(t, conn.Close(t.Context())) }
}

func silentServer(t *testing.T, _ *setup) (string, func(), func()) {
	w := newWire(t, postgres.New(t).Socket())
	return w.url(), func() { w.silent.Store(true) }, func() { w.silent.Store(false) }
}

// TestConnectionCutInCommit cuts the connection to the database at the answer to a COMMIT, which the server has then done, and before it is sent.
func TestConnectionCutInCommit(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	w := newWire(t, postgres.New(t).Socket())
	config := s.failingConfig(w.url(), "")
	g := s.serve(config)
	c := (&web{t: t, addr: g.Addr}).open()
	for i := range 30 {
		text := fmt.Sprintf("cut-%d.", i)
		w.cut.Store(int32(i%3 + 1)) // the first, second or third COMMIT from here: of the permit, of the answer, of the next permit
		a := c.call("odd__echo", map[string]any{"text": text})
		ran := strings.Contains(strings.Join(s.reached(), "\n"), text)
		if want := map[bool]string{true: "ran", false: "not-sent"}[ran]; a.IsError && (outcome(t, a) != want || !strings.Contains(a.text(), "outcome: "+want)) {
			t.Errorf("a call that ran: %v, is told %s", ran, a.text())
		} else if !a.IsError && (a.text() != text || !ran) {
			t.Errorf("%s is answered %s", text, a.text())
		}
	}
	if w.cuts.Load() < 10 {
		t.Errorf("%d connections were cut, want at least 10", w.cuts.Load())
	}
	w.cut.Store(0)
	if a := c.call("odd__echo", map[string]any{"text": "after"}); a.text() != "after" {
		t.Errorf("after the last cut: %s", a.text())
	}
	s.accounts(config)
	g.stop()
	s.verify(config)
}

// TestSlowDatabase: each answer of the database takes 50 ms, and nothing is denied.
func TestSlowDatabase(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	w := newWire(t, postgres.New(t).Socket())
	config := s.failingConfig(w.url(), "")
	g := s.serve(config)
	c := (&web{t: t, addr: g.Addr}).open()
	w.delay.Store(int64(50 * time.Millisecond))
	var all sync.WaitGroup
	for w := range 8 { // more at once would wait for each other as long as navra waits for a database
		all.Go(func() {
			for i := w; i < 40; i += 8 {
				if a := c.call("odd__echo", map[string]any{"text": fmt.Sprint("slow-", i)}); a.text() != fmt.Sprint("slow-", i) {
					t.Errorf("call %d: %s", i, a.text())
				}
			}
		})
	}
	all.Wait()
	w.delay.Store(0)
	if n := len(s.reached()); n != 40 {
		t.Errorf("%d calls ran, want 40", n)
	}
	s.accounts(config)
	g.stop()
	s.verify(config)
}

// TestTailOutlivesItsServer: who follows the blackbox goes on when the server of its database was killed and is back, and misses nothing.
func TestTailOutlivesItsServer(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), postgres.New(t)
	config := s.failingConfig(p.URL(), "")
	g := s.serve(config)
	c := (&web{t: t, addr: g.Addr}).open()
	tail := exec.Command(navraBin, "blackbox", "tail", "-f", "-n", "1", "--json", "--tool", "odd/echo", "--kind", "request", "--config", config)
	tail.Dir, tail.Env = s.Dir, s.env()
	var said lockedBuffer
	tail.Stderr = &said
	out, err := tail.StdoutPipe()
	give(t, err)
	give(t, c.echoed("first"))
	give(t, tail.Start())
	t.Cleanup(func() { _ = tail.Process.Kill(); _ = tail.Wait() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("nothing is shown")
	}
	give(t, p.Kill())
	waitFor(t, "it to say so", func() bool { return strings.Contains(said.String(), "trying again") })
	give(t, p.Restart())
	waitFor(t, "calls to pass", func() bool { return c.echoed("second") == nil })
	if !lines.Scan() || !strings.Contains(lines.Text(), `"target":"odd/echo"`) {
		t.Errorf("after the server was back: %s, %s", lines.Text(), said.String())
	}
}

// echoed calls a tool and wants its answer.
func (w *web) echoed(text string) error {
	if a := w.call("odd__echo", map[string]any{"text": text}); a.text() != text {
		return errors.New(a.text())
	}
	return nil
}
