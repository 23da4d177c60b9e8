package witness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"navra/internal/blackbox"
	"navra/internal/store"
)

const (
	retainEvery = time.Hour
	retainAgain = time.Minute // after it did not work
	retainBatch = 250         // entries of one transaction: others commit in between
	retainTurn  = "retention"
)

// retain removes payloads that are older than the operator keeps them: once an hour, and of all processes that keep one log one alone.
func (k *Keeper) retain(ctx context.Context) {
	for mine := false; ; {
		next := retainEvery
		err := error(nil)
		if !mine {
			mine, err = k.o.Log.Turn(ctx, retainTurn, retainEvery-retainAgain)
		}
		if mine && err == nil {
			err = k.retainNow(ctx)
			mine = err != nil // to be gone on with
		}
		if err != nil && ctx.Err() == nil {
			k.o.Logger.Warn("old payloads could not all be removed from the blackbox; it is tried again", "err", err)
			next = retainAgain
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// retainNow removes and records what it has removed, also where it comes to no end.
func (k *Keeper) retainNow(ctx context.Context) error {
	n, err := Retain(ctx, k.o.Log, time.Now().Add(-k.o.Keep))
	if n == 0 {
		return err
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer stop()
	return errors.Join(err, k.o.Tell(ctx, fmt.Sprintf("retention: payloads of %d entries were removed, which are older than %s", n, k.o.Keep)))
}

// Retain removes the payloads of entries before a time, and reports of how many. Entries, and so hashes and proofs, stay.
func Retain(ctx context.Context, log store.Log, before time.Time) (n int, err error) {
	below, err := firstFrom(ctx, log, before)
	if err != nil {
		return 0, err
	}
	for {
		dropped, err := log.DropPayloads(ctx, below, retainBatch)
		if n += dropped; err != nil || dropped < retainBatch {
			return n, err
		}
		if _, err := log.Turn(ctx, retainTurn, 0); err != nil { // it lasts: nobody else begins
			return n, err
		}
	}
}

// firstFrom finds the first entry that is not older than a time. Clocks of several processes differ little; what is found is right
// but for that.
func firstFrom(ctx context.Context, log store.Log, at time.Time) (blackbox.Seq, error) {
	head, err := log.Head(ctx)
	if err != nil {
		return 0, err
	}
	low, high := blackbox.Seq(1), head.Seq+1
	for low < high {
		mid := low + (high-low)/2
		t, err := timeOf(ctx, log, mid)
		if err != nil {
			return 0, err
		}
		if t.Before(at) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, nil
}

func timeOf(ctx context.Context, log store.Log, n blackbox.Seq) (time.Time, error) {
	for row, err := range log.Rows(ctx, n) {
		if err != nil {
			return time.Time{}, err
		}
		e, err := blackbox.Decode(row.Encoded)
		return e.Time, err
	}
	return time.Time{}, fmt.Errorf("entry %d: %w", n, errNone)
}

// replace writes a file so that whoever reads it finds the old or the new, whole.
func replace(path string, b []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".checkpoint-*")
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("checkpoint: %w", err), os.Remove(f.Name()))
	}
	return nil
}
