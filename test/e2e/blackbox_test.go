package e2e

import (
	"bytes"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// recordSome makes a call that passes, one that reads a secret, and one that is refused, and leaves the gateway running.
func recordSome(t *testing.T) (*setup, *client) {
	s, config := office(t)
	c := s.startAs(navraBin, "stdio", "--config", config).open()
	for _, path := range []string{"plan.txt", "config.ini"} {
		if a := c.call("files__read_file", map[string]any{"path": path}); a.IsError {
			t.Fatal(a.text())
		}
	}
	if a := c.call("mail__send_mail", mail("x").args); !a.IsError {
		t.Fatal("private data was sent")
	}
	if m := c.request("tools/call", map[string]any{"name": "files__none"}); m.Error == nil {
		t.Fatal("there is a tool that there is not")
	}
	eventually(t, "all upstreams have told what they have, so that nothing more is recorded", func() bool {
		open, listed := map[int]bool{}, map[string]bool{}
		for _, e := range s.entries() {
			switch e.Kind {
			case "own":
				open[e.Seq] = !strings.HasPrefix(e.Method, "notifications/")
				listed[e.Upstream] = listed[e.Upstream] || e.Method == "tools/list"
			case "own-answer":
				delete(open, e.Cause)
			}
		}
		maps.DeleteFunc(open, func(_ int, asked bool) bool { return !asked })
		maps.DeleteFunc(listed, func(_ string, told bool) bool { return !told })
		return len(open) == 0 && len(listed) == 4
	})
	return s, c
}

// pick is what a command prints that is to work, without what is on stderr.
func (s *setup) pick(args ...string) string {
	s.t.Helper()
	out, code := s.runOut(append([]string{"blackbox"}, args...)...)
	if code != 0 {
		s.t.Fatalf("blackbox %v: exit %d\n%s", args, code, out)
	}
	return out
}

func objects[T any](t *testing.T, lines string) (out []T) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, v)
	}
	return out
}

func TestBlackboxFilters(t *testing.T) {
	t.Parallel()
	s, _ := recordSome(t)
	all := s.entries()
	for _, tt := range []struct {
		flags []string
		want  func(recorded) bool
	}{
		{[]string{"--verdict", "deny"}, func(e recorded) bool { return e.Verdict == "deny" }},
		{[]string{"--verdict", "deny", "--kind", "request"}, func(e recorded) bool { return e.Verdict == "deny" && e.Kind == "request" }},
		{[]string{"--tool", "files/*"}, func(e recorded) bool { return strings.HasPrefix(e.Target, "files/") }},
		{[]string{"--tool", "send_*", "--stage", "flow"}, func(e recorded) bool { return e.Target == "mail/send_mail" && e.Stage == "flow" }},
		{[]string{"--upstream", "mail", "--method", "tools/list"}, func(e recorded) bool { return e.Upstream == "mail" && e.Method == "tools/list" }},
		{[]string{"--principal", "navra", "--since", "1h"}, func(e recorded) bool { return e.Principal == "navra" }},
		{[]string{"--until", "1h ago"}, func(recorded) bool { return false }},
		{[]string{"--scope", all[len(all)-1].Scope}, func(e recorded) bool { return e.Scope == all[len(all)-1].Scope }},
		{[]string{"--ref", all[len(all)-1].Ref}, func(e recorded) bool { return e.Ref == all[len(all)-1].Ref }},
	} {
		var want []recorded
		for _, e := range all {
			if tt.want(e) {
				want = append(want, e)
			}
		}
		for _, cmd := range []string{"list", "tail"} {
			args := append([]string{cmd, "--json", "-n", "0"}, tt.flags...)
			if got := objects[recorded](t, s.pick(args...)); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%v: %d entries, want %d", args, len(got), len(want))
			}
		}
		if len(want) == 0 && tt.flags[0] != "--until" {
			t.Errorf("%v: there is none", tt.flags)
		}
		if len(want) > 0 { // the newest of them
			if got := objects[recorded](t, s.pick(append([]string{"list", "--json", "-n", "1"}, tt.flags...)...)); len(got) != 1 || got[0] != want[len(want)-1] {
				t.Errorf("%v: the newest is %+v, want %+v", tt.flags, got, want[len(want)-1])
			}
		}
	}
	text := s.pick("list", "-n", "0")
	if lines := strings.Count(text, "\n"); lines != len(all)+1 || strings.Contains(text, "\x1b") || !strings.Contains(text, "mail/send_mail") {
		t.Errorf("a table of %d lines for %d entries:\n%s", lines, len(all), text)
	}
}

func TestBlackboxTailFollows(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no interrupt can be sent to one process there")
	}
	s, c := recordSome(t)
	cmd := exec.Command(navraBin, "blackbox", "tail", "-f", "-n", "1", "--json", "--tool", "mail/*")
	cmd.Dir, cmd.Env = s.Dir, s.env()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	dec := json.NewDecoder(out)
	var seen []recorded
	next := func() {
		t.Helper()
		var e recorded
		if err := dec.Decode(&e); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, e)
	}
	next() // what was there
	for range 2 {
		c.call("files__read_file", map[string]any{"path": "plan.txt"})
		c.call("mail__send_mail", mail("x").args)
		next()
	}
	for i, e := range seen {
		if e.Target != "mail/send_mail" || i > 0 && e.Seq <= seen[i-1].Seq {
			t.Errorf("%d: %+v", i, e)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("interrupted: %v, want exit 0", err)
	}
}

func TestBlackboxShow(t *testing.T) {
	t.Parallel()
	s, c := recordSome(t)
	var refused, sent recorded
	for _, e := range s.entries() {
		switch {
		case e.Kind == "request" && e.Target == "mail/send_mail":
			refused = e
		case e.Kind == "request" && e.Target == "files/read_file":
			sent = e
		}
	}
	c.close() // it works without the gateway too
	for _, name := range []string{fmt.Sprint(refused.Seq), refused.Ref} {
		out := s.pick("show", name)
		for _, want := range []string{fmt.Sprintf("entry %d\n", refused.Seq), "mail/send_mail", "flow", "arguments", "durations"} {
			if !strings.Contains(out, want) {
				t.Errorf("show %s: no %q in\n%s", name, want, out)
			}
		}
	}
	if out := s.pick("show", fmt.Sprint(sent.Seq)); !strings.Contains(out, "its answer:") || !strings.Contains(out, "aws-access-key") || strings.Contains(out, awsKey()) {
		t.Errorf("a call and its answer:\n%s", out)
	}
	type part struct {
		Entry    recorded
		Payloads []struct {
			Name   string
			Stored string
		}
	}
	type whole struct {
		part
		Cause   *part
		Answers []part
	}
	one := objects[whole](t, s.pick("show", "--json", fmt.Sprint(sent.Seq)))
	if len(one) != 1 || one[0].Entry != sent || len(one[0].Payloads) != 1 || !strings.Contains(one[0].Payloads[0].Stored, "config.ini") || len(one[0].Answers) != 1 {
		t.Fatalf("%+v", one)
	}
	back := objects[whole](t, s.pick("show", "--json", one[0].Answers[0].Entry.Ref))
	if back[0].Cause == nil || back[0].Cause.Entry != sent || back[0].Answers != nil {
		t.Errorf("the answer's cause: %+v", back)
	}
}

func TestBlackboxExport(t *testing.T) {
	t.Parallel()
	s, _ := recordSome(t)
	all := s.entries()
	if got, want := s.pick("export"), s.pick("list", "--json", "-n", "0"); got != want {
		t.Error("jsonl is not what was recorded")
	}
	file := filepath.Join(s.Dir, "entries.csv")
	s.pick("export", "--format", "csv", "-o", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil || len(rows) != len(all)+1 || rows[0][0] != "seq" || rows[len(all)][0] != fmt.Sprint(all[len(all)-1].Seq) {
		t.Errorf("%d rows for %d entries, %v", len(rows), len(all), err)
	}
	if out, code := s.run("blackbox", "export", "-o", file); code != 1 || !strings.Contains(out, "is there already") {
		t.Errorf("over a file: %d, %s", code, out)
	}
	type event struct {
		ClassUID int `json:"class_uid"`
		Time     int64
		Status   string
		API      struct{ Operation string }
		Unmapped struct{ Verdict string }
	}
	events := objects[event](t, s.pick("export", "--format", "ocsf", "--verdict", "deny"))
	if len(events) == 0 {
		t.Error("no denial is exported")
	}
	for _, e := range events {
		if e.ClassUID != 6003 || e.Status != "Failure" || e.Unmapped.Verdict != "deny" || e.API.Operation == "" || time.Since(time.UnixMilli(e.Time)).Abs() > time.Hour {
			t.Errorf("%+v", e)
		}
	}
}

func TestBlackboxStats(t *testing.T) {
	t.Parallel()
	s, _ := recordSome(t)
	type tally struct {
		Name                   string
		Entries, Denials, Asks int
	}
	type counted struct {
		By     string
		Total  tally
		Groups []tally
	}
	all := s.entries()
	want := tally{Entries: len(all)}
	for _, e := range all {
		switch e.Verdict {
		case "deny":
			want.Denials++
		case "ask":
			want.Asks++
		}
	}
	for _, by := range []string{"principal", "tool", "verdict", "upstream", "hour"} {
		got := objects[counted](t, s.pick("stats", "--json", "--by", by))
		sum := tally{}
		for _, g := range got[0].Groups {
			sum.Entries, sum.Denials, sum.Asks = sum.Entries+g.Entries, sum.Denials+g.Denials, sum.Asks+g.Asks
		}
		if len(got) != 1 || got[0].By != by || got[0].Total != want || sum != want {
			t.Errorf("by %s: %+v, want %+v", by, got, want)
		}
	}
	if out := s.pick("stats", "--by", "tool"); !strings.Contains(out, "mail/send_mail") || !strings.Contains(out, "DENIALS") {
		t.Errorf("as text:\n%s", out)
	}
}

func TestBlackboxRefusals(t *testing.T) {
	t.Parallel()
	s, c := recordSome(t)
	c.close()
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"show"}, 2, "arg"},
		{[]string{"show", "0"}, 2, "neither the number of an entry nor a reference"},
		{[]string{"show", "99999"}, 1, "there is no entry 99999: the newest is"},
		{[]string{"show", "aaaaaaaaaaaaaaaa"}, 1, "no entry has the reference"},
		{[]string{"list", "--since", "yesterday"}, 2, "--since \"yesterday\" is no time such as"},
		{[]string{"list", "--since", "1h", "--until", "2h"}, 2, "nothing lies between"},
		{[]string{"list", "-n", "-1"}, 2, "0 for all"},
		{[]string{"tail", "--verdict", "denied"}, 2, "allow, ask, deny"},
		{[]string{"stats", "--stage", "flwo"}, 2, "content, flow"},
		{[]string{"stats", "--by", "day"}, 2, "principal, tool"},
		{[]string{"export", "--kind", "call"}, 2, "request, answer"},
		{[]string{"export", "--format", "xml"}, 2, "jsonl, csv, ocsf"},
		{[]string{"export", "-o", filepath.Join("none", "x")}, 1, "none"},
		{[]string{"tail", "--store", "none.db"}, 1, "none.db"},
	} {
		if out, code := s.run(append([]string{"blackbox"}, tt.args...)...); code != tt.code || !strings.Contains(out, tt.want) {
			t.Errorf("%v: exit %d, want %d with %q:\n%s", tt.args, code, tt.code, tt.want, out)
		}
	}
}

// TestStrangeNumbersHideNothing: rows that somebody has put below the first entry, or far beyond the last, keep nobody from reading the others, and
// verify tells of them.
func TestStrangeNumbersHideNothing(t *testing.T) {
	t.Parallel()
	s, c := recordSome(t)
	c.close()
	want := s.pick("export")
	denied := s.pick("list", "--json", "--verdict", "deny")
	ref := objects[struct{ Ref string }](t, want)[2].Ref
	db, err := sql.Open("sqlite", "file:"+s.db()+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, n := range []int64{-5, 0, math.MaxInt64} {
		if _, err := db.Exec("INSERT INTO entries SELECT ?, bodies, hashes, payloads FROM entries WHERE seq = 2", n); err != nil {
			t.Fatal(err)
		}
		second := strings.SplitAfter(want, "\n")[1]
		whole := map[bool]string{true: want + second, false: want}[n > 0]
		for _, args := range [][]string{{"export"}, {"list", "--json", "-n", "0"}, {"tail", "--json", "-n", "1000000"}} {
			if got := s.pick(args...); got != whole {
				t.Errorf("with entry %d %v prints %d lines, want %d", n, args, strings.Count(got, "\n"), strings.Count(whole, "\n"))
			}
		}
		if got := s.pick("list", "--json", "--verdict", "deny"); got != denied {
			t.Errorf("with entry %d other denials are listed:\n%s", n, got)
		}
		if got := s.pick("show", ref); !strings.Contains(got, ref) {
			t.Errorf("with entry %d show %s prints %s", n, ref, got)
		}
		if out, code := s.run("blackbox", "verify"); code != 1 || !strings.Contains(out, "NOT whole") {
			t.Errorf("verify with entry %d: exit %d\n%s", n, code, out)
		}
		if _, err := db.Exec("DELETE FROM entries WHERE seq = ?", n); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHeadsFileIsMissedAndHeld: a heads file that was taken away, or that disagrees with a log whose tail was cut off, is recorded at the next start.
func TestHeadsFileIsMissedAndHeld(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	db := filepath.Join(s.Home, "state", "navra", "navra.db")
	run := func() {
		c := s.start(navraBin, "wrap", "--name", "odd", "--", fixtureBin, "odd").open()
		c.call("echo", map[string]any{"text": "x"})
		c.close()
	}
	said := func(text string) bool {
		for _, e := range s.entries() {
			if e.Kind == "event" && strings.Contains(e.Reason, text) {
				return true
			}
		}
		return false
	}
	run()
	run()
	if said("heads file") {
		t.Error("an untouched log is flagged")
	}
	if err := os.Remove(db + ".heads"); err != nil {
		t.Fatal(err)
	}
	run()
	if !said("there is none beside a log") {
		t.Error("nobody missed the heads file")
	}
	old := t.TempDir()
	for _, f := range []string{"navra.db", "navra.db-wal", "navra.db.key"} { // an old copy, of before the last run
		if b, err := os.ReadFile(filepath.Join(filepath.Dir(db), f)); err == nil {
			if err := os.WriteFile(filepath.Join(old, f), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	run()
	for _, f := range []string{"navra.db", "navra.db-wal", "navra.db-shm"} {
		os.Remove(filepath.Join(filepath.Dir(db), f))
		if b, err := os.ReadFile(filepath.Join(old, f)); err == nil {
			if err := os.WriteFile(filepath.Join(filepath.Dir(db), f), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, code := s.run("blackbox", "verify"); code == 0 || !strings.Contains(out, "NOT whole") {
		t.Errorf("an old copy is verified: %d %s", code, out)
	}
	run()
	if !said("the heads file disagreed") {
		t.Error("an old copy is not recorded")
	}
	if out, code := s.run("blackbox", "verify"); code != 0 || !strings.Contains(out, "It is whole, and records that it was found changed, 2 times;") || !strings.Contains(out, "Z: the heads file disagreed: ") {
		t.Errorf("what an event records is not told: %d %s", code, out)
	}
	if left, _ := filepath.Glob(db + ".heads.*"); len(left) == 0 {
		t.Error("what the heads file said is not kept")
	}
}

// TestOlderServersAreNotDenied: a server that does not know the newest version's greeting is greeted in its own way, and that is no denial.
func TestOlderServersAreNotDenied(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	c := s.startAs(navraBin, "wrap", "--name", "odd", "--", fixtureBin, "odd").open()
	c.request("tools/list", map[string]any{})
	c.close()
	asked := false
	for _, e := range s.entries() {
		if e.Verdict == "deny" {
			t.Errorf("denied: %+v", e)
		}
		asked = asked || e.Kind == "own-answer" && e.Method == "server/discover" && strings.Contains(e.Reason, "answers error -32601")
	}
	if !asked {
		t.Error("what the server answered is not recorded")
	}
}

// TestCommandsDoNotHideACut: what an operator says after the tail was cut off has an entry, in the place of what was there; the heads file goes on with
// that, and the log says what it had.
func TestCommandsDoNotHideACut(t *testing.T) {
	t.Parallel()
	s, c := recordSome(t)
	c.close()
	path := filepath.Join(s.Home, "state", "navra", "navra.db")
	pause := func() {
		for _, verb := range []string{"pause", "resume"} {
			if out, code := s.run(verb, "--principal", "somebody"); code != 0 {
				t.Fatal(out)
			}
		}
	}
	pause()
	told := func() int { return strings.Count(s.pick("list", "-n", "0", "--json"), "the heads file disagreed") }
	if n := told(); n != 0 {
		t.Fatalf("an untouched log is flagged %d times", n)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []string{"DELETE FROM entries WHERE seq > (SELECT max(seq) - 2 FROM entries)", "DELETE FROM checkpoints"} {
		if _, err := db.Exec(cut); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	pause()
	pause()
	if told() == 0 {
		t.Error("nothing tells of the entries that were cut off")
	}
	if out, code := s.run("blackbox", "verify"); code != 0 {
		t.Errorf("what came since: %d %s", code, out)
	}
}

// TestTokensAreRecorded: who made a token, and for whom, stands in the chain, where nobody takes it out again; the token does not.
func TestTokensAreRecorded(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	token, code := s.runOut("token", "create", "ann")
	if code != 0 {
		t.Fatal(token)
	}
	c := s.start(navraBin, "wrap", "--name", "odd", "--", fixtureBin, "odd").open()
	c.call("echo", map[string]any{"text": "x"})
	c.close()
	list, _ := s.run("token", "list")
	id := strings.Fields(strings.Split(list, "\n")[1])[0]
	events := s.pick("list", "-n", "0", "--json", "--kind", "event", "--stage", "auth")
	if !strings.Contains(events, "made token "+id+" for ann, by ") || strings.Contains(events, strings.TrimSpace(token)) {
		t.Errorf("recorded:\n%s", events)
	}
	if out, code := s.run("blackbox", "verify"); code != 0 || strings.Contains(s.pick("list", "-n", "0", "--json"), "heads file") {
		t.Errorf("a log that begins with it is flagged: %s", out)
	}
}
