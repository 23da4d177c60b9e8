package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// ErrClosed reports a commit to a store that was closed.
var ErrClosed = errors.New("the store is closed")

// MaxGroup bounds how many commits share a transaction.
const MaxGroup = 256

// A Result is what one commit of a group comes to, once the group is written.
type Result struct {
	Receipt  Receipt
	Err      error
	panicked any // by Judge: for the caller's own goroutine to see
}

// A Committer gathers commits: while one group is written, the next one waits. A caller that is alone writes by itself, since to wake another goroutine costs
// a tenth of its commit; groups of several are written by one of the committer's. Its methods may be called concurrently.
type Committer struct {
	write   func([]Commit) ([]Result, error)
	wake    chan struct{} // room for one: enough waits
	once    sync.Once     // closes closing
	closing chan struct{}
	ended   chan struct{}
	spare   sync.Pool // waitings of callers who were answered, so that not each commit needs another

	mu     sync.Mutex
	queue  []*waiting // that no group has taken, oldest first
	enough int        // as soon as so many wait, run is woken
	over   bool       // nothing is taken any more

	turn    chan struct{} // holds something while somebody writes, who alone uses what follows
	taken   []*waiting
	commits []Commit
	last    int       // how many were answered with the group before, or waited then
	until   time.Time // then they have come again, or are about something else
	vain    int       // how often in turn a group was waited for in vain
	skip    int       // groups that are not waited for
}

// A waiting is a commit and its caller, who waits for done.
type waiting struct {
	commit Commit
	done   chan Result // room for one
}

func newWaiting() any { return &waiting{done: make(chan Result, 1)} }

// NewCommitter returns a committer that writes groups by write: all of a group, or nothing and an error. write does not keep what it is given.
// Close ends the committer.
func NewCommitter(write func([]Commit) ([]Result, error)) *Committer {
	c := &Committer{write: write, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}), spare: sync.Pool{New: newWaiting}, enough: 1}
	go c.run()
	return c
}

// Commit writes one commit with a group. If ctx ends before a group has taken it, it is not written; after that its outcome is waited for.
// A panic of its Judge is the caller's.
func (c *Committer) Commit(ctx context.Context, commit Commit) (Receipt, error) {
	r := c.join(ctx, commit)
	if r.panicked != nil {
		panic(r.panicked)
	}
	if r.Err != nil {
		return Receipt{}, fmt.Errorf("commit: %w", r.Err)
	}
	return r.Receipt, nil
}

func (c *Committer) join(ctx context.Context, commit Commit) Result {
	if err := ctx.Err(); err != nil {
		return Result{Err: err}
	}
	w := c.spare.Get().(*waiting)
	defer func() {
		w.commit = Commit{}
		c.spare.Put(w) // nobody else has it any more: it was answered, or taken out of the queue
	}()
	w.commit = commit
	if c.alone(w) {
		return <-w.done
	}
	if !c.add(w) {
		return Result{Err: ErrClosed}
	}
	select {
	case r := <-w.done:
		return r
	case <-ctx.Done():
		if c.withdraw(w) {
			return Result{Err: ctx.Err()}
		}
	}
	return <-w.done
}

// alone writes the commit of a caller while nobody else writes, waits, or is about to commit again; false where somebody is.
func (c *Committer) alone(w *waiting) bool {
	select {
	case c.turn <- struct{}{}:
		defer c.end()
	default:
		return false
	}
	if c.last >= many || !c.idle() {
		return false
	}
	c.taken = append(c.taken[:0], w)
	c.group()
	return true
}

// end ends a turn.
func (c *Committer) end() { <-c.turn }

func (c *Committer) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.over && len(c.queue) == 0
}

func (c *Committer) add(w *waiting) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	if c.queue = append(c.queue, w); len(c.queue) == c.enough {
		c.rouse()
	}
	return true
}

// rouse wakes run, or has it look again.
func (c *Committer) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// withdraw takes a commit out of the queue; false where a group has it.
func (c *Committer) withdraw(w *waiting) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.queue, w)
	if i >= 0 {
		c.queue = slices.Delete(c.queue, i, i+1)
	}
	return i >= 0
}

// run writes one group after the other. What comes while one is written is the next. What waits at the end is not written.
func (c *Committer) run() {
	defer close(c.ended)
	defer c.refuse(ErrClosed, true)
	for {
		select {
		case <-c.closing:
			return
		default:
		}
		if c.await(1) {
			c.together()
			continue
		}
		select {
		case <-c.wake:
		case <-c.closing:
			return
		}
	}
}

// together writes the commits that wait.
func (c *Committer) together() {
	select {
	case c.turn <- struct{}{}:
		defer c.end()
	case <-c.closing:
		return
	}
	c.gather()
	c.group()
}

// await reports whether so many commits wait; where not, run is woken when they do.
func (c *Committer) await(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enough = n
	return len(c.queue) >= n
}

// How long after a group the next one is waited for. Where it was waited for in vain twice in turn, the next 1 is not, then 2, 4, up to 64.
const (
	lull    = 400 * time.Microsecond
	many    = 4 // fewer are not waited for
	maxVain = 8
)

// gather takes what waits, after a moment for those who were answered together and are about to commit again: else the first of them would be alone.
func (c *Committer) gather() {
	enough := c.last - c.last/8
	switch left := time.Until(c.until); {
	case c.last < many || left <= 0 || c.await(enough): // there is nobody to wait for
	case c.skip > 0:
		c.skip--
	case c.waitFor(enough, left):
		c.vain = 0
	default:
		c.vain = min(c.vain+1, maxVain)
		c.skip = 1 << c.vain >> 2
	}
	if c.last >= many {
		runtime.Gosched() // some have been answered and could run, but did not yet: on one processor none of them would have
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.queue), MaxGroup)
	c.taken = append(c.taken[:0], c.queue[:n]...)
	c.queue = slices.Delete(c.queue, 0, n)
	c.enough = 0 // nobody is to be woken while the group is written
}

// waitFor reports whether n wait before the time is over.
func (c *Committer) waitFor(n int, left time.Duration) bool {
	end := time.NewTimer(left)
	defer end.Stop()
	for {
		select {
		case <-c.wake:
			if c.await(n) {
				return true
			}
		case <-end.C:
			return false
		}
	}
}

// group writes a group and tells each caller. One that fails has failed for all of them.
func (c *Committer) group() {
	if len(c.taken) == 0 {
		return
	}
	c.commits = c.commits[:0]
	for _, w := range c.taken {
		c.commits = append(c.commits, w.commit)
	}
	began := time.Now()
	results, err := c.write(c.commits)
	clear(c.commits)
	for i, w := range c.taken {
		if err != nil {
			w.done <- Result{Err: err}
			continue
		}
		w.done <- results[i]
	}
	clear(c.taken)
	c.last, c.until = min(len(c.taken)+c.Waiting(), MaxGroup), time.Now().Add(lull)
	if err != nil && time.Since(began) >= slow {
		c.refuse(err, false)
	}
}

// slow is how long a group may take to fail before those who wait behind it fail too: else each would wait as long once more, one group after the other.
const slow = time.Second

// refuse tells all who wait that nothing of theirs is written; over: nor of who comes.
func (c *Committer) refuse(err error, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = c.over || over
	for _, w := range c.queue {
		w.done <- Result{Err: err}
	}
	clear(c.queue)
	c.queue = c.queue[:0]
}

// Waiting counts the commits that no group has taken.
func (c *Committer) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue)
}

// Closing reports whether Close was called.
func (c *Committer) Closing() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// Close waits for the group that is being written and ends the committer; what no group has taken is refused. It may be called more than once.
func (c *Committer) Close() {
	c.once.Do(func() { close(c.closing) })
	<-c.ended
	c.turn <- struct{}{} // who is alone may still be writing
	c.end()
}
