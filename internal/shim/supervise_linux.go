package shim

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
)

// What a supervisor is given, beside standard streams that lead nowhere.
const (
	orders   = 3 + iota // the environment, then nothing more until the other end is closed: everything is to be killed
	report              // takes the command's process number, or a negated errno where it did not start
	childIn             // the command's standard streams; they are not kept
	childOut            //
	childErr            //
)

const prSetChildSubreaper = 36 // Linux, prctl(2)

// Enter makes this process a supervisor and does not return, if it was started as one. It must come first in main.
func Enter() {
	if len(os.Args) > 1 && os.Args[1] == Word {
		syscall.Exit(supervise(os.Args[2:])) // not os.Exit: nothing is to run at exit
	}
}

// supervise runs a command (folder, file, arguments) and returns its exit code when neither it nor a descendant is left.
func supervise(args []string) int {
	const unusable = 2
	if len(args) < 3 {
		return unusable
	}
	for fd := orders; fd <= childErr; fd++ {
		syscall.CloseOnExec(fd)
	}
	signals := make(chan os.Signal, 8)
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		if !signal.Ignored(s) { // else the command is to ignore it too
			signal.Notify(signals, s)
		}
	}
	leash := bufio.NewReader(os.NewFile(orders, "orders"))
	env, err := environment(leash)
	if err != nil {
		return unusable // navra is gone, or this is no supervisor
	}
	_ = os.WriteFile("/proc/self/comm", []byte("navra-shim"), 0) // else ps says "exe"
	runtime.LockOSThread()                                       // the command's parent is this thread: it must not end before the process
	child, err := start(args[0], args[1], args[2:], env)
	say(child, err)
	for fd := report; fd <= childErr; fd++ {
		_ = syscall.Close(fd)
	}
	if err != nil {
		return unusable
	}

	cut, ended, none := make(chan struct{}), make(chan syscall.WaitStatus, 1), make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, leash)
		close(cut)
	}()
	go reap(child, ended, none)
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM { // others are the terminal's or a mistake
				_ = syscall.Kill(-child, syscall.SIGTERM)
			}
			continue
		case status := <-ended:
			killAll(none)
			return code(status)
		case <-cut:
			killAll(none)
			return code(syscall.WaitStatus(syscall.SIGKILL))
		}
	}
}

// environment reads the command's environment: each entry ends with NUL, and so does the list.
func environment(r *bufio.Reader) (env []string, err error) {
	for {
		kv, err := r.ReadString(0)
		if err != nil || kv == "\x00" {
			return env, err
		}
		env = append(env, kv[:len(kv)-1])
	}
}

// start starts the command, as a process that dies with this one, after this one has become the parent of orphans.
func start(dir, file string, argv, env []string) (pid int, err error) {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0); errno != 0 {
		return 0, errno
	}
	return syscall.ForkExec(file, argv, &syscall.ProcAttr{
		Dir: dir, Env: env, Files: []uintptr{childIn, childOut, childErr},
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
}

// say reports how the start went.
func say(pid int, err error) {
	if err != nil {
		errno := syscall.EINVAL
		errors.As(err, &errno)
		pid = -int(errno)
	}
	_, _ = syscall.Write(report, []byte(strconv.Itoa(pid)))
}

// reap waits for every child, adopted ones too, and closes none when there is no more: then no descendant is left either.
func reap(child int, ended chan<- syscall.WaitStatus, none chan<- struct{}) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			close(none)
			return
		case pid == child:
			ended <- status
		}
	}
}

// code is the exit code that tells of a command's end as shells do.
func code(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}
