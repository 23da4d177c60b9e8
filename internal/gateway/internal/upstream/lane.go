package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"navra/internal/chokepoint"
)

// Restarts of a child that fails to start wait longer each time. A call meets the failure at once where the wait is longer
// than patience.
const (
	backoffStart = 200 * time.Millisecond
	backoffLimit = 30 * time.Second
	patience     = 2 * time.Second
)

// A lane is one connection to an upstream over time: the child that serves it now, or the attempt to start one.
type lane struct {
	key   chokepoint.Lane
	spec  Spec
	first time.Time // when it was made
	used  atomic.Int64
	level atomic.Uint32 // that the client wants log messages from; 0: it has not said
	last  atomic.Int64  // unix nanoseconds

	breaker breaker
	wants   *wants
	revived atomic.Int64 // how often it was opened again in a row for those who want to hear

	mu       sync.Mutex
	now      *opening // nil before the first start; guarded by mu
	failures int      // in a row; guarded by mu
	after    time.Time
	stopped  bool
}

// An opening is one start of a lane. conn and err may be read when done is closed.
type opening struct {
	done chan struct{}
	conn *conn
	err  error
	stop context.CancelFunc
}

func (e *lane) enter()             { e.used.Add(1); e.touch() }
func (e *lane) leave()             { e.touch(); e.used.Add(-1) }
func (e *lane) touch()             { e.last.Store(time.Now().UnixNano()) }
func (e *lane) busy() bool         { return e.used.Load() > 0 }
func (e *lane) lastUse() time.Time { return time.Unix(0, e.last.Load()) }

var errStopped = errors.New("its session is over")

// start returns the lane's opening under way or in service, beginning one where there is none or the last has ended.
func (p *Pool) start(e *lane) *opening {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o := e.now; o != nil {
		select {
		case <-o.done:
			if o.err == nil && o.conn.alive() {
				return o
			}
		default:
			return o
		}
	}
	wait := time.Until(e.after)
	if e.stopped || p.ctx.Err() != nil {
		return failed(errStopped)
	}
	if wait > patience {
		return failed(fmt.Errorf("it failed to start %d times; the next try is in %s", e.failures, wait.Round(time.Second)))
	}
	ctx, stop := context.WithCancel(p.ctx)
	o := &opening{done: make(chan struct{}), stop: stop}
	e.now = o
	p.work.Go(func() {
		defer close(o.done)
		select {
		case <-time.After(max(wait, 0)):
			o.conn, o.err = p.openLane(ctx, e)
		case <-ctx.Done():
			o.err = errStopped
		}
		e.settled(o.err)
	})
	return o
}

func failed(err error) *opening {
	o := &opening{done: make(chan struct{}), err: err, stop: func() {}}
	close(o.done)
	return o
}

// state returns how many starts failed in a row, and whether the lane is in service.
func (e *lane) state() (failed int, alive bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now != nil {
		select {
		case <-e.now.done:
			alive = e.now.err == nil && e.now.conn.alive()
		default:
		}
	}
	return e.failures, alive
}

// settled notes how a start went, for the next one's delay.
func (e *lane) settled(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.failures, e.after = 0, time.Time{}
		return
	}
	wait := min(backoffStart<<min(e.failures, 10), backoffLimit)
	e.failures++
	e.after = time.Now().Add(wait/2 + rand.N(wait/2+1))
}

// openLane starts a child, shakes hands and reads its lists.
func (p *Pool) openLane(ctx context.Context, e *lane) (*conn, error) {
	ctx, stop := context.WithTimeoutCause(ctx, e.spec.Connect, fmt.Errorf("it did not answer within %s", e.spec.Connect))
	defer stop()
	c, v, err := p.reach(ctx, e)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		p.log.Log(ctx, seriousness(ctx), "upstream did not start", "upstream", e.spec.Name, "err", err)
		return nil, err
	}
	c.visit.Store(v)
	p.tellLevel(ctx, c, e.logLevel())
	p.follow(ctx, e, c)
	if err := p.readLists(ctx, c, v); err != nil {
		p.log.Log(ctx, seriousness(ctx), "lists of the upstream could not be read", "upstream", e.spec.Name, "err", err)
	}
	p.log.Info("upstream started", "upstream", e.spec.Name, "principal", e.key.Principal(), "pid", c.wire.pid(), "version", string(c.version()))
	return c, nil
}

// seriousness is how a failed start is logged: one that was given up because nobody needs it any more is no failure.
func seriousness(ctx context.Context) slog.Level {
	if errors.Is(ctx.Err(), context.Canceled) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// reach opens a connection in one way after the other.
func (p *Pool) reach(ctx context.Context, e *lane) (*conn, *chokepoint.Visit, error) {
	c, v, err := p.dialAndGreet(ctx, e, probing)
	switch {
	case errors.Is(err, errProbed): // some servers of the stateful era end on what they do not expect
		return p.dialAndGreet(ctx, e, withoutTest)
	case isFeed(err) && e.spec.URL != nil:
		fed, v, other := p.dialAndGreet(ctx, e, overFeed)
		if other != nil {
			other = fmt.Errorf("%w\nover HTTP+SSE: %w", err, other)
		}
		return fed, v, other
	}
	return c, v, err
}

// dialAndGreet makes a connection and opens MCP on it.
func (p *Pool) dialAndGreet(ctx context.Context, e *lane, w way) (*conn, *chokepoint.Visit, error) {
	c, err := p.dial(ctx, e, w)
	if err != nil {
		return nil, nil, err
	}
	v := p.by.Visit(e.key)
	if err := c.greet(ctx, v, w); err != nil {
		c.stop(gently)
		if said := c.wire.about(); said != "" {
			p.log.Log(ctx, seriousness(ctx), "upstream printed", "upstream", e.spec.Name, "stderr", p.by.Redact(said))
		}
		return nil, nil, err
	}
	return c, v, nil
}

// readLists reads the lists of an open connection to their ends and installs them.
func (p *Pool) readLists(ctx context.Context, c *conn, v *chokepoint.Visit) error {
	select { // what was read last is installed last
	case c.reading <- struct{}{}:
		c.read.Store(time.Now().UnixNano())
		defer func() { <-c.reading }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		m, more, err := v.Next(ctx)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if err := v.Learn(ctx, c.ask(ctx, m)); err != nil {
			return err
		}
	}
	changed, err := v.Install(ctx)
	if !changed.Empty() && p.changed != nil {
		p.changed(changed)
	}
	return err
}

// rereadAfter is the least time between two readings of the lists; rereadSoon where there was none for a while: what changes twice is told of
// in time twice.
const (
	rereadAfter = time.Second
	rereadSoon  = 200 * time.Millisecond
)

// pauseAfter is how long lists are not read again after a reading that has just begun.
func (c *conn) pauseAfter(began time.Time) time.Duration {
	before := c.reread
	if c.reread = began; began.Sub(before) > 2*rereadAfter {
		return rereadSoon
	}
	return rereadAfter
}

// refresh reads the lists again after the upstream said that one has changed. However often it says so, one reading runs and at most one waits.
func (p *Pool) refresh(c *conn) {
	if c.refreshing.Swap(true) {
		c.again.Store(true)
		return
	}
	p.work.Go(func() {
		for {
			c.again.Store(false)
			began := time.Now()
			pause := c.pauseAfter(began)
			ctx, stop := context.WithTimeout(p.ctx, c.spec.Connect)
			err := p.readLists(ctx, c, c.visit.Load().Again())
			stop()
			if err != nil && c.alive() {
				p.log.Warn("lists of the upstream could not be read again", "upstream", c.spec.Name, "err", err)
			}
			select { // a storm of changes is read once a second, and less often where that is much to read
			case <-time.After(max(pause, 4*time.Since(began))):
			case <-c.wire.over():
				return
			case <-p.ctx.Done():
				return
			}
			c.refreshing.Store(false)
			if !c.again.Load() || c.refreshing.Swap(true) {
				return
			}
		}
	})
}

// listChanged reports whether a notification says that a list is another now.
func listChanged(method string) bool {
	switch method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		return true
	}
	return false
}

// stop ends the lane for good.
func (e *lane) stop(how ending) {
	e.mu.Lock()
	e.stopped = true
	o := e.now
	e.mu.Unlock()
	if o == nil {
		return
	}
	o.stop()
	<-o.done
	if o.conn != nil {
		o.conn.stop(how)
	}
}
