//go:build unix

package heads

import (
	"os"
	"syscall"
)

// lock keeps other processes from writing.
func lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }

func unlock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
