// Package token is the way in by bearer tokens that navra itself hands out. A token is 256 random bits with a checksum; only its
// SHA-256 is kept.
package token

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/big"
	"net/http"
	"strings"
	"time"

	"navra/internal/auth"
)

// The form of a token: the prefix, 43 characters of base 62 for 256 bits, 6 for their CRC-32.
const (
	prefix   = "nvr_"
	digits   = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	bodyLen  = 43
	checkLen = 6
)

// A Secret is a token's text. It prints as [redacted]; Reveal shows it, once, to the person it was made for.
type Secret struct{ s string }

// Format, MarshalText and LogValue keep the token out of whatever prints it.
func (Secret) Format(f fmt.State, _ rune)   { fmt.Fprint(f, "[redacted]") }
func (Secret) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }
func (Secret) LogValue() slog.Value         { return slog.StringValue("[redacted]") }

// Reveal returns the token's text.
func (s Secret) Reveal() string { return s.s }

// New makes a token for a principal. A zero expires means that it does not expire.
func New(principal string, created, expires time.Time) (Secret, auth.Token) {
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // crypto/rand never fails
	}
	body := base62(new(big.Int).SetBytes(b[:]), bodyLen)
	s := Secret{prefix + body + checksum(body)}
	hash := sha256.Sum256([]byte(s.s))
	return s, auth.Token{ID: hex.EncodeToString(hash[:4]), Hash: hash, Principal: principal, Created: created.UTC().Truncate(time.Microsecond), Expires: expires.UTC().Truncate(time.Microsecond)}
}

func checksum(body string) string {
	return base62(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(body)))), checkLen)
}

func base62(n *big.Int, width int) string {
	out := make([]byte, width)
	base, rest := big.NewInt(int64(len(digits))), new(big.Int)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, rest)
		out[i] = digits[rest.Int64()]
	}
	return string(out)
}

// wellFormed refuses what was mistyped or is no token, before anything is looked up.
func wellFormed(s string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok || len(rest) != bodyLen+checkLen {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(checksum(rest[:bodyLen])), []byte(rest[bodyLen:])) == 1
}

// A Store finds a token by its hash; an error that NotFound knows means that there is none.
type Store interface {
	TokenByHash(context.Context, [32]byte) (auth.Token, error)
}

// An Authenticator proves who a token belongs to. All fields are required. It may be used concurrently.
type Authenticator struct {
	Tokens    Store
	NotFound  error // what Tokens returns where there is no such token
	Directory auth.Directory
	Now       func() time.Time
}

var _ auth.Authenticator = Authenticator{}

// Authenticate implements auth.Authenticator: one Authorization header with the scheme Bearer (RFC 6750 §2.1). A token in the
// query or the body is not looked at.
func (a Authenticator) Authenticate(r *http.Request) (auth.Principal, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return auth.Principal{}, auth.ErrNoCredential
	}
	scheme, text, _ := strings.Cut(headers[0], " ")
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return auth.Principal{}, auth.ErrBadCredential
	}
	return a.Verify(r.Context(), strings.TrimSpace(text))
}

// Verify returns the principal that a token's text belongs to, or auth.ErrBadCredential. Another error means that it could not be told.
func (a Authenticator) Verify(ctx context.Context, text string) (auth.Principal, error) {
	if !wellFormed(text) {
		return auth.Principal{}, auth.ErrBadCredential
	}
	hash := sha256.Sum256([]byte(text))
	t, err := a.Tokens.TokenByHash(ctx, hash)
	if errors.Is(err, a.NotFound) {
		return auth.Principal{}, auth.ErrBadCredential
	} else if err != nil {
		return auth.Principal{}, fmt.Errorf("look up the token: %w", err)
	}
	_, known := a.Directory[t.Principal]
	if subtle.ConstantTimeCompare(t.Hash[:], hash[:]) != 1 || !t.Valid(a.Now()) || !known {
		return auth.Principal{}, auth.ErrBadCredential
	}
	return a.Directory.Prove(t.Principal, "token:"+t.ID, "token"), nil
}
