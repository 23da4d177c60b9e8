package filter

import (
	"errors"
	"regexp"
	"strconv"
)

var errSameNames = errors.New("two member names would become the same")

// A Ref is a placeholder that stands in a text.
type Ref struct {
	Kind       string
	N          int
	Start, End int
}

// Placeholder is what a client sees in the place of a secret: "[secret:aws-access-key:1]".
func Placeholder(kind string, n int) string { return "[secret:" + kind + ":" + strconv.Itoa(n) + "]" }

var placeholder = regexp.MustCompile(`\[secret:([a-z0-9-]{1,40}):([1-9][0-9]{0,8})\]`)

// FindPlaceholders returns the placeholders in text, in order.
func FindPlaceholders(text string) (out []Ref) {
	for _, loc := range placeholder.FindAllStringSubmatchIndex(text, -1) {
		n, _ := strconv.Atoi(text[loc[4]:loc[5]])
		out = append(out, Ref{Kind: text[loc[2]:loc[3]], N: n, Start: loc[0], End: loc[1]})
	}
	return out
}
