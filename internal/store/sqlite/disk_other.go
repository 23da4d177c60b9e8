//go:build !linux && !darwin && !windows

package sqlite

// disk says that it cannot be told.
func disk(string) (free, size int64) { return 0, 0 }
