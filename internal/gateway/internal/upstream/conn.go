package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

const (
	maxLine      = 16 << 20 // bytes of one message from a child
	keepOfLong   = 4 << 10  // of a longer one, to tell whose answer it was
	writeLimit   = 10 * time.Second
	progressRoom = 64 // progress notifications of one call that wait for a slow client; more are dropped
	askedRoom    = 16 // requests of the upstream's own that wait for their answer; where there are more, nothing else is read meanwhile
)

var errGone = errors.New("the process ended")

// A conn is an open connection to one child. Its methods may be called concurrently.
type conn struct {
	pool  *Pool
	lane  chokepoint.Lane
	spec  Spec
	proc  *process
	in    *os.File // the child's stdin
	turn  chan struct{}
	visit atomic.Pointer[chokepoint.Visit] // that opened it; nil before

	stderr     *ring
	noise      atomic.Int64 // lines that were no message
	refreshing atomic.Bool
	again      atomic.Bool
	asked      chan chokepoint.FromUpstream
	gone       chan struct{} // closed when nothing more will be read

	mu      sync.Mutex
	pending map[string]*call // by id; guarded by mu; nil when gone
}

// A call waits for its answer.
type call struct {
	m        chokepoint.ToUpstream
	progress chan chokepoint.FromUpstream
	last     chan chokepoint.FromUpstream // room for one
}

// spawn starts the child and what reads from it.
func (p *Pool) spawn(e *lane) (*conn, error) {
	proc, pipes, err := startProcess(e.spec, p.supervisor)
	if err != nil {
		return nil, err
	}
	c := &conn{
		pool: p, lane: e.key, spec: e.spec, proc: proc, in: pipes.in, turn: make(chan struct{}, 1), stderr: &ring{},
		asked: make(chan chokepoint.FromUpstream, askedRoom), gone: make(chan struct{}), pending: map[string]*call{},
	}
	p.work.Go(func() { c.stderr.drain(pipes.err) })
	p.work.Go(c.answerAsked)
	p.work.Go(func() {
		c.read(pipes.out)
		c.end()
	})
	p.work.Go(func() {
		proc.wait()
		// What a grandchild holds open is closed after what the child itself had written was read.
		select {
		case <-c.gone:
		case <-time.After(300 * time.Millisecond):
		}
		pipes.out.Close()
		pipes.err.Close()
	})
	return c, nil
}

func (c *conn) alive() bool {
	select {
	case <-c.gone:
		return false
	default:
		return true
	}
}

func (c *conn) pid() int { return c.proc.pid }

// shakeHands opens the MCP session.
func (c *conn) shakeHands(ctx context.Context, v *chokepoint.Visit) error {
	m, err := v.Hello(ctx)
	if err != nil {
		return err
	}
	if err := v.Learn(ctx, c.ask(ctx, m)); err != nil {
		return err
	}
	m, err = v.Initialized(ctx)
	if err != nil {
		return err
	}
	return c.tell(ctx, m)
}

// ask sends one of navra's own requests and returns its answer or failure.
func (c *conn) ask(ctx context.Context, m chokepoint.ToUpstream) (out chokepoint.FromUpstream) {
	cleared, err := m.Spend(c.pool.by)
	if err != nil {
		return m.Failed(chokepoint.NotSent, err)
	}
	c.roundTrip(ctx, m, cleared, func(f chokepoint.FromUpstream) bool { out = f; return true })
	return out
}

// tell sends a message that has no answer.
func (c *conn) tell(ctx context.Context, m chokepoint.ToUpstream) error {
	cleared, err := m.Spend(c.pool.by)
	if err != nil {
		return err
	}
	_, err = c.write(ctx, cleared.Body)
	return err
}

// roundTrip sends a cleared request and yields what comes back for it, the last thing last.
func (c *conn) roundTrip(ctx context.Context, m chokepoint.ToUpstream, cleared chokepoint.Cleared, yield func(chokepoint.FromUpstream) bool) {
	w := &call{m: m, progress: make(chan chokepoint.FromUpstream, progressRoom), last: make(chan chokepoint.FromUpstream, 1)}
	id := cleared.ID.String()
	if !c.register(id, w) {
		yield(m.Failed(chokepoint.NotSent, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errGone)))
		return
	}
	defer c.forget(id)
	if sent, err := c.write(ctx, cleared.Body); err != nil {
		outcome := chokepoint.Unknown
		if !sent {
			outcome = chokepoint.NotSent
		}
		yield(m.Failed(outcome, err))
		return
	}
	for {
		select {
		case f := <-w.last:
			c.flush(w, yield)
			yield(f)
			return
		case f := <-w.progress:
			if !yield(f) {
				return
			}
		case <-ctx.Done():
			c.forget(id)
			c.cancel(ctx, m)
			yield(m.Failed(chokepoint.Unknown, context.Cause(ctx)))
			return
		}
	}
}

// flush yields the progress that came before the answer.
func (c *conn) flush(w *call, yield func(chokepoint.FromUpstream) bool) {
	for {
		select {
		case f := <-w.progress:
			if !yield(f) {
				return
			}
		default:
			return
		}
	}
}

// cancel tells the upstream that nobody waits for m any more; at once, not behind anything.
func (c *conn) cancel(ctx context.Context, m chokepoint.ToUpstream) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), writeLimit)
	defer stop()
	note, err := c.pool.by.AdmitCancel(ctx, m)
	if err == nil {
		err = c.tell(ctx, note)
	}
	if err != nil && c.alive() {
		c.pool.log.Warn("upstream could not be told of a cancellation", "upstream", c.spec.Name, "err", err)
	}
}

func (c *conn) register(id string, w *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending == nil {
		return false
	}
	c.pending[id] = w
	return true
}

func (c *conn) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

func (c *conn) find(id jsonrpc.ID) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[id.String()]
}

// write sends one line. sent reports whether any byte may have left. A child that does not read is given up after writeLimit.
func (c *conn) write(ctx context.Context, body []byte) (sent bool, err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-c.gone:
		return false, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errGone)
	}
	if err := c.in.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return false, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errGone)
	}
	line := append(bytes.Clone(body), '\n')
	n, err := c.in.Write(line)
	if err != nil {
		c.kill("it does not read what is sent to it")
		return n > 0, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, err)
	}
	return true, nil
}

// read takes messages from the child until it ends.
func (c *conn) read(out io.Reader) {
	r := bufio.NewReaderSize(out, 64<<10)
	for {
		line, size, err := readLine(r)
		if len(line) > 0 {
			c.take(line, size)
		}
		if err != nil {
			return
		}
	}
}

// readLine reads up to LF, and tells how long the line was. Of one over maxLine it keeps the beginning only.
func readLine(r *bufio.Reader) (line []byte, size int64, err error) {
	for {
		part, err := r.ReadSlice('\n')
		size += int64(len(part))
		switch {
		case size <= maxLine+1:
			line = append(line, part...)
		case len(line) > keepOfLong:
			line = bytes.Clone(line[:keepOfLong])
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(line, "\r\n"), size, err
		}
	}
}

// take gives one line to whom it belongs.
func (c *conn) take(line []byte, size int64) {
	m, repaired, fault := jsonrpc.ParseUpstream(line)
	if size > maxLine+1 {
		c.fail(fault, chokepoint.TooLarge{Limit: maxLine, Actual: size}, true)
		return
	}
	if fault != nil {
		c.fail(fault, fmt.Errorf("%w: %w", chokepoint.ErrBadAnswer, fault), false)
		return
	}
	switch m.Kind() {
	case jsonrpc.Response:
		if w := c.find(m.ID); w != nil && !m.ID.IsZero() {
			c.finish(m.ID.String(), w, w.m.Answer(m, repaired))
			return
		}
	case jsonrpc.Notification:
		if m.Method == mcp.Progress {
			token, _ := m.Params.Get("progressToken")
			if id, ok := jsonrpc.IDOf(token); ok {
				if w := c.find(id); w != nil {
					select {
					case w.progress <- w.m.Progress(m):
					default:
					}
				}
			}
			return
		}
	case jsonrpc.Request:
		select {
		case c.asked <- c.pool.by.Unsolicited(c.lane, m): // full: nothing is read before an answer was written
		case <-c.proc.done:
		}
		return
	}
	if method := c.pool.by.Overhear(c.pool.ctx, c.pool.by.Unsolicited(c.lane, m)); listChanged(method) && c.visit.Load() != nil {
		c.pool.refresh(c)
	}
}

// fail ends the call whose answer cannot be read. Where it cannot be told whose it was, the line is skipped as noise: servers print
// banners; but too long a line is an answer, and if it is not the only one awaited, nobody can go on.
func (c *conn) fail(fault *jsonrpc.Fault, err error, long bool) {
	var w *call
	var id string
	if fault != nil && !fault.ID.IsZero() {
		w, id = c.find(fault.ID), fault.ID.String()
	}
	if w == nil && long {
		c.mu.Lock()
		if len(c.pending) == 1 {
			for id, w = range c.pending { // the only one
			}
		}
		c.mu.Unlock()
		if w == nil {
			c.kill("it sent a message that is too long")
			return
		}
	}
	if w == nil {
		if n := c.noise.Add(1); n == 1 {
			c.pool.log.Warn("upstream prints lines that are no messages; they are skipped", "upstream", c.spec.Name)
		}
		return
	}
	c.finish(id, w, w.m.Failed(chokepoint.Ran, err))
}

// finish gives a call its last element, once.
func (c *conn) finish(id string, w *call, f chokepoint.FromUpstream) {
	c.forget(id)
	select {
	case w.last <- f:
	default:
	}
}

// answerAsked answers the upstream's own requests, one at a time.
func (c *conn) answerAsked() {
	for {
		select {
		case f := <-c.asked:
			ctx, stop := context.WithTimeout(c.pool.ctx, writeLimit)
			m, err := c.pool.by.AdmitReply(ctx, f)
			if err == nil {
				err = c.tell(ctx, m)
			}
			stop()
			if err != nil && c.alive() {
				c.pool.log.Warn("upstream's request could not be answered", "upstream", c.spec.Name, "err", err)
			}
		case <-c.gone:
			return
		}
	}
}

// end fails everything that still waits: what was read before was delivered.
func (c *conn) end() {
	c.mu.Lock()
	waiting := c.pending
	c.pending = nil
	c.mu.Unlock()
	for _, w := range waiting {
		select {
		case w.last <- w.m.Failed(chokepoint.Unknown, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errGone)):
		default:
		}
	}
	close(c.gone)
	c.stop(gently)
}

// kill gives the child up.
func (c *conn) kill(why string) {
	c.pool.log.Warn("upstream is ended", "upstream", c.spec.Name, "why", why)
	c.proc.Kill()
}

// stop ends the child.
func (c *conn) stop(how ending) {
	c.in.Close()
	c.proc.stop(how, c.pool.ctx.Done())
}
