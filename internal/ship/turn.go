package ship

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"navra/internal/store"
)

// A place is how far entries were shipped, and who is at it. It lies in the store: of several processes one ships at a time. Its text ends with a
// keyed hash, so that who may write to the store makes none, nor has entries left out.
type place struct {
	at     store.Receipt // the last entry that was shipped, by number and hash; zero: none
	Holder string        // who is at it; "-" for nobody
	Lease  time.Duration // that others leave to the holder after what is written here
	Beat   uint64        // grows with each writing
}

// seal writes a place, for the key that it is kept under.
func (t *turn) seal(p place) []byte {
	b := fmt.Appendf(nil, "%d %s %d %d %x ", p.at.Seq, p.Holder, p.Lease.Milliseconds(), p.Beat, p.at.Hash)
	mac := t.tag([]byte(t.key + "\n" + string(b)))
	return hex.AppendEncode(b, mac[:])
}

// A distrust says why what is kept of how far entries were shipped does not count.
type distrust string

func (d distrust) Error() string {
	return "how far entries were shipped cannot be trusted: " + string(d)
}

const (
	gone     distrust = "it was removed"
	untagged distrust = "it bears no tag of this key: it was edited, or is of an older navra"
	astray   distrust = "its entry is another than was shipped"
	beyond   distrust = "it is beyond the end of the log"
)

// open reads a place; the error is untagged.
func (t *turn) open(b []byte) (p place, err error) {
	var ms int64
	var hash []byte
	_, err = fmt.Sscanf(string(b), "%d %s %d %d %x", &p.at.Seq, &p.Holder, &ms, &p.Beat, &hash)
	if err != nil || len(hash) != len(p.at.Hash) {
		return place{}, untagged
	}
	p.Lease, p.at.Hash = time.Duration(ms)*time.Millisecond, [32]byte(hash)
	if !hmac.Equal(t.seal(p), b) {
		return place{}, untagged
	}
	return p, nil
}

const nobody = "-"

// maxLease is more than anybody asks for: who writes a longer one wants nothing to be shipped.
const maxLease = time.Hour

// A turn is what one process knows of the place.
type turn struct {
	store store.Store
	key   string
	tag   func([]byte) [32]byte
	me    string

	raw   []byte // as it was read or written last; nil: there was none
	at    place
	known store.Receipt // the last that this process knows to have been shipped

	foreign []byte // another's, as it was first seen
	since   time.Time
}

func newTurn(s store.Store, key string, tag func([]byte) [32]byte) *turn {
	return &turn{store: s, key: key, tag: tag, me: rand.Text()}
}

// read reads the place, and reports whether this process may take it: nobody is at it, or who was has not written for as long as
// it asked for. That is measured by this process's own clock, from when it first saw what is there. The error is a distrust where what is there does not count.
func (t *turn) read(ctx context.Context) (free bool, err error) {
	t.raw, err = t.store.Kept(ctx, t.key)
	if errors.Is(err, store.ErrNotFound) {
		t.raw, t.at = nil, place{Holder: nobody}
		if t.known.Seq > 0 {
			return false, gone
		}
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if t.raw == nil { // there is one, if an empty one
		t.raw = []byte{}
	}
	if t.at, err = t.open(t.raw); err != nil {
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
func (t *turn) write(ctx context.Context, at store.Receipt, lease time.Duration) error {
	next := place{at: at, Holder: t.me, Lease: lease, Beat: t.at.Beat + 1}
	if lease == 0 {
		next.Holder = nobody
	}
	b := t.seal(next)
	done, err := t.store.Swap(ctx, t.key, t.raw, b)
	if err != nil {
		return err
	}
	if !done {
		return errLost
	}
	t.raw, t.at, t.known = b, next, at
	return nil
}

// mine reports whether this process is at it, as far as it knows.
func (t *turn) mine() bool { return t.at.Holder == t.me }
