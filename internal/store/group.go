package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/scope"
)

// ErrClosed reports a commit to a store that was closed.
var ErrClosed = errors.New("the store is closed")

// MaxGroup bounds how many commits share a transaction.
const MaxGroup = 256

// usedEvery is how exactly a scope's last use is kept: far finer than what depends on it.
const usedEvery = time.Minute

// A Used is a scope with the time of its last use, as the database has it.
type Used struct {
	scope.Scope
	At time.Time
}

// A Written is one entry to be inserted, in its place in the chain.
type Written struct {
	Seq      blackbox.Seq
	Encoded  []byte
	Hash     [32]byte
	Payloads []blackbox.Payload
}

// A Result is what one commit of a group comes to, once the group is written.
type Result struct {
	Receipt  Receipt
	Err      error
	panicked any // by Judge: for the caller's own goroutine to see
}

// A Group is what commits that share a transaction write.
type Group struct {
	Entries []Written
	Scopes  []Used // to be written: label, version, last use
	Results []Result
	Head    Receipt // after it
	before  Before
}

// A Before is what a group finds in the database.
type Before struct {
	Head       Receipt
	Generation Generation
	Controls   func() (Controls, error) // asked only where a commit was judged on another generation
}

// Gather works out what commits come to, one after the other as if each were alone: each is held against its scope as those
// before it have left it, and against what operators have said. accept refuses an entry that the database would, and with it the group. The caller holds the head lock: before and what scopeOf returns stay true until the group is written.
func Gather(before Before, commits []Commit, scopeOf func(scope.ID) (Used, error), accept func(blackbox.Entry) error, now func() time.Time) Group {
	g := Group{Entries: make([]Written, 0, len(commits)), Results: make([]Result, len(commits)), Head: before.Head, before: before}
	scopes := map[scope.ID]*used{}
	for i, c := range commits {
		g.Results[i] = g.add(c, scopes, scopeOf, accept, now)
	}
	for _, s := range scopes {
		if s.changed {
			g.Scopes = append(g.Scopes, s.Used)
		}
	}
	return g
}

// add takes one commit into the group, or refuses it and leaves the group as it was.
func (g *Group) add(c Commit, scopes map[scope.ID]*used, scopeOf func(scope.ID) (Used, error), accept func(blackbox.Entry) error, now func() time.Time) (r Result) {
	defer func() {
		if p := recover(); p != nil {
			r = Result{panicked: p}
		}
	}()
	var at *used
	entry, raise := c.Entry, c.Raise
	said, err := g.said(c)
	if err != nil {
		return Result{Err: err}
	}
	if c.Scope != "" {
		if at, r.Err = gathered(scopes, c.Scope, scopeOf); r.Err != nil {
			return r
		}
	}
	switch {
	case c.Judge != nil && at != nil:
		entry, raise = c.Judge(at.Scope, said)
	case c.Judge != nil:
		entry, _ = c.Judge(scope.Scope{Label: ifc.Bottom()}, said)
	case at != nil && at.Version != c.IfScope:
		return Result{Err: ErrStale}
	}
	if err := accept(entry); err != nil {
		return Result{Err: err}
	}
	if entry.Time.IsZero() {
		entry.Time = now()
	}
	entry.Seq, entry.Prev = g.Head.Seq+1, g.Head.Hash
	w := Written{Seq: entry.Seq, Encoded: entry.Encode(), Payloads: entry.Payloads}
	w.Hash = blackbox.Hash(w.Encoded)
	if at != nil {
		at.raise(raise, entry.Time)
	}
	g.Entries = append(g.Entries, w)
	g.Head = Receipt{Seq: w.Seq, Hash: w.Hash}
	return Result{Receipt: g.Head}
}

// said returns what operators have said since a commit was judged, for its Judge; nil for nothing. One without a Judge is refused then.
func (g *Group) said(c Commit) (*Controls, error) {
	if c.IfGeneration == 0 || c.IfGeneration == g.before.Generation {
		return nil, nil
	}
	if c.Judge == nil {
		return nil, ErrChanged
	}
	now, err := g.before.Controls()
	return &now, err
}

type used struct {
	Used
	changed bool
}

func gathered(scopes map[scope.ID]*used, id scope.ID, scopeOf func(scope.ID) (Used, error)) (*used, error) {
	if s, ok := scopes[id]; ok {
		return s, nil
	}
	s, err := scopeOf(id)
	if err != nil {
		return nil, fmt.Errorf("scope %q: %w", id, err)
	}
	scopes[id] = &used{Used: s}
	return scopes[id], nil
}

// raise joins a label into the scope and notes its use. The version grows if the label does.
func (s *used) raise(l ifc.Label, at time.Time) {
	if at.Sub(s.At) >= usedEvery {
		s.At, s.changed = at, true
	}
	if !s.Label.Covers(l) {
		s.Label, s.changed = s.Label.Join(l), true
		s.Version++
	}
}

// A Committer gathers commits: while one group is written, the next one waits. Its methods may be called concurrently.
type Committer struct {
	write   func([]Commit) ([]Result, error)
	queue   chan *waiting
	once    sync.Once // closes closing
	closing chan struct{}
	ended   chan struct{}

	// Of run:
	together bool // the group before had several commits
	commits  []Commit
}

// A waiting is a commit and its caller, who waits for done.
type waiting struct {
	commit Commit
	state  atomic.Int32
	done   chan Result // room for one
}

// Between its caller's end and the group that comes for it a commit is decided once: written or not.
const (
	queued int32 = iota
	taken
	withdrawn
)

func (w *waiting) take() bool     { return w.state.CompareAndSwap(queued, taken) }
func (w *waiting) withdraw() bool { return w.state.CompareAndSwap(queued, withdrawn) }

// NewCommitter returns a committer that writes groups by write: all of a group, or nothing and an error. write does not keep what it is given.
// Close ends the committer.
func NewCommitter(write func([]Commit) ([]Result, error)) *Committer {
	c := &Committer{write: write, queue: make(chan *waiting, MaxGroup), closing: make(chan struct{}), ended: make(chan struct{})}
	go c.run()
	return c
}

// Commit writes one commit with a group. If ctx ends before a group has taken it, it is not written; after that its outcome is waited for.
// A panic of its Judge is the caller's.
func (c *Committer) Commit(ctx context.Context, commit Commit) (Receipt, error) {
	w := &waiting{commit: commit, done: make(chan Result, 1)}
	r := c.join(ctx, w)
	if r.panicked != nil {
		panic(r.panicked)
	}
	if r.Err != nil {
		return Receipt{}, fmt.Errorf("commit: %w", r.Err)
	}
	return r.Receipt, nil
}

func (c *Committer) join(ctx context.Context, w *waiting) Result {
	if err := ctx.Err(); err != nil {
		return Result{Err: err}
	}
	select { // a full queue makes callers wait here
	case c.queue <- w:
	case <-ctx.Done():
		return Result{Err: ctx.Err()}
	case <-c.ended:
		return Result{Err: ErrClosed}
	}
	select {
	case r := <-w.done:
		return r
	case <-ctx.Done():
		if w.withdraw() {
			return Result{Err: ctx.Err()}
		}
	case <-c.ended:
		if w.withdraw() {
			return Result{Err: ErrClosed}
		}
	}
	return <-w.done
}

// run writes one group after the other. What comes while one is written is the next. What waits at the end is not written.
func (c *Committer) run() {
	defer close(c.ended)
	for {
		select {
		case <-c.closing:
			return
		default:
		}
		select {
		case w := <-c.queue:
			c.group(c.gather(w))
		case <-c.closing:
			return
		}
	}
}

// gather takes what waits now. Where commits came together before, those who were answered then may be about to commit again, and are let
// run first: else the first of them would be alone.
func (c *Committer) gather(w *waiting) (all []*waiting) {
	for more := c.together; more; {
		before := len(c.queue)
		runtime.Gosched()
		more = len(c.queue) > before
	}
	defer func() { c.together = len(all) > 1 }()
	for {
		if w.take() {
			all = append(all, w)
		}
		if len(all) == MaxGroup {
			return all
		}
		select {
		case w = <-c.queue:
		default:
			return all
		}
	}
}

// group writes a group and tells each caller. One that fails has failed for all of them.
func (c *Committer) group(all []*waiting) {
	if len(all) == 0 {
		return
	}
	for _, w := range all {
		c.commits = append(c.commits, w.commit)
	}
	began := time.Now()
	results, err := c.write(c.commits)
	clear(c.commits)
	c.commits = c.commits[:0]
	for i, w := range all {
		if err != nil {
			w.done <- Result{Err: err}
			continue
		}
		w.done <- results[i]
	}
	if err != nil && time.Since(began) >= slow {
		c.refuse(err)
	}
}

// slow is how long a group may take to fail before those who wait behind it fail too: else each would wait as long once more, one group after the other.
const slow = time.Second

func (c *Committer) refuse(err error) {
	for {
		select {
		case w := <-c.queue:
			if w.take() {
				w.done <- Result{Err: err}
			}
		default:
			return
		}
	}
}

// Waiting counts the commits that no group has taken.
func (c *Committer) Waiting() int { return len(c.queue) }

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
}
