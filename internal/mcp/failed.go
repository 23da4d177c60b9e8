package mcp

import "navra/internal/jsonrpc"

// Broken is the answer to a request that navra itself could not carry to its end.
func Broken(id jsonrpc.ID) jsonrpc.Message {
	return jsonrpc.Message{ID: id, Error: &jsonrpc.Error{
		Code:    jsonrpc.CodeInternal,
		Message: "internal error of navra; whether the call ran is not known (outcome: unknown)",
		Data:    new(jsonrpc.Object).Text("outcome", "unknown").Done(),
	}}
}
