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
	"time"

	"navra/internal/chokepoint"
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
	*mux
	proc   *process
	in     *os.File // the child's stdin
	turn   chan struct{}
	stderr *ring
	ended  sync.Once
}

// spawn starts the child and what reads from it.
func spawn(c *conn) (*piped, error) {
	proc, pipes, err := startProcess(c.spec, c.pool.supervisor)
	if err != nil {
		return nil, err
	}
	w := &piped{mux: newMux(c), proc: proc, in: pipes.in, turn: make(chan struct{}, 1), stderr: &ring{}}
	w.mux.write, w.mux.kill = w.line, w.giveUp
	c.pool.work.Go(func() { w.stderr.drain(pipes.err) })
	c.pool.work.Go(func() {
		w.read(pipes.out)
		w.end()
		w.stop(gently)
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

func (w *piped) pid() int            { return w.proc.pid }
func (w *piped) about() string       { return w.stderr.tail() }
func (w *piped) greeted(mcp.Version) {}

// line sends a message as one line. sent reports whether any byte may have left. A child that does not read is given up after writeLimit.
func (w *piped) line(ctx context.Context, c chokepoint.Cleared) (sent bool, err error) {
	body := append(c.Bytes(w.conn.version()), '\n')
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
	n, err := w.in.Write(body)
	if err != nil {
		w.giveUp("it does not read what is sent to it")
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

// giveUp ends the child at once. All who wait to write to it find that they cannot: it is told of once.
func (w *piped) giveUp(why string) {
	w.ended.Do(func() {
		w.conn.pool.log.Warn("upstream is ended", "upstream", w.conn.spec.Name, "why", why)
		w.proc.Kill()
	})
}

// stop ends the child's process group.
func (w *piped) stop(how ending) {
	w.in.Close()
	w.proc.stop(how, w.conn.pool.ctx.Done())
}
