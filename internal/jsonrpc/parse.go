package jsonrpc

import (
	"bytes"
	"unicode/utf8"
)

// Parse reads one message of a client, strictly. The fault is nil on success. Faults in the order in which they count:
// invalid UTF-8, bad grammar, data after the message and unpaired surrogates (-32700); nesting over MaxDepth, a name
// twice in one object at any depth, another value than an object, a bad envelope (-32600); params that are neither an object nor null
// (-32602). With -32602 the message, without its params, is returned as well, so that an unknown method can be told first;
// a notification, which nobody answers, is returned without its params and without a fault.
//
// The fault has the id, if it could be told, for all but -32700. Members that JSON-RPC does not define are dropped,
// but a name that differs from a defined one only by case or by what follows a NUL is -32600. Nothing of b is kept.
func Parse(b []byte) (Message, *Fault) {
	m, _, f := parse(b, false)
	return m, f
}

// ParseUpstream reads one message of an upstream. Lone surrogate escapes become U+FFFD and are counted in repaired;
// an error may have the id null, which is none; everything else is as strict as Parse. The fault carries the id wherever
// it can be told, even from bytes that are not valid UTF-8 or break off, so that the call it answers can be failed.
func ParseUpstream(b []byte) (m Message, repaired int, f *Fault) {
	return parse(b, true)
}

// ParseValue reads one JSON value, strictly. The error is a *Fault.
func ParseValue(b []byte) (Raw, error) {
	var m scratch
	s := newScanner(false, &m)
	if f := s.run(b); f != nil {
		return nil, f
	}
	return s.output(), nil
}

func parse(b []byte, upstream bool) (Message, int, *Fault) {
	var mem scratch
	s := newScanner(upstream, &mem)
	if f := s.run(b); f != nil {
		switch {
		case f.Err.Code != CodeParse:
			f.ID = s.id()
		case upstream && !utf8.Valid(b):
			s = newScanner(true, &mem)
			s.run(bytes.ToValidUTF8(b, []byte("\uFFFD")))
			f.ID, s.repaired = s.id(), 0
		case upstream:
			f.ID = s.id()
		}
		return Message{}, s.repaired, f
	}
	if s.b[0] != '{' {
		return Message{}, s.repaired, notObject(s.output())
	}
	m, f := s.envelope().message(upstream)
	return m, s.repaired, f
}

// notObject is the fault for a top-level value that is no object.
func notObject(v Raw) *Fault {
	switch {
	case v.IsArray():
		f := fault(CodeInvalidRequest, "batches exist only in protocol version 2025-03-26")
		if string(v) == "[]" {
			f.Err.Message = "an empty array is not a message"
		}
		f.Batch = v
		return f
	}
	return fault(CodeInvalidRequest, "a message must be an object")
}
