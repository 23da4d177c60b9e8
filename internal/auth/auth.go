// Package auth says who was proven to call: the Principal, the Authenticator that proves one, and the operator's
// directory of names and roles. It knows no transport, no policy and no storage; its subpackages hold the ways in.
package auth

import (
	"errors"
	"net/http"
	"slices"
	"time"
)

// ErrNoCredential reports a request without any credential, ErrBadCredential one whose credential proves nobody
// (unknown, malformed, expired, revoked). Neither says which, so that a guesser learns nothing.
var (
	ErrNoCredential  = errors.New("no credential")
	ErrBadCredential = errors.New("credential not accepted")
)

// A Principal is a proven caller. Authenticators alone make one, with [Directory.Prove]. The zero Principal is nobody and
// is refused everywhere. Principals are immutable values.
type Principal struct {
	name    string
	subject string
	method  string
	roles   []string
}

// Name is the operator's name for the principal, as in the configuration's principals.
func (p Principal) Name() string { return p.name }

// Subject is what the way in proved: "uid:1000", a token's id.
func (p Principal) Subject() string { return p.subject }

// Method is the way in: "os", "token", "none", or "navra" for navra's own messages.
func (p Principal) Method() string { return p.method }

// Roles returns the roles the operator gave; a copy.
func (p Principal) Roles() []string { return slices.Clone(p.roles) }

// IsZero reports whether p is nobody.
func (p Principal) IsZero() bool { return p.name == "" }

// Same reports whether p and q are the same principal, however each was proven.
func (p Principal) Same(q Principal) bool { return p.name == q.name && p.name != "" }

// A Directory holds the operator's principals: name to roles. It is never written after it was made.
type Directory map[string][]string

// Prove makes the principal that a way in proved. Only the authenticators under this package may call it (a test on the
// source holds them to that).
func (d Directory) Prove(name, subject, method string) Principal {
	return Principal{name: name, subject: subject, method: method, roles: slices.Clone(d[name])}
}

// Self is navra itself, for the messages it sends of its own: handshakes, list refreshes, cancels.
func Self() Principal { return Principal{name: "navra", subject: "navra", method: "navra"} }

// An Authenticator proves who sent an HTTP request; a WebSocket upgrade is one too. It returns ErrNoCredential or
// ErrBadCredential, or another error where it could not be told (a store that does not answer): then too the request is refused.
type Authenticator interface {
	Authenticate(r *http.Request) (Principal, error)
}

// A Token is what the store keeps of one bearer token: never the token itself.
type Token struct {
	ID        string
	Hash      [32]byte // SHA-256 of the token's text
	Principal string
	Created   time.Time
	Expires   time.Time // zero: never
	Revoked   time.Time // zero: not revoked
}

// Valid reports whether t may be used at the given time.
func (t Token) Valid(now time.Time) bool {
	return t.Principal != "" && t.Revoked.IsZero() && (t.Expires.IsZero() || now.Before(t.Expires))
}
