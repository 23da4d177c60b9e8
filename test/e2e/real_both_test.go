package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

const clients = "../clients"

// goClients is a folder with the Go SDK's client and its server.
func goClients(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	installed(t, install(filepath.Join(clients, "go"), "go", "build", "-o", dir, ".", "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"))
	return dir
}

var inspector = sync.OnceValues(func() (string, error) { return cached(clients+"/inspector/package.json", npmInstall) })

var python = sync.OnceValues(func() (string, error) {
	return cached(clients+"/python/requirements.txt", func(folder string) error {
		if err := install(folder, "python3", "-m", "venv", "venv"); err != nil {
			return err
		}
		return install(folder, "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--retries=1", "-r", "requirements.txt")
	})
})

// stateless starts the Go SDK's server of 2026-07-28 and returns its URL.
func stateless(t *testing.T, server string) string { return everything(t, server, "true") }

// The official clients of both eras, over stdio and HTTP, before two real servers at once: one of the stateful era over stdio, and
// one of 2026-07-28 over HTTP.
func TestOfficialClientsTwoEras(t *testing.T) {
	t.Parallel()
	folder, err := js()
	installed(t, err)
	sdk := goClients(t)
	s := newSetup(t)
	config := s.serveConfig("navra.yaml", fmt.Sprintf(`auth: {tokens: true}
principals: {ann: {roles: [local-default]}, local: {roles: [local-default]}}
upstreams:
  old: {command: [node, %q, stdio], label: {integrity: trusted, confidentiality: public}}
  new: {url: %q, label: {integrity: trusted, confidentiality: public}}
`, filepath.Join(folder, "node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js"), stateless(t, filepath.Join(sdk, "everything-server"))))
	token, code := s.runOut("token", "create", "ann", "--config", config)
	if code != 0 {
		t.Fatal("no token")
	}
	g := s.serve(config)
	targets := map[string][]string{
		"http":  {"http://" + g.Addr + "/mcp", strings.TrimSpace(token)},
		"stdio": {"--", navraBin, "stdio", "--config", config},
	}
	t.Run("clients", func(t *testing.T) {
		for over, target := range targets {
			for _, era := range []string{"legacy", "modern"} {
				name := " " + era + " " + over
				for _, v := range []string{"v1", "v2"} {
					if v == "v1" && era == "modern" {
						continue // it knows none but the stateful era
					}
					t.Run("TypeScript "+v+name, func(t *testing.T) {
						t.Parallel()
						official(t, s, folder, append([]string{v, "both", era}, target...)...)
					})
				}
				t.Run("Go"+name, func(t *testing.T) {
					t.Parallel()
					checks(t, s, s.Dir, append([]string{filepath.Join(sdk, "clients"), era}, target...)...)
				})
				t.Run("Python"+name, func(t *testing.T) {
					t.Parallel()
					if err := exec.Command("python3", "-c", "import venv, ensurepip").Run(); err != nil {
						t.Skip("there is no python3 with venv")
					}
					folder, err := python()
					installed(t, err)
					checks(t, s, s.Dir, append([]string{filepath.Join(folder, "venv", "bin", "python"), absolute(t, clients+"/python/client.py"), era}, target...)...)
				})
				t.Run("inspector"+name, func(t *testing.T) {
					t.Parallel()
					inspect(t, s, era, over, target)
				})
			}
		}
	})
	g.stop()
	s.verify(config)
}

// inspect runs the inspector's command line, once for each check.
func inspect(t *testing.T, s *setup, era, over string, target []string) {
	folder, err := inspector()
	installed(t, err)
	node := "node" // the inspector wants a newer one than the others
	if arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]; runtime.GOOS == "linux" && arch != "" {
		node = filepath.Join(folder, "node_modules", "node-linux-"+arch, "bin", "node")
	}
	server := map[string]any{"type": "streamable-http", "url": target[0], "headers": map[string]string{"Authorization": "Bearer " + target[1]}}
	if over == "stdio" {
		server = map[string]any{"type": "stdio", "command": target[1], "args": target[2:]}
	}
	servers, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"navra": server}})
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	write(t, filepath.Join(home, "servers.json"), string(servers))
	cli := func(args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, node, append([]string{
			filepath.Join(folder, "node_modules", "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js"),
			"--cli", "--config", filepath.Join(home, "servers.json"), "--server", "navra", "--protocol-era", era, "--format", "json", "-q",
		}, args...)...)
		cmd.Dir, cmd.Env, cmd.WaitDelay = home, append(s.env(), "HOME="+home), time.Second
		out, _ := cmd.CombinedOutput() // its exit status differs with the kind of failure
		return string(out)
	}
	call := []string{"--method", "tools/call", "--tool-name"}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--method", "tools/list"}, []string{`"old__echo"`, `"new__test_simple_text"`}},
		{append(call[:3:3], "old__echo", "--tool-arg", "message=hi there"), []string{"hi there"}},
		{append(call[:3:3], "new__test_simple_text"), []string{"simple text response"}},
		{[]string{"--method", "resources/list"}, []string{`"demo://`, `"test://static-text"`}},
		{[]string{"--method", "resources/read", "--uri", "test://static-text"}, []string{`"text":`}},
		{[]string{"--method", "prompts/get", "--prompt-name", "old__simple-prompt"}, []string{"simple prompt"}},
		{[]string{"--method", "prompts/get", "--prompt-name", "new__test_simple_prompt"}, []string{"simple prompt"}},
		{append(call[:3:3], "new__no-such-tool"), []string{"no-such-tool"}},
	} {
		out := cli(c.args...)
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%v: no %s in\n%.2000s", c.args, w, out)
			}
		}
	}
}
