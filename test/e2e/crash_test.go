package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// recorded is what the tests read of an entry.
type recorded struct {
	Seq                                                        int
	Kind, Method, Target, Verdict, Stage, Reason, Outcome, Ref string
	Principal, Scope, Upstream                                 string
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

// navra is killed at a random moment under load, twenty times: each call that reached the upstream has its permit, the chain
// is whole, and no taint is lost.
func TestKillUnderLoad(t *testing.T) {
	const kills, callers = 20, 8
	s, config := office(t)
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for round := range kills {
		c := s.startAs(navraBin, "stdio", "--config", config).open()
		c.call("files__read_file", map[string]any{"path": "plan.txt"}) // started, and tainted
		for i := range callers * 12 {
			c.begin("tools/call", map[string]any{"name": "files__write_file", "arguments": map[string]any{"path": fmt.Sprintf("k%d.txt", i%callers), "content": fmt.Sprintf("r%d-c%d", round, i)}})
		}
		time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond) // the random moment: nothing can be waited for
		killTree(t, c)
		c.close()
	}
	permits := map[string]int{}
	for _, e := range s.entries() {
		if e.Kind == "request" && e.Verdict == "allow" && e.Upstream == "files" {
			permits[e.Target]++
		}
	}
	executed := map[string]int{}
	for _, line := range s.reached() {
		var call struct{ Name string }
		if err := json.Unmarshal([]byte(line), &call); err != nil {
			t.Fatalf("half a line in the upstream's log: %q", line)
		}
		executed["files/"+call.Name]++
	}
	for name, n := range executed {
		if permits[name] < n {
			t.Errorf("%s ran %d times with %d permits", name, n, permits[name])
		}
	}
	if executed["files/write_file"] == 0 {
		t.Error("no call reached the upstream: the load proves nothing")
	}
	t.Logf("%d calls ran, %d permits", executed["files/write_file"], permits["files/write_file"])
	s.verify(config)
	c := s.startAs(navraBin, "stdio", "--config", config).open()
	if a := c.call("mail__send_mail", mail("x").args); !a.IsError || !strings.Contains(a.text(), "files") {
		t.Errorf("the taint is lost: %s", a.text())
	}
}

// killTree kills navra, not the host process that started it.
func killTree(t *testing.T, c *client) {
	t.Helper()
	for _, pid := range childrenOf(t, c.cmd.Process.Pid) {
		kill(pid)
	}
}

func TestRestartKeepsTheStore(t *testing.T) {
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
