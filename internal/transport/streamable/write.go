package streamable

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// take writes what the handler sent.
func (x *exchange) take(it item) {
	switch {
	case x.answered: // by a message sent at the same time
	case it.vouched != "":
		x.vouched = it.vouched
	case it.session != "":
		x.w.Header().Set(mcp.HeaderSession, it.session)
	case x.events(it):
		x.begin()
		x.event(it)
		x.answered = it.answers()
	case x.tooLong:
		x.reply(http.StatusRequestEntityTooLarge, it)
	case it.status != 0:
		x.reply(it.status, it)
	default:
		x.reply(http.StatusOK, it)
	}
}

// events reports whether it is to go out as an event.
func (x *exchange) events(it item) bool {
	return it.session == "" && it.vouched == "" && (!it.answers() || x.begun() || it.status == 0 && !x.takes.json)
}

// begin begins the event stream, if it has not begun and nothing was answered, and lets the client see that at once.
func (x *exchange) begin() {
	if x.begun() || x.answered {
		return
	}
	x.comments = time.NewTicker(commentEvery)
	h := x.w.Header()
	h.Set("Content-Type", typeStream)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // some proxies hold events back else
	x.deadline()
	x.w.WriteHeader(http.StatusOK)
	x.send(nil)
}

// tick returns where the times for comments come from, nil before the event stream.
func (x *exchange) tick() <-chan time.Time {
	if x.comments == nil {
		return nil
	}
	return x.comments.C
}

// event writes one message to the event stream. A message has no line end in it.
func (x *exchange) event(it item) {
	b := it.append([]byte("event: message\ndata: "))
	x.send(append(b, "\n\n"...))
}

// write writes the one answer as JSON.
func (x *exchange) write(status int, m jsonrpc.Message) { x.reply(status, item{msg: m}) }

func (x *exchange) reply(status int, it item) {
	x.answered = true
	body := it.append(nil)
	h := x.w.Header()
	h.Set("Content-Type", typeJSON)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if status == http.StatusMethodNotAllowed {
		h.Set("Allow", allowed)
	}
	x.deadline()
	x.w.WriteHeader(status)
	x.send(body)
}

// refuse answers what the transport itself does not take.
func (x *exchange) refuse(status int, text string) {
	code := jsonrpc.CodeInvalidRequest
	if status >= http.StatusInternalServerError {
		code = jsonrpc.CodeInternal
	}
	x.refused(status, text)
	x.write(status, plain(code, text, nil))
}

// refused tells of a refusal, unless nobody was proven: who counts those sees the status.
func (x *exchange) refused(status int, why string) {
	if !x.who.IsZero() {
		x.o.Refused(x.who, status, why)
	}
}

// status answers without a body.
func (x *exchange) status(code int) {
	x.answered = true
	x.deadline()
	x.w.WriteHeader(code)
}

// send writes b and lets the client see it. Each part has its own time; a client that does not read in it is given up.
func (x *exchange) send(b []byte) {
	for part := range slices.Chunk(b, writeBytes) {
		x.deadline()
		if x.superseded(); x.gone {
			return
		}
		if _, err := x.w.Write(part); err != nil {
			x.giveUp()
		}
	}
	if x.gone {
		return
	}
	if err := x.rc.Flush(); err != nil {
		x.giveUp()
	}
}

// deadline bounds the next write. An error says that the connection is gone, which the write then finds, or that the server under this
// handler has no deadlines to set.
func (x *exchange) deadline() { _ = x.rc.SetWriteDeadline(time.Now().Add(writeTime)) }

// superseded gives up where another connection has taken the stream over.
func (x *exchange) superseded() {
	select {
	case <-x.taken:
		x.giveUp()
	default:
	}
}

// giveUp notes that the client is gone.
func (x *exchange) giveUp() {
	x.gone = true
	if x.lost != nil {
		x.lost()
	}
}
