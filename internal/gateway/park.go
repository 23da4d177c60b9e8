package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// Bounds on parked calls.
const (
	// DefaultParkLife is how long a parked call waits until somebody comes back with answers.
	DefaultParkLife = 10 * time.Minute

	maxParked  = 1000
	maxOwn     = 16 // of one principal
	gatherWait = 30 * time.Millisecond
	boxRoom    = 64 // progress and log messages that wait for a slow client; more are dropped
	maxOpen    = 16 // questions of one call; more are refused
)

// A parked is a call of a client of the stateless era to an upstream that may ask back: it goes on when the request that began it was answered
// with questions. Who has claimed it works on it alone.
type parked struct {
	out    chokepoint.ToUpstream
	from   chokepoint.Peer // of the request that it goes on for
	box    *mailbox
	cancel context.CancelCauseFunc
	open   []*chokepoint.Question // not answered
	asked  int                    // keys that were given
	expiry *time.Timer
}

// A mailbox keeps what came for a call until somebody takes it.
type mailbox struct {
	ready chan struct{} // room for one: something may be there

	mu    sync.Mutex
	items []chokepoint.FromUpstream // guarded by mu
	asks  int                       // of items; guarded by mu
	ended bool                      // the last is there, or was; guarded by mu
}

func newMailbox() *mailbox { return &mailbox{ready: make(chan struct{}, 1)} }

// put is false for a question that has no room.
func (b *mailbox) put(f chokepoint.FromUpstream) bool {
	b.mu.Lock()
	switch {
	case f.Asks() && b.asks >= maxOpen:
		b.mu.Unlock()
		return false
	case f.Asks():
		b.asks++
		b.items = append(b.items, f)
	case f.Last() || len(b.items) < boxRoom:
		b.items = append(b.items, f)
	}
	b.ended = b.ended || f.Last()
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
	return true
}

// take returns the oldest; ok is false where there is none.
func (b *mailbox) take() (f chokepoint.FromUpstream, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.items) == 0 {
		return f, false
	}
	f = b.items[0]
	b.items = b.items[1:]
	if f.Asks() {
		b.asks--
	}
	return f, true
}

// over reports whether the call has ended.
func (b *mailbox) over() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// carryAskable sends a call that its upstream may ask back about, for a client that is asked by an answer.
func (g *Gateway) carryAskable(ctx context.Context, out chokepoint.ToUpstream, from chokepoint.Peer, reply mcp.Sink) error {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	p := &parked{out: out, from: from, box: newMailbox(), cancel: cancel}
	g.mu.Lock()
	stopped := g.ctx.Err() != nil
	if !stopped {
		g.work.Go(func() {
			defer cancel(nil)
			defer g.underway(from.Who, out.Upstream(), cancel)()
			for f := range g.sending(own, out, way{from, reply}) {
				if !p.box.put(f) { // here, so that no more is read meanwhile
					g.turnDown(own, f.Astray())
				}
			}
		})
	}
	g.mu.Unlock()
	if stopped {
		p.box.put(out.Failed(chokepoint.NotSent, chokepoint.ErrShutdown))
	}
	return g.attend(ctx, p, from, reply)
}

// refuseOpen tells the upstream of a call that nobody answers what is open.
func (g *Gateway) refuseOpen(ctx context.Context, p *parked, why error) {
	for _, q := range p.open {
		g.refuse(context.WithoutCancel(ctx), q, why)
	}
	p.open = nil
}

// attend sends a client what comes for its call, until that has ended or has to be parked.
func (g *Gateway) attend(ctx context.Context, p *parked, from chokepoint.Peer, reply mcp.Sink) error {
	var lost error // why the client hears no more
	gone, gathered := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case <-gone:
			gone = nil
			p.cancel(context.Cause(ctx))
		case <-gathered:
			gathered = nil
			if gone != nil && lost == nil && len(p.open) > 0 && !p.box.over() {
				return g.park(ctx, p, from, reply)
			}
		case <-p.box.ready:
		}
		for f, ok := p.box.take(); ok; f, ok = p.box.take() {
			m, err := g.chokepoint.Release(ctx, f, from)
			switch {
			case err != nil && f.Last():
				p.cancel(err)
				return err
			case err != nil: // as in carry
				p.cancel(err)
				continue
			case m.Question != nil && (gone == nil || len(p.open) >= maxOpen):
				g.refuse(context.WithoutCancel(ctx), m.Question, errTooMany)
				continue
			case m.Question != nil:
				p.asked++
				m.Question.Key(fmt.Sprintf("ask%d", p.asked))
				if p.open = append(p.open, m.Question); gathered == nil {
					gathered = time.After(gatherWait)
				}
				continue
			case !m.Reply.IsZero():
				g.replyWith(context.WithoutCancel(ctx), m.Reply, nil)
			}
			if !m.Drop && lost == nil && !(f.Last() && g.silent(ctx, from)) {
				lost = send(reply, m.Status, m.Msg)
			}
			if f.Last() {
				g.refuseOpen(ctx, p, errAnswered)
				return lost
			}
		}
	}
}

// park answers the request with the questions that are open, and keeps the call for whoever comes back with answers.
func (g *Gateway) park(ctx context.Context, p *parked, from chokepoint.Peer, reply mcp.Sink) error {
	if !g.roomToPark(from.Who.Name()) {
		g.refuseOpen(ctx, p, errTooMany)
		return g.attend(ctx, p, from, reply)
	}
	handle := rand.Text()
	m, err := g.chokepoint.Park(ctx, p.out, handle, p.open)
	switch {
	case errors.Is(err, chokepoint.ErrWithheld):
		defer g.end(context.WithoutCancel(ctx), p, err)
		return reply.Send(m.Msg)
	case err != nil:
		p.cancel(err)
		return errors.Join(err, reply.Send(m.Msg))
	}
	p.from = from
	g.mu.Lock()
	stopped := g.ctx.Err() != nil // nobody would end it any more
	if !stopped {
		g.parks[handle] = p
		p.expiry = time.AfterFunc(g.parkLife, func() { g.abandon(handle, chokepoint.ErrExpired) })
	}
	g.mu.Unlock()
	if stopped {
		g.end(context.WithoutCancel(ctx), p, chokepoint.ErrShutdown)
		return reply.Send(m.Msg)
	}
	if why := g.chokepoint.Halts(from.Who, p.out.Upstream()); why != nil { // said before it was parked
		g.abandon(handle, why)
	}
	if err := reply.Send(m.Msg); err != nil { // nobody knows of it
		g.abandon(handle, chokepoint.ErrCancelled)
		return err
	}
	return nil
}

func (g *Gateway) roomToPark(principal string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := 0
	for _, p := range g.parks {
		if p.from.Who.Name() == principal {
			own++
		}
	}
	return own < maxOwn && len(g.parks) < maxParked
}

// claim takes a parked call out of the hands of all others; nil where there is none.
func (g *Gateway) claim(handle string) *parked {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.parks[handle]
	if p != nil {
		delete(g.parks, handle)
		p.expiry.Stop()
	}
	return p
}

// resume goes on with the call that a retry answers for.
func (g *Gateway) resume(ctx context.Context, retry chokepoint.ToUpstream, from chokepoint.Peer, reply mcp.Sink) error {
	p := g.claim(retry.Parked())
	if p != nil && g.chokepoint.Resume(retry, p.out) != nil {
		g.end(context.WithoutCancel(ctx), p, errUnable)
		p = nil
	}
	if p == nil {
		m, err := g.chokepoint.RefuseRetry(ctx, retry)
		if err != nil {
			return err
		}
		return send(reply, m.Status, m.Msg)
	}
	defer g.underway(from.Who, p.out.Upstream(), p.cancel)() // its credential may be another than that of the first request
	var left []*chokepoint.Question
	for _, q := range p.open {
		v, ok := retry.Input(q)
		if !ok || !q.Fits(v) {
			if ok {
				if err := g.chokepoint.Again(ctx, from, q, v); err != nil {
					g.log.ErrorContext(ctx, "an answer that does not fit was not recorded", "err", err)
				}
			}
			left = append(left, q)
			continue
		}
		up, err := g.chokepoint.AdmitAnswer(ctx, from, q, jsonrpc.Message{Result: v})
		g.replyWith(ctx, up, err)
	}
	if p.open = g.askable(ctx, left, from); len(p.open) > 0 && !p.box.over() {
		return g.park(ctx, p, from, reply)
	}
	return g.attend(ctx, p, from, reply)
}

// askable refuses those of the questions that a retry's client can no longer be asked, and returns the others.
func (g *Gateway) askable(ctx context.Context, questions []*chokepoint.Question, from chokepoint.Peer) (out []*chokepoint.Question) {
	for _, q := range questions {
		if q.Suits(from) {
			out = append(out, q)
			continue
		}
		g.refuse(context.WithoutCancel(ctx), q, errUnable)
	}
	return out
}

var errUnable = errors.New("the client can no longer be asked")

// abandon ends a parked call that nobody came back for. Its questions are answered as by nobody, and what becomes of it is recorded.
func (g *Gateway) abandon(handle string, why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.parks[handle]
	if p == nil || g.ctx.Err() != nil { // Stop ends what is there
		return
	}
	delete(g.parks, handle)
	p.expiry.Stop()
	g.work.Go(func() { g.end(context.WithoutCancel(g.ctx), p, why) })
}

func (g *Gateway) end(ctx context.Context, p *parked, why error) {
	g.refuseOpen(ctx, p, why)
	g.chokepoint.Abandon(p.out)
	p.cancel(why)
	for {
		f, ok := p.box.take()
		if !ok {
			<-p.box.ready
			continue
		}
		m, err := g.chokepoint.Release(ctx, f, p.from)
		if err != nil {
			g.log.ErrorContext(ctx, "the end of a parked call was not recorded", "err", err)
		}
		switch {
		case m.Question != nil:
			g.refuse(ctx, m.Question, why)
		case !m.Reply.IsZero():
			g.replyWith(ctx, m.Reply, nil)
		}
		if f.Last() {
			return
		}
	}
}

// endParked ends all parked calls; g.ctx has ended. It returns when they are.
func (g *Gateway) endParked() {
	g.mu.Lock()
	var all []*parked
	for handle, p := range g.parks {
		p.expiry.Stop()
		delete(g.parks, handle)
		all = append(all, p)
	}
	g.mu.Unlock()
	slices.SortFunc(all, func(a, b *parked) int { return cmp.Compare(a.from.Who.Name(), b.from.Who.Name()) })
	var ending sync.WaitGroup
	for _, p := range all {
		ending.Go(func() { g.end(context.Background(), p, chokepoint.ErrShutdown) })
	}
	ending.Wait()
}
