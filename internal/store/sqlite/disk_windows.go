package sqlite

import "golang.org/x/sys/windows"

// disk returns how many bytes are left where a folder lies, and how many there are; zeros where that cannot be told.
func disk(dir string) (free, size int64) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0
	}
	var available, all uint64
	if windows.GetDiskFreeSpaceEx(path, &available, &all, nil) != nil {
		return 0, 0
	}
	return int64(available), int64(all)
}
