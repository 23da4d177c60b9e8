package streamable

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"navra/internal/jsonrpc"
)

const (
	// keepTime is how long a stream waits for its client: that of a request from its answer on, a GET's from when its client was lost.
	keepTime = 5 * time.Minute
	// retryTime is when a client is asked to come back.
	retryTime = time.Second
	// eventCost is what an event takes beside its text, in bytes.
	eventCost = 128
	// maxStreamEvents bounds the events of one stream.
	maxStreamEvents = 256
	// maxStreamBytes bounds the events of one stream, in bytes.
	maxStreamBytes = 4 << 20
)

// A bound is how many streams may be kept, and how many bytes of events.
type bound struct{ streams, bytes int }

// bounds are those of everybody together, of a principal and of a session.
var bounds = [3]bound{{2048, 64 << 20}, {256, 16 << 20}, {64, 8 << 20}}

// A book keeps the latest events of streams, so that a client that lost one can go on with it. It is in memory alone.
//
// Where a stream is full, its oldest notifications go first, then what its client has taken. Where a session, a principal or the whole is full, the stream that has
// waited longest for its client goes, first one that has its answer. What still has no room is sent without an id where its client is
// there, and lost where it is not. Nobody's stream goes while its client reads it.
type book struct {
	mu      sync.Mutex
	streams map[string]*stream // by name; guarded by mu
	used    map[place]*bound   // guarded by mu
}

// A place is whose a stream is. Without a session it is all of a principal's, the zero place everybody's.
type place struct{ who, session string }

// places returns what p counts in.
func (p place) places() [3]place { return [3]place{{}, {who: p.who}, p} }

// A stream is what goes to a client beside or instead of a JSON answer. One connection reads it at a time.
type stream struct {
	name    string
	of      place
	request jsonrpc.ID // that it answers, if any
	primed  bool       // its client knows events without data
	quit    func()     // of a GET: ends what feeds it
	out     *reply     // that fills it
	moved   *sync.Cond // on the book's mu: a reader has read, or has come or gone

	// guarded by the book's mu
	kept    bool // in the book
	closing bool // its session has ended
	done    bool // nothing more comes
	events  []event
	bytes   int       // of events
	last    seq       // of the newest event
	gap     seq       // the newest event that was lost and was no mere notification
	reader  *reader   // nil: nobody
	since   time.Time // when the last reader left
	read    seq       // what that one had written
	lost    bool      // one has left, and none has come since
	heir    *stream   // takes what still comes for this one
}

// An event is one message of a stream.
type event struct {
	at     seq
	text   []byte
	notice bool // a notification: the first to go
	answer bool
	loose  bool // not kept: it has no id
}

// A reader is a connection that reads a stream.
type reader struct {
	at    seq           // what was written; guarded by the book's mu
	news  chan struct{} // a token: there is more
	taken chan struct{} // closed: another has taken the stream over
	cut   func()        // ends a write that is under way
}

func newBook() *book { return &book{streams: map[string]*stream{}, used: map[place]*bound{}} }

// open begins a stream; nil where there is no room for one more. quit ends what feeds a GET's stream, and is nil for a request's.
func (b *book) open(of place, request jsonrpc.ID, primed bool, quit func()) *stream {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, p := range of.places() {
		for u := b.used[p]; u != nil && u.streams >= bounds[i].streams; u = b.used[p] {
			if !b.evict(p, nil) {
				return nil
			}
		}
	}
	born := byte(bornPOST)
	if quit != nil {
		born = bornGET
	}
	s := &stream{name: newName(born), of: of, request: request, primed: primed, quit: quit, kept: true, since: time.Now(), moved: sync.NewCond(&b.mu)}
	b.streams[s.name] = s
	b.count(s, 1, 0)
	return s
}

// count adds to what is used. It is called with mu held.
func (b *book) count(s *stream, streams, bytes int) {
	s.bytes += bytes
	for _, p := range s.of.places() {
		u := b.used[p]
		if u == nil {
			u = &bound{}
			b.used[p] = u
		}
		u.streams, u.bytes = u.streams+streams, u.bytes+bytes
		if u.streams == 0 {
			delete(b.used, p)
		}
	}
}

// evict forgets the stream of p that has waited longest for its client, first one that is done, but not spare. It is called with mu held.
func (b *book) evict(p place, spare *stream) bool {
	var oldest *stream
	for _, s := range b.streams {
		if s == spare || s.reader != nil || p.who != "" && s.of.who != p.who || p.session != "" && s.of.session != p.session {
			continue
		}
		if oldest == nil || s.done && !oldest.done || s.done == oldest.done && s.since.Before(oldest.since) {
			oldest = s
		}
	}
	if oldest != nil {
		b.forget(oldest)
	}
	return oldest != nil
}

// forget takes s out of the book. Who reads it reads it to its end. It is called with mu held.
func (b *book) forget(s *stream) {
	if !s.kept {
		return
	}
	s.kept = false
	delete(b.streams, s.name)
	b.count(s, -1, -s.bytes)
	if s.reader == nil {
		s.events = nil
	}
	if s.quit != nil {
		s.quit()
	}
}

// drop forgets s.
func (b *book) drop(s *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(s)
}

// put adds an event. Where somebody reads the stream it waits until they have written it or are gone: nothing gathers before a slow reader.
func (b *book) put(s *stream, e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s.heir != nil {
		s = s.heir
	}
	s.last++
	e.at = s.last
	if b.room(s, len(e.text)+eventCost) {
		b.count(s, 0, len(e.text)+eventCost)
	} else {
		s.gap, e.loose = e.at, true
		if s.reader == nil {
			return
		}
	}
	s.events = append(s.events, e)
	for r := s.reader; r != nil && s.reader == r && r.at < e.at; s.moved.Wait() {
		r.wake()
	}
	if e.loose {
		s.events = slices.DeleteFunc(s.events, func(o event) bool { return o.at == e.at })
	}
}

// room makes room for size more bytes of s. It is called with mu held.
func (b *book) room(s *stream, size int) bool {
	if !s.kept || size > maxStreamBytes {
		return false
	}
	for len(s.events) >= maxStreamEvents || s.bytes+size > maxStreamBytes {
		if !b.shed(s) {
			return false
		}
	}
	for i, p := range s.of.places() {
		for b.used[p].bytes+size > bounds[i].bytes {
			if !b.evict(p, s) && !b.shed(s) {
				return false
			}
		}
	}
	return true
}

// shed drops one event of s. It is called with mu held.
func (b *book) shed(s *stream) bool {
	taken := func(e event) bool { return s.reader != nil && e.at <= s.reader.at && !e.loose }
	i := slices.IndexFunc(s.events, func(e event) bool { return e.notice && (taken(e) || s.reader == nil) })
	if i < 0 {
		i = slices.IndexFunc(s.events, taken)
	}
	if i < 0 {
		return false
	}
	e := s.events[i]
	if !e.notice {
		s.gap = max(s.gap, e.at)
	}
	s.events = slices.Delete(s.events, i, i+1)
	b.count(s, 0, -len(e.text)-eventCost)
	return true
}

// finish says that nothing more comes.
func (b *book) finish(s *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.done, s.since = true, time.Now()
	if s.reader != nil {
		s.reader.wake()
	}
	if s.quit != nil || s.closing {
		b.forget(s)
		return
	}
	b.later(s)
}

// later forgets s when its time has come, unless it was read meanwhile. It is called with mu held.
func (b *book) later(s *stream) {
	since := s.since
	time.AfterFunc(keepTime, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if s.reader == nil && s.since.Equal(since) {
			b.forget(s)
		}
	})
}

// attach makes who calls the reader of s, from after at on. Another reader is done.
func (b *book) attach(s *stream, at seq, cut func()) *reader {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := s.reader; old != nil {
		close(old.taken)
		old.cut()
	}
	s.reader = &reader{at: at, news: make(chan struct{}, 1), taken: make(chan struct{}), cut: cut}
	s.lost = false
	s.tell(false)
	s.moved.Broadcast()
	return s.reader
}

// tell lets who fills the stream know whether nobody reads it.
func (s *stream) tell(unread bool) {
	if s.out != nil {
		s.out.unread.Store(unread)
	}
}

// detach ends a reader.
func (b *book) detach(s *stream, r *reader) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.reader != r {
		return
	}
	s.reader, s.since, s.read, s.lost = nil, time.Now(), r.at, true
	s.tell(true)
	s.moved.Broadcast()
	switch {
	case !s.kept:
		s.events = nil
	case s.closing:
		b.forget(s)
	case s.quit != nil || s.done:
		b.later(s)
	}
}

// inherit moves to s, a GET's stream that has just begun, what waits on those of the same session that their clients lost: who opens a new stream
// instead of going on with the old one would never hear of it. These are forgotten, so that nothing is told twice.
func (b *book) inherit(s *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lost []*stream
	for _, o := range b.streams {
		if o != s && o.of == s.of && o.quit != nil && o.lost {
			lost = append(lost, o)
		}
	}
	slices.SortFunc(lost, func(a, b *stream) int { return a.since.Compare(b.since) })
	for _, o := range lost {
		events := o.events
		b.forget(o)
		o.heir = s
		for _, e := range events {
			if e.at <= o.read {
				continue
			}
			s.last++
			e.at = s.last
			if size := len(e.text) + eventCost; b.room(s, size) {
				b.count(s, 0, size)
				s.events = append(s.events, e)
			} else {
				s.gap = e.at
			}
		}
	}
}

// read returns what r has not written yet, and whether nothing comes after it.
func (b *book) read(s *stream, r *reader) (events []event, done bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.events, r.at+1, func(e event, at seq) int { return cmp.Compare(e.at, at) })
	return slices.Clone(s.events[i:]), s.done
}

// wrote notes what r has written.
func (b *book) wrote(s *stream, r *reader, at seq) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.at = at
	s.moved.Broadcast()
}

// mark numbers an event without data that r may write and close after; false where there is something to write first.
func (b *book) mark(s *stream, r *reader) (seq, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.at != s.last || s.done || !s.kept {
		return 0, false
	}
	s.last++
	r.at = s.last
	return s.last, true
}

func (r *reader) wake() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// find returns the stream of that name, if it is of's.
func (b *book) find(of place, name string) *stream {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.streams[name]; s != nil && s.of == of {
		return s
	}
	return nil
}

// state says how s can be read from after at on: whether all that matters is there, and whether anything is to come.
func (b *book) state(s *stream, at seq) (whole, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.kept && at >= s.gap && at <= s.last, !s.done || at < s.last
}

// oldest returns where s can be read from that is nearest to at.
func (b *book) oldest(s *stream, at seq) seq {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(min(at, s.last), s.gap)
}

// close forgets the streams of a session that has ended; those that are read end with what feeds them.
func (b *book) close(of place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.streams {
		if s.of != of {
			continue
		}
		s.closing = true
		if s.reader == nil || s.quit != nil {
			b.forget(s)
		}
	}
}
