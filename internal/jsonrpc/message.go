// Package jsonrpc is the JSON-RPC 2.0 envelope over a strict JSON codec: what is parsed here has no duplicate names, no
// invalid UTF-8, bounded depth, and is re-encoded from the one parsed form, with the order of members and the digits of
// numbers as they came. It knows nothing of MCP.
package jsonrpc

import "strconv"

// A Kind tells a message's form.
type Kind uint8

// The kinds of messages.
const (
	Invalid Kind = iota
	Request
	Notification
	Response
)

// A Message is one JSON-RPC message. Params is nil where absent or null, else an object. The zero Message is Invalid.
type Message struct {
	ID     ID
	Method string
	Params Raw
	Result Raw
	Error  *Error
}

// Kind tells m's form from its members.
func (m Message) Kind() Kind {
	switch {
	case m.Method != "" && m.ID.IsZero():
		return Notification
	case m.Method != "":
		return Request
	case m.Result != nil || m.Error != nil:
		return Response
	}
	return Invalid
}

// Append appends m's encoding to b: one line, no line feed. A zero ID is left out, since no version of MCP knows a null
// id; a message with neither Method, Result nor Error is written as a response with an empty result.
func (m Message) Append(b []byte) []byte {
	b = append(b, `{"jsonrpc":"2.0"`...)
	if !m.ID.IsZero() {
		b = append(append(b, `,"id":`...), m.ID.text...)
	}
	switch {
	case m.Method != "":
		b = appendText(append(b, `,"method":`...), m.Method)
		if len(m.Params) > 0 {
			b = append(append(b, `,"params":`...), m.Params...)
		}
	case m.Error != nil:
		b = m.Error.append(append(b, `,"error":`...))
	case len(m.Result) > 0:
		b = append(append(b, `,"result":`...), m.Result...)
	default:
		b = append(b, `,"result":{}`...)
	}
	return append(b, '}')
}

// An Error is JSON-RPC's error object. Data is nil where absent.
type Error struct {
	Code    int
	Message string
	Data    Raw
}

func (e *Error) Error() string { return e.Message }

func (e *Error) append(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"code":`...), int64(e.Code), 10)
	b = appendText(append(b, `,"message":`...), e.Message)
	if len(e.Data) > 0 {
		b = append(append(b, `,"data":`...), e.Data...)
	}
	return append(b, '}')
}

// The codes that JSON-RPC 2.0 defines.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
)

// AppendBatch writes several messages as one array.
func AppendBatch(b []byte, batch []Message) []byte {
	b = append(b, '[')
	for i, m := range batch {
		if i > 0 {
			b = append(b, ',')
		}
		b = m.Append(b)
	}
	return append(b, ']')
}

// A Fault is a message that could not be read: the error to answer with, and the id where it could be told.
//
// An array is a fault too, with all of it in Batch: whether messages may come together, only who knows the protocol version
// can tell. Each of its elements is read by Parse.
type Fault struct {
	ID    ID
	Err   Error
	Batch Raw // nil: it was no array
}

func (f *Fault) Error() string { return f.Err.Message }

// Limits of the envelope, in bytes of the unescaped UTF-8 and in objects and arrays open at once. MaxID bounds the
// digits of an integer id as well.
const (
	MaxMethod = 256
	MaxID     = 256
	MaxDepth  = 128
)
