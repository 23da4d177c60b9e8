package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// Bounds on what an upstream sends.
const (
	maxMessage   = 16 << 20 // bytes of one message
	writeLimit   = 10 * time.Second
	cancelWait   = 200 * time.Millisecond // for an upstream to take a cancellation, before the call is given up without
	progressRoom = 64                     // progress notifications of one call that wait for a slow client; more are dropped
	askedRoom    = 16                     // requests of the upstream's own that wait for their answer; where there are more, nothing else is read meanwhile
	// silence is how long an upstream may take to answer a probe before it is greeted as one that knows no probes.
	silence = 3 * time.Second
)

// A wire carries cleared messages to an upstream and what comes back. Its methods may be called concurrently.
type wire interface {
	// exchange sends a request and yields what comes back for it: progress, and exactly one last thing.
	exchange(ctx context.Context, m chokepoint.ToUpstream, c chokepoint.Cleared, yield func(chokepoint.FromUpstream) bool)
	// tell sends what has no answer.
	tell(ctx context.Context, c chokepoint.Cleared) error
	// greeted is told once which version was agreed on.
	greeted(v mcp.Version)
	// over is closed when the wire is of no use any more.
	over() <-chan struct{}
	// stop ends the wire, and returns when it has ended.
	stop(how ending)
	// about says what may help to find out why the upstream does not answer: what a child printed.
	about() string
	pid() int // of a child; 0 for none
	// streams reports whether what belongs to a call comes on a stream of its own.
	streams() bool
}

// A way is how a connection is opened.
type way uint8

const (
	probing     way = iota // both eras
	withoutTest            // the stateful era alone: a probe has ended the child
	overFeed               // HTTP+SSE, which is older than any probe
)

// A conn is an open connection to one upstream. Its methods may be called concurrently.
type conn struct {
	pool *Pool
	lane chokepoint.Lane
	spec Spec
	wire wire
	wait time.Duration // how long a probe may go unanswered; 0: as long as the greeting may take

	agreed     atomic.Pointer[mcp.Version]
	visit      atomic.Pointer[chokepoint.Visit] // that opened it; nil before
	refreshing atomic.Bool
	again      atomic.Bool
	asked      chan chokepoint.FromUpstream
	serial     uint64        // unique in the pool
	turn       chan struct{} // taken by a call that may be asked back about
	level      atomic.Uint32 // of log messages that a request has asked for
	follower   *follower
	reading    chan struct{} // held while the lists are read
	read       atomic.Int64  // when they last were, in unix nanoseconds
	reread     time.Time     // when lists were last read because they had changed; of who has set refreshing
}

// dial starts what the lane's upstream is reached by.
func (p *Pool) dial(ctx context.Context, e *lane, w way) (c *conn, err error) {
	c = &conn{
		pool: p, lane: e.key, spec: e.spec, asked: make(chan chokepoint.FromUpstream, askedRoom), reading: make(chan struct{}, 1),
		serial: p.serial.Add(1), turn: make(chan struct{}, 1),
	}
	c.follower = newFollower(c)
	c.follower.wants = e.wants
	client := p.clients[e.spec.Name]
	switch {
	case e.spec.URL == nil:
		c.wait = silence
		c.wire, err = spawn(c)
	case e.spec.URL.Scheme == "ws" || e.spec.URL.Scheme == "wss":
		c.wait = silence
		c.wire, err = openSocket(ctx, c, client)
	case w == overFeed:
		c.wire, err = openFeed(ctx, c, client)
	default:
		c.wire = openHTTP(c, client)
	}
	if err != nil {
		return nil, err
	}
	p.work.Go(c.answerAsked)
	return c, nil
}

func (c *conn) alive() bool {
	select {
	case <-c.wire.over():
		return false
	default:
		return true
	}
}

// version is what the connection speaks: what was agreed on, and before that what is tried.
func (c *conn) version() mcp.Version {
	if v := c.agreed.Load(); v != nil {
		return *v
	}
	return ""
}

func (c *conn) speak(v mcp.Version) { c.agreed.Store(&v) }

// errProbed reports a child that ended when it was probed.
var errProbed = errors.New("it ended when it was asked for its versions")

// greet opens MCP, in the era that the upstream spoke last, or else the newest first.
func (c *conn) greet(ctx context.Context, v *chokepoint.Visit, w way) error {
	ways := []func(context.Context, *chokepoint.Visit) error{c.discover, c.initialize}
	switch {
	case w != probing:
		ways = ways[1:]
	case v.Known().Stateful():
		ways[0], ways[1] = ways[1], ways[0]
	}
	var errs []error
	for _, way := range ways {
		err := way(ctx, v)
		if err == nil {
			c.speak(v.Version())
			c.wire.greeted(v.Version())
			return nil
		}
		errs = append(errs, err)
		if !errors.Is(err, chokepoint.ErrOtherEra) {
			break
		}
	}
	return errors.Join(errs...)
}

// discover greets as the stateless era does. An upstream that refuses the version and asks for one that navra speaks is asked once more.
func (c *conn) discover(ctx context.Context, v *chokepoint.Visit) error {
	c.speak(mcp.V20260728)
	err := c.probe(ctx, v)
	if errors.Is(err, chokepoint.ErrOnceMore) {
		err = c.probe(ctx, v)
	}
	return err
}

func (c *conn) probe(ctx context.Context, v *chokepoint.Visit) error {
	m, err := v.Discover(ctx)
	if err != nil {
		return err
	}
	wait, stop := ctx, context.CancelFunc(func() {})
	if c.wait > 0 {
		wait, stop = context.WithTimeoutCause(ctx, c.wait, errSilent)
	}
	defer stop()
	err = v.Learn(ctx, c.ask(wait, m))
	switch {
	case errors.Is(err, errSilent) && ctx.Err() == nil:
		return fmt.Errorf("%w: %w", err, chokepoint.ErrOtherEra)
	case errors.Is(err, errGone):
		return fmt.Errorf("%w: %w", errProbed, err)
	}
	return err
}

var errSilent = errors.New("it did not answer the probe")

// initialize greets as the stateful era does.
func (c *conn) initialize(ctx context.Context, v *chokepoint.Visit) error {
	c.speak("")
	m, err := v.Hello(ctx)
	if err != nil {
		return err
	}
	if err := v.Learn(ctx, c.ask(ctx, m)); err != nil {
		return err
	}
	c.speak(v.Version())
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
	c.wire.exchange(ctx, m, cleared, func(f chokepoint.FromUpstream) bool {
		if f.Last() {
			out = f
		}
		return true
	})
	return out
}

// tell sends a message that has no answer.
func (c *conn) tell(ctx context.Context, m chokepoint.ToUpstream) error {
	cleared, err := m.Spend(c.pool.by)
	if err != nil {
		return err
	}
	return c.wire.tell(ctx, cleared)
}

// cancel tells the upstream that nobody waits for m any more; at once, not behind anything. An upstream that does not take it holds nobody up.
func (c *conn) cancel(ctx context.Context, m chokepoint.ToUpstream) {
	c.pool.goFor(cancelWait, func() { c.tellCancelled(ctx, m) })
}

func (c *conn) tellCancelled(ctx context.Context, m chokepoint.ToUpstream) {
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

// hear takes what the upstream sent unasked, beside something that ends with ctx.
func (c *conn) hear(ctx context.Context, m jsonrpc.Message) {
	switch f := c.pool.by.Unsolicited(c.lane, m, c.serial); {
	case c.forSession(m) && c.pool.unasked(c.lane, f):
		return
	case m.Kind() == jsonrpc.Notification && m.Method == mcp.Progress:
		return // of a call that has ended
	case m.Kind() == jsonrpc.Request:
		select {
		case c.asked <- f: // full: nothing is read before an answer was written
		case <-c.wire.over():
		case <-ctx.Done():
		}
		return
	}
	if id, ok := withdrawn(m); ok && c.pool.withdrawn != nil {
		c.pool.withdrawn(c.lane, c.serial, id)
	}
	about := func(path ...string) string {
		v, _ := m.Params.Get(path...)
		return string(v)
	}
	if c.news(c.pool.by.Unsolicited(c.lane, m, c.serial), m.Method, about) {
		return
	}
	if method := c.pool.by.Overhear(c.pool.ctx, c.pool.by.Unsolicited(c.lane, m, c.serial)); listChanged(method) && c.visit.Load() != nil {
		c.pool.refresh(c)
	}
}

// forSession reports whether the client of the lane's session may be told of what its upstream sends without a call.
func (c *conn) forSession(m jsonrpc.Message) bool {
	if c.lane.Session() == "" || c.pool.unasked == nil || c.version().Stateless() || c.visit.Load() == nil && m.Kind() != jsonrpc.Request {
		return false
	}
	if m.Kind() == jsonrpc.Request {
		return mcp.QuestionOf(m.Method) != mcp.NoQuestion && !c.pool.by.Answers(c.lane, m.Method)
	}
	return m.Method == mcp.Logging || m.Method == mcp.Elicited || m.Method == mcp.TaskStatus || m.Method == mcp.Progress && c.pool.by.Follows(c.lane, m)
}

// withdrawn returns the id of a request that an upstream cancels.
func withdrawn(m jsonrpc.Message) (jsonrpc.ID, bool) {
	if m.Method != mcp.Cancelled {
		return jsonrpc.ID{}, false
	}
	raw, _ := m.Params.Get("requestId")
	return jsonrpc.IDOf(raw)
}

// answerAsked answers the upstream's own requests, one at a time. In the stateless era there can be none: they are recorded and not answered.
func (c *conn) answerAsked() {
	for {
		select {
		case f := <-c.asked:
			ctx, stop := context.WithTimeout(c.pool.ctx, writeLimit)
			m, err := c.pool.by.AdmitReply(ctx, f)
			if err == nil && !c.version().Stateless() {
				err = c.tell(ctx, m)
			}
			stop()
			if err != nil && c.alive() {
				c.pool.log.Warn("upstream's request could not be answered", "upstream", c.spec.Name, "err", err)
			}
		case <-c.wire.over():
			return
		}
	}
}

func (c *conn) stop(how ending) { c.wire.stop(how) }
