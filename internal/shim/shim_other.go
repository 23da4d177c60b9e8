//go:build !linux

package shim

import (
	"errors"
	"os"
	"os/exec"
)

// Program is "": there are no supervisors here.
func Program() string { return "" }

// Enter does nothing here.
func Enter() {}

// A Child is never made here.
type Child struct{ Pid int }

// Start fails with errors.ErrUnsupported.
func Start(string, *exec.Cmd, [3]*os.File) (*Child, error) { return nil, errors.ErrUnsupported }

// Wait does nothing here.
func (*Child) Wait() {}

// Term does nothing here.
func (*Child) Term() {}

// Kill does nothing here.
func (*Child) Kill() {}
