package store

import (
	"fmt"
	"slices"
	"time"

	"navra/internal/blackbox"
)

// A Tail is the newest entry that a process knows the log to have: the last that it wrote, or what it was told at the start. Who rewrites or
// cuts the end while the process runs would else have it go on from there, and vouch for that. Its methods are called by who holds the head lock.
type Tail struct {
	known   Receipt
	found   func(problem string)
	problem string // that is being recorded
}

// Expect says what the log was last seen to have; the zero Receipt says nothing. found, if not nil, hears what was found to be otherwise. It is
// called before the first commit.
func (t *Tail) Expect(known Receipt, found func(problem string)) { t.known, t.found = known, found }

// At is the number of the entry whose hash Hold needs; 0 for none.
func (t *Tail) At() blackbox.Seq { return t.known.Seq }

// Hold holds the log against what is known of it: at is the hash that the entry of that number has, zero where it is not there. Where they differ
// an event that says so comes before the commits.
func (t *Tail) Hold(head Receipt, at [32]byte, commits []Commit, now time.Time) []Commit {
	t.problem = ""
	switch {
	case t.known.Seq == 0:
		return commits
	case head.Seq < t.known.Seq:
		t.problem = fmt.Sprintf("the log ends with entry %d, and had entry %d with hash %x: its tail was cut off, or the database is an old copy", head.Seq, t.known.Seq, t.known.Hash)
	case at != t.known.Hash:
		t.problem = fmt.Sprintf("entry %d has another hash than it was written with, %x: the end of the log was written anew", t.known.Seq, t.known.Hash)
	default:
		return commits
	}
	e := blackbox.Entry{Kind: blackbox.Event, Time: now, Ref: blackbox.NewRef(), Principal: "navra", Verdict: "allow", Stage: "message", Reason: blackbox.ChangedLive + t.problem}
	return slices.Insert(slices.Clone(commits), 0, Commit{Entry: e})
}

// Wrote takes what became of what Hold returned: results without that of an event of its own.
func (t *Tail) Wrote(g Group) []Result {
	if len(g.Entries) > 0 {
		t.known = g.Head
	}
	if t.problem == "" {
		return g.Results
	}
	if t.found != nil {
		t.found(t.problem)
	}
	t.problem = ""
	return g.Results[1:]
}
