// Package seal makes strings that only this gateway can make and open: session ids, and the values behind placeholders.
// It knows nothing of what it seals.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
)

// ErrSeal reports a string that does not open: made elsewhere, for another purpose or context, or altered.
var ErrSeal = errors.New("seal does not open")

const (
	keyBytes = 32
	// maxSealed bounds what Open decodes, in bytes of the sealed string.
	maxSealed = 1 << 20
)

// A Key is the gateway's master key. The zero Key seals nothing. It prints as [redacted].
type Key struct {
	b  [keyBytes]byte
	ok bool
}

// Format, String, MarshalText and LogValue keep the key out of whatever prints it.
func (Key) Format(f fmt.State, _ rune)   { fmt.Fprint(f, "[redacted]") }
func (Key) String() string               { return "[redacted]" }
func (Key) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }
func (Key) LogValue() slog.Value         { return slog.StringValue("[redacted]") }

// For derives the sealer of one purpose (RFC 5869). It panics on the zero Key.
func (k Key) For(purpose string) Sealer {
	if !k.ok {
		panic("seal: zero key")
	}
	sub := func(use string) []byte {
		b, err := hkdf.Key(sha256.New, k.b[:], nil, "navra "+use+" "+purpose, keyBytes)
		if err != nil {
			panic(err) // lengths are constant
		}
		return b
	}
	block, err := aes.NewCipher(sub("seal"))
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return Sealer{aead: aead, mac: sub("tag")}
}

// A Sealer seals for one purpose. The zero Sealer opens nothing and panics on Seal. It may be used concurrently.
type Sealer struct {
	aead cipher.AEAD
	mac  []byte
}

// Format keeps the keys out of whatever prints a Sealer.
func (Sealer) Format(f fmt.State, _ rune) { fmt.Fprint(f, "[redacted]") }

// Seal encrypts and authenticates plain, bound to context (AES-256-GCM); the result is URL-safe ASCII.
func (s Sealer) Seal(plain, context []byte) string {
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, context))
}

// Open returns what was sealed under the same context, or ErrSeal.
func (s Sealer) Open(sealed string, context []byte) ([]byte, error) {
	if s.aead == nil || len(sealed) > maxSealed {
		return nil, ErrSeal
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil {
		return nil, ErrSeal
	}
	plain, err := s.aead.Open(nil, nil, b, context)
	if err != nil {
		return nil, ErrSeal
	}
	return plain, nil
}

// Tag returns a keyed hash of value (HMAC-SHA256), by which it is found again without being kept.
func (s Sealer) Tag(value []byte) (tag [32]byte) {
	h := hmac.New(sha256.New, s.mac)
	h.Write(value)
	copy(tag[:], h.Sum(nil))
	return tag
}

// Seed derives 32 bytes for a key of another kind, for one purpose. It panics on the zero Key.
func (k Key) Seed(purpose string) []byte {
	if !k.ok {
		panic("seal: zero key")
	}
	b, err := hkdf.Key(sha256.New, k.b[:], nil, "navra seed "+purpose, keyBytes)
	if err != nil {
		panic(err) // lengths are constant
	}
	return b
}

// New returns a fresh key.
func New() Key {
	k := Key{ok: true}
	if _, err := rand.Read(k.b[:]); err != nil {
		panic(err) // crypto/rand never fails
	}
	return k
}
