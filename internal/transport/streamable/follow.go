package streamable

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// hold moves what the handler sends from this connection into a stream that outlives it, where the handler has said that the session's
// client may come back. It returns when the connection is done; it has done nothing where it returns false.
func (x *exchange) hold(c *conversation, first *item) bool {
	if x.vouched == "" || x.begun() || x.answered {
		return false
	}
	quit := c.end
	if x.r.Method != http.MethodGet {
		quit = nil
	}
	s := x.book.open(x.place(), x.in.Msg.ID, x.vouched.Primes(), quit)
	if s == nil {
		return false
	}
	s.out = c.out
	if quit != nil {
		x.book.inherit(s)
	}
	x.work.Go(func() { x.feed(c, s, first) })
	x.follow(s, 0)
	return true
}

// place is what the streams of this session are kept under. The session's id is sealed: it has one spelling, and the handler has opened it.
func (x *exchange) place() place { return place{x.who.Name(), x.in.Session} }

// feed puts what the handler sends into s, until it returns.
func (x *exchange) feed(c *conversation, s *stream, first *item) {
	defer c.finish()
	answered := false
	take := func(it item) {
		if answered || it.session != "" || it.vouched != "" {
			return
		}
		answered = it.answers()
		x.book.put(s, event{text: it.append(nil), answer: answered, notice: !answered && it.msg.ID.IsZero()})
	}
	if first != nil {
		take(*first)
	}
	for {
		select {
		case it := <-c.out.items:
			take(it)
		case err := <-c.done:
			x.log(c.ctx, "message not handled", err)
			if x.asks() && (err != nil || !x.batch()) {
				take(item{msg: mcp.Broken(x.in.Msg.ID)})
			}
			x.book.finish(s)
			return
		}
	}
}

// follow writes s from after a position on, until nothing more comes, the client is gone or another connection has taken the stream over.
func (x *exchange) follow(s *stream, at seq) {
	x.lost = nil // what feeds the stream goes on
	r := x.book.attach(s, at, func() { _ = x.rc.SetWriteDeadline(time.Now()) })
	defer x.book.detach(s, r)
	x.taken = r.taken
	x.begin()
	defer x.comments.Stop()
	if s.primed {
		x.prime(s, at)
	}
	var enough <-chan time.Time
	if x.o.Poll > 0 && s.primed && s.quit == nil {
		timer := time.NewTimer(x.o.Poll)
		defer timer.Stop()
		enough = timer.C
	}
	for !x.gone {
		events, done := x.book.read(s, r)
		for _, e := range events {
			if x.send(s.encode(e)); x.gone {
				return
			}
			x.book.wrote(s, r, e.at)
		}
		if done {
			return
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-r.news:
		case <-x.tick():
			if x.r.Method == http.MethodGet && !x.still() {
				if s.quit != nil {
					x.book.drop(s)
				}
				return
			}
			x.send([]byte(":\n\n"))
		case <-enough:
			if at, ok := x.book.mark(s, r); ok {
				x.prime(s, at)
				return
			}
			enough = time.After(x.o.Poll)
		case <-x.r.Context().Done():
			return
		case <-r.taken:
			return
		}
	}
}

// prime writes an event without data: from then on the client can come back, and knows when. MCP 2025-11-25, basic/transports §Sending Messages to the Server.
func (x *exchange) prime(s *stream, at seq) {
	x.send([]byte("id: " + s.position(at, true) + "\nretry: " + strconv.FormatInt(retryTime.Milliseconds(), 10) + "\ndata: \n\n"))
}

// position is the event id of at. After an answer there is nothing that a client must be told of.
func (s *stream) position(at seq, more bool) string {
	p := position{stream: s.name, at: at}
	if more {
		p.request = s.request
	}
	return p.String()
}

// encode writes an event as it goes to the client. A message has no line end in it.
func (s *stream) encode(e event) []byte {
	b := []byte("event: message\n")
	if !e.loose {
		b = append(b, "id: "+s.position(e.at, !e.answer)+"\n"...)
	}
	b = append(append(b, "data: "...), e.text...)
	return append(b, "\n\n"...)
}

// resume goes on with a stream that the client lost; false where the GET is one like any other. A stream of a request that is not kept is
// answered with an error for that request, if the event id names it, or with 204: a client that gets an error status gives up its session (Go), or
// asks again and then waits for ever (TypeScript).
func (x *exchange) resume(last string) bool {
	p := parsePosition(last)
	s := x.book.find(x.place(), p.stream)
	if s == nil && p.born() != bornPOST {
		return false
	}
	x.in.Resumes = true
	x.in.Resumable = func(v mcp.Version) { x.vouched = v }
	ctx, end := x.context(true)
	defer end()
	err := x.call(ctx, "listen", func() error { return x.o.Handler.Listen(ctx, x.who, x.in, nowhere{}) })
	switch {
	case err != nil:
		x.deny(ctx, err)
		return true
	case x.vouched == "":
		x.status(http.StatusNoContent)
		return true
	case s == nil:
		x.unkept(p)
		return true
	}
	whole, more := x.book.state(s, p.at)
	switch {
	case p.born() == bornGET && !whole:
		x.follow(s, x.book.oldest(s, p.at))
	case !whole:
		x.unkept(p)
	case !more:
		x.status(http.StatusNoContent)
	default:
		x.follow(s, p.at)
	}
	return true
}

// codeLost is navra's code for what became of a call that nobody can tell any more.
const codeLost = -32001

// unkept answers for a request whose stream is not kept any more.
func (x *exchange) unkept(p position) {
	if p.request.IsZero() {
		x.status(http.StatusNoContent)
		return
	}
	x.refused(http.StatusOK, "what a stream's client missed is not kept any more")
	x.begin()
	defer x.comments.Stop()
	lost := &stream{name: newName(bornPOST)} // so that a client that comes back after it too is told that this was all
	data := new(jsonrpc.Object).Text("reason", "replay").Text("outcome", "unknown").Done()
	m := jsonrpc.Message{ID: p.request, Error: &jsonrpc.Error{
		Code: codeLost, Message: "the connection was lost and what came meanwhile is not kept any more; the call may have run (outcome: unknown)", Data: data,
	}}
	x.send(lost.encode(event{at: 1, text: m.Append(nil), answer: true}))
}

// nowhere is the sink of a handler that is only asked whether a session is good.
type nowhere struct{}

func (nowhere) Open(string)                       {}
func (nowhere) Send(jsonrpc.Message) error        { return errEnded }
func (nowhere) Together([]jsonrpc.Message) error  { return errEnded }
func (nowhere) Refuse(int, jsonrpc.Message) error { return errEnded }

// A conversation is a handler at work.
type conversation struct {
	ctx  context.Context
	end  context.CancelFunc
	out  *reply
	done chan error
}

// finish is called when nobody takes what the handler sends any more.
func (c *conversation) finish() {
	close(c.out.over)
	c.end()
}

// A carry is one of the handler's methods that answer through a sink.
type carry func(ctx context.Context, who auth.Principal, in mcp.Inbound, out mcp.Sink) error
