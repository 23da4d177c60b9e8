package ship

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// NotesOptions are the parts of Notes. Zero durations mean the defaults.
type NotesOptions struct {
	To     *Remote
	Logger *slog.Logger
	Tell   func(context.Context, string) error // records an event

	FirstWait, TellAfter time.Duration
}

// Notes posts checkpoints: the newest arrives some time, those before it may not.
type Notes struct {
	o    NotesOptions
	end  context.CancelFunc
	stop chan struct{}
	work sync.WaitGroup
	wake chan struct{} // room for one

	mu     sync.Mutex
	newest []byte // nil: it has arrived
}

// NewNotes starts posting. Close ends it.
func NewNotes(o NotesOptions) *Notes {
	ctx, end := context.WithCancel(context.Background())
	n := &Notes{o: o, end: end, stop: make(chan struct{}), wake: make(chan struct{}, 1)}
	n.work.Go(func() { n.run(ctx) })
	return n
}

// Offer says which checkpoint is the newest. It does not wait.
func (n *Notes) Offer(note []byte) {
	n.mu.Lock()
	n.newest = note
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default: // it is awake already
	}
}

// Close tries to deliver the newest until ctx ends, and ends.
func (n *Notes) Close(ctx context.Context) error {
	close(n.stop)
	defer context.AfterFunc(ctx, n.end)()
	n.work.Wait()
	n.end()
	n.o.To.client.CloseIdleConnections()
	return nil
}

func (n *Notes) run(ctx context.Context) {
	wait := backoff{first: n.o.FirstWait}
	t := trouble{what: "checkpoints", tell: n.o.Tell, log: n.o.Logger, long: n.o.TellAfter}
	var again <-chan time.Time
	for ending := false; !ending; {
		select {
		case <-n.wake:
			if again != nil {
				continue // it is tried when the wait is over
			}
		case <-again:
		case <-n.stop:
			ending = true
		}
		again = nil
		if err := n.send(ctx); err == nil {
			wait.n = 0
			t.over(ctx)
		} else {
			d := wait.next(err)
			t.failed(ctx, err, d)
			again = time.After(d)
		}
	}
}

// send posts the newest, if it has not arrived.
func (n *Notes) send(ctx context.Context) error {
	n.mu.Lock()
	note := n.newest
	n.mu.Unlock()
	if note == nil {
		return nil
	}
	if _, err := n.o.To.post(ctx, "text/plain; charset=utf-8", note); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if string(n.newest) == string(note) {
		n.newest = nil
	}
	return nil
}
