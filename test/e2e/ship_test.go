package e2e

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"navra/test/collector"
)

const shipToken = "tok-2f6b-collector"

// shipping is an office whose entries go to a collector. It is asked again what it has not taken within a time, and whoever takes the place of a
// gateway that was killed waits as long.
func shipping(t *testing.T, within string) (*setup, string, *collector.Server) {
	s, config := office(t)
	to := collector.New(t)
	s.Env = append(s.Env, "SHIP_TOKEN="+shipToken)
	write(t, config, read(t, config)+fmt.Sprintf("blackbox: {ship: {otlp: {endpoint: %q, headers: {Authorization: \"Bearer ${env:SHIP_TOKEN}\"}, timeout: %s}}}\n", to.URL(), within))
	return s, config, to
}

// arrived wants each recorded entry at the collector, as it was recorded, and returns how often entries came twice.
func arrived(t *testing.T, s *setup, to *collector.Server) (twice int) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(s.pick("list", "--json", "-n", "0")), "\n")
	to.UntilSeq(int64(len(lines)))
	seen := map[int64]int{}
	for _, r := range to.Took() {
		seen[r.Seq]++
		if r.Seq <= int64(len(lines)) && r.Body.GetStringValue() != lines[r.Seq-1] {
			t.Errorf("entry %d is not as it was recorded: %s", r.Seq, r.Body.GetStringValue())
		}
	}
	for i := range lines {
		if seen[int64(i+1)] == 0 {
			t.Errorf("entry %d of %d is missing", i+1, len(lines))
		}
		twice += max(0, seen[int64(i+1)]-1)
	}
	return twice
}

// TestShipping runs two gateways on one store; one serves, one is a stdio one, and a third that guards one server only adds to the store.
func TestShipping(t *testing.T) {
	t.Parallel()
	s, config, to := shipping(t, "30s")
	a, b := s.startAs(navraBin, "stdio", "--config", config).open(), s.startAs(navraBin, "stdio", "--config", config).open()
	w := s.startAs(navraBin, "wrap", "--name", "odd", "--", fixtureBin, "odd").open()
	for range 10 {
		for _, c := range []*client{a, b} {
			if got := c.call("files__read_file", map[string]any{"path": "config.ini"}); got.IsError {
				t.Fatal(got.text())
			}
		}
		w.call("echo", map[string]any{"text": "x"})
	}
	w.close()
	if twice := arrived(t, s, to); twice > 0 {
		t.Errorf("%d came twice", twice)
	}
	b.close() // it waits a moment for the collector, and no longer: what it does not hear of then is sent by the other
	if twice := arrived(t, s, to); twice > slices.Max(to.Sizes()) {
		t.Errorf("%d came twice, more than one batch", twice)
	}
	a.close()
	for _, r := range to.Took() {
		if strings.Contains(r.String(), awsKey()) || r.Text["navra.arguments"] != "" {
			t.Errorf("entry %d: %v", r.Seq, r.LogRecord)
		}
	}
	if got := to.Header().Get("Authorization"); got != "Bearer "+shipToken {
		t.Errorf("Authorization: %q", got)
	}
	if out := a.stderr.String() + b.stderr.String(); strings.Contains(out, shipToken) {
		t.Errorf("the token is in a log:\n%s", out)
	}
}

// TestShippingSurvivesAKill kills the gateway while the collector has a batch that it has not acknowledged, and while the collector is down: nothing is lost.
func TestShippingSurvivesAKill(t *testing.T) {
	t.Parallel()
	s, config, to := shipping(t, "5s")
	held, release := make(chan struct{}, 1), make(chan struct{})
	to.Reply(func(n int, batch []collector.Record) collector.Reply {
		if n == 2 {
			held <- struct{}{}
			<-release
		}
		return collector.Reply{}
	})
	c := s.startAs(navraBin, "stdio", "--config", config).open()
	c.call("files__read_file", map[string]any{"path": "plan.txt"})
	to.Until("the first request", func() bool { return len(to.Took()) > 0 })
	c.call("files__read_file", map[string]any{"path": "plan.txt"})
	<-held
	killTree(t, c)
	c.close()
	close(release)
	to.Stop()
	c = s.startAs(navraBin, "stdio", "--config", config).open() // calls do not wait for a collector that is down
	for range 5 {
		c.call("files__read_file", map[string]any{"path": "plan.txt"})
	}
	killTree(t, c)
	c.close()
	to.Start()
	g := s.startAs(navraBin, "stdio", "--config", config).open()
	twice := arrived(t, s, to)
	t.Logf("%d came twice, requests of %v records", twice, to.Sizes())
	g.close()
	if m := slices.Max(to.Sizes()); twice > m {
		t.Errorf("%d came twice, more than the one batch of %d that was not acknowledged", twice, m)
	}
}

// TestEditedShippingPlace writes into the database, while navra is down, that more was shipped than was: nothing is left out, and it is told.
func TestEditedShippingPlace(t *testing.T) {
	t.Parallel()
	s, config, to := shipping(t, "5s")
	c := s.startAs(navraBin, "stdio", "--config", config).open()
	c.call("files__read_file", map[string]any{"path": "plan.txt"})
	arrived(t, s, to)
	to.Stop()
	c.call("files__read_file", map[string]any{"path": "plan.txt"})
	c.close()
	head := len(s.entries())
	db, err := sql.Open("sqlite", "file:"+s.db()+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	res, err := db.Exec("UPDATE kept SET value = CAST(? || substr(CAST(value AS TEXT), instr(CAST(value AS TEXT), ' ')) AS BLOB) WHERE key LIKE 'shipped/%'", fmt.Sprint(head))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := res.RowsAffected(); n != 1 || err != nil {
		t.Fatalf("%d places were edited, %v", n, err)
	}
	to.Start()
	c = s.startAs(navraBin, "stdio", "--config", config).open()
	arrived(t, s, to)
	c.close()
	said := 0
	for _, e := range s.entries() {
		if e.Kind == "event" && strings.Contains(e.Reason, "how far entries were shipped cannot be trusted: it bears no tag") && strings.Contains(e.Reason, "again from 1 on") {
			said++
		}
	}
	if said != 1 || !strings.Contains(c.stderr.String(), "entries of the blackbox are shipped again") {
		t.Errorf("%d entries tell of it; stderr:\n%s", said, c.stderr)
	}
	s.verify(config)
}

// TestRemotesAreCheckedAtTheStart: what is not there at the start is a fault, named without its value.
func TestRemotesAreCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	s, config, _ := shipping(t, "30s")
	s.Env = slices.DeleteFunc(s.Env, func(kv string) bool { return strings.HasPrefix(kv, "SHIP_TOKEN=") })
	if out, code := s.run("stdio", "--config", config); code == 0 || !strings.Contains(out, "SHIP_TOKEN") {
		t.Errorf("without the variable: %d\n%s", code, out)
	}
	s.Env = append(s.Env, "SHIP_TOKEN="+shipToken)
	text := read(t, config)
	write(t, config, strings.Replace(text, "timeout: 30s", "ca: none.pem", 1))
	if out, code := s.run("stdio", "--config", config); code == 0 || !strings.Contains(out, filepath.Join(s.Dir, "none.pem")) || strings.Contains(out, shipToken) {
		t.Errorf("without the certificates: %d\n%s", code, out)
	}
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
}
