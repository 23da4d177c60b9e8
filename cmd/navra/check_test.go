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
	path := filepath.Join(dir, "navra.yaml")
	for _, tt := range []struct {
		name, text string
		code       int
		want       string
	}{
		{"one of each", "upstreams: {a: {command: x}}\nprincipals: {p: {roles: [r]}}\nroles: {r: {}}\n", exitOK, "valid: 1 upstream, 1 principal, 1 role\n"},
		{"two, and none", "upstreams: {a: {command: x}, b: {command: x}}\n", exitOK, "valid: 2 upstreams, 0 principals, 0 roles\n"},
		{"a folder for checkpoints that is not there", "upstreams: {a: {command: x}}\nblackbox: {checkpoint_to: gone/c}\n", exitError, "blackbox.checkpoint_to: " + filepath.Join(dir, "gone") + " is no folder"},
		{"one that is there", "upstreams: {a: {command: x}}\nblackbox: {checkpoint_to: c}\n", exitOK, "valid"},
		{"an authority that is not there", "upstreams: {a: {url: \"https://h/\", tls: {ca: gone.pem}}}\n", exitError, `upstream "a": tls.ca: open ` + filepath.Join(dir, "gone.pem")},
		{"a collector's", "upstreams: {a: {command: x}}\nblackbox: {ship: {otlp: {endpoint: \"https://h\", ca: gone.pem}}}\n", exitError, "blackbox.ship.otlp: ca: open " + filepath.Join(dir, "gone.pem")},
	} {
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		code := run(context.Background(), []string{"check", "--config", path}, std{out: &out, err: &out})
		if code != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: exit %d, %s", tt.name, code, out.String())
		}
	}
}
