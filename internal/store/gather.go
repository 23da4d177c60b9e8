package store

import (
	"errors"
	"fmt"
	"math"
	"time"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/scope"
)

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

// A Gatherer works out groups. Its memory serves one after the other: a group is good until the next is gathered.
type Gatherer struct {
	Accept func(*blackbox.Entry) error // refuses an entry that the database would, and with it the group; nil: none
	Now    func() time.Time

	group  Group
	text   []byte // of the entries
	scopes []used
	index  map[scope.ID]int // into scopes
}

// maxText is how much memory for the encodings of a group is kept.
const maxText = 1 << 20

// Gather works out what commits come to, one after the other as if each were alone: each is held against its scope as those
// before it have left it, and against what operators have said. The caller holds the head lock: before and what scopeOf returns stay true until
// the group is written. The entries of commits are filled in.
func (g *Gatherer) Gather(before Before, commits []Commit, scopeOf func(scope.ID) (Used, error)) Group {
	if cap(g.text) > maxText {
		g.text = nil
	}
	if g.index == nil {
		g.index = map[scope.ID]int{}
	}
	clear(g.index)
	clear(g.group.Entries) // so that no payload is held
	g.scopes, g.text = g.scopes[:0], g.text[:0]
	g.group = Group{Entries: g.group.Entries[:0], Results: g.group.Results[:0], Scopes: g.group.Scopes[:0], Head: before.Head, before: before}
	for i := range commits {
		g.group.Results = append(g.group.Results, g.add(&commits[i], scopeOf))
	}
	for _, s := range g.scopes {
		if s.changed {
			g.group.Scopes = append(g.group.Scopes, s.Used)
		}
	}
	return g.group
}

// add takes one commit into the group, or refuses it and leaves the group as it was.
func (g *Gatherer) add(c *Commit, scopeOf func(scope.ID) (Used, error)) (r Result) {
	defer func() {
		if p := recover(); p != nil {
			r = Result{panicked: p}
		}
	}()
	var at *used
	if full(g.group.Head) {
		return Result{Err: errNumber}
	}
	said, err := g.group.said(c)
	if err != nil {
		return Result{Err: err}
	}
	if c.Scope != "" {
		if at, r.Err = g.scope(c.Scope, scopeOf); r.Err != nil {
			return r
		}
	}
	entry, raise := &c.Entry, c.Raise
	switch {
	case c.Judge != nil && at != nil:
		*entry, raise = c.Judge(at.Scope, said)
	case c.Judge != nil:
		*entry, _ = c.Judge(scope.Scope{Label: ifc.Bottom()}, said)
	case at != nil && at.Version != c.IfScope:
		return Result{Err: ErrStale}
	}
	if g.Accept != nil {
		if err := g.Accept(entry); err != nil {
			return Result{Err: err}
		}
	}
	if entry.Time.IsZero() {
		entry.Time = g.Now()
	}
	g.write(entry)
	if at != nil {
		at.raise(raise, entry.Time)
	}
	return Result{Receipt: g.group.Head}
}

// full reports whether no entry can follow one.
func full(head Receipt) bool { return head.Seq >= math.MaxInt64 } // or negative, in the database

var errNumber = errors.New("the newest entry has a number that none can follow: somebody put it there")

// write puts an entry at the end of the chain.
func (g *Gatherer) write(e *blackbox.Entry) {
	e.Seq, e.Prev = g.group.Head.Seq+1, g.group.Head.Hash
	from := len(g.text)
	g.text = e.Append(g.text)
	w := Written{Seq: e.Seq, Encoded: g.text[from:len(g.text):len(g.text)], Payloads: e.Payloads}
	w.Hash = blackbox.Hash(w.Encoded)
	g.group.Entries = append(g.group.Entries, w)
	g.group.Head = Receipt{Seq: w.Seq, Hash: w.Hash}
}

// said returns what operators have said since a commit was judged, for its Judge; nil for nothing. One without a Judge is refused then.
func (g *Group) said(c *Commit) (*Controls, error) {
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

// scope returns a scope as the group has left it so far. It is good until the next is asked for.
func (g *Gatherer) scope(id scope.ID, scopeOf func(scope.ID) (Used, error)) (*used, error) {
	i, ok := g.index[id]
	if !ok {
		s, err := scopeOf(id)
		if err != nil {
			return nil, fmt.Errorf("scope %q: %w", id, err)
		}
		i = len(g.scopes)
		g.index[id], g.scopes = i, append(g.scopes, used{Used: s})
	}
	return &g.scopes[i], nil
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
