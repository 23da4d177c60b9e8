// Package heads keeps, outside the database, how long the log was and what it ended with: what the database does not have of that was cut
// off, or the database was rolled back.
package heads

import (
	"bytes"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"navra/internal/blackbox"
)

// A Mark is what the file says. The zero Mark says nothing.
type Mark struct {
	Size blackbox.Seq
	Head [32]byte
	Boot string // of the operating system's run in which it was written; "" where that cannot be told, or where a stop of the machine loses nothing
}

// ErrDamaged reports a file that holds no mark made with this key.
var ErrDamaged = errors.New("it holds no mark made with this key: it was edited, or is of another key")

// line is the length of the one line that the file holds: a write replaces it whole.
const line = 200

// A File is an open heads file. Its methods may be called concurrently, also by several processes.
type File struct {
	path string
	tag  func([]byte) [32]byte
	boot string
	sync bool // each mark is on the disk before Note returns

	mu   sync.Mutex
	f    *os.File
	last []byte // what Note has written; guarded by mu, as size
	size blackbox.Seq
}

// Open opens the file at path for its owner alone (0600), making it where it is not there. tag makes the keyed MAC of what is written.
//
// With sync a mark outlives a power cut, as the entries do that it speaks of.
func Open(path string, tag func([]byte) [32]byte, sync bool) (*File, error) {
	if err := regular(path); err != nil {
		return nil, fmt.Errorf("heads file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("heads file: %w", err)
	}
	file := &File{path: path, tag: tag, sync: sync, f: f}
	if !sync {
		file.boot = Boot()
		return file, nil
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return nil, errors.Join(fmt.Errorf("heads file: %w", err), f.Close())
	}
	return file, nil
}

// regular refuses what is there and no file: to open a pipe may wait for ever.
func regular(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file", path)
	}
	return nil
}

// syncFolder puts the names in a folder on the disk.
func syncFolder(dir string) error {
	if runtime.GOOS == "windows" { // which has no such thing
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Lasting says that the log outlives a stop of this machine, though the file may not: its tail is never lost in one. It is called before Note.
func (f *File) Lasting() { f.boot = "" }

// Read reads the file at path; ok is false where there is none yet, or where nothing of it but its length came to the disk before a power cut.
func Read(path string, tag func([]byte) [32]byte) (m Mark, ok bool, err error) {
	b, err := readWhole(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(bytes.Trim(b, "\x00")) == 0 {
		return Mark{}, false, nil
	}
	if err == nil {
		m, err = parse(b, tag)
	}
	if err != nil {
		return Mark{}, true, fmt.Errorf("heads file %s: %w", path, err)
	}
	return m, true, nil
}

// readWhole reads a file while nobody writes to it.
func readWhole(path string) (b []byte, err error) {
	if err := regular(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := lock(f); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock(f)) }()
	return io.ReadAll(io.LimitReader(f, 2*line))
}

// Note writes that the log has come to a size, unless the file says already that it is longer.
func (f *File) Note(size blackbox.Seq, head [32]byte) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := lock(f.f); err != nil {
		return fmt.Errorf("heads file %s: %w", f.path, err)
	}
	defer func() { err = errors.Join(err, unlock(f.f)) }()
	var b [line]byte
	if n, err := f.f.ReadAt(b[:], 0); n == line {
		if f.says(b[:]) >= size {
			return nil
		}
	} else if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("heads file %s: %w", f.path, err)
	}
	f.last, f.size = f.format(Mark{size, head, f.boot}), size
	if _, err := f.f.WriteAt(f.last, 0); err != nil {
		return fmt.Errorf("heads file %s: %w", f.path, err)
	}
	if f.sync {
		return f.f.Sync()
	}
	return nil
}

// says is the size of the mark in b; 0 where there is none. Most often it is what was written last, and needs no second MAC.
func (f *File) says(b []byte) blackbox.Seq {
	if bytes.Equal(b, f.last) {
		return f.size
	}
	m, err := parse(b, f.tag)
	if err != nil {
		return 0
	}
	return m.Size
}

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }

func (f *File) format(m Mark) []byte {
	b := append(make([]byte, 0, line), "navra heads 1 "...)
	b = append(strconv.AppendUint(b, uint64(m.Size), 10), ' ')
	b = append(hex.AppendEncode(b, m.Head[:]), ' ')
	b = append(append(b, orDash(m.Boot)...), ' ')
	mac := f.tag(b)
	b = hex.AppendEncode(b, mac[:])
	for len(b) < line-1 {
		b = append(b, ' ')
	}
	return append(b, '\n')
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func parse(b []byte, tag func([]byte) [32]byte) (m Mark, err error) {
	text := strings.TrimRight(string(b), " \n")
	i := strings.LastIndexByte(text, ' ')
	if len(b) != line || i < 0 {
		return m, ErrDamaged
	}
	said, mac := text[:i+1], text[i+1:]
	want := tag([]byte(said))
	got, err := hex.DecodeString(mac)
	fields := strings.Fields(said)
	if err != nil || subtle.ConstantTimeCompare(got, want[:]) != 1 || len(fields) != 6 {
		return m, ErrDamaged
	}
	size, err1 := strconv.ParseUint(fields[3], 10, 64)
	head, err2 := hex.DecodeString(fields[4])
	if err1 != nil || err2 != nil || len(head) != 32 {
		return m, ErrDamaged
	}
	m = Mark{Size: blackbox.Seq(size), Head: [32]byte(head), Boot: strings.TrimPrefix(fields[5], "-")}
	return m, nil
}

// Compare says what is wrong with a log that has size entries, of which the one with the mark's number has the hash at; "" for nothing.
// unclean is true where the machine was started anew since, and its disk did not have to hold what is missing: that is no sign of tampering.
func (m Mark) Compare(size blackbox.Seq, at [32]byte) (problem string, unclean bool) {
	switch {
	case m.Size == 0:
		return "", false
	case size < m.Size:
		if m.Boot != "" && m.Boot != Boot() {
			return fmt.Sprintf("tail lost in an unclean stop: the log ends with entry %d, and had %d entries before the machine was started anew; with durability: process its disk need not hold them", size, m.Size), true
		}
		return fmt.Sprintf("the log ends with entry %d, and had %d entries: its tail was cut off, or the database is an old copy", size, m.Size), false
	case at != m.Head:
		return fmt.Sprintf("entry %d is another than it was when it was written", m.Size), false
	}
	return "", false
}

// Boot names the operating system's present run, "" where that cannot be told.
func Boot() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
