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
}

// A Report is what Verify found. It is good if Problem is "".
type Report struct {
	Entries uint64
	Head    [32]byte // hash of the last entry; zero for an empty chain
	At      Seq      // first bad entry
	Problem string
}

// OK reports whether the chain is whole.
func (r Report) OK() bool { return r.Problem == "" }

// Verify checks rows in the order of their numbers: that none is missing, doubled, edited or out of place, that each names the hash of
// the one before it, and that payloads which are still there are those that were committed to. It stops at the first bad
// entry. An error of the store ends the sequence with it.
func Verify(rows iter.Seq2[Row, error]) (Report, error) { return VerifyEach(rows, nil) }

// VerifyEach is Verify that also asks visit about each good entry, in order: what it says is a problem.
func VerifyEach(rows iter.Seq2[Row, error], visit func(n Seq, hash [32]byte) (problem string)) (Report, error) {
	var r Report
	var e Entry // for all
	for row, err := range rows {
		if err != nil {
			return r, err
		}
		want := Seq(r.Entries + 1)
		problem := check(row, &e, want, r.Head)
		if problem == "" && visit != nil {
			problem = visit(row.Seq, row.Hash)
		}
		if problem != "" {
			r.At, r.Problem = want, problem
			return r, nil
		}
		r.Entries, r.Head = uint64(want), row.Hash
	}
	return r, nil
}

func check(row Row, e *Entry, want Seq, prev [32]byte) string {
	switch {
	case row.Seq > want:
		return fmt.Sprintf("entry %d is missing: entry %d follows", want, row.Seq)
	case row.Seq < want:
		return fmt.Sprintf("entry %d stands where entry %d should", row.Seq, want)
	case Hash(row.Encoded) != row.Hash:
		return "the entry was edited: it does not have its hash"
	}
	err := decode(row.Encoded, e, false)
	switch {
	case err != nil:
		return "the entry cannot be read: " + err.Error()
	case e.Seq != row.Seq:
		return fmt.Sprintf("the entry says it is number %d: it was moved", e.Seq)
	case e.Prev != prev:
		return "the entry does not follow the one before it: something was inserted, removed, reordered or forked here"
	}
	return checkPayloads(e, row.Payloads)
}

func checkPayloads(e *Entry, kept []Payload) string {
	for i, k := range kept {
		if slices.ContainsFunc(kept[:i], func(before Payload) bool { return before.Name == k.Name }) {
			return fmt.Sprintf("the %s are there twice", k.Name)
		}
		found := false
		for _, p := range e.Payloads {
			if p.Name != k.Name {
				continue
			}
			found = true
			if len(k.StoredSalt) != saltBytes || len(k.WholeSalt) != saltBytes || commit(k.StoredSalt, k.Stored) != p.StoredProof {
				return fmt.Sprintf("the %s were edited: they are not what was committed to", k.Name)
			}
		}
		if !found {
			return fmt.Sprintf("%s were added: the entry has none", k.Name)
		}
	}
	return ""
}
