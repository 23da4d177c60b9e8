package upstream

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"navra/internal/shim"
)

func TestMain(m *testing.M) {
	shim.Enter()
	os.Exit(m.Run())
}

var supervisors = map[string]string{"supervised": shim.Program(), "direct": ""}

func TestProcess(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("this system has no /bin/sh")
	}
	for name, supervisor := range supervisors {
		for _, tt := range []struct {
			name, script string
			how          ending
			most         time.Duration
		}{
			{"a child that ends with its input", "cat", gently, graces[gently].eof},
			{"a child that needs SIGTERM", "echo; while :; do sleep 0.01; done", gently, graces[gently].eof + graces[gently].term},
			{"a child that ignores SIGTERM, at once", "trap '' TERM; echo; while :; do sleep 0.01; done", atOnce, 1500 * time.Millisecond},
		} {
			t.Run(name+": "+tt.name, func(t *testing.T) {
				t.Parallel()
				p, pipes, err := startProcess(Spec{Command: []string{"/bin/sh", "-c", tt.script}}, supervisor)
				if err != nil {
					t.Fatal(err)
				}
				go p.wait()
				defer pipes.out.Close()
				defer pipes.err.Close()
				if tt.script != "cat" {
					if _, err := pipes.out.Read(make([]byte, 1)); err != nil { // it runs
						t.Fatal(err)
					}
				}
				start := time.Now()
				pipes.in.Close()
				p.stop(tt.how, nil)
				if took := time.Since(start); took > tt.most {
					t.Errorf("stop took %s, at most %s was wanted", took, tt.most)
				}
			})
		}
		t.Run(name+": a program that is not there", func(t *testing.T) {
			_, _, err := startProcess(Spec{Command: []string{"/no/such/program"}}, supervisor)
			if want := `start "/no/such/program": fork/exec /no/such/program: no such file or directory`; err == nil || err.Error() != want {
				t.Errorf("startProcess: %v, want %s", err, want)
			}
		})
	}
}

// BenchmarkStartProcess measures from the start of a child to the end of what it prints.
func BenchmarkStartProcess(b *testing.B) {
	for name, supervisor := range supervisors {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p, pipes, err := startProcess(Spec{Command: []string{"/bin/echo", "x"}}, supervisor)
				if err != nil {
					b.Fatal(err)
				}
				said, _ := io.ReadAll(pipes.out)
				if !strings.HasPrefix(string(said), "x") {
					b.Fatalf("%q", said)
				}
				p.wait()
				pipes.in.Close()
				pipes.out.Close()
				pipes.err.Close()
			}
		})
	}
}
