package seal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"navra/internal/seal"
)

func TestSealOpens(t *testing.T) {
	k := seal.New()
	s := k.For("a")
	sealed := s.Seal([]byte("plain"), []byte("ctx"))
	if got, err := s.Open(sealed, []byte("ctx")); err != nil || string(got) != "plain" {
		t.Fatalf("Open = %q, %v", got, err)
	}
	for i := range sealed { // each character altered
		c := byte('A')
		if sealed[i] == c {
			c = 'B'
		}
		if _, err := s.Open(sealed[:i]+string(c)+sealed[i+1:], []byte("ctx")); !errors.Is(err, seal.ErrSeal) {
			t.Fatalf("altered at %d: %v, want ErrSeal", i, err)
		}
	}
	for name, open := range map[string]func() ([]byte, error){
		"another context": func() ([]byte, error) { return s.Open(sealed, []byte("other")) },
		"another purpose": func() ([]byte, error) { return k.For("b").Open(sealed, []byte("ctx")) },
		"another key":     func() ([]byte, error) { return seal.New().For("a").Open(sealed, []byte("ctx")) },
		"the zero sealer": func() ([]byte, error) { return seal.Sealer{}.Open(sealed, []byte("ctx")) },
		"too long":        func() ([]byte, error) { return s.Open(strings.Repeat("A", 2<<20), nil) },
		"empty":           func() ([]byte, error) { return s.Open("", nil) },
	} {
		if _, err := open(); !errors.Is(err, seal.ErrSeal) {
			t.Errorf("%s: %v, want ErrSeal", name, err)
		}
	}
}

func TestKeyIsNotPrinted(t *testing.T) {
	k := seal.New()
	js, err := json.Marshal(map[string]any{"k": k})
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %x %s", k, k, k, k, k), string(js), fmt.Sprintf("%v %+v", k.For("a"), k.For("a"))} {
		if clean := strings.Trim(strings.ReplaceAll(got, "[redacted]", ""), `{}":k `); clean != "" {
			t.Errorf("printed: %q", got)
		}
	}
}

func TestLoadOrCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "navra.db.key")
	var wg sync.WaitGroup
	tags := make([][32]byte, 16)
	for i := range tags {
		wg.Go(func() {
			k, err := seal.LoadOrCreate(path)
			if err != nil {
				t.Error(err)
				return
			}
			tags[i] = k.For("x").Tag([]byte("v"))
		})
	}
	wg.Wait()
	for _, tag := range tags {
		if tag != tags[0] {
			t.Fatal("two processes got two keys")
		}
	}
	if runtime.GOOS != "windows" {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := seal.LoadOrCreate(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("a readable key: %v, want the way out", err)
		}
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.LoadOrCreate(bad); err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("a file that is no key: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	s := seal.New().For("a")
	f.Add(s.Seal([]byte("x"), nil))
	f.Add("")
	good := s.Seal([]byte("y"), nil)
	f.Fuzz(func(t *testing.T, sealed string) {
		if b, err := s.Open(sealed, nil); err == nil && sealed != good && string(b) != "x" {
			t.Fatalf("%q opens", sealed)
		}
	})
}
