// Package upstream reaches MCP servers: it starts them, opens connections, sends what the chokepoint cleared and yields
// what comes back, sealed for the chokepoint to open. It knows no policy and reads of a message only what it takes to
// match an answer with its request.
package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
)

// A Spec says how an upstream is reached and how long it may take: by a command that is started, or at a URL.
type Spec struct {
	Name    string
	Command []string // program and arguments
	Env     []string // the child's whole environment
	Dir     string   // its folder; "" for navra's own

	URL    *url.URL          // of a Streamable HTTP endpoint
	Header map[string]Secret // sent with each request
	TLS    *tls.Config       // nil: the system's certificates
	Proxy  func(*http.Request) (*url.URL, error)

	Connect time.Duration // for the greeting and the lists
	Call    time.Duration // for an answer, or for the next progress
	CallMax time.Duration // for an answer, whatever progress there is

	// Bounds on children: of the upstream, and of the upstream for one principal. 0: DefaultChildren, DefaultOwnChildren.
	Children, OwnChildren int
}

// Bounds on children where the operator sets none.
const (
	DefaultChildren    = 8
	DefaultOwnChildren = 4
)

// Options are the parts of a Pool; all are required but Changed and Supervisor.
type Options struct {
	Chokepoint *chokepoint.Chokepoint
	Specs      []Spec
	Logger     *slog.Logger
	Supervisor string                  // the program that supervises a child, shim.Program(); "" starts children directly
	Changed    func(chokepoint.Change) // lists that a client may have seen are others now
	// Heard takes the news of a resource, and reports whether anybody wants to be told.
	Heard func(chokepoint.News) bool
	// Unasked takes what an upstream sends to the session of a lane without a call that it belongs to: a log message, or a question, which it
	// sees to that is answered by Reply. It does not wait, and is false where there is no room. Withdrawn hears that an upstream no longer
	// wants the answer to a question.
	Unasked   func(l chokepoint.Lane, f chokepoint.FromUpstream) bool
	Withdrawn func(l chokepoint.Lane, wire uint64, id jsonrpc.ID)
}

// At a bound on children the idlest ends; where none is idle, a call waits for busyWait and is then refused. Sessions over HTTP cost
// the gateway little, and are bounded so that they end at all.
const (
	maxSessions    = 10_000
	maxOwnSessions = 1000
	busyWait       = 5 * time.Second
	idleLimit      = 30 * time.Minute
	// firstWait is how long, from the first start of a lane on, lists wait for an upstream of which nothing is known.
	firstWait = 10 * time.Second
)

var errBusy = errors.New("all its processes are busy")

// A Pool holds the connections. Its methods may be called concurrently.
type Pool struct {
	by         *chokepoint.Chokepoint
	specs      map[string]Spec
	clients    map[string]*http.Client // by upstream
	log        *slog.Logger
	supervisor string
	changed    func(chokepoint.Change)
	heard      func(chokepoint.News) bool
	unasked    func(chokepoint.Lane, chokepoint.FromUpstream) bool
	withdrawn  func(chokepoint.Lane, uint64, jsonrpc.ID)
	serial     atomic.Uint64   // of connections
	ctx        context.Context // ends with the pool
	end        context.CancelFunc
	work       sync.WaitGroup

	mu    sync.Mutex
	lanes map[chokepoint.Lane]*lane // guarded by mu

	askMu  sync.Mutex
	asking map[asking]func() // what to do when a question is replied to; guarded by askMu
}

// New returns a pool; Close ends it.
func New(o Options) *Pool {
	p := &Pool{
		by: o.Chokepoint, specs: map[string]Spec{}, clients: map[string]*http.Client{}, log: o.Logger, supervisor: o.Supervisor,
		changed: o.Changed, heard: o.Heard, unasked: o.Unasked, withdrawn: o.Withdrawn, lanes: map[chokepoint.Lane]*lane{}, asking: map[asking]func(){},
	}
	p.ctx, p.end = context.WithCancel(context.Background())
	for _, s := range o.Specs {
		if s.Children == 0 {
			s.Children = DefaultChildren
		}
		if s.OwnChildren == 0 {
			s.OwnChildren = DefaultOwnChildren
		}
		if s.URL != nil {
			s.Children, s.OwnChildren = maxSessions, maxOwnSessions
			p.clients[s.Name] = newClient(s)
		}
		p.specs[s.Name] = s
	}
	p.work.Go(p.reap)
	return p
}

// A Health says how an upstream fares: OK unless its last start failed and none is in service. Why holds no secret.
type Health struct {
	Name string
	OK   bool
	Why  string
}

// Health returns how each upstream fares, sorted by name. One that nobody has needed yet is well.
func (p *Pool) Health() []Health {
	p.mu.Lock()
	byName := map[string][]*lane{}
	for k, e := range p.lanes {
		byName[k.Upstream()] = append(byName[k.Upstream()], e)
	}
	p.mu.Unlock()
	var out []Health
	for name := range p.specs {
		h := Health{Name: name, OK: true}
		for _, e := range byName[name] {
			failed, alive := e.state()
			if alive {
				h = Health{Name: name, OK: true}
				break
			}
			if failed > 0 {
				h.OK, h.Why = false, fmt.Sprintf("it failed to start %d times in a row", failed)
			}
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b Health) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Warm starts the lanes' children in the background, as far as there is room for them.
func (p *Pool) Warm(lanes []chokepoint.Lane) {
	for _, l := range lanes {
		if e := p.lane(l, false); e != nil {
			p.start(e)
		}
	}
}

// Settle waits for those of the lanes of whose upstream nothing is known yet: until they have answered, have failed, or
// firstWait has passed since they were first started.
func (p *Pool) Settle(ctx context.Context, lanes []chokepoint.Lane) {
	for _, l := range lanes {
		if p.by.Heard(l) {
			continue
		}
		e := p.lane(l, false)
		if e == nil {
			continue
		}
		opening := p.start(e)
		wait, stop := context.WithDeadline(ctx, e.first.Add(firstWait))
		select {
		case <-opening.done:
		case <-wait.Done():
		}
		stop()
	}
}

// Drop ends the children of lanes whose session is over, in the background.
func (p *Pool) Drop(lanes []chokepoint.Lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range lanes {
		if e := p.lanes[l]; e != nil {
			p.retire(e)
		}
	}
}

// retire takes a lane out of service and ends its child in the background. p.mu is held.
func (p *Pool) retire(e *lane) {
	delete(p.lanes, e.key)
	p.work.Go(func() {
		e.stop(gently)
		p.by.Forget(e.key)
	})
}

// background runs f in the background, unless the pool is closing: it waits for what was begun before.
func (p *Pool) background(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() == nil {
		p.work.Go(f)
	}
}

// goFor runs f in the background and returns when it has ended, or after the time that is spent on waiting for it.
func (p *Pool) goFor(wait time.Duration, f func()) {
	p.mu.Lock()
	if p.ctx.Err() != nil { // Close waits for what was begun before
		p.mu.Unlock()
		f()
		return
	}
	ended := make(chan struct{})
	p.work.Go(func() {
		defer close(ended)
		f()
	})
	p.mu.Unlock()
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
	}
}

// Close ends all children, and with them what is still waiting. It returns when they are gone.
func (p *Pool) Close() {
	p.end()
	p.mu.Lock()
	var all []*lane
	for _, e := range p.lanes {
		all = append(all, e)
	}
	clear(p.lanes)
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, e := range all {
		wg.Go(func() { e.stop(atOnce) })
	}
	wg.Wait()
	p.work.Wait()
	for _, c := range p.clients {
		c.CloseIdleConnections()
	}
}

// connect returns the lane and its open connection, starting it where need be. The lane is in use until leave, unless there is an error.
func (p *Pool) connect(ctx context.Context, l chokepoint.Lane) (*lane, *conn, error) {
	deadline := time.Now().Add(busyWait)
	for {
		e := p.lane(l, true)
		if e != nil {
			c, err := p.open(ctx, e)
			if err != nil {
				e.leave()
			}
			return e, c, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-p.ctx.Done():
			return nil, nil, chokepoint.ErrShutdown
		case <-time.After(busyWait / 50):
		}
		if time.Now().After(deadline) {
			return nil, nil, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errBusy)
		}
	}
}

// open waits for the lane's connection.
func (p *Pool) open(ctx context.Context, e *lane) (*conn, error) {
	for try := 0; ; try++ {
		opening := p.start(e)
		select {
		case <-opening.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if opening.err != nil {
			return nil, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, opening.err)
		}
		if opening.conn.alive() || try > 0 {
			return opening.conn, nil
		}
	}
}

// lane returns the entry of l, making it where there is room; urgent makes room by ending the idlest. nil: no room. An
// urgent lane is in use until leave.
func (p *Pool) lane(l chokepoint.Lane, urgent bool) *lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.lanes[l]; e != nil {
		if urgent {
			e.enter()
		}
		return e
	}
	if p.ctx.Err() != nil {
		return nil
	}
	var ofUpstream, ofPrincipal int
	var idlest, idlestOwn *lane
	for k, e := range p.lanes {
		if k.Upstream() != l.Upstream() {
			continue
		}
		ofUpstream++
		idlest = idler(idlest, e)
		if k.Principal() == l.Principal() {
			ofPrincipal++
			idlestOwn = idler(idlestOwn, e)
		}
	}
	var victim *lane
	switch {
	case ofPrincipal >= p.specs[l.Upstream()].OwnChildren:
		victim = idlestOwn
	case ofUpstream >= p.specs[l.Upstream()].Children:
		victim = idlest
	default:
		return p.add(l, urgent)
	}
	if !urgent || victim == nil {
		return nil
	}
	p.retire(victim)
	return p.add(l, urgent)
}

// add makes a lane's entry. p.mu is held.
func (p *Pool) add(l chokepoint.Lane, used bool) *lane {
	e := &lane{key: l, spec: p.specs[l.Upstream()], first: time.Now(), wants: newWants()}
	e.touch()
	if used {
		e.enter()
	}
	p.lanes[l] = e
	return e
}

func idler(a, b *lane) *lane {
	switch {
	case b.busy():
		return a
	case a == nil || b.lastUse().Before(a.lastUse()):
		return b
	}
	return a
}

// reap ends children that nobody has used for idleLimit.
func (p *Pool) reap() {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		}
		p.mu.Lock()
		for _, e := range p.lanes {
			if !e.busy() && !e.wants.any() && time.Since(e.lastUse()) > idleLimit {
				p.retire(e)
			}
		}
		p.mu.Unlock()
	}
}
