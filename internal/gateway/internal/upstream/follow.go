package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/mcp"
)

const (
	// ackWait is how long an upstream may take to acknowledge a listen; listsWait how long its lists wait for that.
	ackWait   = 5 * time.Second
	listsWait = time.Second
	// maxListens is how many listens for resources run on one connection before all are made one.
	maxListens = 8
	// followAtOnce bounds the requests to tell that are under way on one connection.
	followAtOnce = 8
)

// A follower keeps what one connection's upstream tells of in step with what is wanted: in the stateful era with a request for each
// resource, in the stateless one with listens: one for the lists, and one for each lot of resources that came to be wanted together. It
// is not one listen for all, ended and begun again at each change: some servers forget what a new listen has in common with the
// one that ends.
type follower struct {
	conn  *conn
	wants *wants
	began time.Time

	settled  chan struct{} // closed when it is known whether the upstream tells of its lists
	settle   func()
	unheard  atomic.Bool // the lists were read while nobody would have told that they change
	fails    int         // in a row; like what follows, of the goroutine that runs the follower
	failed   time.Time   // when last
	due      time.Time   // when what failed is tried again; zero where nothing has
	pushes   bool        // it was waited for the stream that the upstream pushes on
	listsNow *listening  // nil for none
	noLists  bool        // there is nothing to be told of lists

	mu        sync.Mutex
	answers   map[chokepoint.Watch]error // what the upstream said; guarded by mu
	listens   map[string]*listening      // by id; guarded by mu
	rereading chan struct{}              // closed when the lists were read again for those who wait; nil where they are not; guarded by mu
}

// A listening is one listen of navra's own.
type listening struct {
	id      string
	m       chokepoint.ToUpstream
	watches []chokepoint.Watch // none: it is for lists
	acked   chan chokepoint.FromUpstream
	over    chan struct{} // closed when it has ended
	why     error         // set before
	stop    context.CancelFunc
	ending  <-chan struct{} // closed when it was stopped, which it may be some time before it is over
	began   time.Time
}

func newFollower(c *conn) *follower {
	f := &follower{conn: c, began: time.Now(), settled: make(chan struct{}), answers: map[chokepoint.Watch]error{}, listens: map[string]*listening{}}
	f.settle = sync.OnceFunc(func() { close(f.settled) })
	return f
}

// said returns what the upstream said to a watch, once it has.
func (f *follower) said(w chokepoint.Watch) (said bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err, said = f.answers[w]
	return said, err
}

// ready waits until it is known whether the upstream tells of its lists.
func (f *follower) ready(ctx context.Context) {
	select {
	case <-f.settled:
	case <-ctx.Done():
	case <-f.conn.wire.over():
	}
}

// run follows until the connection ends, and has it opened again where somebody wants to hear more.
func (f *follower) run(e *lane) {
	p := f.conn.pool
	ctx, stop := context.WithCancel(p.ctx)
	defer stop()
	p.work.Go(func() {
		select {
		case <-f.conn.wire.over():
			stop()
		case <-ctx.Done():
		}
	})
	for ctx.Err() == nil {
		turned := f.wants.signal()
		f.pace(f.step(ctx))
		var again <-chan time.Time
		if !f.due.IsZero() {
			again = time.After(time.Until(f.due))
		}
		select {
		case <-turned:
		case <-again:
			f.due = time.Time{}
			f.retry()
		case <-ctx.Done():
		}
	}
	f.settle()
	if p.ctx.Err() == nil && f.wants.any() {
		p.background(func() { p.revive(e, f.began) })
	}
}

// pace sets when what failed is tried again: later each time, unless it went well for a while.
func (f *follower) pace(done bool) {
	if done || !f.due.IsZero() {
		return
	}
	if time.Since(f.failed) > pushLasted {
		f.fails = 0
	}
	wait := min(pushAgain<<min(f.fails, 10), pushAgainMax)
	f.fails++
	f.failed = time.Now()
	f.due = f.failed.Add(wait/2 + rand.N(wait/2+1))
}

// step brings the upstream in step once; false: something is to be tried again after a while.
func (f *follower) step(ctx context.Context) bool {
	if f.conn.version().Stateless() {
		lists := f.followLists(ctx)
		f.settle()
		return f.listenFor(ctx) && lists
	}
	if !f.pushes {
		f.conn.pushed(ctx)
		f.pushes = true
	}
	f.settle()
	return f.subscribe(ctx)
}

// retry forgets failures that were no refusals.
func (f *follower) retry() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w, err := range f.answers {
		if err != nil && !errors.Is(err, chokepoint.ErrUnfollowed) {
			delete(f.answers, w)
		}
	}
}

// answer notes what the upstream said to a watch. Where it was told of before, and then for a while was not, something may have been missed.
func (f *follower) answer(w chokepoint.Watch, err error) {
	f.mu.Lock()
	had, answered := f.answers[w]
	f.answers[w] = err
	f.mu.Unlock()
	gap := f.wants.hold(w, err == nil) && !(answered && had == nil) // a listen that stands for others has none
	if gap && f.conn.pool.heard != nil {
		f.conn.pool.heard(w.Missed())
	}
}

// diff returns what is wanted and not asked for yet, and drops and returns what was granted and is not wanted any more.
func (f *follower) diff() (added, gone []chokepoint.Watch) {
	wanted := f.wants.list()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range wanted {
		if _, asked := f.answers[w]; !asked {
			added = append(added, w)
		}
	}
	for w, err := range f.answers {
		if !slices.Contains(wanted, w) {
			delete(f.answers, w)
			if err == nil {
				gone = append(gone, w)
			}
		}
	}
	return added, gone
}

// subscribe asks a stateful upstream for each resource.
func (f *follower) subscribe(ctx context.Context) (done bool) {
	added, gone := f.diff()
	if len(added)+len(gone) == 0 {
		return true
	}
	var failed atomic.Bool
	each(gone, func(w chokepoint.Watch) { _ = f.request(ctx, w, f.conn.pool.by.AdmitUnfollow) })
	deaf := f.conn.deaf()
	each(added, func(w chokepoint.Watch) {
		err := errDeaf
		if !deaf {
			err = f.request(ctx, w, f.conn.pool.by.AdmitFollow)
		}
		if err != nil && !errors.Is(err, chokepoint.ErrUnfollowed) {
			failed.Store(true)
		}
		f.answer(w, err)
	})
	f.wants.turn()
	return !failed.Load()
}

// each runs do for all watches, followAtOnce at the same time.
func each(watches []chokepoint.Watch, do func(chokepoint.Watch)) {
	var work sync.WaitGroup
	slots := make(chan struct{}, followAtOnce)
	for _, w := range watches {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			do(w)
		})
	}
	work.Wait()
}

// request sends one of navra's own requests about a watch and heeds the answer.
func (f *follower) request(ctx context.Context, w chokepoint.Watch, admit func(context.Context, chokepoint.Watch) (chokepoint.ToUpstream, error)) error {
	ctx, stop := context.WithTimeoutCause(ctx, ackWait, chokepoint.ErrDeadline)
	defer stop()
	m, err := admit(ctx, w)
	if err != nil {
		return err
	}
	return f.conn.pool.by.Heed(ctx, f.conn.ask(ctx, m))
}

// pushed waits, for a while, until what the upstream sends unasked would be heard.
func (c *conn) pushed(ctx context.Context) {
	w, ok := c.wire.(*web)
	if !ok {
		return
	}
	late := time.NewTimer(listsWait)
	defer late.Stop()
	select {
	case <-w.listening:
	case <-late.C:
	case <-ctx.Done():
	}
}

// errDeaf reports an upstream that has no way to tell of anything.
var errDeaf = fmt.Errorf("%w: it offers no stream to be told on", chokepoint.ErrUnfollowed)

// deaf reports whether nothing that the upstream sends unasked would be heard.
func (c *conn) deaf() bool {
	w, ok := c.wire.(*web)
	return ok && w.deaf.Load()
}

// news takes a notification that belongs to what navra follows, and reports whether it did.
func (c *conn) news(in chokepoint.FromUpstream, method string, about func(path ...string) string) bool {
	switch method {
	case mcp.Acknowledged:
		if l := c.follower.find(about("_meta", mcp.SubscriptionID)); l != nil {
			select {
			case l.acked <- in:
				return true
			default:
			}
		}
	case mcp.Cancelled: // one way in which an upstream ends a listen
		if l := c.follower.find(about("requestId")); l != nil {
			l.stop()
			return true
		}
	case mcp.ResourceUpdated, mcp.TaskNews:
		if method == mcp.TaskNews && !c.version().Stateless() {
			return false
		}
		if c.version().Stateless() && c.follower.find(about("_meta", mcp.SubscriptionID)) == nil {
			return false
		}
		n, ok := c.pool.by.News(in)
		return ok && c.pool.heard != nil && c.pool.heard(n)
	}
	return false
}

func (f *follower) find(id string) *listening {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listens[id]
}

// follow begins to follow on a connection that is being opened. What an upstream tells of its lists is heard before they are read, so that
// nothing falls between; one that takes too long is read all the same, and once more when it has agreed.
func (p *Pool) follow(ctx context.Context, e *lane, c *conn) {
	p.background(func() { c.follower.run(e) })
	if !c.version().Stateless() || !c.visit.Load().Follows().Lists() {
		return
	}
	ctx, stop := context.WithTimeout(ctx, listsWait)
	defer stop()
	c.follower.ready(ctx)
	if ctx.Err() == nil {
		return
	}
	c.follower.unheard.Store(true)
	select {
	case <-c.follower.settled: // in this moment
		p.refresh(c)
	default:
	}
}
