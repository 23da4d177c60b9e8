package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerifyMissesTheKey takes the key away that a log's checkpoints and heads file are held against: without it verify does not call the log
// whole, unless it is told the verifier key, and says what it could not look at.
func TestVerifyMissesTheKey(t *testing.T) {
	t.Parallel()
	s, c := recordSome(t)
	c.close()
	db := filepath.Join(s.Home, "state", "navra", "navra.db")
	out, code := s.run("blackbox", "prove", "1")
	if code != 0 {
		t.Fatal(out)
	}
	_, rest, _ := strings.Cut(out, "--key '")
	key, _, _ := strings.Cut(rest, "'")
	if out, code := s.run("blackbox", "verify-proof", "proof.json"); code != 2 || !strings.Contains(out, "--key") {
		t.Errorf("verify-proof without a key: %d %s", code, out)
	}
	for _, mistyped := range []string{"navra", key[1:], key + "=", strings.Replace(key, "+", "+0", 1)} {
		if out, code := s.run("blackbox", "verify", "--key", mistyped); code != 2 || strings.Contains(out, "swapped") || !strings.Contains(out, "--key") {
			t.Errorf("verify with the key %s: %d %s, want that it is none", mistyped, code, out)
		}
	}
	heads, err := os.ReadFile(db + ".heads")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(db+".heads", 0); err != nil {
		t.Fatal(err)
	}
	if out, code := s.run("blackbox", "verify"); code != 0 || !strings.Contains(out, "the heads file is empty") {
		t.Errorf("verify with an empty heads file: %d %s", code, out)
	}
	if err := os.WriteFile(db+".heads", heads, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(db+".key", db+".key.away"); err != nil {
		t.Fatal(err)
	}
	if out, code := s.run("blackbox", "verify"); code != 1 || !strings.Contains(out, "is not there") {
		t.Errorf("verify without the key: %d %s", code, out)
	}
	if out, code := s.run("blackbox", "verify", "--key", key); code != 0 || !strings.Contains(out, "the heads file cannot be read without") {
		t.Errorf("verify with the verifier key: %d %s", code, out)
	}
	if err := os.Remove(db + ".heads"); err != nil {
		t.Fatal(err)
	}
	if out, code := s.run("blackbox", "verify", "--key", key); code != 0 || !strings.Contains(out, "there is no heads file") {
		t.Errorf("verify without a heads file: %d %s", code, out)
	}
}
