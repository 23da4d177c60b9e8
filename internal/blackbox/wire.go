package blackbox

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// The encoding of an entry is a JSON object with exactly the members below, in this order, without white space: an entry has one encoding, and
// any JSON reader can read it. Texts escape the quotation mark and the backslash by a backslash, characters below U+0020 and U+007F as \u00xx with
// lower-case digits, and nothing else; they are valid UTF-8. Numbers are decimal integers. Hashes are lower-case hex, times RFC 3339 in UTC with
// six digits of a second.

const timeForm = "2006-01-02T15:04:05.000000Z"

// texts lists the fields that are text, with their member names, in the order in which they are written between the members around them.
func (e *Entry) texts() [24]*string {
	return [...]*string{
		(*string)(&e.Kind), &e.Ref, // then cause
		&e.Principal, &e.Actor, &e.Auth, &e.Role, &e.Session, &e.Scope, &e.Transport, &e.Era, &e.Version, &e.Upstream, &e.Method, &e.Target,
		&e.RequestID, &e.Trace, &e.Verdict, &e.Stage, &e.Reason, &e.Outcome, // then findings and notes
		&e.Before, &e.After, &e.Policy, &e.Approval, // then durations, payloads, prev
	}
}

var textNames = [24]string{
	"kind", "ref", "principal", "actor", "auth", "role", "session", "scope", "transport", "era", "version", "upstream", "method", "target",
	"request_id", "trace", "verdict", "stage", "reason", "outcome", "label_before", "label_after", "policy", "approval",
}

const (
	beforeCause    = 2  // texts before cause
	beforeFindings = 20 // texts before findings and notes
)

// Encode returns the entry's one encoding. What the payloads hold is in it only by commitment.
func (e Entry) Encode() []byte {
	b := make([]byte, 0, 1024)
	b = strconv.AppendUint(append(b, `{"seq":`...), uint64(e.Seq), 10)
	b = append(b, `,"time":"`...)
	b = append(e.Time.UTC().AppendFormat(b, timeForm), '"')
	texts := e.texts()
	for i, t := range texts {
		switch i {
		case beforeCause:
			b = strconv.AppendUint(append(b, `,"cause":`...), uint64(e.Cause), 10)
		case beforeFindings:
			b = appendCounts(append(b, `,"findings":`...), e.Findings)
			b = appendCounts(append(b, `,"notes":`...), e.Notes)
		}
		b = append(append(append(b, `,"`...), textNames[i]...), `":`...)
		b = appendText(b, *t)
	}
	b = appendCounts(append(b, `,"durations_us":`...), e.Durations)
	b = append(b, `,"payloads":[`...)
	for i, p := range e.Payloads {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(b, `{"name":`...), p.Name)
		b = strconv.AppendInt(append(b, `,"length":`...), p.Length, 10)
		b = append(b, `,"stored_sha256":"`...)
		b = hex.AppendEncode(b, p.StoredProof[:])
		b = append(b, `","whole_sha256":"`...)
		b = append(hex.AppendEncode(b, p.WholeProof[:]), `"}`...)
	}
	b = append(b, `],"prev":"`...)
	return append(hex.AppendEncode(b, e.Prev[:]), `"}`...)
}

func appendCounts(b []byte, list []Count) []byte {
	b = append(b, '[')
	for i, c := range bounded(list) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(b, `{"name":`...), c.Name)
		b = append(strconv.AppendInt(append(b, `,"n":`...), c.N, 10), '}')
	}
	return append(b, ']')
}

// bounded sums up what is over the limit: names may be a peer's.
func bounded(list []Count) []Count {
	if len(list) <= maxCounts {
		return list
	}
	out := append([]Count(nil), list[:maxCounts-1]...)
	rest := Count{Name: "others"}
	for _, c := range list[maxCounts-1:] {
		rest.N += c.N
	}
	return append(out, rest)
}

const lowerHex = "0123456789abcdef"

// appendText writes a text: cut to maxText, made valid.
func appendText(b []byte, s string) []byte {
	if len(s) > maxText || !utf8.ValidString(s) {
		s = text(s)
	}
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c != 0x7f {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		if c == '"' || c == '\\' {
			b = append(b, '\\', c)
		} else {
			b = append(b, '\\', 'u', '0', '0', lowerHex[c>>4], lowerHex[c&15])
		}
	}
	return append(append(b, s[from:]...), '"')
}

// text is s, valid and at most maxText bytes long; what was cut is marked.
func text(s string) string {
	b := bytes.ToValidUTF8([]byte(s), []byte("\uFFFD"))
	if len(b) <= maxText {
		return string(b)
	}
	return string(cut(b, maxText-len("…"))) + "…"
}

// Decode reads an encoding. It accepts only what Encode writes, to the byte.
func Decode(b []byte) (Entry, error) {
	r := reader{rest: b}
	var e Entry
	r.lit(`{"seq":`)
	e.Seq = Seq(r.uint())
	r.lit(`,"time":`)
	e.Time = r.time()
	for i, t := range e.texts() {
		switch i {
		case beforeCause:
			r.lit(`,"cause":`)
			e.Cause = Seq(r.uint())
		case beforeFindings:
			r.lit(`,"findings":`)
			e.Findings = r.counts()
			r.lit(`,"notes":`)
			e.Notes = r.counts()
		}
		r.lit(`,"`)
		r.lit(textNames[i])
		r.lit(`":`)
		*t = r.text()
	}
	r.lit(`,"durations_us":`)
	e.Durations = r.counts()
	r.lit(`,"payloads":[`)
	for !r.has("]") {
		if len(e.Payloads) > 0 {
			r.lit(",")
		}
		var p Payload
		r.lit(`{"name":`)
		p.Name = r.text()
		r.lit(`,"length":`)
		p.Length = r.int()
		r.lit(`,"stored_sha256":"`)
		r.hash(&p.StoredProof)
		r.lit(`","whole_sha256":"`)
		r.hash(&p.WholeProof)
		r.lit(`"}`)
		if r.bad {
			break
		}
		e.Payloads = append(e.Payloads, p)
	}
	r.lit(`],"prev":"`)
	r.hash(&e.Prev)
	r.lit(`"}`)
	if r.bad || len(r.rest) > 0 {
		return Entry{}, fmt.Errorf("entry: %w at byte %d", errForm, len(b)-len(r.rest))
	}
	return e, nil
}

var errForm = errors.New("it is not in the one encoding")

// A reader takes an encoding apart. After the first thing that is not as Encode writes it, bad is set and nothing moves.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) has(s string) bool {
	return !r.bad && len(r.rest) >= len(s) && string(r.rest[:len(s)]) == s
}

func (r *reader) lit(s string) {
	if !r.has(s) {
		r.bad = true
		return
	}
	r.rest = r.rest[len(s):]
}

// digits takes a decimal integer without leading zeros.
func (r *reader) digits() string {
	n := 0
	if r.has("-") {
		n = 1
	}
	from := n
	for n < len(r.rest) && r.rest[n] >= '0' && r.rest[n] <= '9' {
		n++
	}
	d := r.rest[:n]
	if r.bad || n == from || d[from] == '0' && (n > from+1 || from == 1) {
		r.bad = true
		return "0"
	}
	r.rest = r.rest[n:]
	return string(d)
}

func (r *reader) uint() uint64 {
	n, err := strconv.ParseUint(r.digits(), 10, 64)
	r.bad = r.bad || err != nil
	return n
}

func (r *reader) int() int64 {
	n, err := strconv.ParseInt(r.digits(), 10, 64)
	r.bad = r.bad || err != nil
	return n
}

func (r *reader) time() time.Time {
	s := r.text()
	t, err := time.Parse(timeForm, s)
	if r.bad || err != nil || t.Format(timeForm) != s {
		r.bad = true
		return time.Time{}
	}
	return t
}

func (r *reader) hash(to *[32]byte) {
	if r.bad || len(r.rest) < 64 {
		r.bad = true
		return
	}
	src := r.rest[:64]
	for _, c := range src {
		if c >= 'A' && c <= 'F' {
			r.bad = true
		}
	}
	if _, err := hex.Decode(to[:], src); err != nil || r.bad {
		r.bad = true
		return
	}
	r.rest = r.rest[64:]
}

func (r *reader) counts() (out []Count) {
	r.lit("[")
	for !r.bad && !r.has("]") {
		if len(out) > 0 {
			r.lit(",")
		}
		var c Count
		r.lit(`{"name":`)
		c.Name = r.text()
		r.lit(`,"n":`)
		c.N = r.int()
		r.lit("}")
		out = append(out, c)
	}
	r.lit("]")
	if len(out) > maxCounts {
		r.bad = true
	}
	return out
}

// text takes a text and undoes its escapes.
func (r *reader) text() string {
	r.lit(`"`)
	if r.bad {
		return ""
	}
	end := bytes.IndexByte(r.rest, '"')
	if end >= 0 && bytes.IndexByte(r.rest[:end], '\\') < 0 { // most have none
		return r.plain(end, 1)
	}
	var out []byte
	for i := 0; i < len(r.rest); {
		switch c := r.rest[i]; {
		case c == '"':
			s := string(out)
			if !valid(s) {
				break
			}
			r.rest = r.rest[i+1:]
			return s
		case c != '\\' && c >= ' ' && c != 0x7f:
			out = append(out, c)
			i++
			continue
		case c == '\\' && i+1 < len(r.rest) && (r.rest[i+1] == '"' || r.rest[i+1] == '\\'):
			out = append(out, r.rest[i+1])
			i += 2
			continue
		case c == '\\' && i+5 < len(r.rest) && string(r.rest[i+1:i+4]) == "u00":
			n, err := strconv.ParseUint(string(r.rest[i+4:i+6]), 16, 8)
			if err != nil || n >= ' ' && n != 0x7f || r.rest[i+4] != lowerHex[n>>4] || r.rest[i+5] != lowerHex[n&15] {
				break
			}
			out = append(out, byte(n))
			i += 6
			continue
		}
		break
	}
	r.bad = true
	return ""
}

// plain takes n bytes without escapes, and skip more.
func (r *reader) plain(n, skip int) string {
	for _, c := range r.rest[:n] {
		if c < ' ' || c == 0x7f {
			r.bad = true
			return ""
		}
	}
	s := string(r.rest[:n])
	if !valid(s) {
		r.bad = true
		return ""
	}
	r.rest = r.rest[n+skip:]
	return s
}

// valid reports whether a text is one that Encode leaves as it is.
func valid(s string) bool { return len(s) <= maxText && utf8.ValidString(s) }
