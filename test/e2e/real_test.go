package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// js is a folder that holds the packages of js/package.json.
var js = sync.OnceValues(func() (string, error) { return cached("js/package.json", npmInstall) })

func npmInstall(folder string) error {
	return install(folder, "npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error")
}

// cached returns a folder of the user's cache that holds what a file lists. It is installed once for each content of the file.
func cached(list string, fill func(folder string) error) (folder string, err error) {
	spec, err := os.ReadFile(list)
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
	if err := os.WriteFile(filepath.Join(folder, filepath.Base(list)), spec, 0o644); err != nil {
		return "", err
	}
	if err := fill(folder); err != nil {
		return "", err
	}
	return folder, os.WriteFile(filepath.Join(folder, "done"), nil, 0o644)
}

// unreachable is an install that failed because its registry does not answer.
type unreachable struct{ error }

var noNetwork = regexp.MustCompile(`ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT|dial tcp|i/o timeout|disabled by GOPROXY|Failed to establish a new connection|Name or service not known|Temporary failure in name resolution|Read timed out|ConnectTimeoutError|NewConnectionError`)

func install(folder string, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	if noNetwork.Match(out) {
		return unreachable{err}
	}
	return err
}

// installed fails the test if an install failed, and skips it where the registry cannot be reached.
func installed(t *testing.T, err error) {
	t.Helper()
	if _, ok := err.(unreachable); ok {
		t.Skipf("the registry cannot be reached: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// official runs the TypeScript client in dir and fails the test where one of its checks fails.
func official(t *testing.T, s *setup, folder string, args ...string) {
	t.Helper()
	checks(t, s, folder, append([]string{"node", absolute(t, "js/client.mjs")}, args...)...)
}

// checks runs a program that ends with 'N passed, N failed', and fails the test where one of its checks fails.
func checks(t *testing.T, s *setup, folder string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = folder, s.env(), time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), " passed, 0 failed") {
		t.Errorf("%v: %v\n%s", args, err, out)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The official clients of both eras, over stdio and HTTP, before real servers from the registry.
func TestOfficialClients(t *testing.T) {
	t.Parallel()
	folder, err := js()
	installed(t, err)
	clients := [][]string{{"v1", "legacy"}, {"v2", "legacy"}, {"v2", "modern"}}
	for _, c := range clients {
		t.Run("wrap everything "+strings.Join(c, " "), func(t *testing.T) {
			t.Parallel()
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
