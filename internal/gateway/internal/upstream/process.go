package upstream

import (
	"fmt"
	"os"
	"os/exec"
	"time"
)

// An ending says how long a child is given.
type ending uint8

const (
	gently ending = iota // stdin closed, then SIGTERM, then killed
	atOnce               // navra itself ends: hosts give it 100 ms
)

type grace struct{ eof, term time.Duration }

var graces = map[ending]grace{gently: {time.Second, 2 * time.Second}, atOnce: {0, 60 * time.Millisecond}}

// A process is a child and its process group.
type process struct {
	cmd  *exec.Cmd
	pid  int
	done chan struct{} // closed when the child was waited for
}

type pipes struct{ in, out, err *os.File }

// startProcess starts the child in a process group of its own, with pipes of navra's.
func startProcess(s Spec) (*process, pipes, error) {
	var files []*os.File
	fail := func(err error) (*process, pipes, error) {
		for _, f := range files {
			f.Close()
		}
		return nil, pipes{}, fmt.Errorf("start %q: %w", s.Command[0], err)
	}
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		files = append(files, r, w)
	}
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Env, cmd.Dir = s.Env, s.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[3], files[5]
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	files[0].Close()
	files[3].Close()
	files[5].Close()
	return &process{cmd: cmd, pid: cmd.Process.Pid, done: make(chan struct{})}, pipes{in: files[1], out: files[2], err: files[4]}, nil
}

// wait waits for the child, once.
func (p *process) wait() {
	_ = p.cmd.Wait() // how it ended does not matter here: what it owed is failed by the reader
	close(p.done)
}

// stop ends the group: whoever of it is left is killed last. It returns when the child was waited for. A gentle end that is under way
// becomes one at once when hurry is closed.
func (p *process) stop(how ending, hurry <-chan struct{}) {
	g := graces[how]
	if how == atOnce {
		hurry = nil // it is
	}
	if !p.gone(g.eof, hurry) {
		signalGroup(p.pid, false)
		if !p.gone(g.term, hurry) {
			p.gone(graces[atOnce].term, nil)
		}
	}
	p.kill()
	<-p.done
}

// kill ends the whole group at once.
func (p *process) kill() { signalGroup(p.pid, true) }

// gone waits for the child's end, within a time, or until hurry is closed.
func (p *process) gone(within time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
	case <-hurry:
	}
	return false
}
