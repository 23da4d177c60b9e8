package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// daemons starts what leaves its process group, its parent, and both, before the server takes the shell's place.
const daemons = `setsid sleep 1000 & (trap '' TERM HUP; setsid sh -c 'setsid sleep 1000 & sleep 1000' &) ; exec `

// Whatever a server has started ends with it and with navra, however navra ends.
func TestNoGrandchildSurvives(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, flags string
		end         func(t *testing.T, c *client, mark string)
	}{
		{"kill -9 of navra", "", func(_ *testing.T, c *client, _ string) { c.cmd.Process.Kill() }},
		{"kill -9 of navra before a stubborn server", "-ignore-term", func(_ *testing.T, c *client, _ string) { c.cmd.Process.Kill() }},
		{"end of input", "", func(_ *testing.T, c *client, _ string) { c.close() }},
		{"SIGTERM", "-ignore-term", func(_ *testing.T, c *client, _ string) { c.cmd.Process.Signal(sigterm) }},
		{"crash of the server", "-die-after 1", func(_ *testing.T, c *client, _ string) { c.call("echo", map[string]any{"text": "x"}) }},
		{"kill -9 of the server", "", func(t *testing.T, c *client, mark string) {
			for _, pid := range withEnv(t, mark) {
				if exe, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe"); exe == fixtureBin {
					kill(pid)
				}
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			mark := "MARK=" + filepath.Base(s.Home) + s.Home
			config := filepath.Join(s.Dir, "navra.yaml")
			script := filepath.Join(s.Dir, "server.sh")
			write(t, script, daemons+fixtureBin+" odd "+tt.flags+"\n")
			write(t, config, "store: s.db\nupstreams: {odd: {command: [sh, "+script+"], env: {"+strings.Replace(mark, "=", ": \"", 1)+"\"}, prefix: none}}\n")
			c := s.start(navraBin, "stdio", "--config", config).open()
			c.request("tools/list", nil)
			waitFor(t, "all to run", func() bool { return len(withEnv(t, mark)) >= 5 })
			start := time.Now()
			tt.end(t, c, mark)
			waitFor(t, "all to end", func() bool { return len(withEnv(t, mark)) == 0 })
			t.Logf("all ended after %s", time.Since(start))
		})
	}
}

// What a server cannot be started for is said as if nothing stood between.
func TestStartErrorIsClear(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	c := s.start(navraBin, "wrap", "--", "/no/such/program").open()
	waitFor(t, "the log to say why", func() bool {
		return strings.Contains(c.stderr.String(), `"start \"/no/such/program\": fork/exec /no/such/program: no such file or directory"`)
	})
}

// The word that makes a process a supervisor is nobody's command.
func TestSupervisorIsNoCommand(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	if out, code := s.run("--help"); code != 0 || strings.Contains(out, "shim") {
		t.Errorf("exit %d\n%s", code, out)
	}
	if out, code := s.run("__shim", "", "/bin/echo", "echo", "x"); code == 0 || out != "" {
		t.Errorf("exit %d: %s", code, out)
	}
}
