package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckSays checks configurations that only the files around them make right or wrong.
func TestCheckSays(t *testing.T) {
	dir := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(program))
	base := filepath.Base(program)
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "navra.yaml")
	for _, tt := range []struct {
		name, text string
		code       int
		want       string
	}{
		{"one of each", "upstreams: {a: {command: " + base + "}}\nprincipals: {p: {roles: [r]}}\nroles: {r: {}}\n", exitOK, "valid: 1 upstream, 1 principal, 1 role\n"},
		{"two, and none", "upstreams: {a: {command: " + base + "}, b: {command: " + base + "}}\n", exitOK, "valid: 2 upstreams, 0 principals, 0 roles\n"},
		{"a program that is not there", "upstreams: {a: {command: gone-server}}\n", exitError, `upstreams.a.command: exec: "gone-server": executable file not found in`},
		{"one that cannot be run", "upstreams: {a: {command: [" + filepath.Join(dir, "plain") + "]}}\n", exitError, "upstreams.a.command: exec: "},
		{"one that is found from the folder", "upstreams: {a: {command: ./" + base + ", cwd: " + filepath.Dir(program) + "}}\n", exitOK, "valid: 1 upstream"},
		{"a database that cannot be", "store: \"postgres://u:hunter2@h/d?sslmode=maybe\"\nupstreams: {a: {command: " + base + "}}\n", exitError, "has an sslmode that there is not"},
		{"a folder for checkpoints that is not there", "upstreams: {a: {command: " + base + "}}\nblackbox: {checkpoint_to: gone/c}\n", exitError, "blackbox.checkpoint_to: " + filepath.Join(dir, "gone") + " is no folder"},
		{"one that is there", "upstreams: {a: {command: " + base + "}}\nblackbox: {checkpoint_to: c}\n", exitOK, "valid"},
		{"an authority that is not there", "upstreams: {a: {url: \"https://h/\", tls: {ca: gone.pem}}}\n", exitError, `upstream "a": tls.ca: open ` + filepath.Join(dir, "gone.pem")},
		{"a collector's", "upstreams: {a: {command: " + base + "}}\nblackbox: {ship: {otlp: {endpoint: \"https://h\", ca: gone.pem}}}\n", exitError, "blackbox.ship.otlp: ca: open " + filepath.Join(dir, "gone.pem")},
	} {
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		code := run(context.Background(), []string{"check", "--config", path}, std{out: &out, err: &out})
		if code != tt.code || strings.Contains(out.String(), "hunter2") || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: exit %d, %s", tt.name, code, out.String())
		}
	}
}
