package powercut

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// When set, this test binary is the program that is recorded, in the folder that it names.
const play = "POWERCUT_TEST_PLAY"

func TestMain(m *testing.M) {
	if dir := os.Getenv(play); dir != "" {
		program(dir)
		return
	}
	os.Exit(m.Run())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func program(dir string) {
	at := func(name string) string { return filepath.Join(dir, name) }
	old := must(os.OpenFile(at("old"), os.O_RDWR, 0))
	must(old.WriteAt([]byte("AB"), 0))
	must(0, old.Sync())
	must(old.WriteAt([]byte("CD"), 2))
	fmt.Println("said one")
	must(0, os.Mkdir(at("new"), 0o700))
	f := must(os.Create(at("new/temp")))
	must(f.WriteString("whole"))
	must(0, f.Sync())
	must(0, os.Rename(at("new/temp"), at("new/name")))
	must(0, must(os.Open(at("new"))).Sync())
	must(0, must(os.Open(dir)).Sync())
	must(0, os.Remove(at("gone")))
	must(0, old.Truncate(1))
	fmt.Println("said two")
}

// state is what a folder holds.
func state(t *testing.T, d *Disk, kept func(string) bool) string {
	t.Helper()
	dir := t.TempDir()
	if err := d.Save(dir, kept); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if !e.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			files[rel] = string(must(os.ReadFile(path)))
		}
		return err
	})
	var out []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		out = append(out, fmt.Sprintf("%s=%q", name, files[name]))
	}
	return strings.Join(out, " ")
}

func never(string) bool  { return false }
func always(string) bool { return true }

func TestWhatARealProgramLeaves(t *testing.T) {
	if err := Missing(); err != nil {
		t.Skip(err)
	}
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "record")
	for _, name := range []string{"old", "gone"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("abcd"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before, after, middle := must(New(dir)), must(New(dir)), must(New(dir))
	args := Command(file, os.Args[0])
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), play+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rec, err := Parse(must(os.Open(file)), dir)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rec.Said, func(s Said) bool { return strings.Contains(s.Text, "said one") })
	if i < 0 {
		t.Fatalf("what it said is not there: %v", rec.Said)
	}
	must(0, middle.Play(rec.Ops, rec.Said[i].At))
	must(0, after.Play(rec.Ops, rec.End))
	for _, tt := range []struct {
		name string
		d    *Disk
		kept func(string) bool
		want string
	}{
		{"nothing was done", before, always, `gone="abcd" old="abcd"`},
		{"what was synced", middle, never, `gone="abcd" old="ABcd"`},
		{"and what was not", middle, always, `gone="abcd" old="ABCD"`},
		{"at the end", after, never, `gone="abcd" new/name="whole" old="ABcd"`},
		{"no power cut", after, always, `new/name="whole" old="A"`},
	} {
		if got := state(t, tt.d, tt.kept); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// What was under way when a sync began is not covered by it, and a write is cut at blocks, its length apart from its bytes.
func TestWhatIsNotSynced(t *testing.T) {
	two := []byte(strings.Repeat("x", block) + "y")
	d := &Disk{folder()}
	must(0, d.Play([]Op{
		{Kind: Create, Path: "f", Start: 0, End: 0},
		{Kind: Sync, Path: ".", Start: 1, End: 1},
		{Kind: Write, Path: "f", Data: two, Start: 2, End: 4},
		{Kind: Sync, Path: "f", Start: 3, End: 5},
	}, 6))
	if got := state(t, d, never); got != `f=""` {
		t.Errorf("a write under way: %s", got)
	}
	n := 0
	first := func(string) bool { n++; return n == 1 }
	if got, want := state(t, d, first), fmt.Sprintf("f=%q", two[:block]); got != want {
		t.Errorf("its first block: %.40s", got)
	}
	n = 0
	length := func(string) bool { n++; return n%2 == 0 }
	if got, want := state(t, d, length), fmt.Sprintf("f=%q", make([]byte, len(two))); got != want {
		t.Errorf("its length: %.40s", got)
	}
	must(0, d.Play([]Op{{Kind: Sync, Path: "f", Start: 6, End: 8}}, 8))
	if got := state(t, d, never); got != `f=""` {
		t.Error("a sync that had not ended is believed")
	}
	if err := d.Play([]Op{{Kind: Write, Path: "other"}}, 1); err == nil {
		t.Error("a file that was never made was written to")
	}
}

func TestParseKnowsWhatItDoesNotKnow(t *testing.T) {
	line := `7 fallocate(3</r/f>, 0, 0, 100) = 0`
	if _, err := Parse(strings.NewReader(line+"\n"), "/r"); err == nil || !strings.Contains(err.Error(), "fallocate of /r/f") {
		t.Errorf("%v", err)
	}
	if _, err := Parse(strings.NewReader(line+"\n"), "/elsewhere"); err != nil {
		t.Errorf("outside: %v", err)
	}
}
