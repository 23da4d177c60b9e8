package e2e

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// everything starts the Go SDK's server over HTTP, in one era, and returns its URL.
func everything(t *testing.T, server, stateless string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	log := &lockedBuffer{}
	cmd := exec.Command(server, "-http="+addr, "-stateless="+stateless)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return "http://" + addr + "/mcp"
		}
		if time.Now().After(end) {
			t.Fatalf("the server does not listen:\n%s", log)
		}
	}
}

// The official Go SDK on both sides: servers of both eras over HTTP and one over stdio ask clients of both eras over HTTP and stdio.
func TestOfficialPeersAskAndAnswer(t *testing.T) {
	sdk := goClients(t)
	server := filepath.Join(sdk, "everything-server")
	s := newSetup(t)
	config := s.serveConfig("navra.yaml", fmt.Sprintf(`auth: {tokens: true}
principals: {ann: {roles: [asked]}, local: {roles: [asked]}}
roles: {asked: {rules: [{allow: {tools: ["*"], client: [sampling, elicitation, roots]}}]}}
upstreams:
  old: {url: %q, label: {integrity: trusted, confidentiality: public}}
  new: {url: %q, label: {integrity: trusted, confidentiality: public}}
  pipe: {command: [%q], label: {integrity: trusted, confidentiality: public}}
`, everything(t, server, "false"), everything(t, server, "true"), server))
	token, code := s.runOut("token", "create", "ann", "--config", config)
	if code != 0 {
		t.Fatal("no token")
	}
	g := s.serve(config)
	for over, target := range map[string][]string{
		"http":  {"http://" + g.Addr + "/mcp", strings.TrimSpace(token)},
		"stdio": {"--", navraBin, "stdio", "--config", config},
	} {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(era+" "+over, func(t *testing.T) {
				checks(t, s, s.Dir, append([]string{filepath.Join(sdk, "clients"), era + "-asked"}, target...)...)
			})
		}
	}
	g.stop()
	s.verify(config)
}
