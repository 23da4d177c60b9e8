package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"navra/internal/chokepoint"
)

// wants is what the clients of a lane want to be told of. It outlives the lane's connections, each of which has a follower that asks
// its upstream for it. Its methods may be called concurrently.
type wants struct {
	mu       sync.Mutex
	watches  map[chokepoint.Watch]*want // guarded by mu
	attended int                        // who wants to hear of changed lists; guarded by mu
	turned   chan struct{}              // closed, and replaced, when something here or at a follower has changed; guarded by mu
}

// A want is one resource that somebody follows.
type want struct {
	refs int
	held bool // an upstream has agreed before: whoever is told may have missed something since
}

func newWants() *wants {
	return &wants{watches: map[chokepoint.Watch]*want{}, turned: make(chan struct{})}
}

// signal returns what is closed at the next change.
func (w *wants) signal() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.turned
}

func (w *wants) turn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.turned)
	w.turned = make(chan struct{})
}

func (w *wants) add(x chokepoint.Watch) {
	w.mu.Lock()
	if w.watches[x] == nil {
		w.watches[x] = &want{}
	}
	w.watches[x].refs++
	w.mu.Unlock()
	w.turn()
}

func (w *wants) remove(x chokepoint.Watch) {
	w.mu.Lock()
	if o := w.watches[x]; o != nil {
		if o.refs--; o.refs == 0 {
			delete(w.watches, x)
		}
	}
	w.mu.Unlock()
	w.turn()
}

func (w *wants) attend(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attended += n
}

// any reports whether the lane is to be kept connected.
func (w *wants) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.attended > 0 || len(w.watches) > 0
}

func (w *wants) wanted(x chokepoint.Watch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watches[x] != nil
}

func (w *wants) list() (out []chokepoint.Watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for x := range w.watches {
		out = append(out, x)
	}
	return out
}

// hold notes that an upstream tells of x from now on, if it does, and reports whether one did before.
func (w *wants) hold(x chokepoint.Watch, does bool) (before bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.watches[x]
	if o == nil || !does {
		return false
	}
	before, o.held = o.held, true
	return before
}

// Times for what is done before a client is told that it will hear of changes.
const (
	followWait = 10 * time.Second // for an upstream to agree
	readyWait  = 2 * time.Second  // for upstreams to agree to tell of their lists
)

// Follow has the watch's upstream tell of it, and returns when it has agreed. The lane is in use, and connected again where its connection
// ends, until unfollow is called. The error says why nobody will tell.
func (p *Pool) Follow(ctx context.Context, w chokepoint.Watch) (unfollow func(), err error) {
	ctx, stop := context.WithTimeoutCause(ctx, followWait, chokepoint.ErrDeadline)
	defer stop()
	e, c, err := p.connect(ctx, w.Lane())
	if err != nil {
		return nil, err
	}
	e.wants.add(w)
	unfollow = sync.OnceFunc(func() {
		e.wants.remove(w)
		e.leave()
	})
	for {
		turned := e.wants.signal()
		if said, err := c.follower.said(w); said {
			if err != nil {
				unfollow()
			}
			return unfollow, err
		}
		select {
		case <-turned:
		case <-ctx.Done():
			unfollow()
			return nil, context.Cause(ctx)
		case <-c.wire.over():
			if c, err = p.open(ctx, e); err != nil {
				unfollow()
				return nil, err
			}
		}
	}
}

// Attend keeps what the lanes' upstreams say of their lists heard: a connection that ends is opened again, until release is called. A lane
// that is made later than this is not among them.
func (p *Pool) Attend(lanes []chokepoint.Lane) (release func()) {
	var held []*wants
	for _, l := range lanes {
		if e := p.lane(l, false); e != nil {
			e.wants.attend(1)
			held = append(held, e.wants)
		}
	}
	return sync.OnceFunc(func() {
		for _, w := range held {
			w.attend(-1)
		}
	})
}

// Ready waits until those of the lanes whose upstreams tell of changed lists do so, for readyWait at most.
func (p *Pool) Ready(ctx context.Context, lanes []chokepoint.Lane) {
	ctx, stop := context.WithTimeout(ctx, readyWait)
	defer stop()
	for _, l := range lanes {
		e := p.lane(l, false)
		if e == nil {
			continue
		}
		opening := p.start(e)
		select {
		case <-opening.done:
		case <-ctx.Done():
			return
		}
		if opening.err == nil {
			opening.conn.follower.ready(ctx)
		}
	}
}

// A connection that somebody wants to hear on is opened again when it has ended, later each time unless one has lasted.
const (
	reviveFirst = 100 * time.Millisecond
	reviveMax   = 30 * time.Second
	lasted      = 10 * time.Second
)

// revive opens a lane again, as long as somebody wants to hear on it. began is when the connection that ended was opened.
func (p *Pool) revive(e *lane, began time.Time) {
	if time.Since(began) > lasted {
		e.revived.Store(0)
	}
	for e.wants.any() {
		pause := min(reviveFirst<<min(e.revived.Add(1)-1, 10), reviveMax)
		select {
		case <-p.ctx.Done():
			return
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		}
		opening := p.start(e)
		select {
		case <-p.ctx.Done():
			return
		case <-opening.done:
		}
		if opening.err == nil || errors.Is(opening.err, errStopped) {
			return // its own follower sees to what follows
		}
	}
}

var errTakesNoListen = fmt.Errorf("%w: it ended the subscription", chokepoint.ErrUnfollowed)
