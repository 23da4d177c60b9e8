package config

import (
	"fmt"
	"slices"
	"strings"
)

// Words of minHinted to maxHinted bytes are compared with the known ones; at most maxDistance edits may lie between them.
const (
	minHinted   = 3
	maxHinted   = 32
	maxDistance = 2
)

// hint says what s may have been meant to be.
func hint(s string, words []string) string {
	slices.Sort(words)
	best, near := maxDistance+1, ""
	if len(s) >= minHinted && len(s) <= maxHinted {
		for _, w := range words {
			if d := distance(s, w); d < best {
				best, near = d, w
			}
		}
	}
	if near == "" {
		return "known are " + strings.Join(words, ", ")
	}
	return fmt.Sprintf("did you mean %q?", near)
}

// distance is Levenshtein's, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := min(row[j]+1, row[j+1]+1, diag+1)
			if a[i] == b[j] {
				next = min(next, diag)
			}
			diag, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
