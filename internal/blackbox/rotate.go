package blackbox

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

const rotationForm = "checkpoint key changed from %s to %s, signed %s %s"

// rotationNote is what both keys sign.
func rotationNote(old, next string) string {
	return "navra checkpoint key change\n" + old + "\n" + next + "\n"
}

// Rotate returns the reason of the entry that makes next the key of checkpoints: both keys, and the signatures of both. Who trusts either
// can go from it to the other.
func Rotate(old, next Signer) (reason string, err error) {
	signed, err := note.Sign(&note.Note{Text: rotationNote(old.vkey, next.vkey)}, old.note, next.note)
	if err != nil {
		return "", fmt.Errorf("checkpoint key: %w", err)
	}
	n, err := note.Open(signed, verifiers(old.vkey, next.vkey))
	if err != nil || len(n.Sigs) != 2 {
		return "", fmt.Errorf("checkpoint key: %w", err)
	}
	return fmt.Sprintf(rotationForm, old.vkey, next.vkey, n.Sigs[0].Base64, n.Sigs[1].Base64), nil
}

// ReadRotation reads what Rotate made, and checks both signatures. ok is false for anything else.
func ReadRotation(reason string) (old, next string, ok bool) {
	f := strings.Fields(strings.ReplaceAll(reason, ",", ""))
	if len(f) != 10 || fmt.Sprintf(rotationForm, f[4], f[6], f[8], f[9]) != reason || f[4] == f[6] {
		return "", "", false
	}
	old, next = f[4], f[6]
	name := func(vkey string) string { n, _, _ := strings.Cut(vkey, "+"); return n }
	text := fmt.Sprintf("%s\n— %s %s\n— %s %s\n", rotationNote(old, next), name(old), f[8], name(next), f[9])
	n, err := note.Open([]byte(text), verifiers(old, next))
	if err != nil || len(n.Sigs) != 2 || n.Sigs[0].Name == n.Sigs[1].Name {
		return "", "", false
	}
	return old, next, true
}

// verifiers takes the keys that are keys, each once; others open nothing.
func verifiers(keys ...string) note.Verifiers {
	var list []note.Verifier
	for _, k := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		if v, err := note.NewVerifier(k); err == nil {
			list = append(list, v)
		}
	}
	return note.VerifierList(list...)
}
