package shim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// lastResort is how long a supervisor has to kill everything before it is killed itself: longer than it tries.
const lastResort = patience + time.Second

// A Child is a command under a supervisor. Its methods may be called concurrently, Wait once.
type Child struct {
	Pid        int // the command's own, and its process group's
	supervisor *exec.Cmd
	leash      *os.File // nobody but this process holds it; when it is closed, the supervisor kills everything
}

// Program is what Start takes for the running program, also where its file was replaced meanwhile. The program must call Enter.
func Program() string { return "/proc/self/exe" }

// Start starts cmd, of which Path, Args, Env and Dir count, in a process group of its own, with stdio as its standard streams. It
// returns when the command runs, or with the error that cmd.Start would have returned.
func Start(program string, cmd *exec.Cmd, stdio [3]*os.File) (*Child, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	orders, leash, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer orders.Close()
	report, reporter, err := os.Pipe()
	if err != nil {
		leash.Close()
		return nil, err
	}
	defer report.Close()
	s := exec.Command(program)
	s.Args = append([]string{"navra", Word, cmd.Dir, cmd.Path}, cmd.Args...)
	s.Env = []string{"GOMAXPROCS=2"} // the command's comes over the leash: what it says of Go is not meant for the supervisor
	s.ExtraFiles = []*os.File{orders, reporter, stdio[0], stdio[1], stdio[2]}
	s.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the terminal's Ctrl-C is for navra
	err = s.Start()
	reporter.Close()
	if err != nil {
		leash.Close()
		return nil, fmt.Errorf("supervisor: %w", err)
	}
	c := &Child{supervisor: s, leash: leash}
	if c.Pid, err = begin(cmd, leash, report); err != nil {
		c.Kill()
		_ = s.Wait() // it had nothing to do
		return nil, err
	}
	return c, nil
}

// begin tells the supervisor the command's environment, and learns from it how the start went.
func begin(cmd *exec.Cmd, leash io.Writer, report io.Reader) (pid int, err error) {
	var env bytes.Buffer
	for _, kv := range cmd.Environ() {
		if kv != "" {
			env.WriteString(kv + "\x00")
		}
	}
	env.WriteByte(0)
	if _, err := leash.Write(env.Bytes()); err != nil {
		return 0, fmt.Errorf("supervisor: %w", err)
	}
	said, err := io.ReadAll(report)
	if err != nil {
		return 0, fmt.Errorf("supervisor: %w", err)
	}
	switch n, err := strconv.Atoi(string(said)); {
	case err != nil:
		return 0, errors.New("supervisor: it ended before it had started anything")
	case n < 0:
		return 0, &os.PathError{Op: "fork/exec", Path: cmd.Path, Err: syscall.Errno(-n)}
	default:
		return n, nil
	}
}

// Wait waits until the command and its descendants are gone.
func (c *Child) Wait() {
	_ = c.supervisor.Wait() // its status is the command's
	c.leash.Close()
	if !c.supervisor.ProcessState.Exited() {
		_ = syscall.Kill(-c.Pid, syscall.SIGKILL) // somebody has killed the supervisor: what is left of the group at least
	}
}

// Term asks the command's process group to end.
func (c *Child) Term() { _ = c.supervisor.Process.Signal(syscall.SIGTERM) }

// Kill ends the command and all its descendants. It does not wait for them.
func (c *Child) Kill() {
	if c.leash.Close() == nil {
		time.AfterFunc(lastResort, func() { _ = c.supervisor.Process.Kill() })
	}
}
