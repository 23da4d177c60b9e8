package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

var reference = regexp.MustCompile(`\$\{(env|file):([^}]+)\}`)

// checkReferences returns what is wrong with the ${…} of a value.
func checkReferences(s string) string {
	rest := reference.ReplaceAllString(s, "")
	if strings.Contains(rest, "${") {
		return "${…} must be ${env:NAME} or ${file:PATH}"
	}
	return ""
}

// Environ returns the upstream's configured variables as NAME=VALUE, with references replaced: ${env:NAME} by lookup, ${file:PATH} by read
// (less one line end), relative paths counting from dir. What is not there is an error that names it.
func (u Upstream) Environ(dir string, lookup func(string) (string, bool), read func(string) ([]byte, error)) ([]string, error) {
	var out []string
	var errs []error
	for _, v := range u.Env {
		value := reference.ReplaceAllStringFunc(v.value, func(ref string) string {
			m := reference.FindStringSubmatch(ref)
			if m[1] == "env" {
				s, ok := lookup(m[2])
				if !ok {
					errs = append(errs, fmt.Errorf("%s: the variable %s is not set", v.where, m[2]))
				}
				return s
			}
			path := m[2]
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			b, err := read(path)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", v.where, err))
			}
			return strings.TrimRight(string(b), "\r\n")
		})
		out = append(out, v.Name+"="+value)
	}
	return out, errors.Join(errs...)
}
