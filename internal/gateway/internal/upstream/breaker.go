package upstream

import (
	"fmt"
	"sync"
	"time"

	"navra/internal/chokepoint"
)

// After tripAfter calls in a row that an upstream did not answer, calls fail at once for a while: nobody waits for what will not come.
// Then one call tries; if it fails too, the while is longer.
const (
	tripAfter = 5
	tripFor   = 5 * time.Second
	tripMax   = time.Minute
)

// A breaker keeps calls from an upstream that does not answer. The zero breaker lets all through. Its methods may be called concurrently.
type breaker struct {
	mu     sync.Mutex
	failed int // in a row; guarded by mu
	until  time.Time
	trying bool // one call tries, the others fail
}

// enter reports why a call may not go on now.
func (b *breaker) enter(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed < tripAfter {
		return nil
	}
	if wait := b.until.Sub(now); wait > 0 || b.trying {
		return fmt.Errorf("%w: it did not answer %d calls in a row; the next try is in %s", chokepoint.ErrUnavailable, b.failed, max(wait, time.Second).Round(time.Second))
	}
	b.trying = true
	return nil
}

// note hears how a call ended that had entered.
func (b *breaker) note(unwell bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying = false
	if !unwell {
		b.failed = 0
		return
	}
	b.failed++
	if b.failed >= tripAfter {
		b.until = now.Add(min(tripFor<<min(b.failed-tripAfter, 10), tripMax))
	}
}
