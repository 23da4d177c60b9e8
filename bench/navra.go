package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A checkout is where navra is built from.
type checkout struct{ dir string }

// findCheckout looks for navra's go.mod in the folder above and in this one.
func findCheckout() (checkout, error) {
	for _, dir := range []string{"..", "."} {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(b), "module navra\n") {
			abs, err := filepath.Abs(dir)
			return checkout{abs}, err
		}
	}
	return checkout{}, errors.New("no checkout of navra here: run this in its folder bench, or name a binary with -navra")
}

// build makes the binary as releases are made.
func (c checkout) build(ctx context.Context, to string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", to, "./cmd/navra")
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build navra in %s: %w\n%s", c.dir, err, out)
	}
	return nil
}

// commit names what is built, with a + where files differ from it.
func (c checkout) commit() string {
	out, err := exec.Command("git", "-C", c.dir, "describe", "--always", "--dirty=+").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// navraConfig is a gateway with everything on that is on by default: tokens, roles, filters, flow control, blackbox.
const navraConfig = `listen: 127.0.0.1:0
auth: {tokens: true}
store: navra.db
upstreams:
  echo:
    %s
    prefix: none
    label: {integrity: trusted, confidentiality: sensitive}
    tools: {echo: {class: read}}
principals:
  bench: {roles: [bench]}
roles:
  bench:
    clearance: pii
    rules:
      - allow: {tools: ["echo/echo"]}
`

// A navra is a gateway that the rig configured.
type navra struct {
	bin    string
	config string
	token  string
	http   bool // its upstream is reached over HTTP, else it is a child
}

// setUpNavra writes a configuration into dir and makes a token. upstream is http, stdio, or auto: http where navra can.
func setUpNavra(ctx context.Context, bin, dir, upstream, echoURL string, child []string) (*navra, error) {
	n := &navra{bin: bin, config: filepath.Join(dir, "navra.yaml")}
	quoted := make([]string, len(child))
	for i, a := range child {
		quoted[i] = fmt.Sprintf("%q", a)
	}
	command := "command: [" + strings.Join(quoted, ", ") + "]"
	var errHTTP error
	if upstream != "stdio" {
		errHTTP = n.try(ctx, "url: "+echoURL)
		n.http = errHTTP == nil
	}
	if upstream == "http" && errHTTP != nil {
		return nil, fmt.Errorf("this navra has no HTTP upstreams (use -upstream=stdio): %w", errHTTP)
	}
	if !n.http {
		if err := n.try(ctx, command); err != nil {
			return nil, err
		}
	}
	token, err := n.run(ctx, "token", "create", "bench", "--config", n.config)
	n.token = strings.TrimSpace(token)
	return n, err
}

// try writes the configuration with a way to the upstream and has navra check it.
func (n *navra) try(ctx context.Context, way string) error {
	if err := os.WriteFile(n.config, fmt.Appendf(nil, navraConfig, way), 0o600); err != nil {
		return err
	}
	_, err := n.run(ctx, "check", "--config", n.config)
	return err
}

// verify has navra check its blackbox after the run: calls that were not recorded would be cheap ones.
func (n *navra) verify(ctx context.Context) (string, error) {
	out, err := n.run(ctx, "blackbox", "verify", "--config", n.config)
	return strings.TrimSpace(out), err
}

func (n *navra) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, n.bin, args...)
	var errText strings.Builder
	cmd.Stderr = &errText
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("navra %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errText.String()))
	}
	return string(out), nil
}
