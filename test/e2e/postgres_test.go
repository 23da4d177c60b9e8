package e2e

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navra/test/postgres"
)

// TestReplicasOnPostgres serves one configuration twice on one database, as two replicas behind a balancer.
func TestReplicasOnPostgres(t *testing.T) {
	t.Parallel()
	url := strings.Replace(postgres.Start(t), "postgres@", "postgres:${env:PG_PASSWORD}@", 1)
	s, office := office(t)
	const password = "hunter2 @:/%"
	s.Env = append(s.Env, "PG_PASSWORD="+password)
	config, other := filepath.Join(s.Dir, "team.yaml"), filepath.Join(s.Dir, "other.yaml")
	rest := "listen: 127.0.0.1:0\nauth: {tokens: true}\nprincipals: {ann: {roles: [local-default]}}\nstore: \"" + url + "\"\n"
	for _, line := range strings.SplitAfter(read(t, office), "\n") {
		if !strings.HasPrefix(line, "store:") {
			rest += line
		}
	}
	write(t, config, rest)
	a, b := s.serve(config), s.serve(config)
	token, code := s.runOut("token", "create", "ann", "--config", config)
	if code != 0 {
		t.Fatal("no token")
	}
	client := (&web{t: t, addr: a.Addr, token: strings.TrimSpace(token)}).open()
	if got := client.call("files__read_file", map[string]any{"path": "plan.txt"}); got.IsError {
		t.Fatal(got.text())
	}
	client.addr = b.Addr // the same session, which the other replica has not seen
	if got := client.call("mail__send_mail", mail("x").args); !got.IsError || !strings.HasPrefix(got.text(), "denied by navra:") {
		t.Errorf("what A read did not taint the session on B: %s", got.text())
	}
	if s.everReached("send_mail") {
		t.Error("it reached the upstream")
	}
	for _, args := range [][]string{{"blackbox", "verify"}, {"blackbox", "list"}, {"token", "list"}, {"check"}} {
		if out, code := s.run(append(args, "--config", config)...); code != 0 || strings.Contains(out, "hunter2") {
			t.Errorf("%v = %d\n%s", args, code, out)
		}
	}
	if info, err := os.Stat(filepath.Join(s.Dir, "navra.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("navra.key: %v, %v, want 0600 beside the configuration", info, err)
	}

	write(t, other, rest+"key: "+rand.Text()+"\n")
	if out, code := s.run("serve", "--config", other); code == 0 || !strings.Contains(out, "copy the file of another replica") {
		t.Errorf("another key: %d\n%s", code, out)
	}
	write(t, other, strings.Replace(rest, url, "postgres://u:${env:PG_PASSWORD}@127.0.0.1:1/d", 1))
	if out, code := s.run("serve", "--config", other); code == 0 || !strings.Contains(out, "127.0.0.1") || strings.Contains(out, "hunter2") {
		t.Errorf("a database that is not there: %d\n%s", code, out)
	}
	if out, code := s.run("blackbox", "list", "--store", "postgres://u:hunter2@h/d"); code != 2 || strings.Contains(out, "hunter2") {
		t.Errorf("a URL on the command line: %d\n%s", code, out)
	}
	a.stop()
	b.stop()
	if out := a.stderr.String() + b.stderr.String(); strings.Contains(out, "hunter2") {
		t.Errorf("the password is in a log:\n%s", out)
	}
}
