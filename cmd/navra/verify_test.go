package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navra/internal/seal"
)

// command runs navra and returns its exit code and what it wrote to each stream.
func command(args ...string) (code int, out, err string) {
	var o, e strings.Builder
	code = run(context.Background(), args, std{out: &o, err: &e})
	return code, o.String(), e.String()
}

// aLog makes a log of two entries with a key, and returns it, a proof of entry 1, its checkpoint and its verifier key.
func aLog(t *testing.T) (db, proof, checkpoint, key string) {
	t.Helper()
	db = filepath.Join(t.TempDir(), "l.db")
	if _, err := seal.LoadOrCreate(db + ".key"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"pause"}, {"resume"}} {
		if code, _, err := command(append(args, "--store", db)...); code != exitOK {
			t.Fatal(args, err)
		}
	}
	code, proof, said := command("blackbox", "prove", "1", "--store", db)
	var p proofFile
	if err := json.Unmarshal([]byte(proof), &p); code != exitOK || err != nil {
		t.Fatal(said, err)
	}
	_, key, _ = strings.Cut(strings.TrimSpace(said), "--key '")
	return db, proof, p.Checkpoint, strings.Trim(key, "'")
}

// TestVerifyRefusals: what was given wrongly is named, and is no sign of tampering.
func TestVerifyRefusals(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	db, proof, checkpoint, key := aLog(t)
	_, _, others, otherKey := aLog(t)
	_, listed, _ := command("blackbox", "list", "--json", "-n", "1", "--store", db)
	_, ref, _ := strings.Cut(listed, `"ref":"`)
	ref, _, _ = strings.Cut(ref, `"`)
	longer, wrong := strings.Replace(checkpoint, "\n2\n", "\n3\n", 1), strings.Replace(proof, "pause", "pausf", 1)
	if longer == checkpoint || wrong == proof {
		t.Fatalf("nothing to change in %s, %s", checkpoint, proof)
	}
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"whole", []string{"verify", "--key", key, "--since", file("a", checkpoint)}, exitOK, "held against 1 checkpoints"},
		{"a line more", []string{"verify", "--since", file("more", checkpoint+"\n\n")}, exitOK, "held against 1 checkpoints"},
		{"half a key", []string{"verify", "--key", key[:len(key)-4]}, exitUsage, "is no verifier key"},
		{"no checkpoint", []string{"verify", "--since", file("none", proof)}, exitError, "none: checkpoint: it is no signed note"},
		{"an edited one", []string{"verify", "--since", file("edited", longer)}, exitError, "edited: checkpoint: it was edited"},
		{"another log's", []string{"verify", "--since", file("a", checkpoint), "--since", file("others", others)}, exitError, "others: checkpoint: it is signed by \"navra/"},
		{"no file", []string{"verify", "--since", "gone"}, exitError, "--since: open gone"},
		{"no database", []string{"verify", "--store", "gone.db"}, exitError, "gone.db: it is not there"},
		{"no entry", []string{"prove", "3", "--store", db}, exitError, "there is no entry 3: the newest is 2"},
		{"no number", []string{"prove", "first", "--store", db}, exitUsage, "neither the number of an entry nor a reference"},
		{"by its reference", []string{"prove", ref, "--store", db}, exitOK, "verify-proof FILE"},
		{"proved", []string{"verify-proof", file("proof", proof), "--key", key}, exitOK, "proved: entry 1 of 2 in navra/"},
		{"without a key", []string{"verify-proof", file("proof", proof)}, exitUsage, "--key is missing"},
		{"half a key for a proof", []string{"verify-proof", file("proof", proof), "--key", "navra/x"}, exitUsage, "is no verifier key"},
		{"another's key", []string{"verify-proof", file("proof", proof), "--key", otherKey}, exitError, "proof proves nothing: checkpoint: it is signed by"},
		{"another entry", []string{"verify-proof", file("wrong", wrong), "--key", key}, exitError, "wrong proves nothing: the proof does not hold: entry 1 and the path do not come to the root"},
		{"more than a proof", []string{"verify-proof", file("long", proof+proof), "--key", key}, exitError, "something follows it"},
		{"another member", []string{"verify-proof", file("wide", strings.Replace(proof, "{", `{"x":1,`, 1)), "--key", key}, exitError, `unknown field "x"`},
	} {
		args := append([]string{"blackbox"}, tt.args...)
		if tt.args[0] == "verify" && tt.name != "no database" {
			args = append(args, "--store", db)
		}
		code, out, err := command(args...)
		if code != tt.code || !strings.Contains(out+err, tt.want) || strings.Contains(err, "NOT whole") {
			t.Errorf("%s: exit %d, want %d with %q:\n%s%s", tt.name, code, tt.code, tt.want, out, err)
		}
	}
}

// TestUsageNamesTheCommand: who is told to ask for help gets that of the command.
func TestUsageNamesTheCommand(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"blackbox", "show"}, "navra blackbox show NUMBER|REFERENCE"},
		{[]string{"blackbox", "list", "--sinc", "2h"}, "Try 'navra blackbox list --help'."},
		{[]string{"tokn"}, "Try 'navra --help'."},
	} {
		if code, _, err := command(tt.args...); code != exitUsage || !strings.Contains(err, tt.want) {
			t.Errorf("%v: exit %d, want %q in:\n%s", tt.args, code, tt.want, err)
		}
	}
}
