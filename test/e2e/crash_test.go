package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"navra/test/postgres"
)

// recorded is what the tests read of an entry.
type recorded struct {
	Seq                                                        int
	Kind, Method, Target, Verdict, Stage, Reason, Outcome, Ref string
	Principal, Scope, Upstream                                 string
	Before                                                     string `json:"label_before"`
	After                                                      string `json:"label_after"`
	RequestID                                                  string `json:"request_id"`
	Cause                                                      int
}

// entries reads the blackbox through the command.
func (s *setup) entries() (out []recorded) {
	s.t.Helper()
	text, code := s.run("blackbox", "list", "--json", "-n", "0")
	if code != 0 {
		s.t.Fatalf("blackbox list: %s", text)
	}
	for _, line := range bytes.Split(bytes.TrimSpace([]byte(text)), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var e recorded
		if err := json.Unmarshal(line, &e); err != nil {
			s.t.Fatalf("%v: %s", err, line)
		}
		out = append(out, e)
	}
	return out
}

func (s *setup) entriesOf(config string) (out []recorded) {
	s.t.Helper()
	text, code := s.runOut("blackbox", "list", "--json", "-n", "0", "--config", config)
	if code != 0 {
		s.t.Fatalf("blackbox list: %s", text)
	}
	for dec := json.NewDecoder(strings.NewReader(text)); dec.More(); {
		var e recorded
		if err := dec.Decode(&e); err != nil {
			s.t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// TestSoakKills kills navra at random moments under load, on each store: after each, all calls that reached the upstream have their permit, the chain
// is whole, no entry is doubled, cut calls read as such, and no taint is lost.
func TestSoakKills(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		s, config := office(t)
		killing(t, s, config)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := postgres.New(t).URL() // of its own: another test's entries would be in the chain
		s, config := office(t)
		lines := strings.Split(read(t, config), "\n")
		for i, line := range lines {
			if strings.HasPrefix(line, "store:") {
				lines[i] = fmt.Sprintf("store: %q", url)
			}
		}
		write(t, config, strings.Join(lines, "\n"))
		killing(t, s, config)
	})
}

func killing(t *testing.T, s *setup, config string) {
	k := &crash{setup: s, t: t, config: config, random: seedOf(t), permits: map[string]int{}, answers: map[int]int{}, ran: map[string]int{}, labels: map[string]label{}}
	rounds := kills(8, 200)
	for i := 0; i < rounds || (len(k.ran) == 0 || k.cut == 0) && i < 5*rounds; i++ { // on a slow machine a few kills may all come before the first call
		k.round(i)
		if t.Failed() {
			t.Fatalf("after kill %d of %d", i+1, rounds)
		}
	}
	k.reached() // also what an upstream wrote to its log after navra had been killed
	t.Logf("%d kills: %d calls ran, %d permits, %d calls cut, %d entries", rounds, len(k.ran), len(k.permits), k.cut, k.last)
	if len(k.ran) == 0 || k.cut == 0 {
		t.Error("no call reached the upstream, or none was cut: the load proves nothing")
	}
	c := s.startAs(navraBin, "stdio", "--config", config).open()
	if a := c.call("mail__send_mail", mail("x").args); !a.IsError || !strings.Contains(a.text(), "files") {
		t.Errorf("the taint is lost: %s", a.text())
	}
}

// A crash is what is known of a store through all kills. Calls are named by what they write, which only they do.
type crash struct {
	*setup
	t       *testing.T
	config  string
	random  *rand.Rand
	last    int            // number of the newest entry that was looked at
	permits map[string]int // of calls: their entry
	answers map[int]int    // to entries
	ran     map[string]int
	labels  map[string]label // raised, by scope
	cut     int
}

// round runs a gateway of a new host process under load, kills it at a random moment, and looks at what is there.
func (k *crash) round(round int) {
	const callers, each = 8, 12
	c := k.startAs(navraBin, "stdio", "--config", k.config).open()
	c.call("files__read_file", map[string]any{"path": "plan.txt"}) // started, and tainted
	names, waiting := map[string]string{}, map[string]chan message{}
	var first chan message
	for i, after := 0, k.random.IntN(callers*each/2); i < callers*each; i++ {
		name := fmt.Sprintf("r%d-c%d", round, i)
		id, ch := c.begin("tools/call", map[string]any{"name": "files__write_file", "arguments": map[string]any{"path": fmt.Sprintf("k%d.txt", i%callers), "content": name}})
		if names[id], waiting[name] = name, ch; i == after {
			first = ch
		}
	}
	if round%2 == 0 { // a moment after some answer
		m := c.await("a call", first)
		first <- m // for whoever looks
	}
	time.Sleep(time.Duration(k.random.IntN(20_000)) * time.Microsecond) // the random moment: nothing can be waited for
	killTree(k.t, c)
	c.close()
	k.verify(k.config)
	k.look(round, names)
	k.reached()
	k.wasAnswered(waiting)
}

// look goes through the entries that are new.
func (k *crash) look(round int, names map[string]string) {
	k.t.Helper()
	out, code := k.runOut("blackbox", "list", "--json", "-n", "2000", "--config", k.config)
	if code != 0 {
		k.t.Fatal(out)
	}
	var cut []recorded
	tainted := false
	for _, e := range objects[recorded](k.t, out) {
		if e.Seq <= k.last {
			continue
		}
		if e.Seq != k.last+1 {
			k.t.Fatalf("entry %d comes after %d", e.Seq, k.last)
		}
		k.last = e.Seq
		k.judged(e)
		if name := names[e.RequestID]; name != "" && e.Kind == "request" && e.Verdict == "allow" {
			if n := k.permits[name]; n != 0 {
				k.t.Errorf("%s is permitted by entries %d and %d", name, n, e.Seq)
			}
			k.permits[name] = e.Seq
			cut = append(cut, e)
		}
		if e.Kind == "answer" {
			if k.answers[e.Cause]++; k.answers[e.Cause] > 1 {
				k.t.Errorf("entry %d is another answer to %d", e.Seq, e.Cause)
			}
		}
		if e.Kind == "request" && e.Target == "files/read_file" {
			tainted = strings.Contains(e.Before, "files:")
		}
	}
	if !tainted && round > 0 {
		k.t.Error("the next conversation began without the taint")
	}
	cut = slices.DeleteFunc(cut, func(e recorded) bool { return k.answers[e.Seq] > 0 })
	k.cut += len(cut)
	if len(cut) == 0 {
		return
	}
	e := cut[k.random.IntN(len(cut))]
	for _, form := range []struct{ flag, want string }{{"--json=false", "outcome unknown"}, {"--json", `"outcome":"unknown"`}} {
		if out, code := k.runOut("blackbox", "show", fmt.Sprint(e.Seq), form.flag, "--config", k.config); code != 0 || !strings.Contains(out, form.want) {
			k.t.Errorf("%q is not in\n%s", form.want, out)
		}
	}
}

// judged holds an entry's label against what was raised before it.
func (k *crash) judged(e recorded) {
	if e.Scope == "" || e.Before == "" && e.Upstream == "self" && e.Kind == "notification" { // that a list has changed is nobody's data
		return
	}
	if before := k.labels[e.Scope]; !labelOf(e.Before).covers(before) {
		k.t.Errorf("entry %d was judged on %q, and %v was raised before it", e.Seq, e.Before, before)
	}
	k.labels[e.Scope] = labelOf(e.After)
}

// reached reads the upstreams' own log: what ran was permitted, once.
func (k *crash) reached() {
	k.t.Helper()
	clear(k.ran)
	for _, line := range k.setup.reached() {
		var call struct {
			Name      string
			Arguments struct{ Content string }
		}
		if err := json.Unmarshal([]byte(line), &call); err != nil {
			k.t.Fatalf("half a line in the upstream's log: %q", line)
		}
		if call.Name != "write_file" {
			continue
		}
		name := call.Arguments.Content
		if k.ran[name]++; k.ran[name] > 1 || k.permits[name] == 0 {
			k.t.Errorf("%s ran %d times with the permit %d", name, k.ran[name], k.permits[name])
		}
	}
}

// wasAnswered holds what the client got against the entries.
func (k *crash) wasAnswered(waiting map[string]chan message) {
	k.t.Helper()
	for name, ch := range waiting {
		select {
		case m := <-ch:
			if n := k.answers[k.permits[name]]; m.Error == nil && n != 1 {
				k.t.Errorf("%s was answered, and %d answers are recorded", name, n)
			}
		default:
		}
	}
}

// A label is one as entries print it: ranks of integrity (under "") and of each source's confidentiality.
type label map[string]int

func labelOf(text string) label {
	ranks := map[string]int{"trusted": 0, "untrusted": 1, "suspect": 2, "public": 0, "sensitive": 1, "pii": 2, "secret": 3}
	l := label{}
	for part := range strings.SplitSeq(text, ", ") {
		source, word, ok := strings.Cut(part, ":")
		if !ok {
			source, word = "", part
		}
		l[source] = max(l[source], ranks[word])
	}
	return l
}

func (l label) covers(m label) bool {
	for source, rank := range m {
		if at, ok := l[source]; !ok || at < rank {
			return false
		}
	}
	return true
}

// killTree kills navra, not the host process that started it.
func killTree(t *testing.T, c *client) {
	t.Helper()
	for _, pid := range childrenOf(t, c.cmd.Process.Pid) {
		kill(pid)
	}
}

func TestRestartKeepsTheStore(t *testing.T) {
	t.Parallel()
	s, config := office(t)
	c := s.startAs(navraBin, "stdio", "--config", config).open()
	c.call("files__read_file", map[string]any{"path": filepath.Join(s.Dir, "plan.txt")})
	n := len(s.entries())
	c.close()
	s.startAs(navraBin, "stdio", "--config", config).open().close()
	if m := len(s.entries()); m <= n {
		t.Errorf("%d entries, then %d", n, m)
	}
	s.verify(config)
}
