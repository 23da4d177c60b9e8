// Package mcp is what navra knows of the Model Context Protocol's messages: versions and eras, the methods of each, what
// each method is about, and how a message says which era it belongs to. It does not know who sent a message or where it goes.
package mcp

import (
	"net/http"

	"navra/internal/jsonrpc"
)

// An Inbound is one client message with what its transport knows of it. Transports make it; gateway.Handle takes it.
type Inbound struct {
	Msg   jsonrpc.Message
	Fault *jsonrpc.Fault // where the bytes could not be read as a message: Msg then holds at most its id and method

	Transport Transport
	// Session is the session id as received over HTTP, "" for none. Conn names the connection over stdio and WebSocket,
	// unique in this process; the connection is the session there.
	Session string
	Conn    string
	// Header holds the mirrored headers of an HTTP request (MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Param-*); nil over stdio and WebSocket.
	Header http.Header
	// Trace holds the headers traceparent, tracestate and baggage as they came, over WebSocket those of the upgrade; nil for none.
	Trace http.Header
	Host  HostKey // stdio: made by the transport from the operating system, never from the wire

	// Registered, where not nil, is called by the handler once the message is registered: it can be cancelled and has its
	// place in the order, or, for Listen, its stream is accepted. Transports wait for it, or for the handler's return, before
	// they hand over the connection's next message. It may be called more than once and from any goroutine; nil means nobody waits.
	Registered func()

	// Resumable, where not nil, is called by the handler, before it sends anything, where the message belongs to a session of the stateful era
	// that is good for its principal: a client that loses a stream of it may come back. Resumes says that a GET does, and that
	// what it reads is fed already: Listen then checks the session, calls Resumable and returns. Both over HTTP only.
	Resumable func(v Version)
	Resumes   bool
}

// A Transport names a way in.
type Transport string

// The transports to clients.
const (
	Stdio     Transport = "stdio"
	HTTP      Transport = "http"
	WebSocket Transport = "websocket"
)

// Transports returns all of them.
func Transports() []Transport { return []Transport{Stdio, HTTP, WebSocket} }

// A HostKey says which program holds the conversation at the other end of a stdio connection. The zero HostKey is none.
type HostKey struct {
	Conversation string // the host's own name for its conversation, with the host's: "claude-code/2f0e…"; "" where it names none
	Process      string // boot id, pid and start time of the host process; "" where it cannot be told
	User         string // "uid:1000"
	Folder       string // the host's working folder
}

// A Reader is a Sink that knows whether its client is there to read what is sent. Any other Sink's always is.
type Reader interface{ Reading() bool }

// A Sink takes what goes back to the client for one inbound message. Its methods may be called from several goroutines.
type Sink interface {
	// Open hands out a new session's id; before the first Send, and over HTTP only.
	Open(session string)
	// Send sends a message that belongs to the request: a notification, or the one answer, which is the last.
	Send(m jsonrpc.Message) error
	// Together sends the answers to a batch as one message; it stands for the one answer.
	Together(answers []jsonrpc.Message) error
	// Refuse sends the one answer with the HTTP status that the specification asks for; where the transport has no
	// status it is like Send. A message that is no request gets the status with m as the body over HTTP, and nothing elsewhere.
	Refuse(status int, m jsonrpc.Message) error
}
