package upstream

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"navra/internal/shim"
)

// An ending says how long a child is given.
type ending uint8

const (
	gently ending = iota // stdin closed, then SIGTERM, then killed
	atOnce               // navra itself ends: hosts give it 100 ms
)

type grace struct{ eof, term time.Duration }

var graces = map[ending]grace{gently: {time.Second, 2 * time.Second}, atOnce: {0, 60 * time.Millisecond}}

// A process is a child with what it has started.
type process struct {
	child
	pid  int
	done chan struct{} // closed when the child was waited for
}

// A child can be asked to end, killed with what it has started, and waited for.
type child interface {
	Term()
	Kill()
	Wait()
}

// A direct child has no supervisor: what leaves its process group is out of reach.
type direct struct{ *exec.Cmd }

func (d direct) Term() { signalGroup(d.Process.Pid, false) }
func (d direct) Kill() { signalGroup(d.Process.Pid, true) }
func (d direct) Wait() { _ = d.Cmd.Wait() } // how it ended does not matter here: what it owed is failed by the reader

type pipes struct{ in, out, err *os.File }

// Find looks for the program of an upstream that is one, where starting it does.
func (s Spec) Find() error {
	if len(s.Command) == 0 {
		return nil
	}
	program := s.Command[0]
	if s.Dir != "" && filepath.Base(program) != program && !filepath.IsAbs(program) {
		program = filepath.Join(s.Dir, program)
	}
	_, err := exec.LookPath(program)
	return err
}

// startProcess starts the child in a process group of its own, with pipes of navra's, under a supervisor if there is a program for it.
func startProcess(s Spec, supervisor string) (*process, pipes, error) {
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
	p := &process{done: make(chan struct{})}
	if err := p.start(cmd, [3]*os.File{files[0], files[3], files[5]}, supervisor); err != nil {
		return fail(err)
	}
	files[0].Close()
	files[3].Close()
	files[5].Close()
	return p, pipes{in: files[1], out: files[2], err: files[4]}, nil
}

func (p *process) start(cmd *exec.Cmd, stdio [3]*os.File, supervisor string) error {
	if supervisor != "" {
		c, err := shim.Start(supervisor, cmd, stdio)
		if err == nil {
			p.child, p.pid = c, c.Pid
		}
		return err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio[0], stdio[1], stdio[2]
	ownGroup(cmd)
	err := cmd.Start()
	if err == nil {
		p.child, p.pid = direct{cmd}, cmd.Process.Pid
	}
	return err
}

// wait waits for the child, once.
func (p *process) wait() {
	p.Wait()
	close(p.done)
}

// stop ends the child: whoever it leaves behind is killed last. It returns when the child was waited for. A gentle end that is under way
// becomes one at once when hurry is closed.
func (p *process) stop(how ending, hurry <-chan struct{}) {
	g := graces[how]
	if how == atOnce {
		hurry = nil // it is
	}
	if !p.gone(g.eof, hurry) {
		p.Term()
		if !p.gone(g.term, hurry) {
			p.gone(graces[atOnce].term, nil)
		}
	}
	p.Kill()
	<-p.done
}

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
