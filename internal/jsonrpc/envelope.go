package jsonrpc

import (
	"strconv"
	"strings"
)

// An envelope holds the members that JSON-RPC defines, nil where absent.
type envelope struct {
	version, id, method, params, result, err Raw

	lookalike bool // another name only looks like one of these
}

// envelope finds the members of the top-level object of a scan that had no fault.
func (s *scanner) envelope() (e envelope) {
	for i := range s.members() {
		name, value := s.memberAt(i)
		if at := e.at(name); at != nil {
			*at = value
		} else {
			e.lookalike = e.lookalike || looksDefined(unquote(name))
		}
	}
	return e
}

// at returns where the value of the member with the name belongs, nil for a name that is not defined.
func (e *envelope) at(name Raw) *Raw {
	switch string(name) {
	case `"jsonrpc"`:
		return &e.version
	case `"id"`:
		return &e.id
	case `"method"`:
		return &e.method
	case `"params"`:
		return &e.params
	case `"result"`:
		return &e.result
	case `"error"`:
		return &e.err
	}
	return nil
}

// looksDefined reports whether a laxer reader may take name for a defined one: by folding case, or by ending it at a NUL.
func looksDefined(name string) bool {
	name, _, _ = strings.Cut(name, "\x00")
	for _, defined := range [...]string{"jsonrpc", "id", "method", "params", "result", "error"} {
		if strings.EqualFold(name, defined) {
			return true
		}
	}
	return false
}

// id returns the id of the top-level object, as far as it was scanned, if there is exactly one.
func (s *scanner) id() (id ID) {
	found := false
	for i := range s.members() {
		name, value := s.memberAt(i)
		if string(name) != `"id"` {
			continue
		}
		if found {
			return ID{}
		}
		found = true
		id, _ = IDOf(value)
	}
	return id
}

// members returns how many members of a top-level object were scanned; the value of the last may be incomplete.
func (s *scanner) members() int {
	switch {
	case s.w == 0 || s.b[0] != '{':
		return 0
	case len(s.objects) > 1:
		return s.objects[1].first
	}
	return len(s.names)
}

// memberAt returns the i-th member of the top-level object. value is nil where the scan broke off before its end.
func (s *scanner) memberAt(i int) (name, value Raw) {
	n := s.names[i]
	end := s.end - 1 // where the brace is
	if i+1 < s.members() {
		end = s.names[i+1].start - 1 // where the comma is
	}
	if end > n.end {
		value = s.b[n.end+1 : end : end]
	}
	return s.b[n.start:n.end], value
}

// message judges the members and makes a message of them.
func (e envelope) message(upstream bool) (Message, *Fault) {
	if upstream && e.id.IsNull() && e.err != nil && e.method == nil {
		e.id = nil // JSON-RPC 2.0 §5: an error about a request whose id could not be told
	}
	id, ok := IDOf(e.id)
	bad := func(text string) (Message, *Fault) {
		return Message{}, &Fault{ID: id, Err: Error{Code: CodeInvalidRequest, Message: text}}
	}
	switch {
	case e.id != nil && !ok:
		return bad("id must be an integer or a string of at most " + strconv.Itoa(MaxID) + " bytes")
	case e.lookalike:
		return bad("a member name differs from a defined one only in case or by a NUL")
	case string(e.version) != `"2.0"`:
		return bad(`jsonrpc must be "2.0"`)
	case e.method != nil && (e.result != nil || e.err != nil):
		return bad("method together with result or error")
	case e.result != nil && e.err != nil:
		return bad("result together with error")
	case e.method != nil:
		return e.call(id)
	case e.result != nil && id.IsZero():
		return bad("result without id")
	case e.result != nil:
		return Message{ID: id, Result: e.result}, nil
	case e.err == nil:
		return bad("neither method nor result nor error")
	}
	rpcErr, ok := errorOf(e.err)
	if !ok {
		return bad("error must be an object with an integer code and a string message")
	}
	return Message{ID: id, Error: rpcErr}, nil
}

// call makes a request, or a notification where id is zero.
func (e envelope) call(id ID) (Message, *Fault) {
	if e.method[0] != '"' || len(e.method) == len(`""`) || textLen(e.method) > MaxMethod {
		return Message{}, &Fault{ID: id, Err: Error{
			Code:    CodeInvalidRequest,
			Message: "method must be a string of 1 to " + strconv.Itoa(MaxMethod) + " bytes",
		}}
	}
	m := Message{ID: id, Method: unquote(e.method)}
	switch {
	case e.params.IsObject():
		m.Params = e.params
	case e.params != nil && !e.params.IsNull() && !id.IsZero():
		return m, &Fault{ID: id, Err: Error{Code: CodeInvalidParams, Message: "params must be an object"}}
	}
	return m, nil
}

// errorOf reads an error object; members that JSON-RPC does not define are dropped.
func errorOf(v Raw) (*Error, bool) {
	var e Error
	var hasCode, hasMessage bool
	for name, value := range v.each {
		switch string(name) {
		case `"code"`:
			var n int64
			n, hasCode = value.Int()
			e.Code = int(n)
			hasCode = hasCode && int64(e.Code) == n
		case `"message"`:
			e.Message, hasMessage = value.Text()
		case `"data"`:
			e.Data = value
		}
	}
	return &e, hasCode && hasMessage
}
