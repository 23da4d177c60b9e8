// Package gateway carries messages across: it tells eras and sessions apart, sends what the chokepoint admitted to where
// it belongs, matches what comes back with who asked, and answers for navra itself. It decides nothing about whether a
// message may cross.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"navra/internal/auth"
	"navra/internal/chokepoint"
	"navra/internal/gateway/internal/upstream"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/seal"
)

// Spec says how an upstream is started; see the fields.
type Spec = upstream.Spec

// Secret is the value of a header that an upstream is sent; it prints as [redacted].
type Secret = upstream.Secret

// Sessions remembers which sessions of the stateful era were ended before their ids expire.
type Sessions interface {
	EndSession(ctx context.Context, nonce string, expires time.Time) error
	SessionEnded(ctx context.Context, nonce string) (bool, error)
}

// Health says how an upstream fares.
type Health = upstream.Health

// Health returns how each upstream fares, sorted by name.
func (g *Gateway) Health() []Health { return g.upstreams.Health() }

// Options are the parts of a Gateway; all are required but Supervisor.
type Options struct {
	Chokepoint *chokepoint.Chokepoint
	Upstreams  []Spec
	Sessions   Sessions
	Seal       seal.Sealer // seals session ids
	Logger     *slog.Logger
	Version    string // of navra
	Supervisor string // the program that supervises a child, shim.Program(); "" starts children directly

	AskLimit, ParkLife time.Duration // see DefaultAskLimit and DefaultParkLife; 0: those
}

// A Gateway carries messages between clients and upstreams. Its methods may be called concurrently.
type Gateway struct {
	chokepoint *chokepoint.Chokepoint
	upstreams  *upstream.Pool
	sessions   Sessions
	seal       seal.Sealer
	log        *slog.Logger
	version    string
	readers    *readers
	outcomes   outcomes

	active atomic.Int64    // requests being handled
	ctx    context.Context // ends with Stop, and with it what is done in the background
	halt   context.CancelFunc
	work   sync.WaitGroup
	slots  chan struct{} // one for each thing that is done in the background

	askLimit, parkLife time.Duration

	mu        sync.Mutex
	flights   map[flight]*running    // requests in flight, by session; guarded by mu
	conns     map[string]agreement   // over connections; guarded by mu
	listeners map[*listener]struct{} // guarded by mu
	asked     map[flight]*asked      // by navra's id; guarded by mu
	carried   map[*carried]struct{}  // calls that upstreams work on; guarded by mu
	parks     map[string]*parked     // by handle; guarded by mu
	nth       uint64                 // of the last listener; guarded by mu
	backlogs  map[string]*backlog    // by session; guarded by mu
	levels    map[string]mcp.Level   // that sessions want log messages from; guarded by mu
}

// New returns a gateway that crosses only through o.Chokepoint. Stop ends it.
func New(o Options) *Gateway {
	g := &Gateway{
		chokepoint: o.Chokepoint, sessions: o.Sessions, seal: o.Seal, log: o.Logger, version: o.Version, readers: newReaders(),
		flights: map[flight]*running{}, conns: map[string]agreement{}, listeners: map[*listener]struct{}{},
		asked: map[flight]*asked{}, parks: map[string]*parked{}, carried: map[*carried]struct{}{}, slots: make(chan struct{}, maxBackground),
		backlogs: map[string]*backlog{}, levels: map[string]mcp.Level{},
		askLimit: cmp.Or(o.AskLimit, DefaultAskLimit), parkLife: cmp.Or(o.ParkLife, DefaultParkLife),
	}
	g.ctx, g.halt = context.WithCancel(context.Background())
	g.upstreams = upstream.New(upstream.Options{
		Chokepoint: o.Chokepoint, Specs: o.Upstreams, Logger: o.Logger, Supervisor: o.Supervisor, Changed: g.changed, Heard: g.readers.heard,
		Unasked: g.unasked, Withdrawn: g.withdrawn,
	})
	g.work.Go(g.obey)
	return g
}

// Drain waits until no request is being handled, or until ctx ends: what is left then is cancelled as a shutdown. No new request
// may come meanwhile.
func (g *Gateway) Drain(ctx context.Context) {
	g.Conclude()
	g.idle(ctx)
	g.mu.Lock()
	for _, r := range g.flights {
		r.cancel(chokepoint.ErrShutdown)
	}
	g.mu.Unlock()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer stop()
	g.idle(ctx)
}

// lastWords is how long a cancelled request has to be answered and recorded.
const lastWords = 500 * time.Millisecond

// idle waits until no request is being handled, or until ctx ends.
func (g *Gateway) idle(ctx context.Context) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for g.active.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Stop cancels what is in flight and ends all upstreams. It returns when they are gone.
func (g *Gateway) Stop() {
	g.mu.Lock()
	g.halt()
	for _, r := range g.flights {
		r.cancel(chokepoint.ErrShutdown)
	}
	g.mu.Unlock()
	g.endParked()
	g.upstreams.Close()
	g.work.Wait()
}

// Handle carries one client message across and sends what comes back. The error is for the transport's log: whatever the
// client is to be told was sent.
func (g *Gateway) Handle(ctx context.Context, who auth.Principal, in mcp.Inbound, out mcp.Sink) error {
	registered := sync.OnceFunc(func() {
		if in.Registered != nil {
			in.Registered()
		}
	})
	defer registered()
	from := g.peer(ctx, who, in)
	vouch(from)
	if batch(from) {
		return g.carryBatch(ctx, from, out, registered)
	}
	if in.Fault == nil && in.Msg.Kind() != jsonrpc.Request {
		return g.notice(ctx, from, out)
	}
	g.active.Add(1)
	defer g.active.Add(-1)
	ctx, this, done, end := g.track(ctx, &from)
	defer end()
	registered()
	if from.Refused == nil && in.Fault == nil {
		g.prepare(ctx, from)
	}
	land := landing{out, this, done}
	g.mu.Lock()
	this.way = &way{from, land}
	g.mu.Unlock()
	return g.cross(ctx, from, land)
}

// A landing takes a request out of flight before its answer is sent: who has the answer may use the id again. What comes after the client
// was told that it hears no more is not sent.
type landing struct {
	mcp.Sink
	flight *running
	landed func()
}

func (l landing) Send(m jsonrpc.Message) error {
	return l.flight.unlessSilent(func() error {
		if m.Method == "" {
			l.landed()
		}
		return l.Sink.Send(m)
	})
}

func (l landing) Refuse(status int, m jsonrpc.Message) error {
	return l.flight.unlessSilent(func() error {
		l.landed()
		return l.Sink.Refuse(status, m)
	})
}

// cross is the path of every request.
func (g *Gateway) cross(ctx context.Context, from chokepoint.Peer, reply mcp.Sink) error {
	out, ask, err := g.chokepoint.Admit(ctx, from)
	if ask != nil { // nobody can be asked yet
		return reply.Send(ask.Refusal.Msg)
	}
	if refusal := (*chokepoint.Refusal)(nil); errors.As(err, &refusal) {
		return send(reply, refusal.Status, refusal.Msg)
	} else if err != nil {
		return err
	}
	switch {
	case out.Parked() != "":
		return g.resume(ctx, out, from, reply)
	case from.Version.Stateless() && out.Asked():
		return g.carryAskable(ctx, out, from, reply)
	}
	for !out.IsZero() && err == nil { // more than once where the upstream asks by its answer
		out, err = g.carry(ctx, out, way{from, reply})
	}
	return err
}

// carry sends one message and hands over what comes back. next is how the call goes on, where the upstream asked for something.
func (g *Gateway) carry(ctx context.Context, out chokepoint.ToUpstream, w way) (next chokepoint.ToUpstream, lost error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	if out.Upstream() != chokepoint.Self {
		defer g.underway(w.from.Who, out.Upstream(), giveUp)()
	}
	asking, stop := context.WithCancelCause(ctx)
	var questions, hearing sync.WaitGroup
	defer questions.Wait()
	defer stop(errAnswered)
	var open atomic.Int32
	var round chokepoint.Released
	for got := range g.route(ctx, out, w.from, w.out) { // progress, questions, and exactly one last: Answer or Failed
		m, err := g.chokepoint.Release(ctx, got, w.from)
		switch {
		case err != nil && got.Last():
			return next, err
		case err != nil: // a question that cannot be recorded is not asked, nor answered: the call cannot go on, and its end is released
			giveUp(err)
			continue
		case !m.Reply.IsZero():
			g.replyWith(context.WithoutCancel(ctx), m.Reply, nil)
		case m.Question != nil && open.Load() >= maxAsking: // here, so that no more is read meanwhile
			g.refuse(context.WithoutCancel(ctx), m.Question, errTooMany)
			continue
		case m.Question != nil:
			open.Add(1)
			hearing.Add(1)
			questions.Go(func() {
				defer open.Add(-1)
				g.ask(asking, w, m.Question, hearing.Done)
			})
			continue
		case m.Rounds:
			round = m
			continue
		}
		if m.Drop || lost != nil || got.Last() && g.silent(ctx, w.from) { // what comes is judged and recorded all the same
			continue
		}
		if out.Upstream() == chokepoint.Self {
			g.took(ctx, w, m)
		}
		if got.Last() { // the client is told that its questions are void before it has the answer
			stop(errAnswered)
			hearing.Wait()
		}
		lost = send(w.out, m.Status, m.Msg)
	}
	if round.Rounds {
		return g.askRound(ctx, out, w, round.Round)
	}
	return next, lost
}

var errAnswered = errors.New("the call that the question belongs to has ended")

// took does what navra's own answer to a request says that it has done; before it is sent.
func (g *Gateway) took(ctx context.Context, w way, m chokepoint.Released) {
	switch {
	case m.Msg.Error != nil:
	case w.from.In.Msg.Method == mcp.Initialize:
		g.opened(w.from, w.out)
	case w.from.In.Msg.Method == mcp.SetLevel:
		raw, _ := w.from.In.Msg.Params.Get("level")
		name, _ := raw.Text()
		level, _ := mcp.ParseLevel(name)
		g.setLevel(w.from.Session, level)
		g.upstreams.SetLevel(ctx, g.chokepoint.Lanes(w.from), level)
	}
}

// route sends m to its upstream; what navra answers itself comes back the same way.
func (g *Gateway) route(ctx context.Context, m chokepoint.ToUpstream, from chokepoint.Peer, reply mcp.Sink) iter.Seq[chokepoint.FromUpstream] {
	if method := from.In.Msg.Method; method == mcp.Subscribe || method == mcp.Unsubscribe {
		return func(yield func(chokepoint.FromUpstream) bool) { yield(g.subscribe(ctx, m, from)) }
	}
	if m.Upstream() != chokepoint.Self {
		return g.sending(ctx, m, way{from, reply})
	}
	return func(yield func(chokepoint.FromUpstream) bool) {
		if _, err := m.Spend(g.chokepoint); err != nil {
			yield(m.Failed(chokepoint.NotSent, err))
			return
		}
		if from.In.Msg.Method == mcp.Listen {
			yield(m.Answer(g.listen(ctx, from, reply), 0))
			return
		}
		if from.In.Msg.Method == mcp.TasksList {
			yield(m.Answer(g.listTasks(ctx, from), 0))
			return
		}
		yield(m.Says(func(view chokepoint.View) jsonrpc.Message { return g.answer(from, view) }))
	}
}

// silent reports whether the client asked to hear no more: it cancelled, and its transport has no open answer to fill.
func (g *Gateway) silent(ctx context.Context, from chokepoint.Peer) bool {
	return errors.Is(context.Cause(ctx), chokepoint.ErrCancelled) && (from.In.Transport != mcp.HTTP || from.Version.Stateless())
}

// prepare starts what the message may need, and waits for it where nothing is known of it yet.
func (g *Gateway) prepare(ctx context.Context, from chokepoint.Peer) {
	if from.In.Msg.Method == mcp.Ping {
		return
	}
	lanes := g.chokepoint.Lanes(from)
	g.chokepoint.Recall(ctx, lanes)
	g.upstreams.Warm(lanes)
	g.upstreams.Settle(ctx, lanes)
	if topic := mcp.ListTopic(from.In.Msg.Method); topic != mcp.Unknown {
		g.upstreams.Freshen(ctx, lanes, topic)
	}
}

// notice takes a notification or a response. A response may answer what an upstream asked; of notifications nothing goes on, but
// a cancellation ends the request it names, and upstreams are told that roots have changed.
func (g *Gateway) notice(ctx context.Context, from chokepoint.Peer, out mcp.Sink) error {
	if from.In.Msg.Kind() == jsonrpc.Response && g.answered(from) {
		return nil
	}
	may := g.chokepoint.Notify(ctx, from)
	if r := from.Refused; r != nil {
		return out.Refuse(r.Status, jsonrpc.Message{Error: &r.Err})
	}
	if may && from.In.Msg.Method == mcp.RootsChanged {
		g.background(func(ctx context.Context) { g.upstreams.RootsChanged(ctx, g.chokepoint.Lanes(from)) })
	}
	if !may || from.In.Msg.Method != mcp.Cancelled {
		return nil
	}
	raw, _ := from.In.Msg.Params.Get("requestId")
	if id, ok := jsonrpc.IDOf(raw); ok {
		key := flight{place(from), id}
		g.mu.Lock()
		r := g.flights[key]
		if r != nil && !r.firm && from.In.Transport != mcp.HTTP {
			delete(g.flights, key) // its client hears no more of it, and may use the id again
		}
		g.mu.Unlock()
		if r != nil && !r.firm {
			r.cancel(chokepoint.ErrCancelled)
			if from.In.Transport != mcp.HTTP {
				r.silence()
			}
		}
	}
	return nil
}

func send(out mcp.Sink, status int, m jsonrpc.Message) error {
	if status != 0 {
		return out.Refuse(status, m)
	}
	return out.Send(m)
}
