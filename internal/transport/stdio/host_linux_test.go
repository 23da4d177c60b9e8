package stdio

import (
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	rest := " S 42 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2"
	for _, tt := range []struct {
		name, stat string
		want       bool
	}{
		{"plain", "9 (navra)" + rest, true},
		{"a name that looks like more fields", "9 (a) S 1 (b)" + rest, true},
		{"cut", "9 (navra) S 42", false},
		{"no name", strings.TrimSpace(rest), false},
		{"empty", "", false},
		{"no number", "9 (navra)" + strings.Replace(rest, "42", "x", 1), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, ok := parseStat(tt.stat)
			if ok != tt.want || ok && (p.parent != 42 || p.start != "98765") {
				t.Errorf("parseStat(%q) = %+v, %v, want parent 42, start 98765, %v", tt.stat, p, ok, tt.want)
			}
		})
	}
}
