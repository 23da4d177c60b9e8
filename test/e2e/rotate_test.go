package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navra/test/postgres"
)

// TestTheKeyIsChangedWhileGatewaysRun changes the key of checkpoints under a gateway, in both databases: what was sealed before opens after, checkpoints
// of both keys are verified, and the gateway signs with the new one.
func TestTheKeyIsChangedWhileGatewaysRun(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, config := office(t)
			keys := filepath.Join(s.Home, "state", "navra", "navra.db")
			if kind == "postgres" {
				text := strings.Replace(read(t, config), "store: "+keys, "store: \""+postgres.New(t).URL()+"\"", 1)
				write(t, config, text)
				keys = filepath.Join(s.Dir, "navra")
			}
			checkpoint := filepath.Join(s.Dir, "checkpoint.txt")
			write(t, config, read(t, config)+"blackbox: {checkpoint_to: "+checkpoint+"}\n")
			with := func(args ...string) (string, int) { return s.run(append(args, "--config", config)...) }
			var first, name string
			eventually(t, "a gateway has time enough at its end for its last checkpoint", func() bool { // a host would kill it; it leaves the checkpoint to the next start
				c := s.startAs(navraBin, "stdio", "--config", config).open()
				shown := c.call("files__read_file", map[string]any{"path": "config.ini"}).text()
				if strings.Contains(shown, awsKey()) || !strings.Contains(shown, "[secret:") {
					t.Fatal("no placeholder")
				}
				key, code := s.runOut("blackbox", "rotate-key", "--config", config)
				if code != 0 {
					out, _ := with("blackbox", "rotate-key")
					t.Fatalf("rotate-key: %s", out)
				}
				first = strings.TrimSpace(key)
				if a := c.call("files__write_file", map[string]any{"path": "config.ini", "content": shown + "\n"}); a.IsError || !strings.Contains(read(t, filepath.Join(s.Dir, "config.ini")), awsKey()) {
					t.Errorf("a placeholder of before does not open: %s", a.text())
				}
				c.close() // its last checkpoint
				name = strings.Split(first, "+")[0]
				b, _ := os.ReadFile(checkpoint)
				return strings.HasPrefix(string(b), name+"\n")
			})
			second, code := s.runOut("blackbox", "rotate-key", "--config", config)
			if second = strings.TrimSpace(second); code != 0 || second == first {
				t.Fatalf("changed again: %q, %d", second, code)
			}
			for _, key := range []string{first, second} {
				if out, code := with("blackbox", "verify", "--key", key, "--since", checkpoint); code != 0 {
					t.Errorf("verify from %s: %s", key, out)
				}
			}
			if out, code := with("blackbox", "verify"); code != 0 {
				t.Errorf("verify: %s", out)
			}
			signing := keys + ".signing.key"
			if info, err := os.Stat(signing); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v, want 0600", info, err)
			}
			if left, _ := filepath.Glob(signing + ".*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			write(t, signing, strings.Repeat("5e", 32)) // another's key
			if out, code := with("blackbox", "verify"); code == 0 || !strings.Contains(out, "a swapped key") {
				t.Errorf("a swapped key: %d %s", code, out)
			}
			if err := os.Remove(signing); err != nil { // as on a replica that it was not copied to
				t.Fatal(err)
			}
			c := s.startAs(navraBin, "stdio", "--config", config).open()
			c.close()
			if !strings.Contains(c.stderr.String(), "copy its file") {
				t.Errorf("nobody misses the new key:\n%s", c.stderr)
			}
			if out, code := with("blackbox", "verify"); code != 0 {
				t.Errorf("verify with the first key: %s", out)
			}
		})
	}
}
