package witness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"navra/internal/blackbox"
	"navra/internal/store"
)

// A Kept is where it is noted which entries change the key, so that they are found without reading all. Nothing depends on it being right: the entries
// are signed, and whoever verifies reads all where a key is unknown.
type Kept interface {
	Kept(ctx context.Context, key string) ([]byte, error)
	Swap(ctx context.Context, key string, old, value []byte) (bool, error)
}

const rotations = "rotations" // numbers of entries, with a space between

// Keys returns the verifier keys that a log's own changes lead to from one, the newest last: the one itself where there were none.
func Keys(ctx context.Context, log store.Log, kept Kept, from string) (keys []string, err error) {
	b, err := kept.Kept(ctx, rotations)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	var changes [][2]string
	for _, word := range strings.Fields(string(b)) {
		var n blackbox.Seq
		if _, err := fmt.Sscan(word, &n); err != nil {
			continue
		}
		old, next, ok, err := changeAt(ctx, log, n)
		if err != nil {
			return nil, err
		}
		if ok {
			changes = append(changes, [2]string{old, next})
		}
	}
	return follow(from, changes), nil
}

// follow goes from a key along changes that both keys have signed, forward and back.
func follow(from string, changes [][2]string) []string {
	known := map[string]bool{from: true}
	for range changes {
		for _, c := range changes {
			if known[c[0]] || known[c[1]] {
				known[c[0]], known[c[1]] = true, true
			}
		}
	}
	keys := []string{from}
	for _, c := range changes {
		for _, k := range c {
			if known[k] {
				keys = append(slices.DeleteFunc(keys, func(have string) bool { return have == k }), k)
			}
		}
	}
	return keys
}

func changeAt(ctx context.Context, log store.Log, n blackbox.Seq) (old, next string, ok bool, err error) {
	for row, err := range log.Rows(ctx, n) {
		if err != nil || row.Seq != n {
			return "", "", false, err
		}
		old, next, ok = changeIn(row)
		return old, next, ok, nil
	}
	return "", "", false, nil
}

// changeIn is the change of the key that an entry records, if it does.
func changeIn(row blackbox.Row) (old, next string, ok bool) {
	e, err := blackbox.Decode(row.Encoded)
	if err != nil || e.Kind != blackbox.Event {
		return "", "", false
	}
	return blackbox.ReadRotation(e.Reason)
}

// A Rotation is a change of the key that signs checkpoints. Others may write to the log meanwhile, and sign with the old key until they
// take up the new one.
type Rotation struct {
	Log       store.Log
	Store     store.Store
	Old, Next blackbox.Signer
	Held      Evidence // of before: nothing is signed for a log that disagrees with it
	Use       func() error
}

// Run signs the log with the old key, records the change, calls Use to put the new key in its place, and signs with that. Run
// again after it was cut short, it comes to the same.
func (r Rotation) Run(ctx context.Context) (blackbox.Seq, error) {
	if _, err := whole(ctx, r.Log, r.Held); err != nil {
		return 0, err
	}
	k := &Keeper{o: Options{Log: r.Log, Signer: r.Old}}
	if err := k.Checkpoint(ctx); err != nil {
		return 0, err
	}
	reason, err := blackbox.Rotate(r.Old, r.Next)
	if err != nil {
		return 0, err
	}
	e := blackbox.Entry{Kind: blackbox.Event, Time: time.Now(), Ref: blackbox.NewRef(), Principal: "navra", Verdict: "allow", Reason: reason}
	at, err := r.Store.Commit(ctx, store.Commit{Entry: e})
	if err != nil {
		return 0, err
	}
	if err := note(ctx, r.Store, at.Seq); err != nil {
		return 0, err
	}
	if err := r.Use(); err != nil {
		return 0, err
	}
	k.o.Signer = r.Next
	return at.Seq, k.Checkpoint(ctx)
}

// note adds a number to those of the entries that change the key.
func note(ctx context.Context, kept Kept, n blackbox.Seq) error {
	for {
		old, err := kept.Kept(ctx, rotations)
		if errors.Is(err, store.ErrNotFound) {
			old, err = nil, nil
		}
		if err != nil {
			return err
		}
		if done, err := kept.Swap(ctx, rotations, old, fmt.Appendf(slices.Clone(old), "%d ", n)); err != nil || done {
			return err
		}
	}
}
