package jsonrpc

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// Quote returns s as a JSON string; invalid UTF-8 becomes U+FFFD.
func Quote(s string) Raw {
	return appendText(make([]byte, 0, len(s)+2), s)
}

// appendText appends s as a JSON string in the one encoding: only the quote, the backslash and control characters are
// escaped. A run of bytes that are not UTF-8 becomes one U+FFFD.
func appendText(b []byte, s string) []byte {
	s = strings.ToValidUTF8(s, "\uFFFD")
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' {
			b = appendEscaped(append(b, s[start:i]...), rune(c))
			start = i + 1
		}
	}
	return append(append(b, s[start:]...), '"')
}

// appendEscaped appends one character of a string, escaped where the one encoding escapes it.
func appendEscaped(b []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(b, '\\', byte(r))
	case '\b':
		return append(b, `\b`...)
	case '\f':
		return append(b, `\f`...)
	case '\n':
		return append(b, `\n`...)
	case '\r':
		return append(b, `\r`...)
	case '\t':
		return append(b, `\t`...)
	}
	if r < 0x20 {
		return append(b, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
	}
	return utf8.AppendRune(b, r)
}

// plain returns the length of b's longest prefix that may stand in a JSON string as it is. It looks at eight bytes at a
// time: a byte of mask has its top bit set where the byte of x is below 0x20, a quote or a backslash. A borrow can set
// bits only above the first such byte, which is the one that counts.
func plain(b []byte) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		mask := (x - 0x20*ones) | ((x ^ '"'*ones) - ones) | ((x ^ '\\'*ones) - ones)
		if mask = mask &^ x & high; mask != 0 {
			return i + bits.TrailingZeros64(mask)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < 0x20 || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

// unquote returns what the JSON string v, in the one encoding and with its quotes, stands for.
func unquote(v []byte) string {
	if len(v) < 2 {
		return ""
	}
	v = v[1 : len(v)-1]
	i := bytes.IndexByte(v, '\\')
	if i < 0 {
		return string(v)
	}
	var s strings.Builder
	s.Grow(len(v))
	for i >= 0 && i+1 < len(v) {
		s.Write(v[:i])
		c, n := unescape(v[i:])
		s.WriteByte(c)
		v = v[i+n:]
		i = bytes.IndexByte(v, '\\')
	}
	s.Write(v)
	return s.String()
}

// unescape reads the escape sequence at the start of v, which is of the one encoding: it stands for one byte.
func unescape(v []byte) (c byte, n int) {
	switch v[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		if len(v) < 6 {
			return '?', len(v)
		}
		r, _ := hex4(v[2:])
		return byte(r), 6
	}
	return v[1], 2
}

// textLen returns the length in bytes of what the JSON string v stands for.
func textLen(v []byte) int {
	n := len(v) - 2
	for i := 1; i < len(v)-1; i++ {
		if v[i] != '\\' {
			continue
		}
		i++
		n--
		if v[i] == 'u' {
			i += 4
			n -= 4
		}
	}
	return n
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
