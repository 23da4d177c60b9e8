package e2e

import (
	"encoding/json"
	"errors"
	"os/exec"
)

// run runs navra with arguments and returns what it printed and its exit code.
func (s *setup) run(args ...string) (string, int) {
	s.t.Helper()
	cmd := exec.Command(navraBin, args...)
	cmd.Dir, cmd.Env = s.Dir, s.env()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return string(out), 0
	case errors.As(err, &exit):
		return string(out), exit.ExitCode()
	}
	s.t.Fatalf("navra %v: %v", args, err)
	return "", 0
}

func jsonNumber(s string) json.Number { return json.Number(s) }

// runOut is run, for what is printed to stdout alone.
func (s *setup) runOut(args ...string) (string, int) {
	s.t.Helper()
	cmd := exec.Command(navraBin, args...)
	cmd.Dir, cmd.Env = s.Dir, s.env()
	out, err := cmd.Output()
	if err != nil {
		return string(out), 1
	}
	return string(out), 0
}

// verifyDefault checks the blackbox of the default store.
func (s *setup) verifyDefault() {
	s.t.Helper()
	if out, code := s.run("blackbox", "verify"); code != 0 {
		s.t.Errorf("blackbox verify: exit %d\n%s", code, out)
	}
}
