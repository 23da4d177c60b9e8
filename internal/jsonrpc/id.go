package jsonrpc

import "strconv"

// An ID is a request's id: a string or an integer, kept as it was written, a string in this package's one encoding: "1"
// and 1 differ, "\u0031" and "1" do not. IDs compare with ==. The zero ID is none.
type ID struct{ text string }

// IntID returns the id n.
func IntID(n int64) ID { return ID{strconv.FormatInt(n, 10)} }

// IDOf returns the id that v holds, if it is a string of at most MaxID bytes or an integer of at most MaxID digits,
// written without fraction and exponent.
func IDOf(v Raw) (ID, bool) {
	switch {
	case len(v) == 0:
		return ID{}, false
	case v[0] == '"':
		if textLen(v) > MaxID {
			return ID{}, false
		}
	case !isInteger(v) || len(v) > MaxID:
		return ID{}, false
	}
	return ID{string(v)}, true
}

// IsZero reports whether id is none.
func (id ID) IsZero() bool { return id.text == "" }

// Raw returns id as a JSON value, nil for none.
func (id ID) Raw() Raw {
	if id.text == "" {
		return nil
	}
	return Raw(id.text)
}

// String returns id as JSON text, quotes included.
func (id ID) String() string { return id.text }

// isInteger reports whether the JSON value v is a number written without fraction and exponent.
func isInteger(v Raw) bool {
	if len(v) > 0 && v[0] == '-' {
		v = v[1:]
	}
	for _, c := range v {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(v) > 0
}
