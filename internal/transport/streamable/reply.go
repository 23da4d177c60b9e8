package streamable

import (
	"errors"
	"sync/atomic"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

var (
	errEnded    = errors.New("the request has ended")
	errAnswered = errors.New("the request is answered already")
	errUnasked  = errors.New("an answer to a message that asks for none")
	errNoStream = errors.New("the client takes no event stream, so nothing can be asked of it")
)

// An item is one thing that a handler sends.
type item struct {
	session string      // not empty: a new session's id, and nothing else
	vouched mcp.Version // not empty: the session is one of that version whose streams may be resumed, and nothing else
	status  int         // not 0: the HTTP status asked for
	msg     jsonrpc.Message
	batch   []jsonrpc.Message // not nil: the answers to a batch, in msg's place
}

// append writes what the item says as JSON.
func (it item) append(b []byte) []byte {
	if it.batch != nil {
		return jsonrpc.AppendBatch(b, it.batch)
	}
	return it.msg.Append(b)
}

// answers reports whether it is the one answer.
func (it item) answers() bool {
	return it.session == "" && it.vouched == "" && it.msg.Method == ""
}

// A reply is the sink of one exchange. It has no room for anything: each message is handed over to the goroutine that
// writes, which takes the next when it has written the last or given up on the client. What a client that is gone would have got is dropped.
type reply struct {
	items    chan item
	over     chan struct{} // closed when nobody takes items any more
	asks     bool
	streams  bool // an event stream may be begun before the answer
	answered atomic.Bool
	unread   atomic.Bool // nobody reads the stream now; its client may come back
}

// Reading reports whether somebody reads what is sent now: where the stream outlives its connections, its client may be away.
func (p *reply) Reading() bool { return !p.unread.Load() }

// Open hands out a session's id; it is lost where an event stream has begun.
func (p *reply) Open(session string) { _ = p.hand(item{session: session}) }

// Send sends a message, with status 200. Where no event stream may be begun, notifications are dropped and requests are errors.
func (p *reply) Send(m jsonrpc.Message) error {
	switch {
	case m.Method != "" && p.answered.Load():
		return errAnswered
	case m.Method != "" && !p.streams && !m.ID.IsZero():
		return errNoStream
	case m.Method != "" && !p.streams:
		return nil
	case m.Method != "":
		return p.hand(item{msg: m})
	case !p.asks:
		return errUnasked
	}
	return p.answer(item{msg: m})
}

// Together sends the answers to a batch.
func (p *reply) Together(answers []jsonrpc.Message) error { return p.answer(item{batch: answers}) }

// Refuse sends the answer with a status, or as an event where the stream has begun.
func (p *reply) Refuse(status int, m jsonrpc.Message) error {
	return p.answer(item{status: status, msg: m})
}

func (p *reply) answer(it item) error {
	if p.answered.Swap(true) {
		return errAnswered
	}
	return p.hand(it)
}

func (p *reply) hand(it item) error {
	select {
	case p.items <- it:
		return nil
	case <-p.over:
		return errEnded
	}
}
