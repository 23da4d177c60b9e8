package upstream

import (
	"bytes"
	"errors"
	"io"
	"net/url"

	"navra/internal/chokepoint"
)

// maxBelieved is how many bytes are made room for on an upstream's word.
const maxBelieved = 256 << 10

// readAll reads a body within the limit; told is its length, or -1.
func readAll(body io.Reader, told int64) ([]byte, error) {
	if told > maxMessage {
		return nil, chokepoint.TooLarge{Limit: maxMessage, Actual: told}
	}
	buf := bytes.NewBuffer(make([]byte, 0, min(max(told, 0), maxBelieved)+bytes.MinRead))
	n, err := buf.ReadFrom(io.LimitReader(body, maxMessage+1))
	if n > maxMessage {
		return nil, chokepoint.TooLarge{Limit: maxMessage, Actual: n}
	}
	return buf.Bytes(), err
}

// withoutURL takes the address out of an error of the HTTP client's: it may hold a secret.
func withoutURL(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}
