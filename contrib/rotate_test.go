package contrib_test

import (
	"os/exec"
	"strings"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/seal"
	"navra/internal/store/sqlite"
	"navra/internal/witness"
)

// TestChangedKeys changes the key of checkpoints twice, and verifies from each of the three.
func TestChangedKeys(t *testing.T) {
	if exec.Command("python3", "-c", "import cryptography").Run() != nil {
		t.Skip("python3 has no module cryptography: signatures cannot be checked")
	}
	path := makeDatabase(t)
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	var old blackbox.Signer
	for i := range 4 { // the last is a stranger's
		s, err := blackbox.NewSigner(seal.New().Seed("checkpoints"))
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 || i == 2 {
			if _, err := (witness.Rotation{Log: db, Store: db, Old: old, Next: s, Held: witness.Evidence{Key: old.Key(), Also: keys}, Use: func() error { return nil }}).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		keys, old = append(keys, s.Key()), s
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		out, status := script(t, "--key", key, path)
		if i < 3 && (status != 0 || !strings.HasPrefix(out, "whole: ")) || i == 3 && (status != 1 || !strings.Contains(out, "did not sign")) {
			t.Errorf("key %d: %q, exit %d", i, out, status)
		}
	}
}
