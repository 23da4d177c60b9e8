package upstream

import (
	"fmt"
	"io"
	"strings"
)

// A Secret is a header's value. It prints as [redacted].
type Secret string

// Format keeps the value out of whatever prints it.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[redacted]") }

func (s Secret) reveal() string { return strings.TrimSpace(string(s)) }
