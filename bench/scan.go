package main

import (
	"bytes"
	"errors"
)

var errJSON = errors.New("not a JSON object of the expected form")

// members calls f with each member of the object b, in order: the key without its quotes (escapes are left as they are), the
// value as it stands. It finds where values end and checks no more than that needs.
func members(b []byte, f func(key, value []byte)) error {
	return items(b, '{', '}', f)
}

// elements calls f with each element of the array b.
func elements(b []byte, f func(value []byte)) error {
	return items(b, '[', ']', func(_, v []byte) { f(v) })
}

// member is the value of the first member called key, or nil.
func member(b []byte, key string) (found []byte) {
	members(b, func(k, v []byte) {
		if found == nil && string(k) == key {
			found = v
		}
	})
	return found
}

func items(b []byte, open, shut byte, f func(key, value []byte)) error {
	i := space(b, 0)
	if i >= len(b) || b[i] != open {
		return errJSON
	}
	if i = space(b, i+1); i < len(b) && b[i] == shut {
		return end(b, i+1)
	}
	for {
		var key []byte
		if open == '{' {
			j := value(b, i)
			if j < i+2 || b[i] != '"' {
				return errJSON
			}
			key = b[i+1 : j-1]
			if i = space(b, j); i >= len(b) || b[i] != ':' {
				return errJSON
			}
			i = space(b, i+1)
		}
		j := value(b, i)
		if j <= i {
			return errJSON
		}
		f(key, b[i:j])
		if i = space(b, j); i >= len(b) {
			return errJSON
		}
		switch b[i] {
		case ',':
			i = space(b, i+1)
		case shut:
			return end(b, i+1)
		default:
			return errJSON
		}
	}
}

func end(b []byte, i int) error {
	if space(b, i) != len(b) {
		return errJSON
	}
	return nil
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// value returns the index after the value that starts at i, or -1.
func value(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return str(b, i)
	case '{', '[':
		for depth := 0; i < len(b); {
			switch b[i] {
			case '"':
				if i = str(b, i); i < 0 {
					return -1
				}
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return -1
	}
	for i < len(b) && bytes.IndexByte([]byte(",]} \n\r\t"), b[i]) < 0 {
		i++
	}
	return i
}

// str returns the index after the string that starts at i, or -1. A quote ends it unless an odd number of backslashes stands before it.
func str(b []byte, i int) int {
	for j := i + 1; ; j++ {
		n := bytes.IndexByte(b[j:], '"')
		if n < 0 {
			return -1
		}
		j += n
		k := j
		for b[k-1] == '\\' {
			k--
		}
		if (j-k)%2 == 0 {
			return j + 1
		}
	}
}
