package blackbox

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"hash"
	"strings"
	"sync"
	"unicode/utf8"
)

// Limits of what an entry holds, in bytes.
const (
	MaxStored = 4 << 10 // of a payload's stored form
	maxText   = 4 << 10 // of one text field; longer ones are cut and marked
	maxCounts = 64      // of one list of counts; what is over that is summed as "others"
	saltBytes = 16

	MaxPayloads = 64 // of an entry; navra writes two at most

	// maxEncoded is more than all of that takes up, each byte escaped: what is longer is no encoding, and is not looked at.
	maxEncoded = 16 << 20
)

// NewRef returns 80 random bits, as 16 characters that may be spoken and typed.
func NewRef() string {
	var b [10]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // crypto/rand never fails
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// NewPayload commits to whole, and to stored, of which it keeps the beginning. Where that is the whole, one commitment is both.
func NewPayload(name string, whole, stored []byte) Payload {
	stored = cut(stored, MaxStored)
	b := make([]byte, 2*saltBytes+len(stored)) // the one salt, then the other with what is stored
	if _, err := rand.Read(b[:2*saltBytes]); err != nil {
		panic(err)
	}
	copy(b[2*saltBytes:], stored)
	p := Payload{Name: name, Length: int64(len(whole)), Stored: b[2*saltBytes:], StoredSalt: b[saltBytes : 2*saltBytes : 2*saltBytes], WholeSalt: b[:saltBytes:saltBytes]}
	p.StoredProof = sha256.Sum256(b[saltBytes:])
	if bytes.Equal(stored, whole) {
		p.WholeSalt, p.WholeProof = p.StoredSalt, p.StoredProof
	} else {
		p.WholeProof = commit(p.WholeSalt, whole)
	}
	return p
}

// A digest is a hash with room for its sum, so that none is made for each entry.
type digest struct {
	hash.Hash
	sum [sha256.Size]byte
}

var digests = sync.Pool{New: func() any { return &digest{Hash: sha256.New()} }}

// commit is SHA-256(salt ‖ bytes).
func commit(salt, b []byte) [32]byte {
	d := digests.Get().(*digest)
	defer digests.Put(d)
	d.Reset()
	d.Write(salt)
	d.Write(b)
	d.Sum(d.sum[:0])
	return d.sum
}

// cut returns at most limit bytes of b, or of a copy, ending at a character's end, valid UTF-8.
func cut(b []byte, limit int) []byte {
	if len(b) > limit+utf8.UTFMax {
		b = b[:limit+utf8.UTFMax] // what is cut in two here is cut off below
	}
	if !utf8.Valid(b) {
		b = bytes.ToValidUTF8(b, []byte("\uFFFD"))
	}
	if len(b) <= limit {
		return b
	}
	for limit > 0 && !utf8.RuneStart(b[limit]) {
		limit--
	}
	return b[:limit]
}

// Hash is the RFC 6962 leaf hash of an encoding: SHA-256(0x00 ‖ encoding).
func Hash(encoded []byte) [32]byte { return commit(leaf, encoded) }

var leaf = []byte{0}
