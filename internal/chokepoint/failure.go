package chokepoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// Reasons why a call that was sent has no answer of the upstream's. They say what the client is told.
var (
	ErrCancelled   = errors.New("cancelled by the client")
	ErrDeadline    = errors.New("the call's deadline passed")
	ErrPaused      = errors.New("an operator has paused it")
	ErrUnnamed     = errors.New("the configuration does not name its principal any more")
	ErrRevoked     = errors.New("the credential of its client was revoked")
	ErrShutdown    = errors.New("navra is shutting down")
	ErrUnavailable = errors.New("the upstream is not available")
	ErrBadAnswer   = errors.New("the upstream's answer is not valid")
	ErrExpired     = errors.New("nobody came back with the answers that the upstream asked for")
)

// A TooLarge is an answer over the size limit, in bytes.
type TooLarge struct{ Limit, Actual int64 }

func (e TooLarge) Error() string {
	return fmt.Sprintf("the upstream's answer is over the size limit of %d bytes", e.Limit)
}

// An HTTPStatus is an upstream's answer over HTTP that holds no message.
type HTTPStatus int

func (e HTTPStatus) Error() string {
	switch e {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("the upstream refuses navra's credentials (HTTP status %d); see its headers in the configuration", int(e))
	}
	if e >= 300 && e < 400 {
		return fmt.Sprintf("the upstream redirects elsewhere (HTTP status %d), which navra does not follow; correct its url in the configuration", int(e))
	}
	return fmt.Sprintf("the upstream answers HTTP status %d", int(e))
}

// Outcome tells whether a request so answered ran: what asks for credentials, for another address or for less, refuses before.
func (e HTTPStatus) Outcome() Outcome {
	switch e {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests:
		return NotSent
	}
	if e >= 300 && e < 400 {
		return NotSent
	}
	return Unknown
}

// Codes of navra's own errors about a call.
const (
	codeStopped  = -32001 // by a deadline, a cancellation or a shutdown
	codeTooLarge = -32002
)

// A failed is what a client is told of a call without an answer.
type failed struct {
	code         int
	reason, text string
	size         *TooLarge
}

// failureOf maps an error to it; one that is not known says only that the upstream is not available.
func failureOf(err error, v mcp.Version, topic mcp.Topic) failed {
	var size TooLarge
	var asked Unanswered
	switch {
	case errors.As(err, &asked):
		return failed{code: jsonrpc.CodeInternal, reason: "refused", text: asked.Error()}
	case errors.Is(err, ErrTaskEnded):
		return failed{code: jsonrpc.CodeInvalidParams, reason: "ended", text: ErrTaskEnded.Error()}
	case errors.Is(err, ErrNoTask):
		return failed{code: jsonrpc.CodeInvalidParams, reason: "unknown", text: ErrNoTask.Error()}
	case errors.Is(err, ErrForbidden):
		return failed{code: jsonrpc.CodeInvalidParams, reason: "unknown", text: ErrForbidden.Error()}
	case errors.Is(err, ErrTaskCancelled):
		return failed{code: jsonrpc.CodeInternal, reason: "cancelled", text: ErrTaskCancelled.Error()}
	case errors.As(err, &size):
		f := failed{code: codeTooLarge, reason: "size", text: size.Error(), size: &size}
		if v.Stateless() && topic == mcp.Resource { // the code means a missing resource there
			f.code = jsonrpc.CodeInternal
		}
		return f
	case errors.Is(err, ErrPaused):
		return failed{code: codeStopped, reason: "paused", text: ErrPaused.Error()}
	case errors.Is(err, ErrRevoked):
		return failed{code: codeStopped, reason: "revoked", text: ErrRevoked.Error()}
	case errors.Is(err, ErrCancelled), errors.Is(err, context.Canceled): // a stateless client cancels by leaving
		return failed{code: codeStopped, reason: "cancelled", text: ErrCancelled.Error()}
	case errors.Is(err, ErrDeadline), errors.Is(err, context.DeadlineExceeded):
		return failed{code: codeStopped, reason: "deadline", text: ErrDeadline.Error()}
	case errors.Is(err, ErrExpired):
		return failed{code: codeStopped, reason: "expired", text: ErrExpired.Error()}
	case errors.Is(err, ErrShutdown):
		return failed{code: codeStopped, reason: "shutdown", text: ErrShutdown.Error()}
	case errors.Is(err, ErrTooMany):
		return failed{code: codeDenied, reason: "limit", text: ErrTooMany.Error()}
	case errors.Is(err, ErrTooManyWait):
		return failed{code: codeDenied, reason: "limit", text: ErrTooManyWait.Error()}
	case errors.Is(err, ErrUnfollowed):
		return failed{code: jsonrpc.CodeInvalidParams, reason: "refused", text: ErrUnfollowed.Error()}
	case errors.Is(err, ErrBadAnswer):
		return failed{code: jsonrpc.CodeInternal, reason: "bad answer", text: ErrBadAnswer.Error()}
	}
	return failed{code: jsonrpc.CodeInternal, reason: "unavailable", text: ErrUnavailable.Error()}
}
