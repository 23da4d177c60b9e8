package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"navra/internal/auth"
	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

const (
	// DefaultAskLimit is how long a client of the stateful era may take to answer a question: it may be a person.
	DefaultAskLimit = 10 * time.Minute
	// maxAsking bounds the questions that one session has to answer at the same time.
	maxAsking = 32
	// shedWait is how long navra waits before it repeats a call for an upstream that asked for nothing but that.
	shedWait = 200 * time.Millisecond
)

var (
	errAskLimit  = errors.New("the client did not answer in time")
	errNoWay     = errors.New("the client has no stream on which it could be asked")
	errTooMany   = errors.New("the client has too many questions to answer already")
	errWithdrawn = errors.New("the upstream withdrew its question")
)

// An asked is a question that a client of the stateful era has to answer.
type asked struct {
	question *chokepoint.Question
	who      auth.Principal // that is asked
	got      chan reply     // room for one
	drop     context.CancelCauseFunc
}

// A reply is what a client answers, and who it was.
type reply struct {
	from chokepoint.Peer
	msg  jsonrpc.Message
}

// A way is how the client of a session can be told something while one of its requests is under way.
type way struct {
	from chokepoint.Peer
	out  mcp.Sink
}

// ask puts a question to a client of the stateful era and takes its answer up. Where there is none, the upstream is told. heard is called when
// the client hears no more of it.
func (g *Gateway) ask(ctx context.Context, w way, q *chokepoint.Question, heard func()) {
	got, err := g.answerTo(ctx, w, q)
	heard()
	ctx = context.WithoutCancel(ctx)
	if err != nil {
		g.refuse(ctx, q, err)
		return
	}
	up, err := g.chokepoint.AdmitAnswer(ctx, got.from, q, got.msg)
	g.replyWith(ctx, up, err)
}

// refuse tells an upstream that its question has no answer.
func (g *Gateway) refuse(ctx context.Context, q *chokepoint.Question, why error) {
	up, err := g.chokepoint.RefuseQuestion(ctx, q, why.Error())
	g.replyWith(ctx, up, err)
}

// replyWith tells an upstream what was admitted as the answer to its question.
func (g *Gateway) replyWith(ctx context.Context, up chokepoint.ToUpstream, err error) {
	if err == nil && !up.IsZero() {
		err = g.upstreams.Reply(ctx, up)
	}
	switch {
	case err == nil:
	case errors.Is(err, chokepoint.ErrUnavailable): // it has ended, with its session or by itself
		g.log.DebugContext(ctx, "the upstream that asked is gone", "upstream", up.Upstream(), "err", err)
	default:
		g.log.WarnContext(ctx, "the answer to an upstream's question did not reach it", "upstream", up.Upstream(), "err", err)
	}
}

// answerTo asks the client and waits for its answer.
func (g *Gateway) answerTo(ctx context.Context, w way, q *chokepoint.Question) (reply, error) {
	ctx, drop := context.WithCancelCause(ctx)
	defer drop(nil)
	ctx, stop := context.WithTimeoutCause(ctx, g.askLimit, errAskLimit)
	defer stop()
	a := &asked{question: q, who: w.from.Who, got: make(chan reply, 1), drop: drop}
	key := flight{place(w.from), q.ID()}
	if !g.expect(key, a) {
		return reply{}, errTooMany
	}
	defer func() {
		g.mu.Lock()
		delete(g.asked, key)
		g.mu.Unlock()
	}()
	if err := w.out.Send(q.Request()); err != nil {
		return reply{}, errNoWay
	}
	select {
	case got := <-a.got:
		return got, nil
	case <-ctx.Done():
		if m, err := g.chokepoint.Withdraw(context.WithoutCancel(ctx), q); err == nil {
			out := w.out
			if l, ok := out.(landing); ok { // it hears no more of a call that it has cancelled, but of the question it does
				out = l.Sink
			}
			_ = out.Send(m.Msg) // a client that is gone needs no notice
		}
		return reply{}, context.Cause(ctx)
	}
}

// expect registers a question, if its session has room for one more.
func (g *Gateway) expect(key flight, a *asked) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for k := range g.asked {
		if k.place == key.place {
			n++
		}
	}
	if _, twice := g.asked[key]; twice || n >= maxAsking {
		return false
	}
	g.asked[key] = a
	return true
}

// answered takes a response of a client's; it reports whether it answers a question.
func (g *Gateway) answered(from chokepoint.Peer) bool {
	g.mu.Lock()
	a := g.asked[flight{place(from), from.In.Msg.ID}]
	g.mu.Unlock()
	if a == nil || from.Refused != nil || !a.question.For(from) {
		return false
	}
	select {
	case a.got <- reply{from, from.In.Msg}:
	default: // a second answer
		return false
	}
	return true
}

// withdrawn hears that an upstream no longer wants an answer.
func (g *Gateway) withdrawn(l chokepoint.Lane, wire uint64, id jsonrpc.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.asked {
		if a.question.Is(l, wire, id) {
			a.drop(errWithdrawn)
		}
	}
}

// askRound asks what an upstream of the stateless era wants to know, all at once, and makes the retry of the call. It is zero where the call
// has been answered in its place.
func (g *Gateway) askRound(ctx context.Context, out chokepoint.ToUpstream, w way, questions []*chokepoint.Question) (chokepoint.ToUpstream, error) {
	if len(questions) == 0 {
		select {
		case <-time.After(shedWait):
		case <-ctx.Done():
		}
	}
	var mu sync.Mutex
	answers := map[*chokepoint.Question]chokepoint.Reply{}
	var asking sync.WaitGroup
	for _, q := range questions {
		asking.Go(func() {
			got, err := g.answerTo(ctx, w, q)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[q] = chokepoint.Reply{From: got.from, Msg: got.msg}
		})
	}
	asking.Wait()
	next, err := g.chokepoint.AdmitRound(context.WithoutCancel(ctx), w.from, out, answers)
	if refusal := (*chokepoint.Refusal)(nil); errors.As(err, &refusal) {
		if g.silent(ctx, w.from) {
			return chokepoint.ToUpstream{}, nil
		}
		return chokepoint.ToUpstream{}, send(w.out, refusal.Status, refusal.Msg)
	}
	return next, err
}

// wayTo finds how the client of a session can be told something: its stream, its connection, or one of its requests under way. It waits for
// one as long as limit.
func (g *Gateway) wayTo(ctx context.Context, session string, limit time.Duration) (way, bool) {
	end := time.Now().Add(limit)
	for {
		if w, ok := g.wayNow(session); ok {
			return w, true
		}
		if !time.Now().Before(end) {
			return way{}, false
		}
		select {
		case <-ctx.Done():
			return way{}, false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (g *Gateway) wayNow(session string) (way, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	newest := g.newest()
	for l := range g.listeners {
		if l.from.Session != session || l.from.In.Transport == mcp.HTTP && newest[session] != l {
			continue
		}
		from := l.from
		if from.In.Transport != mcp.HTTP {
			agreed, ok := g.conns[from.In.Conn]
			if !ok {
				continue // it is not initialised
			}
			from.Version, from.Caps = agreed.version, agreed.caps
		}
		from.Level = g.levels[session]
		return way{from, l.push}, true
	}
	var ids []flight
	for key, r := range g.flights {
		if key.place == session && r.way != nil && !r.firm {
			ids = append(ids, key)
		}
	}
	if len(ids) == 0 {
		return way{}, false
	}
	slices.SortFunc(ids, func(a, b flight) int { return g.flights[a].began.Compare(g.flights[b].began) })
	return *g.flights[ids[0]].way, true
}
