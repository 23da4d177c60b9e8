package shim

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is how long killAll tries while it meets nobody new: who outlives SIGKILL so long is stuck in the kernel, or is
// another user's.
const patience = 2 * time.Second

// killAll kills every descendant until none is left. One that is killed starts nothing any more, and its children become this
// process's own: however fast they multiply or leave their parents, each round finds who is there.
func killAll(none <-chan struct{}) {
	select {
	case <-none: // as nearly always
		return
	default:
	}
	met := map[int]bool{}
	pause := 250 * time.Microsecond
	for last := time.Now(); time.Since(last) < patience; {
		for _, pid := range descendants(os.Getpid()) {
			if !met[pid] {
				met[pid], last, pause = true, time.Now(), 250*time.Microsecond
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-none:
			return
		case <-time.After(pause):
			pause = min(2*pause, 20*time.Millisecond)
		}
	}
}

// descendants returns all processes below one, as /proc shows them; those that move or start meanwhile may be missing.
func descendants(of int) []int {
	children := childrenOf
	if _, err := os.ReadFile("/proc/thread-self/children"); err != nil {
		children = parents() // a kernel without CONFIG_PROC_CHILDREN
	}
	all := children(of)
	for i := 0; i < len(all); i++ {
		all = append(all, children(all[i])...)
	}
	return all
}

// childrenOf returns the children of all threads of a process.
func childrenOf(pid int) (out []int) {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
	threads, _ := os.ReadDir(tasks)
	for _, t := range threads {
		b, _ := os.ReadFile(tasks + t.Name() + "/children")
		for _, f := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

// parents is childrenOf, from one look at every process there is.
func parents() func(pid int) []int {
	below := map[int][]int{}
	all, _ := os.ReadDir("/proc")
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		stat := string(b)
		if f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]); len(f) > 1 { // the name before it may hold anything
			parent, _ := strconv.Atoi(f[1])
			below[parent] = append(below[parent], pid)
		}
	}
	return func(pid int) []int { return below[pid] }
}
