package chokepoint

import (
	"crypto/sha256"
	"sync"
)

// maxUsed bounds the states that are remembered as used. When there are more all are forgotten but the newest.
const maxUsed = 20_000

// used remembers with which states a call has gone on, in two generations. A state is good for an hour, and a stateless upstream's for as often as
// that upstream takes it: but only the first time does it go on with what was judged. After that the call is judged as a new one, since
// what the scope has read meanwhile may well be why it is made again.
type used struct {
	mu       sync.Mutex
	now, old map[[sha256.Size]byte]struct{} // guarded by mu
}

// first reports whether a state is used for the first time, and remembers that it was.
func (u *used) first(state string) bool {
	sum := sha256.Sum256([]byte(state))
	u.mu.Lock()
	defer u.mu.Unlock()
	_, has := u.now[sum]
	_, had := u.old[sum]
	if has || had {
		return false
	}
	if u.now == nil || len(u.now) >= maxUsed/2 {
		u.now, u.old = map[[sha256.Size]byte]struct{}{}, u.now
	}
	u.now[sum] = struct{}{}
	return true
}
