package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// processes calls f with each process's number, parent and environment (Linux).
func processes(t testing.TB, f func(pid, parent int, env string)) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Skip("this system has no /proc") // the tests that look at processes run on Linux
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		env, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		f(pid, parent, string(env))
	}
}

func childrenOf(t testing.TB, of int) (out []int) {
	processes(t, func(pid, parent int, _ string) {
		if parent == of {
			out = append(out, pid)
		}
	})
	return out
}

// withEnv returns the processes whose environment holds a variable.
func withEnv(t testing.TB, kv string) (out []int) {
	processes(t, func(pid, _ int, env string) {
		if strings.Contains("\x00"+env, "\x00"+kv+"\x00") {
			out = append(out, pid)
		}
	})
	return out
}

func kill(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		p.Kill()
	}
}

const sigterm = syscall.SIGTERM
