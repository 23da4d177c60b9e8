package blackbox

import (
	"fmt"
	"iter"
	"slices"
)

// A Row is an entry as a store keeps it: what is covered by the hash, the hash, and what the payloads hold.
type Row struct {
	Seq      Seq
	Encoded  []byte
	Hash     [32]byte
	Payloads []Payload // Name, Stored, StoredSalt, WholeSalt; the rest is in Encoded
	Damaged  bool      // what is kept of payloads cannot be read
}

// A Report is what Verify found. It is good if Problem is "".
type Report struct {
	Entries uint64
	Head    [32]byte // hash of the last entry; zero for an empty chain
	At      Seq      // first bad entry
	Problem string

	Changed []Seq  // the first of the entries that record that the log was found to be changed
	Alarms  uint64 // how many such there are
}

// OK reports whether the chain is whole.
func (r Report) OK() bool { return r.Problem == "" }

// Verify checks rows, by what was found out of each, in the order of their numbers: that none is missing, doubled, edited or out of place, that each
// names the hash of the one before it, and that payloads which are still there are those that were committed to. It stops at the first bad
// entry. An error of the store ends the sequence with it.
func Verify(facts iter.Seq2[Fact, error]) (Report, error) { return VerifyEach(facts, nil) }

// VerifyEach is Verify that also asks visit about each good entry, in order: what it says is a problem.
func VerifyEach(facts iter.Seq2[Fact, error], visit func(n Seq, hash [32]byte) (problem string)) (r Report, err error) {
	for f, err := range facts {
		if err != nil {
			return r, err
		}
		want := Seq(r.Entries + 1)
		problem := f.problem(want, r.Head)
		if problem == "" && visit != nil {
			problem = visit(f.row, f.hash)
		}
		if problem != "" {
			r.At, r.Problem = want, problem
			return r, nil
		}
		r.Entries, r.Head = uint64(want), f.hash
		if f.alarm {
			if r.Alarms++; len(r.Changed) < maxAlarms {
				r.Changed = append(r.Changed, want)
			}
		}
	}
	return r, nil
}

// A Fact is what a row says by itself, and whether that can be.
type Fact struct {
	row      Seq
	hash     [32]byte
	edited   bool // it does not have its hash
	unread   error
	seq      Seq
	prev     [32]byte
	payloads string // what is wrong with them
	alarm    bool   // it records that the log was found to be changed
}

// Number is that of the row, as the store has it.
func (f Fact) Number() Seq { return f.row }

// A Checker finds facts, one after the other. The zero Checker is ready. It keeps nothing of a row.
type Checker struct{ e Entry }

// Fact says what is to be said of a row by itself.
func (c *Checker) Fact(row Row) Fact {
	f := Fact{row: row.Seq, hash: row.Hash}
	if len(row.Encoded) > maxEncoded {
		f.unread = errForm
		return f
	}
	if f.edited = Hash(row.Encoded) != row.Hash; f.edited {
		return f
	}
	if f.unread = decode(row.Encoded, &c.e, false); f.unread == nil {
		f.seq, f.prev, f.payloads, f.alarm = c.e.Seq, c.e.Prev, checkPayloads(&c.e, row.Payloads), alarm(row.Encoded)
	}
	if f.unread == nil && row.Damaged {
		f.payloads = "what is kept of its payloads is damaged"
	}
	return f
}

// problem holds a fact against the place in which its row was found.
func (f Fact) problem(want Seq, prev [32]byte) string {
	switch seq := f.row; {
	case int64(seq) > int64(want):
		return fmt.Sprintf("entry %d is missing: entry %d follows", want, seq)
	case seq != want: // a store's number may be negative
		return fmt.Sprintf("entry %d stands where entry %d should", int64(seq), want)
	case f.edited:
		return "the entry was edited: it does not have its hash"
	case f.unread != nil:
		return "the entry cannot be read: " + f.unread.Error()
	case f.seq != seq:
		return fmt.Sprintf("the entry says it is number %d: it was moved", f.seq)
	case f.prev != prev:
		return "the entry does not follow the one before it: something was inserted, removed, reordered or forked here"
	}
	return f.payloads
}

func checkPayloads(e *Entry, kept []Payload) string {
	for i, k := range kept {
		if slices.ContainsFunc(kept[:i], func(before Payload) bool { return before.Name == k.Name }) {
			return fmt.Sprintf("its payload %.80q is there twice", k.Name)
		}
		found := false
		for _, p := range e.Payloads {
			if p.Name != k.Name {
				continue
			}
			found = true
			if len(k.StoredSalt) != saltBytes || len(k.WholeSalt) != saltBytes || commit(k.StoredSalt, k.Stored) != p.StoredProof {
				return fmt.Sprintf("its payload %.80q was edited: it is not what was committed to", k.Name)
			}
		}
		if !found {
			return fmt.Sprintf("a payload %.80q was added: the entry has none of that name", k.Name)
		}
	}
	return ""
}
