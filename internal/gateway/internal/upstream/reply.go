package upstream

import (
	"context"
	"errors"
	"fmt"

	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

var errOtherWire = errors.New("the connection that the question came over has ended")

// Reply sends the answer to a question of an upstream's, over the connection that the question came over.
func (p *Pool) Reply(ctx context.Context, m chokepoint.ToUpstream) error {
	cleared, err := m.Spend(p.by)
	if err != nil {
		return err
	}
	c := p.opened(cleared.Lane)
	if c == nil || c.serial != cleared.Wire {
		return fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errOtherWire)
	}
	defer c.replied(cleared.Answers())
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), writeLimit)
	defer stop()
	return c.wire.tell(ctx, cleared)
}

// opened returns the lane's connection if it is in service, else nil.
func (p *Pool) opened(l chokepoint.Lane) *conn {
	p.mu.Lock()
	e := p.lanes[l]
	p.mu.Unlock()
	if e == nil {
		return nil
	}
	return e.inService()
}

// inService returns the lane's connection if there is one that lives, else nil.
func (e *lane) inService() *conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now == nil {
		return nil
	}
	select {
	case <-e.now.done:
		if e.now.err == nil && e.now.conn.alive() {
			return e.now.conn
		}
	default:
	}
	return nil
}

// onReply calls f when the question of that id was replied to.
func (c *conn) onReply(id jsonrpc.ID, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking == nil {
		c.asking = map[string]func(){}
	}
	c.asking[id.String()] = f
}

func (c *conn) replied(id jsonrpc.ID) {
	c.mu.Lock()
	f := c.asking[id.String()]
	delete(c.asking, id.String())
	c.mu.Unlock()
	if f != nil {
		f()
	}
}

// takeTurn waits until no other call is under way that the upstream may ask back about, where it could not be told whose question is
// whose: clients of the stateless era share a connection without streams to an upstream of the other.
func (c *conn) takeTurn(ctx context.Context, m chokepoint.ToUpstream) (leave func(), err error) {
	if c.lane.Session() != "" || c.lane.Caps() == 0 || !m.Asked() || c.version().Stateless() || c.wire.streams() {
		return func() {}, nil
	}
	select {
	case c.turn <- struct{}{}:
		return func() { <-c.turn }, nil
	case <-c.wire.over():
		return nil, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errGone)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// SetLevel has the lanes' upstreams send log messages from a level on, now and whenever they start again.
func (p *Pool) SetLevel(ctx context.Context, lanes []chokepoint.Lane, level mcp.Level) {
	for _, l := range lanes {
		p.mu.Lock()
		e := p.lanes[l]
		p.mu.Unlock()
		if e == nil {
			continue
		}
		e.level.Store(uint32(level))
		if c := e.inService(); c != nil {
			c.told.Store(uint32(level))
			p.tellLevel(ctx, c, level)
		}
	}
}

func (e *lane) logLevel() mcp.Level { return mcp.Level(e.level.Load()) }

// catchUp tells an upstream the level that its lane is at, unless it was told: one may be set while the connection is being opened.
func (p *Pool) catchUp(ctx context.Context, e *lane, c *conn) {
	if l := e.logLevel(); c.told.Swap(uint32(l)) != uint32(l) {
		p.tellLevel(ctx, c, l)
	}
}

// level has a shared connection of the stateful era tell at least what a request wants. What comes is held against each request.
func (p *Pool) level(ctx context.Context, c *conn, wanted mcp.Level) {
	if wanted == 0 || c.version().Stateless() {
		return
	}
	for {
		now := c.level.Load()
		if now != 0 && mcp.Level(now) <= wanted {
			return
		}
		if c.level.CompareAndSwap(now, uint32(wanted)) {
			p.tellLevel(ctx, c, wanted)
			return
		}
	}
}

// tellLevel tells an upstream that logs from which level on.
func (p *Pool) tellLevel(ctx context.Context, c *conn, level mcp.Level) {
	v := c.visit.Load()
	if level == 0 || v == nil || c.version().Stateless() || !v.Offers("logging") {
		return
	}
	ctx, stop := context.WithTimeout(ctx, writeLimit)
	defer stop()
	v = p.by.Visit(c.lane)
	m, err := v.AdmitLevel(ctx, level)
	if err == nil {
		err = v.Learn(ctx, c.ask(ctx, m))
	}
	if err != nil && c.alive() {
		p.log.Warn("upstream did not take the log level", "upstream", c.spec.Name, "err", err)
	}
}

// RootsChanged tells the lanes' upstreams that their client's roots are others now.
func (p *Pool) RootsChanged(ctx context.Context, lanes []chokepoint.Lane) {
	for _, l := range lanes {
		c := p.opened(l)
		if c == nil || c.version().Stateless() || l.Caps()&mcp.CanTellRoots == 0 || p.by.Answers(l, mcp.RootsList) {
			continue
		}
		m, err := p.by.AdmitRootsChanged(ctx, l)
		if err == nil {
			err = c.tell(ctx, m)
		}
		if err != nil && c.alive() {
			p.log.Warn("upstream could not be told of changed roots", "upstream", c.spec.Name, "err", err)
		}
	}
}
