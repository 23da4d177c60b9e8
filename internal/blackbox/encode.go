package blackbox

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of what an entry holds, in bytes.
const (
	MaxStored = 4 << 10 // of a payload's stored form
	maxText   = 4 << 10 // of one text field; longer ones are cut and marked
	saltBytes = 16
)

// NewRef returns 80 random bits, as 16 characters that may be spoken and typed.
func NewRef() string {
	var b [10]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // crypto/rand never fails
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// NewPayload commits to whole, and to stored, of which it keeps the beginning.
func NewPayload(name string, whole, stored []byte) Payload {
	p := Payload{Name: name, Length: int64(len(whole)), Stored: cut(stored, MaxStored)}
	salts := make([]byte, 2*saltBytes)
	if _, err := rand.Read(salts); err != nil {
		panic(err)
	}
	p.StoredSalt, p.WholeSalt = salts[:saltBytes:saltBytes], salts[saltBytes:]
	p.StoredProof, p.WholeProof = commit(p.StoredSalt, p.Stored), commit(p.WholeSalt, whole)
	return p
}

// commit is SHA-256(salt ‖ bytes).
func commit(salt, b []byte) (sum [32]byte) {
	h := sha256.New()
	h.Write(salt)
	h.Write(b)
	h.Sum(sum[:0])
	return sum
}

// cut returns at most limit bytes of b, ending at a character's end, valid UTF-8.
func cut(b []byte, limit int) []byte {
	b = bytes.ToValidUTF8(b, []byte("\uFFFD"))
	if len(b) <= limit {
		return b
	}
	for limit > 0 && !utf8.RuneStart(b[limit]) {
		limit--
	}
	return b[:limit]
}

// The encoding is JSON with exactly these members in this order, as encoding/json writes them without HTML escapes: an entry
// has one encoding, and it can be decoded by anything. Hashes are lower-case hex, times RFC 3339 in UTC with microseconds.
type wire struct {
	Seq       Seq           `json:"seq"`
	Time      string        `json:"time"`
	Kind      Kind          `json:"kind"`
	Ref       string        `json:"ref"`
	Cause     Seq           `json:"cause"`
	Principal string        `json:"principal"`
	Auth      string        `json:"auth"`
	Role      string        `json:"role"`
	Session   string        `json:"session"`
	Scope     string        `json:"scope"`
	Transport string        `json:"transport"`
	Version   string        `json:"version"`
	Upstream  string        `json:"upstream"`
	Method    string        `json:"method"`
	Target    string        `json:"target"`
	RequestID string        `json:"request_id"`
	Verdict   string        `json:"verdict"`
	Stage     string        `json:"stage"`
	Reason    string        `json:"reason"`
	Outcome   string        `json:"outcome"`
	Findings  []wireCount   `json:"findings"`
	Notes     []wireCount   `json:"notes"`
	Before    string        `json:"label_before"`
	After     string        `json:"label_after"`
	Policy    string        `json:"policy"`
	Durations []wireCount   `json:"durations_us"`
	Payloads  []wirePayload `json:"payloads"`
	Prev      string        `json:"prev"`
}

type wireCount struct {
	Name string `json:"name"`
	N    int64  `json:"n"`
}

type wirePayload struct {
	Name   string `json:"name"`
	Length int64  `json:"length"`
	Stored string `json:"stored_sha256"`
	Whole  string `json:"whole_sha256"`
}

const timeForm = "2006-01-02T15:04:05.000000Z"

// Encode returns the entry's one encoding. What the payloads hold is in it only by commitment.
func (e Entry) Encode() []byte {
	w := wire{
		Seq: e.Seq, Time: e.Time.UTC().Format(timeForm), Kind: e.Kind, Ref: e.Ref, Cause: e.Cause, Principal: text(e.Principal), Auth: text(e.Auth),
		Role: text(e.Role), Session: text(e.Session), Scope: text(e.Scope), Transport: text(e.Transport), Version: text(e.Version),
		Upstream: text(e.Upstream), Method: text(e.Method), Target: text(e.Target), RequestID: text(e.RequestID), Verdict: text(e.Verdict),
		Stage: text(e.Stage), Reason: text(e.Reason), Outcome: text(e.Outcome), Findings: toWire(e.Findings), Notes: toWire(e.Notes),
		Before: text(e.Before), After: text(e.After), Policy: text(e.Policy), Durations: toWire(e.Durations), Payloads: []wirePayload{}, Prev: hex.EncodeToString(e.Prev[:]),
	}
	for _, p := range e.Payloads {
		w.Payloads = append(w.Payloads, wirePayload{p.Name, p.Length, hex.EncodeToString(p.StoredProof[:]), hex.EncodeToString(p.WholeProof[:])})
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(w); err != nil {
		panic(err) // strings and numbers always encode
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

func text(s string) string {
	if c := cut([]byte(s), maxText); len(c) < len(s) {
		return string(c) + "…"
	} else if len(c) != len(s) {
		return string(c)
	}
	return s
}

func toWire(in []Count) []wireCount {
	out := make([]wireCount, 0, len(in))
	for _, c := range in {
		out = append(out, wireCount{text(c.Name), c.N})
	}
	return out
}

// Decode reads an encoding. It accepts only what Encode writes, to the byte.
func Decode(b []byte) (Entry, error) {
	var w wire
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil {
		return Entry{}, fmt.Errorf("entry: %w", err)
	}
	t, err := time.Parse(timeForm, w.Time)
	if err != nil {
		return Entry{}, fmt.Errorf("entry: %w", err)
	}
	e := Entry{
		Seq: w.Seq, Time: t, Kind: w.Kind, Ref: w.Ref, Cause: w.Cause, Principal: w.Principal, Auth: w.Auth, Role: w.Role, Session: w.Session,
		Scope: w.Scope, Transport: w.Transport, Version: w.Version, Upstream: w.Upstream, Method: w.Method, Target: w.Target, RequestID: w.RequestID,
		Verdict: w.Verdict, Stage: w.Stage, Reason: w.Reason, Outcome: w.Outcome, Findings: fromWire(w.Findings), Notes: fromWire(w.Notes),
		Before: w.Before, After: w.After, Policy: w.Policy, Durations: fromWire(w.Durations),
	}
	bad := unhex(w.Prev, &e.Prev)
	for _, p := range w.Payloads {
		out := Payload{Name: p.Name, Length: p.Length}
		bad = errors.Join(bad, unhex(p.Stored, &out.StoredProof), unhex(p.Whole, &out.WholeProof))
		e.Payloads = append(e.Payloads, out)
	}
	if bad != nil {
		return Entry{}, fmt.Errorf("entry: %w", bad)
	}
	if !bytes.Equal(e.Encode(), b) {
		return Entry{}, errors.New("entry: it is not in the one encoding")
	}
	return e, nil
}

func fromWire(in []wireCount) (out []Count) {
	for _, c := range in {
		out = append(out, Count(c))
	}
	return out
}

func unhex(s string, to *[32]byte) error {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(to) {
		return fmt.Errorf("%.80q is no hash", s)
	}
	copy(to[:], b)
	return nil
}

// Hash is the RFC 6962 leaf hash of an encoding: SHA-256(0x00 ‖ encoding).
func Hash(encoded []byte) [32]byte { return commit([]byte{0}, encoded) }
