package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"navra/internal/auth"
	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// Bounds on what clients follow.
const (
	maxWatches    = mcp.MaxWatched // of one session, as of one listen
	maxOwnWatches = 2048           // of one principal
	maxListens    = 64             // of one principal
	// newsPause is the least time between two lots of news of resources to one client: what changes more often is told of once.
	newsPause = 100 * time.Millisecond
	// orphaned is how long the subscriptions of a session over HTTP are kept while it has no stream to be told on.
	orphaned = 30 * time.Minute
)

// A reader is who is told of changes: a session of the stateful era, or one listen of the stateless one.
type reader struct {
	from chokepoint.Peer
	wish *mcp.Wish // lists that are told of; nil: all
	out  *outbox
	end  context.CancelCauseFunc // of a listen; nil for a session

	watches map[string]*watching // by key; guarded by the Readers' mu, like all that follows
	streams int
	orphan  *time.Timer
	closed  bool
}

// A watching is one resource or task that a reader follows, or is about to.
type watching struct {
	watch    chokepoint.Watch
	unfollow func() // nil while the upstream has not agreed yet
	halted   bool   // news of it is dropped: an operator has it paused, or some was since the newest policy cannot be read
}

// readers are all that are told of changes. Its methods may be called concurrently.
type readers struct {
	mu       sync.Mutex
	all      map[*reader]struct{}                     // guarded by mu
	sessions map[string]*reader                       // by session or connection; guarded by mu
	lanes    map[chokepoint.Lane]map[*reader]struct{} // who follows something over a lane; guarded by mu
	watches  map[string]int                           // by principal; guarded by mu
	listens  map[string]int                           // by principal; guarded by mu
}

func newReaders() *readers {
	return &readers{
		all: map[*reader]struct{}{}, sessions: map[string]*reader{}, lanes: map[chokepoint.Lane]map[*reader]struct{}{},
		watches: map[string]int{}, listens: map[string]int{},
	}
}

// session returns the reader of a session, making it where there is none. streams is 1 for a stream on which it is told, until leave.
func (rs *readers) session(from chokepoint.Peer, streams int) *reader {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.sessions[place(from)]
	if r == nil {
		from.In.Msg = jsonrpc.Message{} // may be large
		r = &reader{from: from, out: newOutbox(), watches: map[string]*watching{}}
		rs.sessions[place(from)] = r
		rs.all[r] = struct{}{}
	}
	if r.orphan != nil {
		r.orphan.Stop()
	}
	r.streams += streams
	rs.wait(r)
	return r
}

// wait gives a session over HTTP without a stream some time to open one. rs.mu is held.
func (rs *readers) wait(r *reader) {
	if r.from.In.Transport == mcp.HTTP && r.streams == 0 && !r.closed {
		r.orphan = time.AfterFunc(orphaned, func() { rs.abandon(r) })
	}
}

// abandon ends a session that has no stream still.
func (rs *readers) abandon(r *reader) {
	rs.mu.Lock()
	var unfollow []func()
	if r.streams == 0 {
		unfollow = rs.shut(r)
	}
	rs.mu.Unlock()
	call(unfollow)
}

// leave tells that a stream has ended. A session that follows nothing and has no stream is forgotten.
func (rs *readers) leave(r *reader) {
	rs.mu.Lock()
	r.streams--
	rs.wait(r)
	rs.mu.Unlock()
	rs.spare(r)
}

// spare forgets a session that follows nothing and has no stream: it has nothing to be told, and nobody would tell it to end for long.
func (rs *readers) spare(r *reader) {
	rs.mu.Lock()
	var unfollow []func()
	if r.streams == 0 && len(r.watches) == 0 {
		unfollow = rs.shut(r)
	}
	rs.mu.Unlock()
	call(unfollow)
}

// listen makes the reader of a listen; ok is false where the principal has too many.
func (rs *readers) listen(from chokepoint.Peer, wish mcp.Wish, end context.CancelCauseFunc) (r *reader, ok bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	who := from.Who.Name()
	if rs.listens[who] >= maxListens {
		return nil, false
	}
	rs.listens[who]++
	r = &reader{from: from, wish: &wish, out: newOutbox(), end: end, watches: map[string]*watching{}}
	rs.all[r] = struct{}{}
	return r, true
}

// find returns the reader of a session, nil for none.
func (rs *readers) find(place string) *reader {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.sessions[place]
}

// close ends a reader, and what it follows.
func (rs *readers) close(r *reader) {
	if r == nil {
		return
	}
	rs.mu.Lock()
	unfollow := rs.shut(r)
	rs.mu.Unlock()
	call(unfollow)
}

func call(all []func()) {
	for _, f := range all {
		f()
	}
}

// shut takes a reader out and returns what is to be called for it. rs.mu is held.
func (rs *readers) shut(r *reader) (unfollow []func()) {
	if r.closed {
		return nil
	}
	r.closed = true
	delete(rs.all, r)
	if r.end != nil {
		less(rs.listens, r.from.Who.Name())
	} else {
		delete(rs.sessions, place(r.from))
	}
	if r.orphan != nil {
		r.orphan.Stop()
	}
	for _, w := range r.watches {
		unfollow = append(unfollow, rs.drop(r, w))
	}
	return unfollow
}

func less(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}

var errClosed = errors.New("its session is over")

// reserve notes that a reader is about to follow w, so that no news of it is lost; has reports that it does so already.
func (rs *readers) reserve(r *reader, w chokepoint.Watch) (it *watching, has bool, err error) {
	unfollow := func() {}
	defer func() { unfollow() }()
	rs.mu.Lock()
	defer rs.mu.Unlock()
	switch it := r.watches[w.Key()]; {
	case it == nil:
	case it.watch == w:
		return it, true, nil
	default: // the resource is another upstream's now
		unfollow = rs.drop(r, it)
	}
	who := r.from.Who.Name()
	switch {
	case r.closed:
		return nil, false, errClosed
	case len(r.watches) >= maxWatches || rs.watches[who] >= maxOwnWatches:
		return nil, false, chokepoint.ErrTooMany
	}
	it = &watching{watch: w}
	r.watches[w.Key()] = it
	rs.watches[who]++
	if rs.lanes[w.Lane()] == nil {
		rs.lanes[w.Lane()] = map[*reader]struct{}{}
	}
	rs.lanes[w.Lane()][r] = struct{}{}
	return it, false, nil
}

// agreed notes that the upstream tells of what was reserved; false: nobody wants to hear any more.
func (rs *readers) agreed(r *reader, it *watching, unfollow func()) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.closed || r.watches[it.watch.Key()] != it {
		return false
	}
	it.unfollow = unfollow
	return true
}

// forget has a reader follow something no more, by its key.
func (rs *readers) forget(r *reader, key string) {
	rs.mu.Lock()
	unfollow := func() {}
	if it := r.watches[key]; it != nil {
		unfollow = rs.drop(r, it)
	}
	rs.mu.Unlock()
	unfollow()
}

// drop takes a watching out and returns what is to be called for it. rs.mu is held.
func (rs *readers) drop(r *reader, it *watching) (unfollow func()) {
	delete(r.watches, it.watch.Key())
	less(rs.watches, r.from.Who.Name())
	lane := it.watch.Lane()
	still := false
	for _, other := range r.watches {
		still = still || other.watch.Lane() == lane
	}
	if !still {
		delete(rs.lanes[lane], r)
		if len(rs.lanes[lane]) == 0 {
			delete(rs.lanes, lane)
		}
	}
	if it.unfollow == nil {
		return func() {}
	}
	return it.unfollow
}

// heard puts news in the outbox of each who follows what it is about, and reports whether there is any. Each is told once, of what it follows
// most closely.
func (rs *readers) heard(n chokepoint.News) (some bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for r := range rs.lanes[n.Lane()] {
		var best *watching
		for _, it := range r.watches {
			if n.Under(it.watch) && (best == nil || len(it.watch.URI()) > len(best.watch.URI())) {
				best = it
			}
		}
		if best != nil {
			some = true
			r.out.resource(notice{n, best.watch})
		}
	}
	return some
}

// changed puts lists in the outbox of each who wants to hear of them, and for whom they look different.
func (rs *readers) changed(by *chokepoint.Chokepoint, c chokepoint.Change) {
	rs.mu.Lock()
	all := make([]*reader, 0, len(rs.all))
	for r := range rs.all {
		all = append(all, r)
	}
	rs.mu.Unlock()
	concerns := map[string][]mcp.Topic{} // by principal: they have the same roles
	for _, r := range all {
		who := r.from.Who
		topics, known := concerns[who.Name()]
		if !known {
			topics = by.Concerns(who, c)
			concerns[who.Name()] = topics
		}
		for _, t := range topics {
			if r.wish == nil || r.wish.Has(t) {
				r.out.list(t)
			}
		}
	}
}

// anew has each be told of the lists that it wants to hear of: who may see what is another now.
func (rs *readers) anew() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for r := range rs.all {
		for _, t := range []mcp.Topic{mcp.Tool, mcp.Prompt, mcp.Resource} {
			if r.wish == nil || r.wish.Has(t) {
				r.out.list(t)
			}
		}
	}
}

// listening reports whether there is a listen, or anybody follows something.
func (rs *readers) listening() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return len(rs.listens) > 0 || len(rs.watches) > 0
}

// missed notes that news of a watch was dropped, which is to be made up for.
func (rs *readers) missed(r *reader, w chokepoint.Watch) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if it := r.watches[w.Key()]; it != nil && it.watch == w {
		it.halted = true
	}
}

// makeUp has clients be told once of what they follow when it is not paused any more, and the newest policy can be read: what they missed was
// dropped. A listen has ended when what it follows was paused.
func (rs *readers) makeUp(halts func(who auth.Principal, upstream string) error, behind bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for r := range rs.all {
		for _, it := range r.watches {
			was := it.halted
			it.halted = halts(r.from.Who, it.watch.Lane().Upstream()) != nil || was && behind
			if was && !it.halted {
				r.out.resource(notice{it.watch.Missed(), it.watch})
			}
		}
	}
}

// endListens ends the listens for which there is a cause, each with its result. cause is called under the lock of what the listens follow.
func (rs *readers) endListens(cause func(*reader) error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for r := range rs.all {
		if r.end == nil {
			continue
		}
		if why := cause(r); why != nil {
			r.end(why)
		}
	}
}
