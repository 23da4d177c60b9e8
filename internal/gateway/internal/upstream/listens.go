package upstream

import (
	"context"
	"errors"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/mcp"
)

// followLists has a stateless upstream tell when its lists change, if it says that it does; false: to be tried again.
func (f *follower) followLists(ctx context.Context) bool {
	if l := f.listsNow; l != nil {
		select {
		case <-l.over: // what has changed since is read below
			f.unheard.Store(true)
			f.listsNow = nil
			if time.Since(l.began) < pushLasted {
				return false
			}
		default:
			return true
		}
	}
	lists := f.conn.visit.Load().Follows()
	if f.noLists || !lists.Lists() {
		return true
	}
	if !f.due.IsZero() {
		return false
	}
	l, granted, err := f.listen(ctx, lists, nil)
	switch {
	case errors.Is(err, chokepoint.ErrUnfollowed), err == nil && !granted.Lists():
		f.noLists = true
		return true
	case err != nil:
		return false
	}
	f.listsNow = l
	if f.unheard.Swap(false) {
		f.conn.pool.refresh(f.conn)
	}
	return true
}

// following reports whether the upstream tells of changes of the list of a topic.
func (f *follower) following() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.listens {
		if len(l.watches) == 0 {
			return true
		}
	}
	return false
}

// listenFor has a stateless upstream tell of resources; false: to be tried again.
func (f *follower) listenFor(ctx context.Context) bool {
	done := f.mourn()
	added, _ := f.diff()
	old := f.endUnwanted()
	if len(added) == 0 {
		return done
	}
	merge := len(old) >= maxListens
	if merge {
		for _, l := range old {
			added = append(added, l.watches...)
		}
	}
	for len(added) > 0 {
		n := min(len(added), mcp.MaxWatched)
		done = f.listenTo(ctx, added[:n]) && done
		added = added[n:]
	}
	if merge && done {
		for _, l := range old {
			l.stop()
		}
	}
	f.wants.turn()
	return done
}

// listenTo begins one listen and notes what of it the upstream grants.
func (f *follower) listenTo(ctx context.Context, watches []chokepoint.Watch) bool {
	_, granted, err := f.listen(ctx, mcp.Wish{}, watches)
	for _, w := range watches {
		switch {
		case err != nil:
			f.answer(w, err)
		case w.In(granted):
			f.answer(w, nil)
		default:
			f.answer(w, chokepoint.ErrUnfollowed)
		}
	}
	return err == nil || errors.Is(err, chokepoint.ErrUnfollowed)
}

var errEnded = errors.New("the upstream ended the subscription")

// mourn forgets listens for resources that the upstream has ended; false: they are to be begun again after a while.
func (f *follower) mourn() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	soon := true
	for id, l := range f.listens {
		select {
		case <-l.over:
		default:
			continue
		}
		delete(f.listens, id)
		for _, w := range l.watches {
			if f.answers[w] == nil && !f.heldElsewhere(w) {
				delete(f.answers, w)
				if time.Since(l.began) < pushLasted {
					f.answers[w], soon = errEnded, false
				}
			}
		}
	}
	return soon
}

// heldElsewhere reports whether another listen tells of w. f.mu is held.
func (f *follower) heldElsewhere(w chokepoint.Watch) bool {
	for _, l := range f.listens {
		for _, x := range l.watches {
			if x == w {
				return true
			}
		}
	}
	return false
}

// endUnwanted ends listens none of whose resources is wanted any more, and returns the others that are for resources.
func (f *follower) endUnwanted() (kept []*listening) {
	f.mu.Lock()
	all := make([]*listening, 0, len(f.listens))
	for _, l := range f.listens {
		select {
		case <-l.ending: // another stands for it already, or is to
			continue
		default:
		}
		if len(l.watches) > 0 {
			all = append(all, l)
		}
	}
	f.mu.Unlock()
	for _, l := range all {
		wanted := false
		for _, w := range l.watches {
			wanted = wanted || f.wants.wanted(w)
		}
		if wanted {
			kept = append(kept, l)
		} else {
			l.stop()
		}
	}
	return kept
}

// listen begins a listen and returns when the upstream has acknowledged it. It runs until it is stopped, the upstream ends it, or the
// connection ends.
func (f *follower) listen(ctx context.Context, lists mcp.Wish, watches []chokepoint.Watch) (*listening, mcp.Wish, error) {
	by := f.conn.pool.by
	m, err := by.AdmitListen(ctx, f.conn.lane, lists, watches)
	if err != nil {
		return nil, mcp.Wish{}, err
	}
	cleared, err := m.Spend(by)
	if err != nil {
		return nil, mcp.Wish{}, err
	}
	l := &listening{
		id: cleared.ID.String(), m: m, watches: watches, acked: make(chan chokepoint.FromUpstream, 1), over: make(chan struct{}), began: time.Now(),
	}
	ctx, l.stop = context.WithCancel(ctx)
	l.ending = ctx.Done()
	f.mu.Lock()
	f.listens[l.id] = l
	f.mu.Unlock()
	f.conn.pool.work.Go(func() { f.await(ctx, l, cleared) })
	late := time.NewTimer(ackWait)
	defer late.Stop()
	select {
	case in := <-l.acked:
		granted, err := by.Granted(ctx, m, in)
		if err == nil {
			return l, granted, nil
		}
		l.stop()
		return nil, mcp.Wish{}, err
	case <-l.over:
		if l.why == nil {
			l.why = errTakesNoListen
		}
		return nil, mcp.Wish{}, l.why
	case <-late.C:
		l.stop()
		return nil, mcp.Wish{}, chokepoint.ErrDeadline
	}
}

// await waits for the end of a listen.
func (f *follower) await(ctx context.Context, l *listening, cleared chokepoint.Cleared) {
	var last chokepoint.FromUpstream
	f.conn.wire.exchange(ctx, l.m, cleared, func(in chokepoint.FromUpstream) bool {
		last = in
		return true
	})
	l.stop()
	l.why = f.conn.pool.by.Heed(context.WithoutCancel(ctx), last)
	close(l.over)
	f.wants.turn()
}
