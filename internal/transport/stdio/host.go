package stdio

import (
	"os"
	"os/user"
	"path"
	"strconv"
	"strings"

	"navra/internal/mcp"
)

// A process is what the operating system says of one. exe is the program file's path, "" where it may not be read.
type process struct {
	parent int
	start  string // when it started, in the system's own terms
	exe    string
	argv   []string
}

const (
	// maxAncestors bounds the search for a host.
	maxAncestors = 64
	// maxConversation bounds a host's name for its conversation, in bytes.
	maxConversation = 128
)

// Host says which program this process serves: the conversation that the environment names, the host process and its
// working folder, and the user. The process is known on Linux only; elsewhere, and where it cannot be told, Process is "" and
// Folder is this process's own.
func Host() mcp.HostKey {
	h := mcp.HostKey{Conversation: conversation(os.LookupEnv), User: userName()}
	if pid, p, ok := hostOf(os.Getpid(), lookUp); ok {
		if boot := bootID(); boot != "" {
			h.Process = boot + "/" + strconv.Itoa(pid) + "/" + p.start
			h.Folder = folderOf(pid)
		}
	}
	if h.Folder == "" {
		h.Folder, _ = os.Getwd() // "" where the folder is gone
	}
	return h
}

// hostOf finds the nearest ancestor of pid that is no launcher; not ok where the search ends at the first process or at one
// that cannot be read.
func hostOf(pid int, look func(pid int) (process, bool)) (int, process, bool) {
	p, ok := look(pid)
	for range maxAncestors {
		if !ok || p.parent <= 1 {
			break
		}
		pid = p.parent
		if p, ok = look(pid); ok && !p.launches() {
			return pid, p, true
		}
	}
	return 0, process{}, false
}

// launches reports whether p only starts something else. Its title counts beside its file: npm writes "npm exec …" over its
// arguments. A host that calls itself a launcher only widens its scope.
func (p process) launches() bool {
	name, called := programName(p.exe), ""
	if len(p.argv) > 0 {
		title, _, _ := strings.Cut(strings.TrimPrefix(p.argv[0], "-"), " ")
		called = programName(title)
	}
	if name == "" {
		name = called
	}
	switch {
	case launchers[name], len(p.argv) > 1 && p.argv[1] == supervisor:
		return true
	case manyNamed[name]:
		return launchers[called] || launchers[p.script()]
	case interpreters[strings.TrimRight(name, ".0123456789")]:
		return scripts[called] || scripts[p.script()]
	}
	return false
}

// script names the program that an interpreter or a program of many names runs: its first argument, or a module after -m.
func (p process) script() string {
	for i, arg := range p.argv {
		if i > 0 && !strings.HasPrefix(arg, "-") {
			return programName(arg)
		}
	}
	return ""
}

// programName is the last element of a path, without what systems and interpreters add to it.
func programName(file string) string {
	file = strings.TrimSuffix(file, " (deleted)")
	if file == "" {
		return ""
	}
	name := strings.ToLower(path.Base(file))
	for _, ext := range []string{".js", ".cjs", ".mjs", ".py"} {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

// conversation is the host's name for its conversation as the environment gives it, "" for none. A value that is no plain
// name is none.
func conversation(lookup func(string) (string, bool)) string {
	for _, c := range conversations {
		if v, ok := lookup(c.variable); ok && plainName(v) {
			return c.host + "/" + v
		}
	}
	return ""
}

// plainName reports whether s is 1 to maxConversation letters, digits, dots, underscores and hyphens.
func plainName(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return 0 < len(s) && len(s) <= maxConversation
}

// userName is "uid:N", or "user:NAME" on Windows, where users have no such number.
func userName() string {
	if uid := os.Getuid(); uid >= 0 {
		return "uid:" + strconv.Itoa(uid)
	}
	u, err := user.Current()
	if err != nil {
		return "user:"
	}
	return "user:" + u.Username
}
