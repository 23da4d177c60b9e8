// Package postgres runs a real PostgreSQL server for tests. It installs Debian's package where the programs are not there, and
// may. It knows nothing of navra.
package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Skip is the variable that lets tests without a server be skipped. Without it they fail: a store that was not tried is not tested.
const Skip = "NAVRA_NO_POSTGRES"

// A Server is a cluster in a folder of its own, reached over a Unix socket in it without a password.
type Server struct {
	bin, dir string
	as       []string // what runs a command as a user that may: the server refuses root
	hold     io.Closer
}

var shared = sync.OnceValues(start)

// Start returns the URL of a server that the whole test binary shares; it ends with the binary.
func Start(t testing.TB) string {
	t.Helper()
	s, err := shared()
	give(t, err)
	return s.URL()
}

// New starts a server for one test, which may stop and restart it.
func New(t testing.TB) *Server {
	t.Helper()
	s, err := start()
	give(t, err)
	t.Cleanup(func() { s.hold.Close() })
	return s
}

func give(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv(Skip) != "":
		t.Skipf("no PostgreSQL: %v", err)
	default:
		t.Fatalf("no PostgreSQL: %v; set %s=1 to skip", err, Skip)
	}
}

// URL is that of its database.
func (s *Server) URL() string { return "postgres://postgres@/postgres?host=" + s.dir }

// Kill stops the server as a crash would; Restart starts it again and waits until it answers.
func (s *Server) Kill() error    { return s.ctl("stop", "-m", "immediate") }
func (s *Server) Restart() error { return s.ctl("start") }

// Freeze makes the server a standby, which refuses to write, with a restart; Thaw undoes it while it runs.
func (s *Server) Freeze() error {
	if err := s.ctl("stop", "-m", "fast"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.data(), "standby.signal"), nil, 0o644); err != nil {
		return err
	}
	return s.Restart()
}

func (s *Server) Thaw() error { return s.ctl("promote") }

// Socket is the path of the Unix socket that it listens on.
func (s *Server) Socket() string { return filepath.Join(s.dir, ".s.PGSQL.5432") }

// ctl runs pg_ctl and waits until what it was told is done.
func (s *Server) ctl(args ...string) error {
	return s.run("pg_ctl", append([]string{"-D", s.data(), "-l", filepath.Join(s.dir, "log"), "-w", "-t", "120"}, args...)...)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) run(program string, args ...string) error {
	argv := slices.Concat(s.as, []string{filepath.Join(s.bin, program)}, args)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = s.dir
	out, err := os.CreateTemp("", "pg") // a file: the server keeps it open
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		b, _ := os.ReadFile(out.Name())
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		return fmt.Errorf("%s: %w\n%s%s", program, err, b, log)
	}
	return nil
}

func start() (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin}
	if s.dir, err = os.MkdirTemp("", "navra-pg"); err != nil {
		return nil, err
	}
	if err = s.begin(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

func (s *Server) begin() error {
	if os.Geteuid() == 0 {
		s.as = []string{"runuser", "-u", "postgres", "--"}
		if err := own(s.dir, "postgres"); err != nil {
			return err
		}
	}
	if err := s.run("initdb", "-D", s.data(), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync"); err != nil {
		return err
	}
	conf := fmt.Sprintf("\nlisten_addresses = ''\nunix_socket_directories = '%s'\nmax_connections = 200\nshared_buffers = 64MB\n", s.dir)
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(conf); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := s.watch(); err != nil {
		return err
	}
	if err := s.Restart(); err != nil {
		return errors.Join(err, s.hold.Close())
	}
	return nil
}

// watch leaves a shell behind that stops the server and removes its folder once this process is gone, however it ends.
func (s *Server) watch() error {
	const script = `trap '' INT TERM HUP; read _; "$1/pg_ctl" -D "$2/data" -m immediate -w stop >/dev/null 2>&1; rm -rf "$2"`
	argv := slices.Concat(s.as, []string{"sh", "-c", script, "sh", s.bin, s.dir})
	cmd := exec.Command(argv[0], argv[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.hold = closer(func() error { return errors.Join(in.Close(), cmd.Wait(), os.RemoveAll(s.dir)) })
	return nil
}

type closer func() error

func (c closer) Close() error { return c() }

func own(dir, name string) error {
	u, err := user.Lookup(name)
	if err != nil {
		return err
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return os.Chown(dir, uid, gid)
}

// programs finds the folder of initdb and its like, and installs them where they are not there and the system is Debian's.
func programs() (string, error) {
	if dir, ok := find(); ok {
		return dir, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return "", errors.New("initdb is not there; install the package postgresql")
	}
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "postgresql"}} {
		cmd := exec.Command("timeout", slices.Concat([]string{"600", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"}, args)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.WaitDelay = time.Second
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil && args[0] == "install" {
			return "", fmt.Errorf("apt-get install postgresql: %w\n%s", err, out.String())
		}
	}
	if dir, ok := find(); ok {
		return dir, nil
	}
	return "", errors.New("initdb is not there, though postgresql was installed")
}

func find() (string, bool) {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(dirs, func(a, b string) int { return release(b) - release(a) })
	dirs = append(dirs, filepath.SplitList(os.Getenv("PATH"))...)
	for _, dir := range dirs {
		whole := true
		for _, p := range []string{"initdb", "pg_ctl", "postgres"} {
			_, err := os.Stat(filepath.Join(dir, p))
			whole = whole && err == nil
		}
		if whole {
			return dir, true
		}
	}
	return "", false
}

// release is the number in /usr/lib/postgresql/17/bin.
func release(dir string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(filepath.Dir(dir), "/usr/lib/postgresql/"))
	return n
}
