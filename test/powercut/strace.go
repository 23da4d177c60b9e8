package powercut

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Said is what a program began to write to something that is no file below the root: a pipe, a socket.
type Said struct {
	At   int // comes before what ended later
	Text string
}

// A Record is what programs did to a folder, and said.
type Record struct {
	Ops  []Op // in the order of their ends
	Said []Said
	End  int // the number of moments
}

// calls change a folder; those with a question mark some machines do not have.
const calls = "write,pwrite64,ftruncate,truncate,fsync,fdatasync,?open,openat,?creat,?mkdir,mkdirat,?unlink,unlinkat,?rmdir,?rename,?renameat,renameat2,?link,linkat,fallocate,pwritev,writev"

// Command is a command line that runs another one and records it in a file.
func Command(file string, args ...string) []string {
	return append([]string{"strace", "-f", "-qq", "--seccomp-bpf", "-y", "-xx", "-s", "1000000", "-e", "signal=none", "-e", "trace=" + calls, "-o", file}, args...)
}

// Missing reports why a command cannot be recorded here, or nil. It installs Debian's package where strace is not there, and it may.
func Missing() error {
	if _, err := exec.LookPath("strace"); err != nil {
		install()
	}
	out, err := exec.Command("strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=write", "-o", os.DevNull, "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("strace: %w: %s", err, out)
	}
	return nil
}

// install does what it can: what it could not shows when strace is run.
func install() {
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return
	}
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "strace"}} {
		cmd := exec.Command("timeout", slices.Concat([]string{"300", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"}, args)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		_ = cmd.Run()
	}
}

// Parse reads a record of what was done below root, an absolute path.
func Parse(r io.Reader, root string) (*Record, error) {
	rec, open := &Record{}, map[string]call{} // by thread
	in := bufio.NewReaderSize(r, 1<<20)
	for n := 0; ; n++ {
		line, err := in.ReadString('\n')
		if err == io.EOF && line == "" {
			rec.End = n
			slices.SortStableFunc(rec.Ops, func(a, b Op) int { return a.End - b.End })
			return rec, nil
		} else if err != nil && err != io.EOF {
			return nil, err
		}
		thread, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		rest = strings.TrimLeft(rest, " ")
		c := call{start: n, text: rest}
		if strings.HasPrefix(rest, "<... ") {
			c = open[thread]
			_, tail, _ := strings.Cut(rest, " resumed>")
			c.text += tail
			delete(open, thread)
		} else {
			rec.say(c)
		}
		if before, cut := strings.CutSuffix(c.text, " <unfinished ...>"); cut {
			c.text = before
			open[thread] = c
			continue
		}
		if err := rec.add(c, n, root); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
}

// A call is a system call as strace prints it.
type call struct {
	start int
	text  string
}

// say notes what is written elsewhere, as of its beginning.
func (rec *Record) say(c call) {
	args, ok := strings.CutPrefix(c.text, "write(")
	if !ok {
		return
	}
	fields := strings.SplitN(args, ", ", 3)
	if len(fields) == 3 && !strings.HasPrefix(described(fields[0]), "/") {
		rec.Said = append(rec.Said, Said{c.start, quoted(fields[1])})
	}
}

// add notes a call that has ended.
func (rec *Record) add(c call, end int, root string) error {
	name, rest, ok := strings.Cut(c.text, "(")
	i := strings.LastIndex(rest, " = ")
	if !ok || i < 0 || strings.HasPrefix(rest[i+3:], "-1") || strings.HasPrefix(rest[i+3:], "?") {
		return nil // a process ended, or nothing was done
	}
	args := strings.Split(strings.TrimRight(strings.TrimRight(rest[:i], " "), ")"), ", ")
	result, _, _ := strings.Cut(rest[i+3:], " ")
	result, _, _ = strings.Cut(result, "<")
	op := Op{Start: c.start, End: end}
	number := func(k int) int64 { n, _ := strconv.ParseInt(args[k], 10, 64); return n }
	switch name {
	case "write":
		op.Kind, op.Path, op.Data, op.Off = Write, described(args[0]), []byte(quoted(args[1])), appended
	case "pwrite64":
		op.Kind, op.Path, op.Data, op.Off = Write, described(args[0]), []byte(quoted(args[1])), number(3)
	case "ftruncate":
		op.Kind, op.Path, op.Off = Truncate, described(args[0]), number(1)
	case "fsync", "fdatasync":
		op.Kind, op.Path = Sync, described(args[0])
	case "open":
		return rec.open(c, end, root, absolute("", quoted(args[0])), args[1])
	case "openat":
		return rec.open(c, end, root, absolute(args[0], quoted(args[1])), args[2])
	case "mkdir":
		op.Kind, op.Path = Mkdir, quoted(args[0])
	case "mkdirat":
		op.Kind, op.Path = Mkdir, absolute(args[0], quoted(args[1]))
	case "unlink", "rmdir":
		op.Kind, op.Path = Remove, quoted(args[0])
	case "unlinkat":
		op.Kind, op.Path = Remove, absolute(args[0], quoted(args[1]))
	case "rename", "link":
		op.Kind, op.Path, op.To = moved(name), quoted(args[0]), quoted(args[1])
	case "renameat", "renameat2", "linkat":
		op.Kind, op.Path, op.To = moved(name), absolute(args[0], quoted(args[1])), absolute(args[2], quoted(args[3]))
	default: // this package would have to learn it
		if path := described(args[0]); below(root, path) != "" {
			return fmt.Errorf("%s of %s is not understood", name, path)
		}
		return nil
	}
	if wrote, err := strconv.Atoi(result); op.Kind == Write && (err != nil || wrote > len(op.Data)) {
		return fmt.Errorf("%s says it wrote %q of %d bytes", name, result, len(op.Data))
	} else if op.Kind == Write {
		op.Data = op.Data[:wrote]
	}
	rec.keep(op, root)
	return nil
}

// open notes a file that is made or emptied.
func (rec *Record) open(c call, end int, root, path, flags string) error {
	if strings.Contains(flags, "O_CREAT") {
		rec.keep(Op{Kind: Create, Path: path, Start: c.start, End: end}, root)
	}
	if strings.Contains(flags, "O_TRUNC") {
		rec.keep(Op{Kind: Truncate, Path: path, Start: c.start, End: end}, root)
	}
	return nil
}

func moved(call string) Kind {
	if strings.HasPrefix(call, "link") {
		return Link
	}
	return Rename
}

// keep notes an operation if it is below the root.
func (rec *Record) keep(op Op, root string) {
	if op.Path = below(root, op.Path); op.Path == "" {
		return
	}
	if op.To != "" {
		op.To = below(root, op.To)
	}
	rec.Ops = append(rec.Ops, op)
}

// below is a path relative to root, "" where it is not in it.
func below(root, path string) string {
	if path != root && !strings.HasPrefix(path, root+"/") {
		return ""
	}
	rel, _ := filepath.Rel(root, path)
	return rel
}

func absolute(folder, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(described(folder), path)
}

// described is what strace says that a descriptor is of: 7<\x2f…>.
func described(arg string) string {
	_, text, _ := strings.Cut(arg, "<")
	text, _, _ = strings.Cut(text, ">")
	return unhex(text)
}

func quoted(arg string) string { return unhex(strings.Trim(arg, `"`)) }

// unhex reads \x2f\x74; what is not in that form stays.
func unhex(text string) string {
	b, err := hex.DecodeString(strings.ReplaceAll(text, `\x`, ""))
	if err != nil || !strings.HasPrefix(text, `\x`) {
		return text
	}
	return string(b)
}
