package config

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
)

var reference = regexp.MustCompile(`\$\{(env|file):([^{}]+)\}`)

// checkValue says what is wrong with a variable's value, without showing it.
func checkValue(s string) error {
	switch {
	case strings.ContainsRune(s, 0):
		return errors.New("it holds a NUL character")
	case strings.Contains(reference.ReplaceAllString(s, ""), "${"):
		return errors.New("${…} must be ${env:NAME} or ${file:PATH}")
	}
	return nil
}

// Environ returns the upstream's configured variables as NAME=VALUE, with references replaced once: ${env:NAME} by lookup, ${file:PATH}
// by read, less the line ends at its end; a relative path counts from dir. What is not there is an error that names it. The
// values are secrets.
func (u Upstream) Environ(dir string, lookup func(string) (string, bool), read func(string) ([]byte, error)) ([]string, error) {
	return resolved(u.Env, "=", dir, lookup, read)
}

// Header returns the upstream's configured headers by name, with references replaced as Environ does.
func (u Upstream) Header(dir string, lookup func(string) (string, bool), read func(string) ([]byte, error)) (map[string]string, error) {
	return headerOf(u.Headers, dir, lookup, read)
}

func headerOf(headers []Variable, dir string, lookup func(string) (string, bool), read func(string) ([]byte, error)) (map[string]string, error) {
	pairs, err := resolved(headers, ":", dir, lookup, read)
	out := map[string]string{}
	for i, pair := range pairs {
		name, value, _ := strings.Cut(pair, ":")
		if value = strings.TrimSpace(value); strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			err = errors.Join(err, fmt.Errorf("%s: the value holds a character that a header may not", headers[i].where))
		}
		out[name] = value
	}
	return out, err
}

// DatabaseURL returns the URL of the PostgreSQL database, or "" where the store is a file. References are replaced as Environ does, by
// what is escaped as a part of a URL. It is a secret.
func (f *File) DatabaseURL(lookup func(string) (string, bool), read func(string) ([]byte, error)) (string, error) {
	if f.Database.value == "" {
		return "", nil
	}
	out, err := resolved([]Variable{f.Database}, "=", filepath.Dir(f.Path), func(name string) (string, bool) {
		s, ok := lookup(name)
		return escaped(s), ok
	}, func(path string) ([]byte, error) {
		b, err := read(path)
		if strings.ContainsRune(string(b), 0) {
			return b, err // which is refused
		}
		return []byte(escaped(strings.TrimRight(string(b), "\r\n"))), err
	})
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(out[0], f.Database.Name+"="), nil
}

func escaped(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

func resolved(list []Variable, between, dir string, lookup func(string) (string, bool), read func(string) ([]byte, error)) ([]string, error) {
	var out []string
	var errs []error
	for _, v := range list {
		value := reference.ReplaceAllStringFunc(v.value, func(ref string) string {
			m := reference.FindStringSubmatch(ref)
			s, err := resolve(m[1], m[2], dir, lookup, read)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", v.where, err))
			}
			return s
		})
		out = append(out, v.Name+between+value)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

func resolve(kind, name, dir string, lookup func(string) (string, bool), read func(string) ([]byte, error)) (string, error) {
	if kind == "env" {
		s, ok := lookup(name)
		if !ok {
			return "", fmt.Errorf("the variable %s is not set", name)
		}
		return s, nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	b, err := read(name)
	if err != nil {
		return "", err
	}
	if strings.ContainsRune(string(b), 0) {
		return "", fmt.Errorf("the file %s holds a NUL character", name)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}
