package navra_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBypassDoesNotCompile overlays one hostile file at a time onto the tree and requires the build to refuse it for the
// stated reason: the first two locks (place, type) are the compiler's.
func TestBypassDoesNotCompile(t *testing.T) {
	gateway := "internal/gateway/bypass.go"
	inUpstream := "internal/gateway/internal/upstream/bypass.go"
	tests := []struct{ name, path, src, want string }{
		{"transport imports upstream", "internal/transport/streamable/bypass.go",
			"package streamable\nimport _ \"navra/internal/gateway/internal/upstream\"", "use of internal package"},
		{"stdio imports upstream", "internal/transport/stdio/bypass.go",
			"package stdio\nimport _ \"navra/internal/gateway/internal/upstream\"", "use of internal package"},
		{"demo imports upstream", "internal/demo/bypass.go",
			"package demo\nimport _ \"navra/internal/gateway/internal/upstream\"", "use of internal package"},
		{"main imports upstream", "cmd/navra/bypass.go",
			"package main\nimport _ \"navra/internal/gateway/internal/upstream\"", "use of internal package"},
		{"gateway forges a clearance", gateway,
			"package gateway\nimport \"navra/internal/chokepoint\"\nvar forged = chokepoint.ToUpstream{c: nil}", "unexported field c"},
		{"gateway names the clearance", gateway,
			"package gateway\nimport \"navra/internal/chokepoint\"\nvar forged chokepoint.clearance", "not exported"},
		{"gateway opens an answer", gateway,
			"package gateway\nimport \"navra/internal/chokepoint\"\nfunc open(m chokepoint.FromUpstream) any { return m.msg }", "m.msg undefined"},
		{"gateway rewrites what was cleared", gateway,
			"package gateway\nimport \"navra/internal/chokepoint\"\nfunc edit(m chokepoint.ToUpstream) { m.c.body = nil }", "m.c undefined"},
		{"gateway invents a lane", gateway,
			"package gateway\nimport \"navra/internal/chokepoint\"\nvar l = chokepoint.Lane{upstream: \"files\"}", "unexported field upstream"},
		{"gateway follows what was not admitted", gateway,
			"package gateway\nimport \"navra/internal/chokepoint\"\nvar w = chokepoint.Watch{uri: \"file:///etc/passwd\"}", "unexported field uri"},
		{"gateway invents news", gateway,
			"package gateway\nimport \"navra/internal/chokepoint\"\nvar n = chokepoint.News{about: \"file:///etc/passwd\"}", "unexported field about"},
		{"gateway reads news", gateway,
			"package gateway\nimport \"navra/internal/chokepoint\"\nfunc read(n chokepoint.News) string { return n.about }", "n.about undefined"},
		{"gateway follows what it has heard of", gateway,
			"package gateway\nimport \"navra/internal/chokepoint\"\nfunc watch(n chokepoint.News) chokepoint.Watch { return chokepoint.Watch(n) }", "cannot convert n"},
		{"gateway sends a bare message", gateway,
			"package gateway\nimport (\"context\"; \"navra/internal/jsonrpc\")\nfunc (g *Gateway) raw(m jsonrpc.Message) { g.upstreams.Send(context.TODO(), m) }", "cannot use m"},
		{"gateway releases bare bytes", gateway,
			"package gateway\nimport (\"context\"; \"navra/internal/chokepoint\")\nfunc (g *Gateway) raw(b []byte) { g.chokepoint.Release(context.TODO(), b, chokepoint.Peer{}) }", "cannot use b"},
		{"gateway makes navra's own message", gateway,
			"package gateway\nfunc (g *Gateway) own() { g.chokepoint.own(nil, nil, nil, nil) }", "g.chokepoint.own undefined"},
		{"upstream makes navra's own message", inUpstream,
			"package upstream\nfunc (p *Pool) own() { p.by.own(nil, nil, nil, nil) }", "p.by.own undefined"},
		{"upstream opens what it wrapped", inUpstream,
			"package upstream\nimport \"navra/internal/chokepoint\"\nfunc open(m chokepoint.FromUpstream) any { return m.msg }", "m.msg undefined"},
		{"upstream hands facts in", inUpstream,
			"package upstream\nimport \"navra/internal/catalogue\"\nfunc (p *Pool) facts() { p.by.book.Install(\"ann\", \"files\", catalogue.Listing{}) }", "p.by.book undefined"},
		{"transport makes a principal", "internal/transport/stdio/bypass.go",
			"package stdio\nimport \"navra/internal/auth\"\nvar p = auth.Principal{name: \"root\"}", "unexported field name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, err := buildWith(t, tt.path, tt.src)
			if err == nil {
				t.Fatal("the bypass compiled")
			}
			if !strings.Contains(out, tt.want) {
				t.Fatalf("the build failed for another reason:\n%s", out)
			}
		})
	}
	t.Run("an innocent file compiles", func(t *testing.T) { // else the rows above would prove nothing
		if out, err := buildWith(t, gateway, "package gateway\nvar innocent = 1"); err != nil {
			t.Fatal(out)
		}
	})
}

func buildWith(t *testing.T, path, content string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	src, overlay := filepath.Join(dir, "bypass.go"), filepath.Join(dir, "overlay.json")
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	js, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(wd, path): src}})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{src: []byte(content), overlay: js} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("go", "build", "-overlay", overlay, "./internal/...", "./cmd/...").CombinedOutput()
	return string(out), err
}
