package stdio

import (
	"io"
	"os"
	"strconv"
	"strings"
)

// maxProcBytes bounds what is read of one file under /proc.
const maxProcBytes = 4096

// lookUp reads what /proc says of a process; proc(5).
func lookUp(pid int) (process, bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, ok := readProc(dir + "/stat")
	if !ok {
		return process{}, false
	}
	p, ok := parseStat(stat)
	if !ok {
		return process{}, false
	}
	p.exe, _ = os.Readlink(dir + "/exe") // not readable for other users' processes
	if args, ok := readProc(dir + "/cmdline"); ok && args != "" {
		p.argv = strings.Split(strings.TrimRight(args, "\x00"), "\x00")
	}
	return p, p.exe != "" || len(p.argv) > 0
}

// parseStat reads the parent (field 4) and the start time (field 22, in clock ticks since boot). Field 2, the name in
// parentheses, may hold anything, parentheses included.
func parseStat(stat string) (process, bool) {
	const first, parent, start = 3, 4, 22
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return process{}, false
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) <= start-first {
		return process{}, false
	}
	ppid, err := strconv.Atoi(fields[parent-first])
	return process{parent: ppid, start: fields[start-first]}, err == nil
}

func bootID() string {
	id, _ := readProc("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(id)
}

// folderOf is a process's working folder, "" where it may not be read.
func folderOf(pid int) string {
	dir, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
	return dir
}

func readProc(file string) (string, bool) {
	f, err := os.Open(file)
	if err != nil {
		return "", false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProcBytes))
	return string(b), err == nil
}
