package view

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Plain is text that others chose as one line of ASCII: everything else is escaped, so that it can neither steer a terminal nor
// look like something else. What is longer than max characters is cut; 0 for no limit.
func Plain(text string, max int) string {
	if r := []rune(text); max > 0 && len(r) > max {
		text = string(r[:max]) + "..."
	}
	quoted := strconv.QuoteToASCII(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// Printable keeps the letters of every script, and escapes what does not show: control characters, ANSI sequences with them,
// bidirectional and other invisible marks, line ends.
func Printable(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
		text = text[n:]
	}
	return b.String()
}

// JSON escapes in a JSON text what Printable escapes, by JSON's own means: its meaning stays.
func JSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1: // no JSON, yet on its way to a terminal
			out = append(out, `\ufffd`...)
		case r == '\n' || unicode.IsPrint(r):
			out = append(out, text[:n]...)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[n:]
	}
	return out
}
