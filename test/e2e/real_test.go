package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// js returns a folder that holds the packages of js/package.json. They are installed from the npm registry once, into the
// user's cache.
var js = sync.OnceValues(func() (folder string, err error) {
	spec, err := os.ReadFile("js/package.json")
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(spec)
	folder = filepath.Join(cache, "navra-test", hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(filepath.Join(folder, "done")); err == nil {
		return folder, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(folder, "package.json"), spec, 0o644); err != nil {
		return "", err
	}
	cmd := exec.Command("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install: %w\n%s", err, out)
	}
	return folder, os.WriteFile(filepath.Join(folder, "done"), nil, 0o644)
})

// official runs the TypeScript client in dir and fails the test where one of its checks fails.
func official(t *testing.T, s *setup, folder string, args ...string) {
	t.Helper()
	script, err := filepath.Abs("js/client.mjs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", append([]string{script}, args...)...)
	cmd.Dir, cmd.Env = folder, s.env()
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), " passed, 0 failed") {
		t.Errorf("%v: %v\n%s", args, err, out)
	}
}

// The official clients of both eras, over stdio and HTTP, before real servers from the registry.
func TestOfficialClients(t *testing.T) {
	folder, err := js()
	if err != nil {
		t.Fatal(err)
	}
	clients := [][]string{{"v1", "legacy"}, {"v2", "legacy"}, {"v2", "modern"}}
	for _, c := range clients {
		t.Run("wrap everything "+strings.Join(c, " "), func(t *testing.T) {
			s := newSetup(t)
			official(t, s, folder, c[0], "everything", c[1], "--", navraBin, "wrap", "--", "npx", "-y", "@modelcontextprotocol/server-everything")
			s.verifyDefault()
		})
	}
	t.Run("wrap filesystem", func(t *testing.T) {
		s := newSetup(t)
		write(t, filepath.Join(s.Dir, "hello.txt"), "hello from the file\n")
		server := filepath.Join(folder, "node_modules", ".bin", "mcp-server-filesystem")
		for _, c := range clients {
			official(t, s, folder, c[0], "files", c[1], "--", "env", "-C", s.Dir, navraBin, "wrap", "--", server, ".")
		}
		s.verifyDefault()
	})
	t.Run("serve everything", func(t *testing.T) {
		s := newSetup(t)
		config := s.serveConfig("navra.yaml", fmt.Sprintf(`auth: {tokens: true}
principals: {ann: {roles: [local-default]}}
upstreams: {everything: {command: [node, %q, stdio], prefix: none}}
`, filepath.Join(folder, "node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js")))
		token, code := s.runOut("token", "create", "ann", "--config", config)
		if code != 0 {
			t.Fatal("no token")
		}
		g := s.serve(config)
		for _, c := range clients {
			official(t, s, folder, c[0], "everything", c[1], "http://"+g.Addr+"/mcp", strings.TrimSpace(token))
		}
		g.stop()
		s.verify(config)
	})
}
