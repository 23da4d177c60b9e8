package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A server is a process under test.
type server struct {
	name string
	addr string // where it listens
	cmd  *exec.Cmd
	in   io.Closer // its stdin; the rig's own servers end with it
	tail *tail
	gone chan struct{} // closed when it has ended
}

var listens = regexp.MustCompile(`listens on http://([^/\s]+)`)

// Bounds of a server's start and end.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 15 * time.Second
)

// startServer runs a program and waits until it says on stderr where it listens.
func startServer(ctx context.Context, name string, argv ...string) (*server, error) {
	s := &server{name: name, cmd: exec.Command(argv[0], argv[1:]...), tail: &tail{}, gone: make(chan struct{})}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	s.in = in
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	addr := make(chan string, 1)
	go func() {
		defer close(s.gone)
		for sc := bufio.NewScanner(stderr); sc.Scan(); {
			s.tail.add(sc.Text())
			if m := listens.FindStringSubmatch(sc.Text()); m != nil {
				select {
				case addr <- m[1]:
				default:
				}
			}
		}
		s.cmd.Wait()
	}()
	select {
	case s.addr = <-addr:
		return s, nil
	case <-s.gone:
		return nil, fmt.Errorf("%s ended before it listened:\n%s", name, s.tail)
	case <-time.After(startTimeout):
		err = fmt.Errorf("%s does not listen after %v:\n%s", name, startTimeout, s.tail)
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(err, s.stop())
}

// stop ends the process in the way a service manager does.
func (s *server) stop() error {
	s.in.Close()
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.gone:
		return nil
	case <-time.After(stopTimeout):
		s.cmd.Process.Kill()
		<-s.gone
		return fmt.Errorf("%s did not end within %v of SIGTERM", s.name, stopTimeout)
	}
}

// A tail keeps the last lines of a log for an error's text.
type tail struct {
	mu    sync.Mutex
	lines []string
}

const tailLines = 20

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines = append(t.lines, line); len(t.lines) > tailLines {
		t.lines = t.lines[1:]
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

// A used is what a process has used so far.
type used struct {
	parent int
	cpu    time.Duration // user and system
	ended  time.Duration // the same of its children that have ended
	rss    int64         // bytes, now
}

// tick is the unit of time in /proc/PID/stat: USER_HZ is 100 wherever Go runs on Linux.
const tick = 10 * time.Millisecond

// usage reads /proc/PID/stat, see proc_pid_stat(5).
func usage(pid int) (used, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return used{}, err
	}
	return parseStat(string(b))
}

func parseStat(line string) (used, error) {
	i := strings.LastIndexByte(line, ')') // the program's name may hold anything
	f := strings.Fields(line[i+1:])
	if i < 0 || len(f) < 22 {
		return used{}, fmt.Errorf("/proc/PID/stat has an unknown form: %q", line)
	}
	var n [22]int64
	for k := 1; k < len(n); k++ { // f[0] is the state, field 3
		n[k], _ = strconv.ParseInt(f[k], 10, 64)
	}
	return used{
		parent: int(n[1]), cpu: time.Duration(n[11]+n[12]) * tick, ended: time.Duration(n[13]+n[14]) * tick,
		rss: n[21] * int64(os.Getpagesize()),
	}, nil
}

// usageBelow sums what the descendants of a process have used, those that have ended included.
func usageBelow(pid int) (used, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return used{}, err
	}
	all := map[int]used{}
	for _, path := range stats {
		id, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if u, err := usage(id); err == nil { // else it has just ended
			all[id] = u
		}
	}
	sum := used{cpu: all[pid].ended}
	for id, u := range all {
		for up := u.parent; id != pid && up != 0; up = all[up].parent {
			if up == pid {
				sum.cpu += u.cpu + u.ended
				sum.rss += u.rss
				break
			}
		}
	}
	return sum, nil
}
