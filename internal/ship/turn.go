package ship

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"navra/internal/blackbox"
	"navra/internal/store"
)

// A place is how far entries were shipped, and who is at it. It lies in the store: of several processes one ships at a time.
type place struct {
	Seq    blackbox.Seq  // the last that was shipped
	Holder string        // who is at it; "-" for nobody
	Lease  time.Duration // that others leave to the holder after what is written here
	Beat   uint64        // grows with each writing
}

func (p place) encode() []byte {
	return fmt.Appendf(nil, "%d %s %d %d", p.Seq, p.Holder, p.Lease.Milliseconds(), p.Beat)
}

func decodePlace(b []byte) (p place, err error) {
	var ms int64
	if _, err := fmt.Sscanf(string(b), "%d %s %d %d", &p.Seq, &p.Holder, &ms, &p.Beat); err != nil {
		return p, fmt.Errorf("how far entries were shipped cannot be read: %w", err)
	}
	p.Lease = time.Duration(ms) * time.Millisecond
	return p, nil
}

const nobody = "-"

// maxLease is more than anybody asks for: who writes a longer one wants nothing to be shipped.
const maxLease = time.Hour

// A turn is what one process knows of the place.
type turn struct {
	store store.Store
	key   string
	me    string

	raw []byte // as it was read or written last; nil: there was none
	at  place

	foreign []byte // another's, as it was first seen
	since   time.Time
}

func newTurn(s store.Store, key string) *turn { return &turn{store: s, key: key, me: rand.Text()} }

// read reads the place, and reports whether this process may take it: nobody is at it, or who was has not written for as long as
// it asked for. That is measured by this process's own clock, from when it first saw what is there.
func (t *turn) read(ctx context.Context) (free bool, err error) {
	t.raw, err = t.store.Kept(ctx, t.key)
	if errors.Is(err, store.ErrNotFound) {
		t.raw, t.at = nil, place{Holder: nobody}
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if t.at, err = decodePlace(t.raw); err != nil {
		return false, err
	}
	if t.at.Holder == nobody || t.at.Holder == t.me {
		return true, nil
	}
	if !bytes.Equal(t.raw, t.foreign) {
		t.foreign, t.since = t.raw, time.Now()
	}
	return time.Since(t.since) >= min(t.at.Lease, maxLease), nil
}

var errLost = errors.New("another process has taken over")

// write says how far it is, and for how long others are to leave it to this process; 0 lets go. It fails where another has taken over.
func (t *turn) write(ctx context.Context, seq blackbox.Seq, lease time.Duration) error {
	next := place{Seq: seq, Holder: t.me, Lease: lease, Beat: t.at.Beat + 1}
	if lease == 0 {
		next.Holder = nobody
	}
	b := next.encode()
	done, err := t.store.Swap(ctx, t.key, t.raw, b)
	if err != nil {
		return err
	}
	if !done {
		return errLost
	}
	t.raw, t.at = b, next
	return nil
}

// mine reports whether this process is at it, as far as it knows.
func (t *turn) mine() bool { return t.at.Holder == t.me }
