package blackbox

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// A Signer signs checkpoints. It prints as [redacted].
type Signer struct {
	note note.Signer
	vkey string
}

// Format and LogValue keep the key out of whatever prints it.
func (s Signer) Format(f fmt.State, _ rune) { fmt.Fprint(f, "[redacted]") }
func (s Signer) LogValue() slog.Value       { return slog.StringValue("[redacted]") }

// NewSigner returns the signer of an Ed25519 seed of 32 bytes.
func NewSigner(seed []byte) (Signer, error) {
	if len(seed) != ed25519.SeedSize {
		return Signer{}, errors.New("checkpoint key: the seed has another length")
	}
	public, _ := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	id := sha256.Sum256(public)
	name := "navra/" + hex.EncodeToString(id[:8])
	vkey, err := note.NewEd25519VerifierKey(name, public)
	if err != nil {
		return Signer{}, fmt.Errorf("checkpoint key: %w", err)
	}
	hash := strings.Split(vkey, "+")[1]
	skey := "PRIVATE+KEY+" + name + "+" + hash + "+" + base64.StdEncoding.EncodeToString(append([]byte{1}, seed...)) // 1: Ed25519
	s, err := note.NewSigner(skey)
	if err != nil {
		return Signer{}, errors.New("checkpoint key: it cannot sign")
	}
	return Signer{s, vkey}, nil
}

// Key is the public half, in the form of a verifier key of C2SP signed notes.
func (s Signer) Key() string { return s.vkey }

// Sign makes the signed note of a tree. C2SP tlog-checkpoint.
func (s Signer) Sign(t *Tree) (Checkpoint, error) {
	root := t.Root()
	text := fmt.Sprintf("%s\n%d\n%s\n", s.note.Name(), t.Size(), base64.StdEncoding.EncodeToString(root[:]))
	signed, err := note.Sign(&note.Note{Text: text}, s.note)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
	}
	return Checkpoint{Size: t.Size(), Note: signed, Frontier: t.Frontier()}, nil
}

// A Signed is what a checkpoint's note says.
type Signed struct {
	Origin string
	Size   Seq
	Root   [32]byte
}

// CheckKey returns an error for what is no verifier key.
func CheckKey(key string) error {
	if _, err := note.NewVerifier(key); err != nil {
		return fmt.Errorf("checkpoint key %.80q: %w", key, err)
	}
	return nil
}

// OpenNote checks a signed note by verifier keys, one of which has to have signed it, and reads it.
func OpenNote(b []byte, keys ...string) (Signed, error) {
	for _, key := range keys {
		if err := CheckKey(key); err != nil {
			return Signed{}, err
		}
	}
	n, err := note.Open(b, verifiers(keys...))
	if err != nil {
		return Signed{}, fmt.Errorf("checkpoint: %w", err)
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) < 4 || lines[0] != n.Sigs[0].Name {
		return Signed{}, errors.New("checkpoint: it is of another log")
	}
	size, err := strconv.ParseUint(lines[1], 10, 63)
	root, err2 := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || err2 != nil || len(root) != sha256.Size {
		return Signed{}, errors.New("checkpoint: it cannot be read")
	}
	return Signed{lines[0], Seq(size), [32]byte(root)}, nil
}
