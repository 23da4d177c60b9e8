package upstream

import (
	"context"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/mcp"
)

// freshWait is how long a client waits for a list to be read that its upstream said was out of date by now.
const freshWait = 3 * time.Second

// followedAgain is how often lists are read again, at most, whose upstream says that they are out of date though it tells of changes.
const followedAgain = time.Minute

// Freshen reads the lists of those lanes again whose upstream said that they are out of date by now. Where the upstream tells of changes,
// that is done behind; else those who ask wait for it together, and get what was known where it takes too long or fails.
func (p *Pool) Freshen(ctx context.Context, lanes []chokepoint.Lane, topic mcp.Topic) {
	for _, l := range lanes {
		if !p.by.Stale(l, topic) {
			continue
		}
		c := p.inService(l)
		switch {
		case c == nil:
		case c.follower.following():
			if time.Since(time.Unix(0, c.read.Load())) > followedAgain {
				p.refresh(c)
			}
		default:
			p.await(ctx, c)
		}
	}
}

// inService returns a lane's connection, nil where there is none now.
func (p *Pool) inService(l chokepoint.Lane) *conn {
	p.mu.Lock()
	e := p.lanes[l]
	p.mu.Unlock()
	if e == nil {
		return nil
	}
	e.mu.Lock()
	o := e.now
	e.mu.Unlock()
	if o == nil {
		return nil
	}
	select {
	case <-o.done:
	default:
		return nil
	}
	if o.err != nil || !o.conn.alive() {
		return nil
	}
	return o.conn
}

// await reads a connection's lists again, or waits for who is reading them.
func (p *Pool) await(ctx context.Context, c *conn) {
	f := c.follower
	f.mu.Lock()
	r := f.rereading
	first := r == nil
	if first {
		r = make(chan struct{})
		f.rereading = r
	}
	f.mu.Unlock()
	if first {
		p.background(func() {
			p.reread(c)
			f.mu.Lock()
			f.rereading = nil
			f.mu.Unlock()
			close(r)
		})
	}
	late := time.NewTimer(freshWait)
	defer late.Stop()
	select {
	case <-r:
	case <-late.C:
	case <-ctx.Done():
	case <-p.ctx.Done():
	}
}

func (p *Pool) reread(c *conn) {
	ctx, stop := context.WithTimeout(p.ctx, c.spec.Connect)
	defer stop()
	if err := p.readLists(ctx, c, c.visit.Load().Again()); err != nil && c.alive() {
		p.log.Warn("lists of the upstream could not be read again", "upstream", c.spec.Name, "err", err)
	}
}
