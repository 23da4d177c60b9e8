package jsonrpc

import (
	"bytes"
	"iter"
	"strconv"
)

// Raw is a JSON value in this package's one encoding: strictly valid, without white space, no duplicate member names.
// nil means absent. Only this package makes one from foreign bytes; a Raw is never written to.
type Raw []byte

// IsObject reports whether v is an object.
func (v Raw) IsObject() bool { return len(v) > 0 && v[0] == '{' }

// IsArray reports whether v is an array.
func (v Raw) IsArray() bool { return len(v) > 0 && v[0] == '[' }

// IsNull reports whether v is the value null; an absent value is not.
func (v Raw) IsNull() bool { return string(v) == "null" }

// Get walks the members named by path from object v; ok is false where one is not there or not an object. Names are
// compared exactly. An empty path gives v.
func (v Raw) Get(path ...string) (Raw, bool) {
	for _, name := range path {
		at, ok := v.find(name)
		if !ok {
			return nil, false
		}
		v = v[at.value:at.end:at.end]
	}
	return v, v != nil
}

// Members iterates an object's members in order, names unescaped. Nothing if v is not an object.
func (v Raw) Members() iter.Seq2[string, Raw] {
	return func(yield func(string, Raw) bool) {
		for name, value := range v.each {
			if !yield(unquote(name), value) {
				return
			}
		}
	}
}

// Elements iterates an array's elements. Nothing if v is not an array.
func (v Raw) Elements() iter.Seq[Raw] {
	return func(yield func(Raw) bool) {
		if !v.IsArray() {
			return
		}
		for i := 1; i < len(v) && v[i] != ']'; {
			end := after(v, i)
			if !yield(v[i:end:end]) {
				return
			}
			i = overComma(v, end)
		}
	}
}

// Text returns the string that v holds, unescaped.
func (v Raw) Text() (string, bool) {
	if len(v) == 0 || v[0] != '"' {
		return "", false
	}
	return unquote(v), true
}

// Int returns the integer that v holds, if it is written as one, without fraction and exponent, and fits.
func (v Raw) Int() (int64, bool) {
	if !isInteger(v) {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

// each iterates an object's members in order, names with their quotes and escapes.
func (v Raw) each(yield func(name, value Raw) bool) {
	for at, ok := v.first(); ok; at, ok = v.following(at) {
		if !yield(v[at.name:at.value-1:at.value-1], v[at.value:at.end:at.end]) {
			return
		}
	}
}

// A place says where a member stands in an object: its name, its value, the byte after it.
type place struct{ name, value, end int }

// find returns where the member with the name stands in object v.
func (v Raw) find(name string) (place, bool) {
	var buf [64]byte
	key := appendText(buf[:0], name)
	for at, ok := v.first(); ok; at, ok = v.following(at) {
		if bytes.Equal(v[at.name:at.value-1], key) {
			return at, true
		}
	}
	return place{}, false
}

func (v Raw) first() (place, bool) {
	if !v.IsObject() {
		return place{}, false
	}
	return v.at(1)
}

func (v Raw) following(p place) (place, bool) { return v.at(overComma(v, p.end)) }

// at returns the member that begins at byte i of object v.
func (v Raw) at(i int) (place, bool) {
	if i >= len(v) || v[i] != '"' {
		return place{}, false
	}
	value := after(v, i) + 1
	if value >= len(v) {
		return place{}, false
	}
	return place{i, value, after(v, value)}, true
}

// overComma returns the byte after the comma at byte i of v, i itself where there is none.
func overComma(v Raw, i int) int {
	if i < len(v) && v[i] == ',' {
		i++
	}
	return i
}

// after returns the byte after the value that begins at byte i of v. It trusts v to be of the one encoding.
func after(v Raw, i int) int {
	switch v[i] {
	case '"':
		return afterText(v, i)
	case '{', '[':
		return afterNested(v, i)
	}
	for i++; i < len(v) && v[i] != ',' && v[i] != ']' && v[i] != '}'; i++ {
	}
	return i
}

func afterNested(v Raw, i int) int {
	for depth := 0; i < len(v); i++ {
		switch v[i] {
		case '"':
			i = afterText(v, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(v)
}

func afterText(v Raw, i int) int {
	for i++; i < len(v); i++ {
		j := bytes.IndexByte(v[i:], '"') // which looks at many bytes at once
		if j < 0 {
			break
		}
		i += j
		escapes := 0
		for v[i-1-escapes] == '\\' { // the quote at the beginning ends it
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
	return len(v)
}
