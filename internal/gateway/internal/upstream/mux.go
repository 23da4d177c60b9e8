package upstream

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"navra/internal/catalogue"
	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// A mux matches what comes over a wire that carries many calls at once with who waits for it.
type mux struct {
	conn  *conn
	write func(ctx context.Context, c chokepoint.Cleared) (sent bool, err error) // sent: whether any byte may have left
	kill  func(why string)                                                       // gives the wire up
	noise atomic.Int64                                                           // messages that were none
	gone  chan struct{}                                                          // closed when nothing more will be read

	mu      sync.Mutex
	pending map[string]*call // by id; guarded by mu; nil when gone
	left    time.Time        // when a call was given up last; guarded by mu
}

func newMux(c *conn) *mux {
	return &mux{conn: c, gone: make(chan struct{}), pending: map[string]*call{}}
}

func (w *mux) over() <-chan struct{} { return w.gone }

func (w *mux) tell(ctx context.Context, c chokepoint.Cleared) error {
	_, err := w.write(ctx, c)
	return err
}

// A call waits for its answer.
type call struct {
	m        chokepoint.ToUpstream
	progress chan chokepoint.FromUpstream // and log messages
	asks     chan chokepoint.FromUpstream
	last     chan chokepoint.FromUpstream // room for one
}

func (w *mux) exchange(ctx context.Context, m chokepoint.ToUpstream, cleared chokepoint.Cleared, yield func(chokepoint.FromUpstream) bool) {
	c := &call{m: m, progress: make(chan chokepoint.FromUpstream, progressRoom), asks: make(chan chokepoint.FromUpstream, askedRoom), last: make(chan chokepoint.FromUpstream, 1)}
	id := cleared.ID.String()
	if !w.register(id, c) {
		yield(m.Failed(chokepoint.NotSent, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errGone)))
		return
	}
	defer w.forget(id)
	if sent, err := w.write(ctx, cleared); err != nil {
		outcome := chokepoint.Unknown
		if !sent {
			outcome = chokepoint.NotSent
		}
		yield(m.Failed(outcome, err))
		return
	}
	for {
		select {
		case f := <-c.last:
			c.flush(yield)
			yield(f)
			return
		case f := <-c.progress:
			if !yield(f) {
				return
			}
		case f := <-c.asks:
			if !yield(f) {
				return
			}
		case <-ctx.Done():
			w.leave(id)
			w.conn.cancel(ctx, m)
			yield(m.Failed(chokepoint.Unknown, context.Cause(ctx)))
			return
		}
	}
}

// flush yields what came before the answer.
func (c *call) flush(yield func(chokepoint.FromUpstream) bool) {
	for {
		select {
		case f := <-c.progress:
			if !yield(f) {
				return
			}
		case f := <-c.asks:
			if !yield(f) {
				return
			}
		default:
			return
		}
	}
}

func (w *mux) register(id string, c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending == nil {
		return false
	}
	w.pending[id] = c
	return true
}

func (w *mux) forget(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pending, id)
}

// leave forgets a call that was given up. Where clients share the connection, what its upstream asks next may still belong to it.
func (w *mux) leave(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waiting := w.pending[id]; waiting && w.conn.lane.Session() == "" {
		w.left = time.Now()
	}
	delete(w.pending, id)
}

// unclear is how long, after a call was given up, what an upstream asks is taken to belong to that call.
const unclear = 10 * time.Second

func (w *mux) find(id jsonrpc.ID) *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pending[id.String()]
}

// take gives one line to whom it belongs.
func (w *mux) take(line []byte, size int64) {
	m, repaired, fault := jsonrpc.ParseUpstream(line)
	if size > maxLine+1 {
		w.fail(line, fault, chokepoint.TooLarge{Limit: maxLine, Actual: size}, true)
		return
	}
	if fault != nil {
		w.fail(line, fault, fmt.Errorf("%w: %w", chokepoint.ErrBadAnswer, fault), false)
		return
	}
	switch {
	case m.Kind() == jsonrpc.Response && !m.ID.IsZero():
		if c := w.find(m.ID); c != nil {
			w.finish(m.ID.String(), c, c.m.Answer(m, repaired))
			return
		}
	case m.Kind() == jsonrpc.Notification && m.Method == mcp.Progress:
		token, _ := m.Params.Get("progressToken")
		if id, ok := jsonrpc.IDOf(token); ok {
			if c := w.find(id); c != nil {
				select {
				case c.progress <- c.m.Progress(m):
				default:
				}
				return
			}
		}
	}
	if !w.forCall(m) {
		w.conn.hear(w.conn.pool.ctx, m)
	}
}

// forCall gives a question or a log message to the call that it belongs to: the one that is under way, if there is just one.
func (w *mux) forCall(m jsonrpc.Message) bool {
	asks := m.Kind() == jsonrpc.Request && mcp.QuestionOf(m.Method) != mcp.NoQuestion && !w.conn.pool.by.Answers(w.conn.lane, m.Method)
	if w.conn.version().Stateless() && asks || !asks && (m.Kind() != jsonrpc.Notification || m.Method != mcp.Logging) {
		return false
	}
	c := w.concerned(m)
	switch {
	case c == nil:
		return false
	case !asks:
		select {
		case c.progress <- c.m.Note(m):
		default:
		}
		return true
	}
	select {
	case c.asks <- c.m.Question(m, w.conn.serial):
		return true
	default: // too many at once
		return false
	}
}

// concerned returns the call that what an upstream sends belongs to: that which waits for the task that it names, else the only one.
func (w *mux) concerned(m jsonrpc.Message) *call {
	raw, named := m.Params.Get("_meta", mcp.RelatedTask, "taskId")
	id, _ := raw.Text()
	if !named || w.conn.lane.Principal() == catalogue.Everyone {
		return w.sole()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.pending {
		if c.m.Concerns(id) {
			return c
		}
	}
	return nil
}

// sole returns the only call of a client's that is under way; nil if there is none or more than one, or if it cannot be told.
func (w *mux) sole() (only *call) {
	if w.conn.lane.Principal() == catalogue.Everyone {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.left) < unclear {
		return nil
	}
	for _, c := range w.pending {
		if c.m.Own() {
			continue
		}
		if only != nil {
			return nil
		}
		only = c
	}
	return only
}

func (w *mux) streams() bool { return false }

// fail ends the call whose answer cannot be read. Where it cannot be told whose it was, the line is skipped as noise: servers print
// banners, of which the first line is logged; but too long a line is an answer, and if it is not the only one awaited, nobody can go on.
func (w *mux) fail(line []byte, fault *jsonrpc.Fault, err error, long bool) {
	var c *call
	var id string
	if fault != nil && !fault.ID.IsZero() {
		c, id = w.find(fault.ID), fault.ID.String()
	}
	if c == nil && long {
		w.mu.Lock()
		if len(w.pending) == 1 {
			for id, c = range w.pending { // the only one
			}
		}
		w.mu.Unlock()
		if c == nil {
			w.kill("it sent a message that is too long")
			return
		}
	}
	if c == nil {
		if n := w.noise.Add(1); n == 1 {
			first := w.conn.pool.by.Redact(strings.ToValidUTF8(string(line[:min(len(line), keepOfLong)]), "?")) // before it is cut: half a secret is not found
			w.conn.pool.log.Warn("upstream prints lines that are no messages; they are skipped", "upstream", w.conn.spec.Name, "first", strings.ToValidUTF8(first[:min(len(first), shownNoise)], ""))
		}
		return
	}
	w.finish(id, c, c.m.Failed(chokepoint.Ran, err))
}

// finish gives a call its last element, once.
func (w *mux) finish(id string, c *call, f chokepoint.FromUpstream) {
	w.forget(id)
	select {
	case c.last <- f:
	default:
	}
}

// end fails everything that still waits: what was read before was delivered.
func (w *mux) end() {
	w.mu.Lock()
	waiting := w.pending
	w.pending = nil
	w.mu.Unlock()
	for _, c := range waiting {
		select {
		case c.last <- c.m.Failed(chokepoint.Unknown, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errGone)):
		default:
		}
	}
	close(w.gone)
	if n := w.noise.Load(); n > 0 {
		w.conn.pool.log.Info("upstream printed lines that were no messages", "upstream", w.conn.spec.Name, "lines", n)
	}
}
