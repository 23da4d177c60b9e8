package shim

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Enter()
	os.Exit(m.Run())
}

// startScript starts a shell script under a supervisor. Its descendants carry mark in their environment.
func startScript(t *testing.T, script string) (c *Child, out *os.File, mark string) {
	t.Helper()
	mark = "SHIM_TEST=" + t.TempDir()
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), mark}
	c, out, err := startCmd(t, cmd)
	if err != nil {
		t.Fatal(err)
	}
	return c, out, mark
}

func startCmd(t *testing.T, cmd *exec.Cmd) (*Child, *os.File, error) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	defer w.Close()
	defer null.Close()
	c, err := Start(Program(), cmd, [3]*os.File{null, w, w})
	return c, r, err
}

// marked returns the living processes with mark in their environment.
func marked(mark string) (out []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range all {
		b, _ := os.ReadFile(f)
		if slices.Contains(strings.Split(string(b), "\x00"), mark) {
			out = append(out, filepath.Base(filepath.Dir(f)))
		}
	}
	return out
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

const daemons = "setsid sleep 1000 & (trap '' TERM HUP; setsid sh -c 'setsid sleep 1000 & sleep 1000' &); "

func TestNobodyOutlives(t *testing.T) {
	const untilGo = `until [ -e "$SHIM_TEST/go" ]; do sleep 0.01; done; `
	for _, tt := range []struct {
		name, script string
		end          func(*Child)
	}{
		{"the child's own end", daemons + untilGo + "exit 3", nil},
		{"the child's crash", daemons + untilGo + "kill -SEGV $$", nil},
		{"SIGTERM", "trap 'exit 0' TERM; " + daemons + "while :; do sleep 0.01; done", (*Child).Term},
		{"a kill", "trap '' TERM HUP; " + daemons + "sleep 1000", (*Child).Kill},
		{"a kill of who runs away", `echo 'setsid sh "$0" & exit' >"${SHIM_TEST}/run"; setsid sh "${SHIM_TEST}/run" & sleep 1000`, (*Child).Kill},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, _, mark := startScript(t, tt.script)
			if strings.HasPrefix(tt.script, daemons) {
				waitFor(t, "all to run", func() bool { return len(marked(mark)) >= 5 })
			} else {
				waitFor(t, "some to run", func() bool { return len(marked(mark)) >= 2 })
			}
			start := time.Now()
			if tt.end != nil {
				tt.end(c)
			} else if err := os.WriteFile(strings.TrimPrefix(mark, "SHIM_TEST=")+"/go", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			c.Wait()
			if left := marked(mark); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			t.Logf("after %s", time.Since(start))
		})
	}
}

// When somebody kills the supervisor itself, the child's group ends.
func TestKilledSupervisor(t *testing.T) {
	c, _, mark := startScript(t, "sleep 1000 & sleep 1000")
	waitFor(t, "all to run", func() bool { return len(marked(mark)) == 3 })
	if err := c.supervisor.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	waitFor(t, "all to end", func() bool { return len(marked(mark)) == 0 })
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("neither script nor program"), 0o600); err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(dir, "odd")
	if err := os.WriteFile(odd, []byte("neither script nor program"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, file, dir string }{
		{"no such name", "no-such-program-anywhere", ""},
		{"no such file", "/no/such/program", ""},
		{"a folder", dir, ""},
		{"not executable", plain, ""},
		{"no program", odd, ""},
		{"no such working folder", "/bin/sh", "/no/such/folder"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(tt.file)
			cmd.Dir = tt.dir
			_, _, err := startCmd(t, cmd)
			direct := alone(exec.Command(tt.file))
			direct.Dir = tt.dir
			want := direct.Start()
			if err == nil || want == nil || err.Error() != want.Error() {
				t.Errorf("Start: %v, without a supervisor: %v", err, want)
			}
		})
	}
}

// alone is how a child without a supervisor is started.
func alone(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// The child has the environment, folder, arguments, streams, group and signals that it would have without a supervisor.
func TestSurroundings(t *testing.T) {
	t.Setenv("NAVRA_SECRET", "x")
	const script = `pwd; echo "$0 $1"; tr '\0' '\n' </proc/$$/environ; ls /proc/$$/fd; grep '^Sig[BI]' /proc/self/status
		set -- $(cat /proc/$$/stat); [ $1 = $5 ] && echo its own group`
	command := func() *exec.Cmd {
		cmd := exec.Command("sh", "-c", script, "zero", "a b\nc")
		cmd.Dir, cmd.Env = os.TempDir(), []string{"PATH=" + os.Getenv("PATH"), "GODEBUG=gctrace=1", "GOMAXPROCS=7", "TWICE=1", "TWICE=2", "EMPTY="}
		return cmd
	}
	c, out, err := startCmd(t, command())
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(out)
	c.Wait()
	if err != nil {
		t.Fatal(err)
	}
	want, err := alone(command()).Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) || !strings.Contains(string(got), "its own group") {
		t.Errorf("the child says:\n%s\nwithout a supervisor:\n%s", got, want)
	}
}

// A stream that the child closes is closed, though the supervisor lives.
func TestStreamsAreNotKept(t *testing.T) {
	c, out, _ := startScript(t, "exec >/dev/null 2>&1; sleep 1000")
	if b, err := io.ReadAll(out); err != nil || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
	c.Kill()
	c.Wait()
}

// An environment larger than a pipe's room arrives.
func TestLargeEnvironment(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo ${#A} ${#B}")
	cmd.Env = []string{"A=" + strings.Repeat("a", 100_000), "B=" + strings.Repeat("b", 100_000)}
	c, out, err := startCmd(t, cmd)
	if err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(out)
	c.Wait()
	if string(said) != "100000 100000\n" {
		t.Errorf("the child says %q", said)
	}
}

// Both ways of looking for children find the same.
func TestParents(t *testing.T) {
	c, _, mark := startScript(t, "setsid sleep 1000 & sleep 1000")
	defer c.Wait()
	defer c.Kill()
	waitFor(t, "all to run", func() bool { return len(marked(mark)) == 3 })
	a, b := childrenOf(c.Pid), parents()(c.Pid)
	slices.Sort(a)
	slices.Sort(b)
	if len(a) != 2 || !slices.Equal(a, b) {
		t.Errorf("children %v and %v", a, b)
	}
}
