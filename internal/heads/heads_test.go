package heads

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/seal"
)

func TestMarks(t *testing.T) {
	path, tag := filepath.Join(t.TempDir(), "x.heads"), seal.New().For("heads").Tag
	if _, ok, err := Read(path, tag); ok || err != nil {
		t.Errorf("a file that is not there: %v, %v", ok, err)
	}
	var wg sync.WaitGroup
	for p := range 4 { // as four processes do
		f, err := Open(path, tag, false)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		wg.Go(func() {
			for i := range 50 {
				if err := f.Note(blackbox.Seq(i*4+p+1), [32]byte{byte(i*4 + p + 1)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	m, ok, err := Read(path, tag)
	if err != nil || !ok || m.Size != 200 || m.Head != [32]byte{200} || m.Boot != Boot() {
		t.Errorf("Read = %+v, %v, %v, want the greatest", m, ok, err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	b, _ := os.ReadFile(path)
	for name, bad := range map[string]string{"size": strings.Replace(string(b), " 200 ", " 199 ", 1), "cut": string(b[:50]), "longer": string(b) + "x"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Read(path, tag); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s edited: %v, want %v", name, err, ErrDamaged)
		}
	}
	if err := os.WriteFile(path, make([]byte, len(b)), 0o600); err != nil {
		t.Fatal(err)
	}
	if m, ok, err := Read(path, tag); ok || err != nil || m != (Mark{}) {
		t.Errorf("a file of which only the length came to the disk: %+v, %v, %v", m, ok, err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(path, seal.New().For("heads").Tag); !errors.Is(err, ErrDamaged) {
		t.Errorf("another key: %v, want %v", err, ErrDamaged)
	}
}

func TestCompare(t *testing.T) {
	m := Mark{Size: 10, Head: [32]byte{1}, Boot: Boot()}
	for _, tt := range []struct {
		name    string
		m       Mark
		size    blackbox.Seq
		at      [32]byte
		bad     bool
		unclean bool
	}{
		{"the same", m, 10, [32]byte{1}, false, false},
		{"grown", m, 12, [32]byte{1}, false, false},
		{"nothing was said", Mark{}, 0, [32]byte{}, false, false},
		{"cut", m, 9, [32]byte{}, true, false},
		{"cut, before another start of the machine", Mark{Size: 10, Boot: "other"}, 9, [32]byte{}, true, true},
		{"replaced", m, 12, [32]byte{2}, true, false},
	} {
		problem, unclean := tt.m.Compare(tt.size, tt.at)
		if (problem != "") != tt.bad || unclean != tt.unclean {
			t.Errorf("%s: %q, %v", tt.name, problem, unclean)
		}
	}
}

// TestOnlyAPromiseIsHeld: where the disk holds what was answered, no stop of the machine explains a lost tail.
func TestOnlyAPromiseIsHeld(t *testing.T) {
	tag := seal.New().For("heads").Tag
	for name, tt := range map[string]struct {
		sync, lasting bool
		boot          string
	}{"process": {false, false, Boot()}, "fsync": {true, false, ""}, "a server": {false, true, ""}} {
		path := filepath.Join(t.TempDir(), "x.heads")
		f, err := Open(path, tag, tt.sync)
		if err != nil {
			t.Fatal(err)
		}
		if tt.lasting {
			f.Lasting()
		}
		if err := errors.Join(f.Note(1, [32]byte{1}), f.Close()); err != nil {
			t.Fatal(err)
		}
		if m, ok, err := Read(path, tag); !ok || err != nil || m.Boot != tt.boot {
			t.Errorf("%s: Read = %+v, %v, %v, want boot %q", name, m, ok, err, tt.boot)
		}
	}
}

func BenchmarkNote(b *testing.B) {
	f, err := Open(filepath.Join(b.TempDir(), "x.heads"), seal.New().For("heads").Tag, false)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for n := blackbox.Seq(1); b.Loop(); n++ {
		if err := f.Note(n, [32]byte{}); err != nil {
			b.Fatal(err)
		}
	}
}
