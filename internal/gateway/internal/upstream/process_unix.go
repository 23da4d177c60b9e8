//go:build unix

package upstream

import (
	"os/exec"
	"syscall"
)

// ownGroup puts the child into a process group of its own, so that it and all it starts are ended together.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup asks the child's group to end, or ends it. A group that is gone is no error.
func signalGroup(pid int, kill bool) {
	sig := syscall.SIGTERM
	if kill {
		sig = syscall.SIGKILL
	}
	_ = syscall.Kill(-pid, sig)
}
