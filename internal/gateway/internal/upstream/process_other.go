//go:build !unix

package upstream

import (
	"os"
	"os/exec"
)

// ownGroup does nothing where there are no process groups.
func ownGroup(*exec.Cmd) {}

// signalGroup ends the child; there is no gentler way here.
func signalGroup(pid int, kill bool) {
	if p, err := os.FindProcess(pid); err == nil && kill {
		_ = p.Kill()
	}
}
