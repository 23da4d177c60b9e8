package blackbox

import (
	"bytes"
	"encoding/hex"
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

// usual is more than most encodings take.
const usual = 1536

// Encode returns the entry's one encoding. What the payloads hold is in it only by commitment.
func (e Entry) Encode() []byte { return e.Append(make([]byte, 0, usual)) }

// Append appends what Encode returns.
func (e *Entry) Append(b []byte) []byte {
	b = strconv.AppendUint(append(b, `{"seq":`...), uint64(e.Seq), 10)
	b = append(b, `,"time":"`...)
	b = append(appendTime(b, e.Time), '"')
	texts := e.texts()
	for i, t := range texts {
		switch i {
		case beforeCause:
			b = strconv.AppendUint(append(b, `,"cause":`...), uint64(e.Cause), 10)
		case beforeFindings:
			b = appendCounts(append(b, `,"findings":`...), e.Findings)
			b = appendCounts(append(b, `,"notes":`...), e.Notes)
		}
		b = appendRest(append(b, textStarts[i]...), *t)
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

// appendTime writes a time as timeForm has it, which costs a third of what AppendFormat does.
func appendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(b, timeForm)
	}
	hour, minute, second := t.Clock()
	from := len(b)
	b = append(b, timeForm...)
	for _, part := range [...]struct{ at, digits, n int }{
		{0, 4, year}, {5, 2, int(month)}, {8, 2, day}, {11, 2, hour}, {14, 2, minute}, {17, 2, second}, {20, 6, t.Nanosecond() / 1000},
	} {
		for i := part.at + part.digits - 1; i >= part.at; i-- {
			b[from+i] = byte('0' + part.n%10)
			part.n /= 10
		}
	}
	return b
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
func appendText(b []byte, s string) []byte { return appendRest(append(b, '"'), s) }

// appendRest writes a text but for the quotation mark that it begins with.
func appendRest(b []byte, s string) []byte {
	n := 0
	for n < len(s) && plain[s[n]] {
		n++
	}
	if n == len(s) && n <= maxText { // most are
		return append(append(b, s...), '"')
	}
	if len(s) > maxText || !utf8.ValidString(s) {
		s = text(s)
	}
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
