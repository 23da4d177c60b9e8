package stdio

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// A writer writes messages as lines.
type writer struct {
	w      io.Writer
	broken context.CancelCauseFunc // told of the first error
	ended  atomic.Bool             // nothing more is written

	mu sync.Mutex // held for each Write, so that lines do not mix
}

func (w *writer) send(m jsonrpc.Message) error { return w.line(m.Append(nil)) }

func (w *writer) line(b []byte) error {
	line := append(b, '\n')
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended.Load() {
		return errEnded
	}
	if _, err := w.w.Write(line); err != nil {
		err = fmt.Errorf("writing to the client: %w", err)
		w.ended.Store(true)
		w.broken(err)
		return err
	}
	return nil
}

// A sink takes what goes back for one message.
type sink struct {
	out      *writer
	in       mcp.Inbound
	answered atomic.Bool
}

// Open does nothing: the connection is the session.
func (s *sink) Open(string) {}

// Send writes m. After the answer it writes nothing.
func (s *sink) Send(m jsonrpc.Message) error {
	switch {
	case m.Method != "" && s.answered.Load():
		return errAnswered
	case m.Method != "":
		return s.out.send(m)
	case !s.asks():
		return errUnasked
	case s.answered.Swap(true):
		return errAnswered
	}
	return s.out.send(m)
}

// Together writes the answers to a batch as one line.
func (s *sink) Together(answers []jsonrpc.Message) error {
	if s.answered.Swap(true) {
		return errAnswered
	}
	return s.out.line(jsonrpc.AppendBatch(nil, answers))
}

// Refuse is Send; a message that asks for no answer gets none.
func (s *sink) Refuse(_ int, m jsonrpc.Message) error {
	if !s.asks() {
		return nil
	}
	return s.Send(m)
}

// asks reports whether the message is to be answered: a request, or bytes that may have been one.
func (s *sink) asks() bool { return s.in.Fault != nil || s.in.Msg.Kind() == jsonrpc.Request }

// fail answers for a handler that did not.
func (s *sink) fail() error {
	if !s.asks() || s.answered.Swap(true) {
		return nil
	}
	id := s.in.Msg.ID
	if s.in.Fault != nil {
		id = s.in.Fault.ID
	}
	return s.out.send(mcp.Broken(id))
}

// pushes takes what goes to the client unasked.
type pushes struct{ out *writer }

func (p pushes) Open(string) {}

func (p pushes) Send(m jsonrpc.Message) error {
	if m.Method == "" {
		return errUnasked
	}
	return p.out.send(m)
}

func (p pushes) Together([]jsonrpc.Message) error { return errUnasked }

func (p pushes) Refuse(int, jsonrpc.Message) error { return nil }
