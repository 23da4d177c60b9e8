//go:build unix

package main

import (
	"os"
	"strconv"
	"syscall"
)

// keepInherited keeps the descriptors that navra was started with, beside its standard streams, from navra's children: a host may have
// left open what is none of theirs.
func keepInherited() {
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
				syscall.CloseOnExec(fd)
			}
		}
		return
	}
}
