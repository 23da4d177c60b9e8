package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	Receipt Receipt
	Err     error
}

// A Group is what commits that share a transaction write.
type Group struct {
	Entries []Written
	Scopes  []Used // to be written: label, version, last use
	Results []Result
	Head    Receipt // after it
}

// Gather works out what commits come to, one after the other as if each were alone: each is held against its scope as those
// before it have left it. The caller holds the head lock: head and what scopeOf returns stay true until the group is written.
func Gather(head Receipt, commits []Commit, scopeOf func(scope.ID) (Used, error), now func() time.Time) Group {
	g := Group{Results: make([]Result, len(commits)), Head: head}
	scopes := map[scope.ID]*used{}
	for i, c := range commits {
		r := &g.Results[i]
		var at *used
		entry, raise := c.Entry, c.Raise
		if c.Scope != "" {
			if at, r.Err = gathered(scopes, c.Scope, scopeOf); r.Err != nil {
				continue
			}
		}
		switch {
		case c.Judge != nil && at != nil:
			entry, raise = c.Judge(at.Scope)
		case c.Judge != nil:
			entry, _ = c.Judge(scope.Scope{Label: ifc.Bottom()})
		case at != nil && at.Version != c.IfScope:
			r.Err = ErrStale
			continue
		}
		if entry.Time.IsZero() {
			entry.Time = now()
		}
		if at != nil {
			at.raise(raise, entry.Time)
		}
		entry.Seq, entry.Prev = g.Head.Seq+1, g.Head.Hash
		w := Written{Seq: entry.Seq, Encoded: entry.Encode(), Payloads: entry.Payloads}
		w.Hash = blackbox.Hash(w.Encoded)
		g.Entries = append(g.Entries, w)
		g.Head = Receipt{Seq: w.Seq, Hash: w.Hash}
		r.Receipt = g.Head
	}
	for _, s := range scopes {
		if s.changed {
			g.Scopes = append(g.Scopes, s.Used)
		}
	}
	return g
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
}

type waiting struct {
	commit Commit
	done   chan Result // room for one
}

// NewCommitter returns a committer that writes groups by write: all of a group, or nothing and an error. Close ends it.
func NewCommitter(write func([]Commit) ([]Result, error)) *Committer {
	c := &Committer{write: write, queue: make(chan *waiting, MaxGroup), closing: make(chan struct{}), ended: make(chan struct{})}
	go c.run()
	return c
}

// Commit writes one commit with a group. ctx counts until it is taken up: from then on it is written whatever happens to ctx.
func (c *Committer) Commit(ctx context.Context, commit Commit) (Receipt, error) {
	if err := ctx.Err(); err != nil {
		return Receipt{}, err
	}
	w := &waiting{commit, make(chan Result, 1)}
	select {
	case <-c.closing:
		return Receipt{}, ErrClosed
	default:
	}
	select {
	case c.queue <- w:
	case <-ctx.Done():
		return Receipt{}, ctx.Err()
	case <-c.closing:
		return Receipt{}, ErrClosed
	}
	select {
	case r := <-w.done:
		return r.Receipt, r.Err
	case <-c.ended: // it came too late to be taken up, or just in time
		select {
		case r := <-w.done:
			return r.Receipt, r.Err
		default:
			return Receipt{}, ErrClosed
		}
	}
}

func (c *Committer) run() {
	defer close(c.ended)
	for {
		select {
		case first := <-c.queue:
			c.group(first)
		case <-c.closing:
			for {
				select {
				case first := <-c.queue:
					c.group(first)
				default:
					return
				}
			}
		}
	}
}

// group writes what waits now.
func (c *Committer) group(first *waiting) {
	all := []*waiting{first}
	for len(all) < MaxGroup {
		select {
		case w := <-c.queue:
			all = append(all, w)
			continue
		default:
		}
		break
	}
	commits := make([]Commit, len(all))
	for i, w := range all {
		commits[i] = w.commit
	}
	results, err := c.attempt(commits)
	for i, w := range all {
		if err != nil {
			w.done <- Result{Err: fmt.Errorf("commit: %w", err)}
			continue
		}
		w.done <- results[i]
	}
}

// attempt writes a group. What panics in a judge denies the group and ends nothing else.
func (c *Committer) attempt(commits []Commit) (results []Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %T", v) // what it carries may be content
		}
	}()
	return c.write(commits)
}

// Close writes what was taken up and ends the committer. It may be called more than once.
func (c *Committer) Close() {
	c.once.Do(func() { close(c.closing) })
	<-c.ended
}
