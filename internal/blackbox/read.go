package blackbox

import (
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// Decode reads an encoding. It accepts only what Encode writes, to the byte.
func Decode(b []byte) (e Entry, err error) {
	if err = decode(b, &e, true); err != nil {
		return Entry{}, err
	}
	return e, nil
}

// decode is Decode. Without keep texts and counts are looked at as closely, and dropped but for the names of payloads, for which e's room
// is used.
func decode(b []byte, e *Entry, keep bool) error {
	e.Payloads = e.Payloads[:0]
	r := reader{rest: b, keep: keep}
	r.lit(`{"seq":`)
	e.Seq = Seq(r.uint())
	r.lit(`,"time":"`)
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
		r.lit(textStarts[i])
		if text := r.text(); keep {
			*t = string(text)
		}
	}
	r.lit(`,"durations_us":`)
	e.Durations = r.counts()
	r.lit(`,"payloads":[`)
	r.payloads(e)
	r.lit(`],"prev":"`)
	r.hash(&e.Prev)
	r.lit(`"}`)
	if r.bad || len(r.rest) > 0 {
		return fmt.Errorf("entry: %w at byte %d", errForm, len(b)-len(r.rest))
	}
	return nil
}

var errForm = errors.New("it is not in the one encoding")

// textStarts is what stands before each text.
var textStarts = func() (out [len(textNames)]string) {
	for i, name := range textNames {
		out[i] = `,"` + name + `":"`
	}
	return out
}()

// A reader takes an encoding apart. After the first thing that is not as Encode writes it, bad is set and nothing moves.
type reader struct {
	rest []byte
	bad  bool
	keep bool
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
func (r *reader) digits() []byte {
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
		return zero
	}
	r.rest = r.rest[n:]
	return d
}

var zero = []byte("0")

func (r *reader) uint() uint64 {
	d := r.digits()
	if small(d) {
		return uint64(number(d))
	}
	n, err := strconv.ParseUint(string(d), 10, 64)
	r.bad = r.bad || err != nil
	return n
}

func (r *reader) int() int64 {
	d := r.digits()
	if small(d) {
		return int64(number(d))
	}
	n, err := strconv.ParseInt(string(d), 10, 64)
	r.bad = r.bad || err != nil
	return n
}

// small reports whether digits are a number that is not negative and fits an int of any platform.
func small(d []byte) bool { return len(d) <= 9 && d[0] != '-' }

func number(d []byte) (n int) {
	for _, c := range d {
		n = n*10 + int(c-'0')
	}
	return n
}

// time takes a time and the quotation mark after it.
func (r *reader) time() time.Time {
	if r.bad || len(r.rest) < len(timeForm) {
		r.bad = true
		return time.Time{}
	}
	b := r.rest[:len(timeForm)]
	for i, c := range b {
		if want := timeForm[i]; want >= '0' && want <= '9' && (c < '0' || c > '9') || (want < '0' || want > '9') && c != want {
			r.bad = true
			return time.Time{}
		}
	}
	month, day, hour, minute, second := number(b[5:7]), number(b[8:10]), number(b[11:13]), number(b[14:16]), number(b[17:19])
	t := time.Date(number(b[:4]), time.Month(month), day, hour, minute, second, number(b[20:26])*1000, time.UTC)
	if month < 1 || month > 12 || t.Day() != day || hour > 23 || minute > 59 || second > 59 {
		r.bad = true
		return time.Time{}
	}
	r.rest = r.rest[len(timeForm):]
	r.lit(`"`)
	return t
}

// nibbles are the values of lower-case hex digits; 0xff for anything else.
var nibbles = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i := range len(lowerHex) {
		t[lowerHex[i]] = byte(i)
	}
	return t
}()

func (r *reader) hash(to *[32]byte) {
	if r.bad || len(r.rest) < 2*len(to) {
		r.bad = true
		return
	}
	src := r.rest[:2*len(to)]
	for i := range to {
		high, low := nibbles[src[2*i]], nibbles[src[2*i+1]]
		if high|low > 15 {
			r.bad = true
			return
		}
		to[i] = high<<4 | low
	}
	r.rest = r.rest[len(src):]
}

func (r *reader) counts() (out []Count) {
	r.lit("[")
	n := 0
	for ; !r.bad && !r.has("]"); n++ {
		if n > 0 {
			r.lit(",")
		}
		r.lit(`{"name":"`)
		name := r.text()
		r.lit(`,"n":`)
		count := r.int()
		r.lit("}")
		if r.keep {
			out = append(out, Count{string(name), count})
		}
	}
	r.lit("]")
	if n > maxCounts {
		r.bad = true
	}
	return out
}

func (r *reader) payloads(e *Entry) {
	for !r.bad && !r.has("]") {
		if len(e.Payloads) == MaxPayloads {
			r.bad = true
			return
		}
		if len(e.Payloads) > 0 {
			r.lit(",")
		}
		var p Payload
		r.lit(`{"name":"`)
		p.Name = string(r.text())
		r.lit(`,"length":`)
		p.Length = r.int()
		r.lit(`,"stored_sha256":"`)
		r.hash(&p.StoredProof)
		r.lit(`","whole_sha256":"`)
		r.hash(&p.WholeProof)
		r.lit(`"}`)
		if !r.bad {
			e.Payloads = append(e.Payloads, p)
		}
	}
}

// plain marks the bytes of a text that stand for themselves and are a character each.
var plain = func() (t [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// text takes a text and the quotation mark after it, and undoes its escapes. What it returns is of the encoding where there are none.
func (r *reader) text() []byte {
	if r.bad {
		return nil
	}
	n := 0
	for n < len(r.rest) && plain[r.rest[n]] {
		n++
	}
	if n >= len(r.rest) || r.rest[n] != '"' {
		return r.escaped()
	}
	s := r.rest[:n]
	r.rest = r.rest[n+1:]
	r.bad = n > maxText
	return s
}

// escaped is text where there are escapes, or characters of several bytes.
func (r *reader) escaped() []byte {
	out := []byte{}
	for i := 0; i < len(r.rest); {
		switch c := r.rest[i]; {
		case c == '"':
			r.rest = r.rest[i+1:]
			r.bad = !valid(out)
			return out
		case c != '\\' && c >= ' ' && c != 0x7f:
			out = append(out, c)
			i++
			continue
		case c == '\\' && i+1 < len(r.rest) && (r.rest[i+1] == '"' || r.rest[i+1] == '\\'):
			out = append(out, r.rest[i+1])
			i += 2
			continue
		case c == '\\' && i+5 < len(r.rest) && string(r.rest[i+1:i+4]) == "u00":
			high, low := nibbles[r.rest[i+4]], nibbles[r.rest[i+5]]
			if n := high<<4 | low; high|low <= 15 && (n < ' ' || n == 0x7f) {
				out = append(out, n)
				i += 6
				continue
			}
		}
		break
	}
	r.bad = true
	return nil
}

// valid reports whether a text is one that Encode leaves as it is.
func valid(s []byte) bool { return len(s) <= maxText && utf8.Valid(s) }
