package stdio

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navra/internal/shim"
)

const playHost = "NAVRA_TEST_PRINT_HOST"

// tree makes a process table of a line of descent: the first is the child of process 1, the last is navra. A process is its
// program file, "|", and its arguments; "?" is one that cannot be read.
func tree(line ...string) (self int, look func(int) (process, bool)) {
	table := map[int]process{}
	for i, p := range line {
		if p == "?" {
			continue
		}
		exe, args, _ := strings.Cut(p, "|")
		table[i+10] = process{parent: i + 9, exe: exe, argv: strings.Split(args, ",")}
		if i == 0 {
			table[10] = process{parent: 1, exe: exe, argv: strings.Split(args, ",")}
		}
	}
	return 9 + len(line), func(pid int) (process, bool) {
		p, ok := table[pid]
		return p, ok
	}
}

func TestHostOf(t *testing.T) {
	const navra = "/usr/bin/navra|navra,wrap"
	for _, tt := range []struct {
		name string
		line []string
		want string // program file of the host, "" for none
	}{
		{"direct", []string{"/opt/claude|claude", navra}, "/opt/claude"},
		{"sh -c", []string{"/opt/claude|claude", "/bin/dash|sh,-c,navra wrap; true", navra}, "/opt/claude"},
		{"login shell", []string{"/opt/claude|claude", "/bin/bash|-bash", navra}, "/opt/claude"},
		{"npx", []string{"/opt/claude|claude", "/usr/bin/node|node,/usr/lib/node_modules/npm/bin/npx-cli.js,navra", "/bin/dash|sh,-c,navra", navra}, "/opt/claude"},
		{"npx under its title", []string{"/opt/claude|claude", "/usr/bin/node|npm exec navra", "/bin/dash|sh,-c,navra", navra}, "/opt/claude"},
		{"node with options runs npx", []string{"/opt/claude|claude", "/usr/bin/node22|node,--no-warnings,/usr/bin/npx", navra}, "/opt/claude"},
		{"node is the host", []string{"/bin/bash|bash", "/usr/bin/node|node,/home/u/agent.js", navra}, "/usr/bin/node"},
		{"node under a title is the host", []string{"/bin/bash|bash", "/usr/bin/node|claude", navra}, "/usr/bin/node"},
		{"node that read a script named like a launcher later", []string{"/usr/bin/node|node,agent.js,npx", navra}, "/usr/bin/node"},
		{"uvx", []string{"/opt/claude|claude", "/home/u/.local/bin/uv|uv,tool,uvx,navra", navra}, "/opt/claude"},
		{"python runs pipx", []string{"/opt/claude|claude", "/usr/bin/python3.12|/usr/bin/python3,/usr/bin/pipx,run,navra", navra}, "/opt/claude"},
		{"python -m pipx", []string{"/opt/claude|claude", "/usr/bin/python3.12|python3,-m,pipx,run,navra", navra}, "/opt/claude"},
		{"python is the host", []string{"/usr/bin/python3.12|python3,agent.py", navra}, "/usr/bin/python3.12"},
		{"env and timeout", []string{"/opt/claude|claude", "/usr/bin/env|env,-i,timeout", "/usr/bin/timeout|timeout,60,navra", navra}, "/opt/claude"},
		{"one file of many names", []string{"/opt/claude|claude", "/bin/busybox|timeout,60,navra", "/usr/bin/coreutils|coreutils,env,navra", navra}, "/opt/claude"},
		{"one file of many names as something else", []string{"/opt/claude|claude", "/bin/busybox|httpd,-f", navra}, "/bin/busybox"},
		{"sudo, whose file may not be read", []string{"/opt/claude|claude", "|sudo,navra", navra}, "/opt/claude"},
		{"docker", []string{"/opt/claude|claude", "/usr/bin/docker|docker,run,-i,navra", navra}, "/opt/claude"},
		{"a file replaced since", []string{"/opt/claude (deleted)|claude", "/bin/bash (deleted)|bash", navra}, "/opt/claude (deleted)"},
		{"a title does not hide a host's file", []string{"/opt/claude|sh", navra}, "/opt/claude"},
		{"another navra is a host", []string{"/opt/claude|claude", "/usr/bin/navra|navra,demo", navra}, "/usr/bin/navra"},
		{"another navra's supervisor", []string{"/opt/claude|claude", "/usr/bin/navra|navra,demo", "/usr/bin/navra|navra," + shim.Word + ",,/usr/bin/navra,navra", navra}, "/usr/bin/navra"},
		{"the supervisor below what is a launcher", []string{"/opt/claude|claude", "/bin/bash|bash", "/usr/bin/navra (deleted)|navra," + shim.Word, navra}, "/opt/claude"},
		{"nothing but launchers", []string{"/bin/bash|bash", "/usr/bin/env|env", navra}, ""},
		{"child of the first process", []string{navra}, ""},
		{"a parent that cannot be read", []string{"/opt/claude|claude", "?", navra}, ""},
		{"a launcher's parent that cannot be read", []string{"?", "/bin/sh|sh", navra}, ""},
		{"itself unreadable", []string{"?"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			self, look := tree(tt.line...)
			pid, p, ok := hostOf(self, look)
			if p.exe != tt.want || ok != (tt.want != "") {
				t.Errorf("hostOf(%q) = %d %q, %v, want %q", tt.line, pid, p.exe, ok, tt.want)
			}
		})
	}
}

func TestHostOfEndsInACircle(t *testing.T) {
	look := func(pid int) (process, bool) { return process{parent: 5, exe: "/bin/sh"}, true }
	if pid, _, ok := hostOf(5, look); ok {
		t.Errorf("hostOf found %d in a circle of shells", pid)
	}
}

func TestConversation(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"a UUID", "2f0e1c9a-0000-4000-8000-000000000001", "claude-code/2f0e1c9a-0000-4000-8000-000000000001"},
		{"longest", strings.Repeat("a", maxConversation), "claude-code/" + strings.Repeat("a", maxConversation)},
		{"too long", strings.Repeat("a", maxConversation+1), ""},
		{"empty", "", ""},
		{"a path", "../other", ""},
		{"a line feed", "a\nb", ""},
		{"not ASCII", "ä", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := conversation(func(name string) (string, bool) { return tt.value, name == "CLAUDE_CODE_SESSION_ID" })
			if got != tt.want {
				t.Errorf("conversation(%q) = %q, want %q", tt.value, got, tt.want)
			}
		})
	}
}

// TestLaunchers holds the list to what the documentation names.
func TestLaunchers(t *testing.T) {
	documented := strings.Fields("sh env npx uvx npm timeout nice nohup setsid xargs uv pipx pnpm yarn bun bunx cmd direnv mise asdf volta sudo bwrap firejail docker")
	var missing []string
	for _, name := range documented {
		if !launchers[name] {
			missing = append(missing, name)
		}
	}
	if diff := cmp.Diff([]string(nil), missing); diff != "" {
		t.Errorf("not in the list (-want +got):\n%s", diff)
	}
}
