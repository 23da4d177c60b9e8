package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"navra/test/powercut"
)

// A recording is a gateway's life under load, of which each moment can be the last.
type recording struct {
	*setup
	config string
	before string // a copy of the home folder, as it was on the disk
	rec    *powercut.Record
}

const outside = "outside" // a client's ids begin with it, so that what it was told is told from what an upstream said

// record plays calls against navra under strace and reads what it did.
func record(t *testing.T, durability string, calls int) *recording {
	if err := powercut.Missing(); err != nil {
		t.Skipf("no system calls can be recorded here: %v", err)
	}
	r := &recording{setup: newSetup(t), before: t.TempDir()}
	if home, err := filepath.EvalSymlinks(r.Home); err == nil {
		r.Home = home
	}
	r.config = filepath.Join(r.Dir, "navra.yaml")
	write(t, r.config, fmt.Sprintf("store: %q\nblackbox: {durability: %s}\nupstreams: {odd: {command: [%q, odd], tools: {echo: {class: read}}}}\n", r.db(), durability, fixtureBin))
	if durability == "process" { // the first life came to the disk
		r.start(navraBin, "stdio", "--config", r.config).open().close()
		if err := os.CopyFS(r.before, os.DirFS(r.Home)); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "strace")
	c := r.start(powercut.Command(file, navraBin, "stdio", "--config", r.config)...).open()
	var waiting []chan message
	for i := 0; i < calls || !r.checkpointed() && i < 5*calls; i++ { // how many fit one commit is the machine's choice
		ch := make(chan message, 1)
		c.mu.Lock()
		c.waiting[fmt.Sprintf("%q", callID(i))] = ch
		c.mu.Unlock()
		b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": callID(i), "method": "tools/call", "params": map[string]any{
			"name": "odd__echo", "arguments": map[string]any{"text": fmt.Sprintf("nonce-%d-%s", i, strings.Repeat("x", 3000))}, // fills the log, so that it is checkpointed
		}})
		if err != nil {
			t.Fatal(err)
		}
		c.send(string(b))
		if waiting = append(waiting, ch); len(waiting) == 4 {
			c.await("a call", waiting[0])
			waiting = waiting[1:]
		}
	}
	for _, ch := range waiting {
		c.await("a call", ch)
	}
	c.close()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if r.rec, err = powercut.Parse(f, r.Home); err != nil {
		t.Fatal(err)
	}
	synced := 0
	if durability == "fsync" {
		synced = -1 // once when it is made
	}
	for _, op := range r.rec.Ops {
		if op.Kind == powercut.Sync && strings.HasSuffix(op.Path, ".db") {
			synced++
		}
	}
	if synced < 1 {
		t.Error("the log was never written to the main file: the cuts prove little")
	}
	return r
}

// checkpointed reports whether the log has been so long that SQLite writes it to the main file: 1000 pages, with their heads. It then begins it anew.
func (r *recording) checkpointed() bool {
	info, err := os.Stat(r.db() + "-wal")
	return err == nil && info.Size() >= 1000*(8192+24)
}

func callID(i int) string { return fmt.Sprintf("%s-%d-", outside, i) }

var (
	wasSent     = regexp.MustCompile(`"tools/call".*nonce-(\d+)-`)
	wasAnswered = regexp.MustCompile(`"id":"` + outside + `-(\d+)-"`)
)

// told returns the calls that the upstream was sent and those that the client was answered before a moment.
func (r *recording) told(before int) (sent, answered []string) {
	for _, s := range r.rec.Said {
		if s.At >= before {
			break
		}
		for line := range strings.Lines(s.Text) {
			if m := wasAnswered.FindStringSubmatch(line); m != nil {
				answered = append(answered, m[1])
			} else if m := wasSent.FindStringSubmatch(line); m != nil {
				sent = append(sent, m[1])
			}
		}
	}
	return sent, answered
}

// cut makes the home folder what a power cut at a moment leaves.
func (r *recording) cut(t *testing.T, at int, kept func(string) bool) *setup {
	t.Helper()
	d, err := powercut.New(r.before)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Play(r.rec.Ops, at); err != nil {
		t.Fatal(err)
	}
	s := &setup{t: t, Home: t.TempDir(), Dir: r.Dir}
	if err := d.Save(s.Home, kept); err != nil {
		t.Fatal(err)
	}
	return s
}

// moments are where to cut: anywhere, and just after somebody was told something, when most is at stake.
func (r *recording) moments(random *rand.Rand, n int) (out []int) {
	for i := range n {
		at := random.IntN(r.rec.End + 1)
		if i%2 == 0 {
			at = r.rec.Said[random.IntN(len(r.rec.Said))].At + 1
		}
		out = append(out, at)
	}
	return append(out, r.rec.End)
}

// leftovers are the ways in which what was not synced may be there all the same.
func leftovers(random *rand.Rand) map[string]func(string) bool {
	return map[string]func(string) bool{
		"nothing unsynced":           func(string) bool { return false },
		"some of it":                 func(string) bool { return random.IntN(2) == 0 },
		"of the heads file alone":    func(path string) bool { return strings.HasSuffix(path, ".heads") },
		"all but of the heads file":  func(path string) bool { return !strings.HasSuffix(path, ".heads") },
		"all but of the log (-wal)":  func(path string) bool { return !strings.HasSuffix(path, "-wal") },
		"some of the log (-wal)":     func(path string) bool { return strings.HasSuffix(path, "-wal") && random.IntN(8) > 0 },
		"all but of the main file":   func(path string) bool { return !strings.HasSuffix(path, ".db") },
		"nearly all, in many places": func(string) bool { return random.IntN(16) > 0 },
	}
}

// eachCut calls f with each power cut; a seed makes the same ones again of one recording.
func (r *recording) eachCut(t *testing.T, f func(at int, s *setup, what string)) {
	seed := seedOf(t)
	for i, at := range r.moments(seed, kills(6, 60)) {
		ways := leftovers(seed)
		names := make([]string, 0, len(ways))
		for name := range ways {
			names = append(names, name)
		}
		slices.Sort(names)
		for k, name := range names {
			if k != 0 && (i+k)%4 != 0 { // each way in turn
				continue
			}
			f(at, r.cut(t, at, ways[name]), fmt.Sprintf("cut at %d of %d, kept: %s", at, r.rec.End, name))
		}
	}
}

// With durability: fsync no power cut takes an entry of a call that left, or of an answer that somebody got, and none looks like tampering.
func TestPowerCutWithFsync(t *testing.T) {
	t.Parallel()
	r := record(t, "fsync", kills(220, 600))
	cuts, sentAll := 0, 0
	r.eachCut(t, func(at int, s *setup, what string) {
		cuts++
		sent, answered := r.told(at)
		sentAll += len(sent)
		if _, err := os.Stat(s.db()); errors.Is(err, os.ErrNotExist) && len(sent) == 0 {
			return // it had not begun
		}
		out, code := s.run("blackbox", "verify", "--store", s.db())
		early := len(sent) == 0 && strings.Contains(out, "not a database of navra's") // nothing is promised yet
		if code != 0 && !early || code == 0 && len(sent) > 0 && !strings.Contains(out, "and the heads file") {
			t.Errorf("%s: verify: exit %d\n%s", what, code, out)
			return
		}
		s.holds(what, sent, answered)
	})
	t.Logf("%d power cuts, on average after %d of %d calls", cuts, sentAll/cuts, kills(340, 700))
	r.goesOn(t)
}

// holds shows that the entries of calls are there.
func (s *setup) holds(what string, sent, answered []string) {
	s.t.Helper()
	if len(sent) == 0 {
		return
	}
	permits, answers := map[string]int{}, map[int]bool{}
	for _, e := range objects[recorded](s.t.(*testing.T), s.pick("list", "--json", "-n", "0", "--store", s.db())) {
		if m := wasAnswered.FindStringSubmatch(`"id":` + e.RequestID); m != nil && e.Kind == "request" && e.Verdict == "allow" {
			permits[m[1]] = e.Seq
		}
		if e.Kind == "answer" {
			answers[e.Cause] = true
		}
	}
	for _, n := range sent {
		if permits[n] == 0 {
			s.t.Errorf("%s: call %s left, and has no permit", what, n)
		}
	}
	for _, n := range answered {
		if !answers[permits[n]] {
			s.t.Errorf("%s: call %s was answered, and its answer is not recorded", what, n)
		}
	}
}

// goesOn starts a gateway on what a power cut in the middle has left: nothing alarms it.
func (r *recording) goesOn(t *testing.T) {
	s := r.cut(t, r.rec.End/2, func(string) bool { return false })
	config := filepath.Join(s.Home, "again.yaml")
	write(t, config, strings.Replace(read(t, r.config), r.db(), s.db(), 1))
	c := s.start(navraBin, "stdio", "--config", config).open()
	if a := c.call("odd__echo", map[string]any{"text": "after"}); a.text() != "after" {
		t.Errorf("after the cut: %s", a.text())
	}
	c.close()
	if out := s.pick("list", "--json", "-n", "0", "--store", s.db()); strings.Contains(out, "heads file disagreed") {
		t.Error("the heads file is said to disagree")
	}
	s.verify(config)
}

// With durability: process a power cut may take the last entries, and no more; verification says so once the machine was started anew.
func TestPowerCutWithoutFsync(t *testing.T) {
	t.Parallel()
	r := record(t, "process", kills(220, 600))
	lost, whole := 0, 0
	r.eachCut(t, func(at int, s *setup, what string) {
		out, code := s.verifyAnew()
		switch {
		case code == 0:
			whole++
		case code == 1 && strings.Contains(out, "tail lost in an unclean stop"):
			lost++
		default:
			t.Errorf("%s: verify: exit %d\n%s", what, code, out)
		}
	})
	for i := 0; i < len(r.rec.Said) && lost == 0; i += 1 + len(r.rec.Said)/20 { // the moments above are few
		at := r.rec.Said[i].At + 1
		s := r.cut(t, at, func(path string) bool { return strings.HasSuffix(path, ".heads") })
		if _, code := s.verifyAnew(); code == 1 {
			lost++
		}
	}
	if lost == 0 {
		t.Error("no tail was lost: the cuts prove nothing")
	}
	t.Logf("%d power cuts lost a tail that the heads file knew of, %d none", lost, whole)
}

// verifyAnew verifies as after another start of the machine.
func (s *setup) verifyAnew() (string, int) {
	s.t.Helper()
	boot := filepath.Join(s.t.TempDir(), "boot_id")
	write(s.t, boot, "another start of the machine\n")
	script := `mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`
	cmd := exec.Command("unshare", "-m", "sh", "-c", script, boot, navraBin, "blackbox", "verify", "--store", s.db())
	cmd.Dir, cmd.Env = s.Dir, s.env()
	out, err := cmd.CombinedOutput()
	if strings.HasPrefix(string(out), "unshare:") || strings.Contains(string(out), "mount:") {
		s.t.Skipf("another start of the machine cannot be played here: %s", out)
	}
	if err != nil && cmd.ProcessState == nil {
		s.t.Skipf("another start of the machine cannot be played here: %v", err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
