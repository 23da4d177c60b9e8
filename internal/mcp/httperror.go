package mcp

import "navra/internal/jsonrpc"

// An HTTPError is why a GET or DELETE of the HTTP transport is refused: Listen and Close return it, always as a pointer.
// Msg is the body, an error without an id. Over other transports it is an error like any other.
type HTTPError struct {
	Status int // HTTP status, 400 to 599
	Msg    jsonrpc.Message
}

// Error is Msg's error message; it is safe to show to the client.
func (e *HTTPError) Error() string {
	if e.Msg.Error == nil {
		return "refused"
	}
	return e.Msg.Error.Message
}
