package upstream

import (
	"strings"
	"testing"
)

func TestTailIsOfWholeLines(t *testing.T) {
	trace := "Error: it is not there\n" + strings.Repeat("    at a place in a script\n", 70)
	for _, tt := range []struct{ name, wrote, want string }{
		{"nothing", "", ""},
		{"little", "a\nb", "a\nb"},
		{"a trace", strings.Repeat("x", 500) + "\n" + trace, trace},
		{"a line that is too long", strings.Repeat("x", 5000), strings.Repeat("x", 2000)},
		{"a line that is too long, ended", strings.Repeat("x", 5000) + "\n", strings.Repeat("x", 1999) + "\n"},
		{"lines", strings.Repeat("123456789\n", 1000), strings.Repeat("123456789\n", 200)},
	} {
		var g ring
		g.drain(strings.NewReader(tt.wrote))
		if got := g.tail(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
