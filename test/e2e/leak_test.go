package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"
)

// runDir holds what the tests' gateways have written: it outlives each test, so that all of it can be searched for secrets at the end.
var runDir string

// planted are the secrets of this run, by what they are.
var planted struct {
	sync.Mutex
	secrets map[string]string
}

func plant(kind, secret string) string {
	planted.Lock()
	defer planted.Unlock()
	if planted.secrets == nil {
		planted.secrets = map[string]string{}
	}
	planted.secrets[kind] = secret
	return secret
}

// capture keeps what a program has written to stderr among the files of the run.
func capture(text string) {
	if f, err := os.CreateTemp(runDir, "stderr-*"); err == nil {
		f.WriteString(text)
		f.Close()
	}
}

// encodings are the forms that a secret may lie in a file in.
func encodings(secret string) map[string][]byte {
	s := []byte(secret)
	all := map[string][]byte{
		"raw": s, "hex": []byte(hex.EncodeToString(s)), "HEX": []byte(strings.ToUpper(hex.EncodeToString(s))), "percent": []byte(url.QueryEscape(secret)), "path": []byte(url.PathEscape(secret)),
	}
	var every, js []byte
	wide := utf16.Encode([]rune(secret))
	var little, big []byte
	for _, c := range s {
		every = fmt.Appendf(every, "%%%02X", c)
		js = fmt.Appendf(js, `\u%04x`, c)
	}
	for _, c := range wide {
		little, big = binary.LittleEndian.AppendUint16(little, c), binary.BigEndian.AppendUint16(big, c)
	}
	all["percent of all"], all["JSON escapes"], all["UTF-16 LE"], all["UTF-16 BE"] = every, js, little, big
	maps.DeleteFunc(all, func(name string, form []byte) bool { return name != "raw" && bytes.Equal(form, s) })
	all["JSON"] = []byte(strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "/", `\/`).Replace(secret))
	for at := range 3 { // base64 of a text that it begins at any place of
		padded := append(make([]byte, at), s...)
		from, to := (at*8+5)/6, len(padded)*8/6
		all[fmt.Sprint("base64 at ", at)] = []byte(base64.RawStdEncoding.EncodeToString(padded)[from:to])
		all[fmt.Sprint("base64url at ", at)] = []byte(base64.RawURLEncoding.EncodeToString(padded)[from:to])
	}
	return all
}

// leaks says where planted secrets lie in the files below a folder, but for those that skip takes.
func leaks(dir string, skip func(path string) bool) (found []string, files int, err error) {
	planted.Lock()
	secrets := maps.Clone(planted.secrets)
	planted.Unlock()
	var sought index
	for _, kind := range slices.Sorted(maps.Keys(secrets)) {
		for name, form := range encodings(secrets[kind]) {
			sought.add(kind+" ("+name+")", form)
		}
	}
	var paths []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !skip(path) {
			paths = append(paths, path)
		}
		return err
	})
	var mu sync.Mutex // guards what is returned
	var all sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		all.Go(func() {
			for i := w; i < len(paths); i += workers {
				b, failed := os.ReadFile(paths[i])
				var here []string
				sought.in(b, func(what string, at int) {
					here = append(here, fmt.Sprintf("%s: %s at offset %d: …%.60q", paths[i], what, at, b[max(0, at-50):at]))
				})
				mu.Lock()
				found, err = append(found, here...), errors.Join(err, failed)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return found, len(paths), err
}

// An index finds many texts in one pass, by their first bytes.
type index struct {
	heads map[uint64][]form
	seen  [1 << 20]bool
}

type form struct {
	what string
	text []byte
}

const head = 8 // bytes that each text has at least

func slot(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> 44 }

func (x *index) add(what string, text []byte) {
	if x.heads == nil {
		x.heads = map[uint64][]form{}
	}
	key := binary.LittleEndian.Uint64(text[:head])
	x.heads[key] = append(x.heads[key], form{what, text})
	x.seen[slot(key)] = true
}

func (x *index) in(b []byte, report func(what string, at int)) {
	for i := 0; ; i++ {
		if i = x.next(b, i); i < 0 {
			return
		}
		key := binary.LittleEndian.Uint64(b[i:])
		for _, f := range x.heads[key] {
			if bytes.HasPrefix(b[i:], f.text) {
				report(f.what, i)
			}
		}
	}
}

// next returns where, from i on, a text may begin; -1 for nowhere. The race detector would look at each byte of hundreds of megabytes, which nobody shares.
//
//go:norace
func (x *index) next(b []byte, i int) int {
	for ; i+head <= len(b); i++ {
		if x.seen[slot(binary.LittleEndian.Uint64(b[i:]))] {
			return i
		}
	}
	return -1
}

// searchRun is the last that a run does: it says whether no secret is in what the gateways have left.
func searchRun() bool {
	found, files, err := leaks(runDir, func(path string) bool {
		name := filepath.Base(path) // what an upstream writes is its own, and keys are in their files alone
		return path == navraBin || path == fixtureBin || name == "upstreams.log" || strings.HasSuffix(name, ".key")
	})
	for _, f := range found {
		fmt.Fprintln(os.Stderr, "FAIL: a secret was left behind:", f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: the files of the run could not be searched:", err)
	}
	planted.Lock()
	defer planted.Unlock()
	fmt.Printf("%d files of the run searched for %d secrets\n", files, len(planted.secrets))
	return len(found) == 0 && err == nil
}

// TestLeaksAreFound plants a secret in files in each form.
func TestLeaksAreFound(t *testing.T) {
	t.Parallel()
	const secret = "Zq7/\"x+81?kk-leak_probe"
	dir := t.TempDir()
	for name, form := range encodings(secret) {
		write(t, filepath.Join(dir, strings.ReplaceAll(name, " ", "-")), "before "+string(form)+" behind")
	}
	for at := range 3 {
		text := strings.Repeat("x", at) + secret + "yy"
		write(t, filepath.Join(dir, fmt.Sprint("whole-", at)), base64.StdEncoding.EncodeToString([]byte(text)))
		write(t, filepath.Join(dir, fmt.Sprint("wholeurl-", at)), base64.URLEncoding.EncodeToString([]byte(text)))
	}
	plant("probe", secret)
	defer func() {
		planted.Lock()
		defer planted.Unlock()
		delete(planted.secrets, "probe")
	}()
	found, files, err := leaks(dir, func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]bool{}
	for _, f := range found {
		path, _, _ := strings.Cut(f, ": ")
		in[path] = true
	}
	if len(in) != files || files < 20 {
		t.Errorf("found in %d of %d files", len(in), files)
	}
}
