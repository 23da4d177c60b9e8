package jsonrpc

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

func (s *scanner) literal(word string) state {
	end := s.r + len(word)
	if end > s.n || string(s.b[s.r:end]) != word {
		return s.fail("a value expected")
	}
	s.take(end)
	return s.done()
}

// number reads -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?, RFC 8259 §6.
func (s *scanner) number() state {
	i := s.r
	if s.b[i] == '-' {
		i++
	}
	ok := true
	if s.b[i] == '0' {
		i++
	} else {
		i, ok = s.digits(i)
	}
	if ok && s.b[i] == '.' {
		i, ok = s.digits(i + 1)
	}
	if ok && (s.b[i] == 'e' || s.b[i] == 'E') {
		i++
		if s.b[i] == '+' || s.b[i] == '-' {
			i++
		}
		i, ok = s.digits(i)
	}
	if !ok {
		s.r = i
		return s.fail("a digit expected")
	}
	s.take(i)
	return s.done()
}

// digits returns the byte after the digits at byte i; ok is false where there are none.
func (s *scanner) digits(i int) (end int, ok bool) {
	end = i
	for '0' <= s.b[end] && s.b[end] <= '9' {
		end++
	}
	return end, end > i
}

// text reads a string.
func (s *scanner) text() state {
	s.put('"')
	for {
		s.take(s.r + plain(s.b[s.r:]))
		switch c := s.b[s.r]; {
		case c == '"':
			s.put(c)
			return s.done()
		case s.r == s.n:
			return s.fail("the string does not end")
		case c != '\\':
			return s.fail("a control character in a string")
		}
		if s.escape() == finished {
			return finished
		}
	}
}

// escape reads one escape sequence, or the two of a surrogate pair.
func (s *scanner) escape() state {
	switch s.b[s.r+1] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		s.take(s.r + 2)
	case '/':
		s.r++
		s.put('/')
	case 'u':
		return s.unicode(s.b[s.r:s.n])
	default:
		return s.fail("an unknown escape sequence")
	}
	return wantNext
}

// unicode reads the escape sequence \uXXXX at the start of rest.
func (s *scanner) unicode(rest []byte) state {
	r, ok := hex4(rest[2:])
	if !ok {
		return s.fail("four hexadecimal digits expected")
	}
	size := len(`\u0000`)
	if utf16.IsSurrogate(r) {
		var paired bool
		if r, paired = pair(r, rest[size:]); paired {
			size *= 2
		} else if s.repair {
			s.repaired++
		} else {
			return s.fail("an unpaired surrogate")
		}
	}
	s.w = len(appendEscaped(s.b[:s.w], r))
	s.r += size
	return wantNext
}

// pair joins the surrogate r with the one that rest begins with; U+FFFD where that is not its partner.
func pair(r rune, rest []byte) (joined rune, ok bool) {
	if !bytes.HasPrefix(rest, []byte(`\u`)) {
		return utf8.RuneError, false
	}
	low, _ := hex4(rest[2:])
	joined = utf16.DecodeRune(r, low)
	return joined, joined != utf8.RuneError
}
