package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// What may be wrong with the answer to a call.
var (
	errLost    = errors.New("no answer to the call")
	errTwice   = errors.New("more than one answer to the call")
	errID      = errors.New("the answer is to another call")
	errText    = errors.New("the answer holds another text than the call")
	errRefused = errors.New("the call was refused")
)

// A want is what the answer to one call must hold.
type want struct {
	id   int64
	text []byte // the argument as a JSON string, quotes included; begins with a nonce
}

// check tells whether the body of an HTTP response (JSON or server-sent events) answers the call: exactly one answer, with
// its id and its whole text. Notifications beside it are passed over.
func (w want) check(contentType, body []byte) error {
	answers := 0
	err := messages(contentType, body, func(m []byte) error {
		var id, method, result, failed []byte
		ids := 0
		err := members(m, func(k, v []byte) {
			switch string(k) {
			case "id":
				id = v
				ids++
			case "method":
				method = v
			case "result":
				result = v
			case "error":
				failed = v
			}
		})
		switch {
		case err != nil:
			return fmt.Errorf("%w: %s", err, clip(m))
		case method != nil && id == nil:
			return nil
		case ids != 1 || string(id) != strconv.FormatInt(w.id, 10):
			return fmt.Errorf("%w: its id is %q, want %d", errID, clip(id), w.id)
		case failed != nil:
			return fmt.Errorf("%w: %s", errRefused, clip(failed))
		}
		answers++
		return w.result(result)
	})
	switch {
	case err != nil:
		return err
	case answers == 0:
		return errLost
	case answers > 1:
		return errTwice
	}
	return nil
}

// result checks a tool's result: content must be one text block with the text of the call.
func (w want) result(b []byte) error {
	var content []byte
	isError := false
	if err := members(b, func(k, v []byte) {
		switch string(k) {
		case "content":
			content = v
		case "isError":
			isError = string(v) != "false"
		}
	}); err != nil {
		return fmt.Errorf("%w: %s", err, clip(b))
	}
	var block []byte
	n := 0
	if err := elements(content, func(v []byte) { block = v; n++ }); err != nil || n != 1 {
		return fmt.Errorf("%w: content is no single block: %s", errText, clip(b))
	}
	if isError {
		return fmt.Errorf("%w: %s", errRefused, clip(block))
	}
	if text := member(block, "text"); !sameText(text, w.text) {
		return fmt.Errorf("%w: it is %s, want %s", errText, clip(text), clip(w.text))
	}
	return nil
}

// sameText compares two JSON strings by what they mean: a gateway may escape in another way than the client did.
func sameText(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y string
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x == y
}

// messages calls f with each JSON-RPC message of a response's body.
func messages(contentType, body []byte, f func([]byte) error) error {
	if !bytes.HasPrefix(contentType, []byte("text/event-stream")) {
		if len(bytes.TrimSpace(body)) == 0 {
			return nil
		}
		return f(body)
	}
	for line := range bytes.Lines(body) {
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if data = bytes.TrimSpace(data); !ok || len(data) == 0 {
			continue
		}
		if err := f(data); err != nil {
			return err
		}
	}
	return nil
}

// clip shortens what an error quotes.
func clip(b []byte) []byte {
	if len(b) > 200 {
		return append(append([]byte{}, b[:200]...), "…"...)
	}
	return b
}
