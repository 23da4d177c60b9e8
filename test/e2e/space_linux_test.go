package e2e

import (
	rand2 "crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"navra/test/postgres"
)

// TestMaxBytes: /readyz says that space is low before calls are denied; what is owed about a call that was let through is recorded then, and so is the end.
func TestMaxBytes(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(*testing.T, *setup) (string, func()){"sqlite": filledFile, "postgres": filledServer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			at, fill := store(t, s)
			config := s.failingConfig(at, "blackbox: {max_bytes: 16MiB}\n")
			write(t, config, strings.Replace(read(t, config), "listen: 127.0.0.1:0", "listen: {address: 127.0.0.1:0, drain_timeout: 1s}", 1))
			s.serve(config).stop() // it makes the tables
			fill()
			g := s.serve(config)
			c := (&web{t: t, addr: g.Addr}).open()
			late := make(chan message, 1)
			go func() {
				late <- c.request("tools/call", map[string]any{"name": "odd__work", "arguments": map[string]any{"steps": 1, "ms": 600_000}})
			}()
			waitFor(t, "the slow call to reach its server", func() bool { return s.everReached("work") })
			said, denied := map[string]bool{}, answer{}
			for round := 0; !denied.IsError && round < 400; round++ {
				var all sync.WaitGroup
				answers := make([]answer, 16)
				for i := range answers {
					all.Go(func() { answers[i] = c.call("odd__echo", map[string]any{"text": noise(4000)}) })
				}
				all.Wait()
				for _, a := range answers {
					if a.IsError {
						denied = a
					}
				}
				_, body := ask(t, http.DefaultClient, "GET", "http://"+g.Addr+"/readyz", nil)
				var state struct{ Status string }
				give(t, json.Unmarshal([]byte(body), &state))
				if strings.Contains(body, "low space: max_bytes is nearly used up") {
					said[state.Status] = true
				}
			}
			if !said["degraded"] {
				t.Errorf("/readyz named low space with %v before calls were denied", said)
			}
			if outcome(t, denied) != "not-sent" || !strings.Contains(denied.text(), "the blackbox is full") {
				t.Errorf("at the limit: %s", denied.text())
			}
			waitFor(t, "/readyz to say that only the reserve is left", func() bool {
				c.call("odd__echo", map[string]any{"text": noise(4000)}) // what is counted between two measurements is more than what is measured then
				resp, body := ask(t, http.DefaultClient, "GET", "http://"+g.Addr+"/readyz", nil)
				return resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(body, "only the reserve of max_bytes is left")
			})
			waitFor(t, "the log to warn", func() bool { return strings.Contains(g.stderr.String(), "max_bytes is nearly used up") })
			g.stop() // it ends the slow call
			if m := <-late; m.Error == nil || !strings.Contains(string(m.Error.Data), `"outcome":"unknown"`) {
				t.Errorf("the call that the end cut off: %s %+v", m.Result, m.Error)
			}
			entries, answered := s.entriesOf(config), false
			for _, e := range entries {
				answered = answered || e.Kind == "answer" && e.Target == "odd/work"
			}
			if last := entries[len(entries)-1]; !answered || last.Kind != "event" || last.Reason != "navra stopped" {
				t.Errorf("the slow call's end is recorded: %v; the last entry is %+v", answered, last)
			}
			s.accounts(config)
			s.verify(config)

			s.failingConfig(at, "blackbox: {max_bytes: 64MiB}\n")
			g = s.serve(config)
			c = (&web{t: t, addr: g.Addr}).open()
			if a := c.call("odd__echo", map[string]any{"text": "more"}); a.text() != "more" {
				t.Errorf("with a higher limit: %s", a.text())
			}
		})
	}
}

// filledFile and filledServer put most of 16 MiB into the database, while no navra runs.
func filledFile(t *testing.T, s *setup) (string, func()) {
	return s.db(), func() {
		db, err := sql.Open("sqlite", "file:"+s.db()+"?_pragma=busy_timeout(5000)")
		give(t, err)
		defer db.Close()
		_, err = db.Exec("INSERT INTO kept (key, value) VALUES ('filler', randomblob(?))", 5<<20) // and 8 MiB of the write-ahead log
		give(t, err)
	}
}

func filledServer(t *testing.T, _ *setup) (string, func()) {
	p := postgres.New(t)
	return p.URL(), func() {
		conn, err := pgx.Connect(t.Context(), p.URL())
		give(t, err)
		defer conn.Close(t.Context())
		b := make([]byte, 12<<20)
		_, _ = rand2.Read(b) // it never fails
		_, err = conn.Exec(t.Context(), "INSERT INTO navra.kept (key, value) VALUES ('filler', $1)", b)
		give(t, err)
	}
}

// noise cannot be compressed, nor taken for a secret.
func noise(n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%s %s ", words[rand.IntN(len(words))], strings.ToLower(rand2.Text()[:5]))
	}
	return b.String()
}

var words = strings.Fields("plan ship friday page launch wrong date test release ticket office rain")

// TestRefusalFlood: thousands of requests without a credential, from as many addresses, cost an entry a second at most, also while the store
// is locked, and the last are recorded at the end.
func TestRefusalFlood(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	config := s.listenConfig("navra.yaml", "{address: \"127.0.0.1:0\", trusted_proxies: [127.0.0.1]}", "{tokens: true}", "")
	g := s.serve(config)
	began := time.Now()
	refused := 0
	flood := func(n int) {
		var all sync.WaitGroup
		for w := range 8 {
			all.Go(func() {
				for i := w; i < n; i += 8 {
					resp, _ := ask(t, http.DefaultClient, "POST", "http://"+g.Addr+"/mcp", http.Header{"X-Forwarded-For": {fmt.Sprintf("2001:db8::%x:%x", n, i)}})
					if resp.StatusCode != http.StatusUnauthorized {
						t.Errorf("status %d, want 401", resp.StatusCode)
					}
				}
			})
		}
		all.Wait()
		refused += n
	}
	flood(500)
	before, memory := descriptors(t, g.cmd.Process.Pid), resident(t, g.cmd.Process.Pid)
	_, lock, unlock := lockedFile(t, s)
	lock()
	flood(6000)
	if grown := resident(t, g.cmd.Process.Pid) - memory; grown > 64<<10 {
		t.Errorf("it grew by %d KiB", grown)
	}
	unlock()
	flood(3000)
	http.DefaultClient.CloseIdleConnections()
	waitFor(t, "connections to be closed", func() bool { return descriptors(t, g.cmd.Process.Pid) <= before })
	flood(7) // the last ones, which only the end reports
	g.stop()
	counted, entries := int64(0), 0
	text, _ := s.runOut("blackbox", "list", "--json", "-n", "0", "--config", config)
	for dec := json.NewDecoder(strings.NewReader(text)); dec.More(); {
		var e struct {
			Reason string
			Notes  []struct {
				Name string
				N    int64
			}
		}
		give(t, dec.Decode(&e))
		if e.Reason != "refused before authentication" {
			continue
		}
		entries++
		if len(e.Notes) > 64 {
			t.Errorf("an entry counts %d addresses", len(e.Notes))
		}
		for _, n := range e.Notes {
			counted += n.N
		}
	}
	if counted != int64(refused) || entries > int(time.Since(began)/time.Second)+2 { // the end tells once more
		t.Errorf("%d of %d refusals are counted, in %d entries of %s", counted, refused, entries, time.Since(began))
	}
	s.verify(config)
}

// resident is the memory of a process, in KiB.
func resident(t *testing.T, pid int) (kib int) {
	t.Helper()
	for _, line := range strings.Split(read(t, fmt.Sprintf("/proc/%d/status", pid)), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			_, err := fmt.Sscan(rest, &kib)
			give(t, err)
		}
	}
	return kib
}
