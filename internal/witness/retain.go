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
	n, err := k.ages.retain(ctx, k.o.Log, time.Now().Add(-k.o.Keep))
	if n == 0 {
		return err
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer stop()
	return errors.Join(err, k.o.Tell(ctx, fmt.Sprintf("retention: payloads of %d entries were removed, which are older than %s", n, k.o.Keep)))
}

// Retain removes the payloads of entries before a time, and reports of how many. Entries, and so hashes and proofs, stay.
func Retain(ctx context.Context, log store.Log, before time.Time) (n int, err error) {
	var a ages
	return a.retain(ctx, log, before)
}

// ages goes through a log to tell how old entries are. A clock may have been put back: no entry is older than one before it. One of the future says
// nothing of those that follow.
type ages struct {
	next   blackbox.Seq // entry to be looked at; 0 is the first
	newest time.Time    // of those before it
}

func (a *ages) retain(ctx context.Context, log store.Log, before time.Time) (n int, err error) {
	if err := a.skip(ctx, log, before); err != nil {
		return 0, err
	}
	for {
		dropped, err := log.DropPayloads(ctx, a.next, retainBatch)
		if n += dropped; err != nil || dropped < retainBatch {
			return n, err
		}
		if _, err := log.Turn(ctx, retainTurn, 0); err != nil { // it lasts: nobody else begins
			return n, err
		}
	}
}

// skip goes on to the first entry that is not older than a time.
func (a *ages) skip(ctx context.Context, log store.Log, before time.Time) error {
	a.next = max(a.next, 1)
	now := time.Now()
	for row, err := range log.Rows(ctx, a.next) {
		if err != nil {
			return err
		}
		e, err := blackbox.Decode(row.Encoded)
		if err != nil { // for who verifies: whoever damages one entry keeps no payloads of others by that
			continue
		}
		if e.Time.After(a.newest) && !e.Time.After(now) {
			a.newest = e.Time
		}
		if !a.newest.Before(before) {
			return nil
		}
		a.next = row.Seq + 1
	}
	return nil
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
