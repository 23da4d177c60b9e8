package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// smallDisk mounts a file system of one MiB. The tests that need one run as root on Linux, as in CI.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// A full disk denies calls before they leave, says so, and is recovered from without a restart.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	disk := smallDisk(t)
	config := filepath.Join(s.Dir, "navra.yaml")
	write(t, config, fmt.Sprintf("store: %s/navra.db\nupstreams: {odd: {command: [%q, odd, -log, %q]}}\n", disk, fixtureBin, s.log()))
	c := s.start(navraBin, "stdio", "--config", config).open()
	if a := c.call("odd__echo", map[string]any{"text": "before"}); a.IsError {
		t.Fatal(a.text())
	}
	filler := filepath.Join(disk, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{64 << 10, 4 << 10, 512, 1} { // to the last byte
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	f.Close()
	denied := 0
	for i := range 60 { // room that the database had in reserve is used up first
		a := c.call("odd__echo", map[string]any{"text": fmt.Sprint("full ", i, strings.Repeat(".", 2000))})
		if a.IsError && strings.Contains(a.text(), "could not be recorded") {
			denied++
		}
	}
	if denied == 0 {
		t.Error("nothing was denied on a full disk")
	}
	waitFor(t, "the log to say so", func() bool { return strings.Contains(c.stderr.String(), "could not be recorded") })
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "calls to pass once it is seen that there is room again", func() bool {
		return c.call("odd__echo", map[string]any{"text": "after"}).text() == "after"
	})
	ran := 0
	for _, line := range s.reached() {
		if strings.Contains(line, `"echo"`) {
			ran++
		}
	}
	permits := 0
	out, _ := s.run("blackbox", "list", "--json", "-n", "0", "--config", config)
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, `"kind":"request"`) && strings.Contains(line, "odd/echo") && strings.Contains(line, `"verdict":"allow"`) {
			permits++
		}
	}
	if ran > permits {
		t.Errorf("%d calls ran with %d permits", ran, permits)
	}
	c.close()
	s.verify(config)
}

func TestReadOnlyStore(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	disk := smallDisk(t)
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Skipf("no file system can be made read-only here: %v", err)
	}
	config := filepath.Join(s.Dir, "navra.yaml")
	write(t, config, fmt.Sprintf("store: %s/navra.db\nupstreams: {odd: {command: [%q, odd]}}\n", disk, fixtureBin))
	out, code := s.run("stdio", "--config", config)
	if code != 1 || !strings.Contains(out, disk) || !strings.Contains(out, "read-only") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}
