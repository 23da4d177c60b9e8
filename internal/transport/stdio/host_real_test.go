package stdio

import (
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navra/internal/mcp"
)

// printHost is what this test binary does where playHost is set.
func printHost() { _ = json.NewEncoder(os.Stdout).Encode(Host()) }

// TestHostOfRealProcesses starts this binary below real launchers; the host is the test itself.
func TestHostOfRealProcesses(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no shell")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	want := mcp.HostKey{User: "uid:" + strconv.Itoa(os.Getuid()), Folder: dir}
	if runtime.GOOS == "linux" {
		p, ok := lookUp(os.Getpid())
		if !ok {
			t.Fatal("this process cannot be read")
		}
		want.Process = bootID() + "/" + strconv.Itoa(os.Getpid()) + "/" + p.start
	}
	for _, tt := range []struct {
		name string
		argv []string
		tool string // needed
	}{
		{"direct", []string{self}, ""},
		{"a shell that stays", []string{"sh", "-c", `"$0"; true`, self}, "sh"},
		{"shell in shell", []string{"sh", "-c", `sh -c '"$0"; true' "$0"; true`, self}, "sh"},
		{"env and timeout", []string{"env", "timeout", "60", self}, "timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := exec.LookPath(tt.tool); tt.tool != "" && err != nil {
				t.Skip(err)
			}
			cmd := exec.Command(tt.argv[0], tt.argv[1:]...)
			cmd.Env = append(os.Environ(), playHost+"=1", "CLAUDE_CODE_SESSION_ID=")
			if runtime.GOOS == "linux" {
				cmd.Dir = "/" // the folder is the host's, not navra's own
			}
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			var got mcp.HostKey
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%q: %v", out, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Host() below %s (-want +got):\n%s", strings.Join(tt.argv, " "), diff)
			}
		})
	}
}
