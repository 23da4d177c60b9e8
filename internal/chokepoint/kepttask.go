package chokepoint

import (
	"sync"
	"time"

	"navra/internal/jsonrpc"
)

// Bounds on what is kept of tasks that navra speaks for itself.
const (
	keptLife     = time.Hour // of a result, at most
	maxKept      = 256 << 20 // bytes
	maxOwnKept   = 32 << 20  // bytes, of one principal
	maxOwnHeld   = 256       // tasks, of one principal
	keptOverhead = 512       // bytes that a task counts for besides what it holds
)

// A keptTask is what navra itself says of a task: of a call that ended at once, though its client asked for a task, or of a task that its client
// has cancelled, whatever becomes of it. What it holds is the upstream's: it is judged when it is asked for.
type keptTask struct {
	said   jsonrpc.Raw // the Task object, in the form of the extension
	result jsonrpc.Raw // nil: it was cancelled
	until  time.Time   // zero: as long as there is room
	nth    uint64      // later ones are higher
}

func (k keptTask) size() int { return len(k.said) + len(k.result) + keptOverhead }

type keptKey struct {
	lane          Lane // without what its client can be asked: a policy that changes that changes nothing about what is kept
	principal, id string
}

func keptAt(l Lane, principal, id string) keptKey {
	l.caps = 0
	return keptKey{l, principal, id}
}

// keptTasks are all of them. Its methods may be called concurrently.
type keptTasks struct {
	mu      sync.Mutex
	all     map[keptKey]keptTask // guarded by mu
	bytes   map[string]int       // by principal; guarded by mu
	count   map[string]int       // by principal; guarded by mu
	nth     uint64               // of the last; guarded by mu
	changed chan struct{}        // closed, and replaced, when one is put in; guarded by mu
}

func newKeptTasks() *keptTasks {
	return &keptTasks{all: map[keptKey]keptTask{}, bytes: map[string]int{}, count: map[string]int{}, changed: make(chan struct{})}
}

// put keeps a task. Where there is no room the oldest of its principal's are forgotten, and only if all that is kept is too much, of whoever
// has the most.
func (t *keptTasks) put(key keptKey, k keptTask, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for old, has := range t.all {
		if old == key || !has.until.IsZero() && now.After(has.until) {
			t.drop(old)
		}
	}
	who := key.principal
	for t.count[who] > 0 && (t.count[who] >= maxOwnHeld || t.bytes[who]+k.size() > maxOwnKept) {
		t.dropOldest(who)
	}
	for sum, most := t.weigh(); sum > 0 && sum+k.size() > maxKept; sum, most = t.weigh() {
		t.dropOldest(most)
	}
	t.nth++
	k.nth = t.nth
	t.all[key] = k
	t.bytes[who] += k.size()
	t.count[who]++
	close(t.changed)
	t.changed = make(chan struct{})
}

// get returns what is kept; has is false where nothing is, or not any more.
func (t *keptTasks) get(key keptKey, now time.Time) (k keptTask, has bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, has = t.all[key]
	if has && !k.until.IsZero() && now.After(k.until) {
		t.drop(key)
		return keptTask{}, false
	}
	return k, has
}

// next returns what is closed when another task is kept.
func (t *keptTasks) next() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// forget drops what belongs to a session that is over.
func (t *keptTasks) forget(l Lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.caps = 0
	for key := range t.all {
		if key.lane == l {
			t.drop(key)
		}
	}
}

// weigh returns how much is kept, and whose is the most of it. t.mu is held, as for what follows.
func (t *keptTasks) weigh() (sum int, most string) {
	for who, n := range t.bytes {
		if sum += n; n > t.bytes[most] {
			most = who
		}
	}
	return sum, most
}

func (t *keptTasks) drop(key keptKey) {
	k := t.all[key]
	delete(t.all, key)
	who := key.principal
	t.bytes[who] -= k.size()
	if t.count[who]--; t.count[who] == 0 {
		delete(t.bytes, who)
		delete(t.count, who)
	}
}

func (t *keptTasks) dropOldest(who string) {
	var oldest keptKey
	first := uint64(0)
	for key, k := range t.all {
		if key.principal == who && (first == 0 || k.nth < first) {
			oldest, first = key, k.nth
		}
	}
	t.drop(oldest)
}
