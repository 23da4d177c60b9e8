package seal

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// LoadOrCreate reads the key that lies at path, or makes one there: a file for its owner alone (0600). Several processes may
// do so at once; all get the same key. A file that others may read, or that is no key, is an error.
func LoadOrCreate(path string) (Key, error) {
	for range 3 {
		k, err := load(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return k, err
		}
		if err := create(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return Key{}, fmt.Errorf("key file %s: %w", path, err)
		}
	}
	return Key{}, fmt.Errorf("key file %s: it vanishes as soon as it is made", path)
}

func load(path string) (Key, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Key{}, fmt.Errorf("key file: %w", err)
	}
	if !info.Mode().IsRegular() { // to open a pipe may wait for ever
		return Key{}, fmt.Errorf("key file %s: it is no file", path)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return Key{}, fmt.Errorf("key file %s: others may read it; run: chmod 600 %s", path, path)
	}
	if info.Size() > 4*keyBytes {
		return Key{}, fmt.Errorf("key file %s: it holds no key", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Key{}, fmt.Errorf("key file: %w", err)
	}
	b, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(b) != keyBytes {
		return Key{}, fmt.Errorf("key file %s: it holds no key", path)
	}
	k := Key{ok: true}
	copy(k.b[:], b)
	return k, nil
}

// create writes a fresh key beside path and links it there, so that nobody ever reads half a key and nobody's key is overwritten.
func create(path string) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".key-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	k := New()
	_, err = f.WriteString(hex.EncodeToString(k.b[:]) + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	syncFolder(dir)
	return nil
}

// syncFolder puts the names in a folder on the disk, where its file system can do that: a key that a power cut took away would make what it
// signed look forged.
func syncFolder(dir string) {
	if f, err := os.Open(dir); err == nil {
		_ = f.Sync()
		_ = f.Close()
	}
}
