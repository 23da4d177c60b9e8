package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPipesInThePlaceOfFiles puts a pipe where the database, its key or its heads file was: who reads them says so, and does not wait for a writer.
func TestPipesInThePlaceOfFiles(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", ".key", ".heads"} {
		s, c := recordSome(t)
		c.close()
		path := filepath.Join(s.Home, "state", "navra", "navra.db")
		if err := os.Remove(path + end); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path+end, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"blackbox", "verify"}, {"blackbox", "rotate-key"}} {
			ctx, stop := context.WithTimeout(t.Context(), patience)
			out, err := exec.CommandContext(ctx, navraBin, append(args, "--store", path)...).CombinedOutput()
			if ctx.Err() != nil || err == nil || !strings.Contains(string(out), "is no file") {
				t.Errorf("%s, %v: %v\n%s", end, args, err, out)
			}
			stop()
		}
	}
}
