//go:build linux || darwin

package sqlite

import "syscall"

// disk returns how many bytes are left where a folder lies, and how many there are; zeros where that cannot be told.
func disk(dir string) (free, size int64) {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return 0, 0
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize)
}
