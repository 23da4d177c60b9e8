package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// ErrFull reports a commit that would have taken from the room that is kept back.
var ErrFull = &Trouble{Why: "the blackbox is full"}

// A Trouble is why a database cannot be used, in words that name nothing: for whoever asks.
type Trouble struct {
	Why string
	Err error // nil where there is no more to say
}

func (t *Trouble) Error() string {
	if t.Err == nil {
		return t.Why
	}
	return t.Err.Error()
}

// Unwrap returns the error behind it.
func (t *Trouble) Unwrap() error { return t.Err }

// Public returns the words.
func (t *Trouble) Public() string { return t.Why }

// Why returns the words of an error's Trouble, "" where it has none.
func Why(err error) string {
	if t := (*Trouble)(nil); errors.As(err, &t) {
		return t.Why
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "the database does not answer in time"
	}
	return ""
}

// A Room is how many bytes a database takes up, and how many more it may.
type Room struct {
	Used       int64 // less what can be used again
	Free, Disk int64 // left on its disk, and the size of that; Disk 0: not known
}

const (
	// One part in reserveShare of what there may be is kept back for what has to be written about calls that were let through.
	reserveShare = 16
	maxReserve   = 64 << 20
	// perEntry is about what an entry takes up besides its payloads, in bytes; twice is how often it lies on the disk: in the database, and before in its log.
	perEntry = 1500
	twice    = 2
	// dueShare is one part of the room that is left: where more than that was counted, it is measured again.
	dueShare = 4
	// fresh is how long a commit that failed counts against the store.
	fresh = 10 * time.Second
)

// reserveOf is what is kept back of so many bytes. Twice as much is low.
func reserveOf(total int64) int64 { return min(total/reserveShare, maxReserve) }

// A Limit keeps new calls out of a database that is nearly full. Its methods may be called concurrently.
type Limit struct {
	max     int64                               // bytes that the database may take up; 0: as many as there are
	changed func(why string, full bool, r Room) // what State says is another than before

	mu      sync.Mutex
	room    Room  // as measured; guarded by mu
	known   bool  // guarded by mu
	written int64 // since then, as counted
	due     chan struct{}
	failed  error // of the newest commit; guarded by mu
	at      time.Time
	said    string
}

// NewLimit returns a limit of so many bytes; 0: of the disk alone. changed is called with what State says when it is another than before.
func NewLimit(bytes int64, changed func(why string, full bool, r Room)) *Limit {
	return &Limit{max: bytes, changed: changed, due: make(chan struct{}, 1)}
}

// Due tells when room is to be measured again, since much of what was left has been written to: what is counted is not exact.
func (l *Limit) Due() <-chan struct{} { return l.due }

// left is how much room there was when it was measured.
func (l *Limit) left() int64 {
	left := int64(math.MaxInt64)
	if l.max > 0 {
		left = l.max - l.room.Used
	}
	if l.room.Disk > 0 {
		left = min(left, l.room.Free)
	}
	return left
}

// Measured takes how much room there is now.
func (l *Limit) Measured(r Room) {
	l.mu.Lock()
	l.room, l.known, l.written = r, true, 0
	tell := l.news()
	l.mu.Unlock()
	tell()
}

// news is what tells where State says another thing than before; it is called without mu, which is held here.
func (l *Limit) news() (tell func()) {
	why, full := l.state()
	if why == l.said {
		return func() {}
	}
	l.said = why
	room := l.room
	return func() { l.changed(why, full, room) }
}

// State says whether room is low, or too low for new calls, and what of it; "" for enough.
func (l *Limit) State() (why string, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state()
}

func (l *Limit) state() (why string, full bool) {
	if !l.known {
		return "", false
	}
	if l.max > 0 {
		why, full = short(l.max-l.room.Used-l.written, l.max, "max_bytes")
	}
	if l.room.Disk > 0 && !full {
		if w, f := short(l.room.Free-l.written, l.room.Disk, "the disk"); w != "" {
			why, full = w, f
		}
	}
	return why, full
}

func short(left, total int64, of string) (why string, full bool) {
	reserve := reserveOf(total)
	if left >= 2*reserve {
		return "", false
	}
	if left < reserve {
		return fmt.Sprintf("low space: only the reserve of %s is left, so new calls are denied", of), true
	}
	return fmt.Sprintf("low space: %s is nearly used up", of), false
}

// admit refuses a commit for which there is no room.
func (l *Limit) admit(c Commit) error {
	if _, full := l.State(); full && !c.Reserve {
		return fmt.Errorf("commit: %w", ErrFull)
	}
	return nil
}

// note takes what became of a commit.
func (l *Limit) note(c Commit, err error) {
	l.mu.Lock()
	tell := func() {}
	switch {
	case err == nil:
		l.failed = nil
		l.written += twice * perEntry
		for _, p := range c.Entry.Payloads {
			l.written += twice * int64(len(p.Stored))
		}
		if l.known && l.written > l.left()/dueShare {
			select {
			case l.due <- struct{}{}:
			default:
			}
		}
		tell = l.news()
	case !errors.Is(err, ErrStale) && !errors.Is(err, ErrNotFound) && !errors.Is(err, context.Canceled):
		l.failed, l.at = err, time.Now()
	}
	l.mu.Unlock()
	tell()
}

// Failed is why the newest commit was not written, if that is not long ago.
func (l *Limit) Failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil || time.Since(l.at) > fresh {
		return nil
	}
	return l.failed
}

// A Limited is a store with a limit.
type Limited struct {
	Store
	Limit *Limit
}

// Commit implements Store. It refuses with ErrFull where only the reserve is left, unless the commit may use that.
func (l Limited) Commit(ctx context.Context, c Commit) (Receipt, error) {
	if err := l.Limit.admit(c); err != nil {
		return Receipt{}, err
	}
	r, err := l.Store.Commit(ctx, c)
	l.Limit.note(c, err)
	return r, err
}
