package duplex

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// A writer writes messages, one at a time.
type writer struct {
	write  func([]byte) error
	broken context.CancelCauseFunc // told of the first error
	ended  atomic.Bool             // nothing more is written

	mu sync.Mutex // held for each write, so that messages do not mix
}

func (w *writer) send(message []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended.Load() {
		return ErrEnded
	}
	if err := w.write(message); err != nil {
		err = fmt.Errorf("writing to the client: %w", err)
		w.abort(err)
		return err
	}
	return nil
}

// abort ends the connection: nothing that is not being written already is, and what runs is cancelled.
func (w *writer) abort(err error) {
	w.ended.Store(true)
	w.broken(err)
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
	case m.Method == "":
		return s.answer(func() []byte { return m.Append(nil) })
	case s.answered.Load():
		return ErrAnswered
	}
	return s.out.send(m.Append(nil))
}

// Together writes several answers as one message, a JSON array: the one answer to a batch. JSON-RPC 2.0 §6: an empty one is
// never sent.
func (s *sink) Together(ms []jsonrpc.Message) error {
	if len(ms) == 0 || slices.ContainsFunc(ms, func(m jsonrpc.Message) bool { return m.Method != "" }) {
		return ErrNoBatch
	}
	return s.answer(func() []byte { return jsonrpc.AppendBatch(nil, ms) })
}

// answer writes the one answer.
func (s *sink) answer(message func() []byte) error {
	switch {
	case !asks(s.in):
		return ErrUnasked
	case s.answered.Swap(true):
		return ErrAnswered
	}
	return s.out.send(message())
}

// Refuse is Send; a message that asks for no answer gets none.
func (s *sink) Refuse(_ int, m jsonrpc.Message) error {
	if !asks(s.in) {
		return nil
	}
	return s.Send(m)
}

// fail answers for a handler that did not.
func (s *sink) fail() error {
	if !asks(s.in) || s.answered.Swap(true) {
		return nil
	}
	id := s.in.Msg.ID
	if s.in.Fault != nil {
		id = s.in.Fault.ID
	}
	return s.out.send(mcp.Broken(id).Append(nil))
}

// pushes takes what goes to the client unasked.
type pushes struct{ out *writer }

func (p pushes) Open(string) {}

func (p pushes) Send(m jsonrpc.Message) error {
	if m.Method == "" {
		return ErrUnasked
	}
	return p.out.send(m.Append(nil))
}

func (p pushes) Together([]jsonrpc.Message) error { return ErrUnasked }

func (p pushes) Refuse(int, jsonrpc.Message) error { return nil }
