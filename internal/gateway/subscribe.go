package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// changed hears that lists of a principal's upstreams are others now.
func (g *Gateway) changed(c chokepoint.Change) { g.readers.changed(g.chokepoint, c) }

// subscribe follows a resource for a session, or does so no more. MCP 2025-11-25, server/resources §Subscriptions.
func (g *Gateway) subscribe(ctx context.Context, m chokepoint.ToUpstream, from chokepoint.Peer) chokepoint.FromUpstream {
	done := jsonrpc.Message{Result: jsonrpc.Raw("{}")}
	w, err := m.Watch(g.chokepoint)
	if err != nil {
		return m.Failed(chokepoint.NotSent, err)
	}
	if from.In.Msg.Method == mcp.Unsubscribe {
		if r := g.readers.find(place(from)); r != nil {
			g.readers.forget(r, w.Key())
			g.readers.spare(r)
		}
		return m.Answer(done, 0)
	}
	r := g.readers.session(from, 0)
	if err := g.follow(ctx, r, w); err != nil {
		g.readers.spare(r)
		return m.Failed(chokepoint.NotSent, err)
	}
	return m.Answer(done, 0)
}

// follow has a reader be told of a resource, and returns when its upstream has agreed to tell.
func (g *Gateway) follow(ctx context.Context, r *reader, w chokepoint.Watch) error {
	it, has, err := g.readers.reserve(r, w)
	if err != nil || has {
		return err
	}
	unfollow, err := g.upstreams.Follow(ctx, w)
	if err != nil {
		g.readers.forget(r, w.Key())
		return err
	}
	if !g.readers.agreed(r, it, unfollow) {
		unfollow()
		return errClosed
	}
	return nil
}

// errListenOver ends listens in order: each gets its result.
var errListenOver = errors.New("navra ends the subscription")

// Conclude ends all listens with their results: they are requests, and would keep a gateway that drains waiting.
func (g *Gateway) Conclude() {
	g.readers.endListens(func(*reader) error { return errListenOver })
}

// followAtOnce bounds the resources of one listen that are asked for at the same time.
const followAtOnce = 8

// listen serves a subscriptions/listen until its client leaves or navra ends it, and returns its result. Upstreams have agreed before it
// is acknowledged. MCP 2026-07-28, basic/utilities/subscriptions.
func (g *Gateway) listen(ctx context.Context, from chokepoint.Peer, out mcp.Sink) jsonrpc.Message {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	wish, bad := mcp.WishOf(from.In.Msg.Params)
	if bad != nil {
		return jsonrpc.Message{Error: bad}
	}
	r, ok := g.readers.listen(from, wish, end)
	if !ok {
		return tooManyListens()
	}
	defer g.readers.close(r)
	defer g.heed(ctx, r)()
	granted := g.grant(ctx, r)
	if why := g.chokepoint.Expelled(from.Who); why != nil { // said before it was registered
		end(why)
	}
	ack, err := g.chokepoint.Acknowledge(ctx, from, granted)
	if err == nil && !ack.Drop {
		err = out.Send(ack.Msg)
	}
	if err == nil && !ack.Drop && !granted.Empty() { // else there will be nothing to tell
		g.tellAll(ctx, r, from, out)
	}
	return jsonrpc.Message{Result: new(jsonrpc.Object).Raw("_meta", chokepoint.ListenMeta(from)).Done()}
}

func tooManyListens() jsonrpc.Message {
	data := new(jsonrpc.Object).Text("stage", "message").Text("reason", "limit").Text("outcome", string(chokepoint.NotSent)).Done()
	return jsonrpc.Message{Error: &jsonrpc.Error{Code: codeLimit, Message: "denied by navra: this principal has too many subscriptions open.", Data: data}}
}

// codeLimit is navra's code for a denial.
const codeLimit = 403

// heed has the upstreams' lists be heard of, where a listen asks for any.
func (g *Gateway) heed(ctx context.Context, r *reader) (release func()) {
	if !r.wish.Lists() {
		return func() {}
	}
	lanes := g.chokepoint.Lanes(r.from)
	release = g.upstreams.Attend(lanes)
	g.upstreams.Ready(ctx, lanes)
	return release
}

// grant returns what of a listen can be told of: lists that there are, and resources and tasks that the principal may read and whose upstream tells.
func (g *Gateway) grant(ctx context.Context, r *reader) (out mcp.Wish) {
	view := g.chokepoint.View(r.from)
	out.Tools = r.wish.Tools && view.Capabilities[mcp.Tool]
	out.Prompts = r.wish.Prompts && view.Capabilities[mcp.Prompt]
	out.Resources = r.wish.Resources && view.Capabilities[mcp.Resource]
	out.URIs = g.agreed(ctx, r, r.wish.URIs, g.chokepoint.AdmitWatch)
	out.Tasks = g.agreed(ctx, r, r.wish.Tasks, g.chokepoint.AdmitTaskWatch)
	return out
}

// agreed returns those of what a listen names that may be followed and whose upstream has agreed to tell.
func (g *Gateway) agreed(ctx context.Context, r *reader, names []string, admit func(context.Context, chokepoint.Peer, string) (chokepoint.Watch, bool)) (out []string) {
	agreed := make([]bool, len(names))
	var work sync.WaitGroup
	slots := make(chan struct{}, followAtOnce)
	for i, name := range names {
		w, ok := admit(ctx, r.from, name)
		if !ok {
			continue
		}
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			agreed[i] = g.follow(ctx, r, w) == nil
		})
	}
	work.Wait()
	for i, name := range names {
		if agreed[i] {
			out = append(out, name)
		}
	}
	return out
}

// tellAll tells a reader what there is to tell, until ctx ends or it cannot be told.
func (g *Gateway) tellAll(ctx context.Context, r *reader, to chokepoint.Peer, out mcp.Sink) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.out.wake:
		}
		if err := g.tell(ctx, r, to, out); err != nil {
			return
		}
	}
}

// pause waits for newsPause, or for the end of ctx.
func pause(ctx context.Context) {
	t := time.NewTimer(newsPause)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// tell tells a reader what is in its outbox. What could not be told goes back, for the next stream of the session.
func (g *Gateway) tell(ctx context.Context, r *reader, to chokepoint.Peer, out mcp.Sink) error {
	topics, news := r.out.take()
	for i, t := range topics {
		m, err := g.chokepoint.AnnounceTo(ctx, to, t)
		if err == nil && !m.Drop {
			err = out.Send(m.Msg)
		}
		if err != nil {
			r.out.back(topics[i:], news)
			return err
		}
	}
	slow := map[chokepoint.Lane]bool{} // whose upstreams do not say how a task stands: the rest of theirs waits, so that what others tell does not
	var later []notice
	for i, n := range news {
		if n.watch.IsTask() && slow[n.watch.Lane()] {
			later = append(later, n)
			continue
		}
		m, late, err := g.told(ctx, n, to)
		slow[n.watch.Lane()] = slow[n.watch.Lane()] || late
		switch {
		case err == nil && m.Later:
			g.readers.missed(r, n.watch)
		case err == nil && !m.Drop:
			err = out.Send(m.Msg)
		}
		if err != nil {
			r.out.back(nil, append(later, news[i:]...))
			return err
		}
	}
	r.out.back(nil, later)
	if len(news) > 0 { // changes of lists are paced where they are read
		pause(ctx)
	}
	return nil
}

// stateWait is how long an upstream may take to say how a task stands that has changed; longer, and the client is not told.
const stateWait = 10 * time.Second

// told makes what a client is told of a notice. For a task its upstream is asked how it stands now; late reports that it did not say in time.
func (g *Gateway) told(ctx context.Context, n notice, to chokepoint.Peer) (out chokepoint.Released, late bool, err error) {
	if !n.watch.IsTask() {
		out, err = g.chokepoint.Tell(ctx, n.news, n.watch, to)
		return out, false, err
	}
	out = chokepoint.Released{Drop: true}
	m, err := g.chokepoint.AdmitTaskNews(ctx, n.news, n.watch, to)
	if refusal := (*chokepoint.Refusal)(nil); errors.As(err, &refusal) {
		return out, false, nil
	} else if err != nil {
		return out, false, err
	}
	asking, stop := context.WithTimeoutCause(ctx, stateWait, chokepoint.ErrDeadline)
	defer stop()
	for f := range g.upstreams.Send(asking, m) {
		if f.Last() {
			late = f.Is(chokepoint.ErrDeadline)
			out, err = g.chokepoint.TellTask(context.WithoutCancel(ctx), f, to)
		}
	}
	return out, late, err
}
