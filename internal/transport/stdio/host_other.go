//go:build !linux

package stdio

// lookUp knows no process: where there is no /proc the host process cannot be told.
func lookUp(int) (process, bool) { return process{}, false }

func bootID() string { return "" }

func folderOf(int) string { return "" }
