package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

const (
	maxLine    = maxMessage // bytes of one message from a child
	keepOfLong = 4 << 10    // of a longer one, to tell whose answer it was
	shownNoise = 200        // of a line that is no message, in the log
)

var errGone = errors.New("the process ended")

// A piped is the wire to a process: one message a line. MCP 2025-11-25 and 2026-07-28, basic/transports §stdio.
type piped struct {
	conn *conn
	proc *process
	in   *os.File // the child's stdin
	turn chan struct{}

	stderr *ring
	noise  atomic.Int64  // lines that were no message
	gone   chan struct{} // closed when nothing more will be read

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
func spawn(c *conn) (*piped, error) {
	proc, pipes, err := startProcess(c.spec, c.pool.supervisor)
	if err != nil {
		return nil, err
	}
	w := &piped{conn: c, proc: proc, in: pipes.in, turn: make(chan struct{}, 1), stderr: &ring{}, gone: make(chan struct{}), pending: map[string]*call{}}
	c.pool.work.Go(func() { w.stderr.drain(pipes.err) })
	c.pool.work.Go(func() {
		w.read(pipes.out)
		w.end()
	})
	c.pool.work.Go(func() {
		proc.wait()
		// What a grandchild holds open is closed after what the child itself had written was read.
		select {
		case <-w.gone:
		case <-time.After(300 * time.Millisecond):
		}
		pipes.out.Close()
		pipes.err.Close()
	})
	return w, nil
}

func (w *piped) over() <-chan struct{} { return w.gone }
func (w *piped) pid() int              { return w.proc.pid }
func (w *piped) about() string         { return w.stderr.tail() }
func (w *piped) greeted(mcp.Version)   {}

func (w *piped) tell(ctx context.Context, c chokepoint.Cleared) error {
	_, err := w.write(ctx, c.Bytes(w.conn.version()))
	return err
}

func (w *piped) exchange(ctx context.Context, m chokepoint.ToUpstream, cleared chokepoint.Cleared, yield func(chokepoint.FromUpstream) bool) {
	c := &call{m: m, progress: make(chan chokepoint.FromUpstream, progressRoom), last: make(chan chokepoint.FromUpstream, 1)}
	id := cleared.ID.String()
	if !w.register(id, c) {
		yield(m.Failed(chokepoint.NotSent, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errGone)))
		return
	}
	defer w.forget(id)
	if sent, err := w.write(ctx, cleared.Bytes(w.conn.version())); err != nil {
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
		case <-ctx.Done():
			w.forget(id)
			w.conn.cancel(ctx, m)
			yield(m.Failed(chokepoint.Unknown, context.Cause(ctx)))
			return
		}
	}
}

// flush yields the progress that came before the answer.
func (c *call) flush(yield func(chokepoint.FromUpstream) bool) {
	for {
		select {
		case f := <-c.progress:
			if !yield(f) {
				return
			}
		default:
			return
		}
	}
}

func (w *piped) register(id string, c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending == nil {
		return false
	}
	w.pending[id] = c
	return true
}

func (w *piped) forget(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pending, id)
}

func (w *piped) find(id jsonrpc.ID) *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pending[id.String()]
}

// write sends one line. sent reports whether any byte may have left. A child that does not read is given up after writeLimit.
func (w *piped) write(ctx context.Context, body []byte) (sent bool, err error) {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-w.gone:
		return false, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errGone)
	}
	if err := w.in.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return false, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errGone)
	}
	n, err := w.in.Write(append(body, '\n'))
	if err != nil {
		w.kill("it does not read what is sent to it")
		return n > 0, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, err)
	}
	return true, nil
}

// read takes messages from the child until it ends.
func (w *piped) read(out io.Reader) {
	r := bufio.NewReaderSize(out, 64<<10)
	for {
		line, size, err := readLine(r)
		if len(line) > 0 {
			w.take(line, size)
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
func (w *piped) take(line []byte, size int64) {
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
			}
		}
		return
	}
	w.conn.hear(m)
}

// fail ends the call whose answer cannot be read. Where it cannot be told whose it was, the line is skipped as noise: servers print
// banners, of which the first line is logged; but too long a line is an answer, and if it is not the only one awaited, nobody can go on.
func (w *piped) fail(line []byte, fault *jsonrpc.Fault, err error, long bool) {
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
func (w *piped) finish(id string, c *call, f chokepoint.FromUpstream) {
	w.forget(id)
	select {
	case c.last <- f:
	default:
	}
}

// end fails everything that still waits: what was read before was delivered.
func (w *piped) end() {
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
	w.stop(gently)
}

// kill gives the child up.
func (w *piped) kill(why string) {
	w.conn.pool.log.Warn("upstream is ended", "upstream", w.conn.spec.Name, "why", why)
	w.proc.Kill()
}

// stop ends the child's process group.
func (w *piped) stop(how ending) {
	w.in.Close()
	w.proc.stop(how, w.conn.pool.ctx.Done())
}
