package witness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"navra/internal/blackbox"
	"navra/internal/store"
)

// Options are the parts of a Keeper; all are required but Every and Interval.
type Options struct {
	Log      store.Log
	Signer   blackbox.Signer
	Renew    func() (blackbox.Signer, error) // the signer as it is by now, asked before each checkpoint; nil: it stays
	Logger   *slog.Logger
	Every    int           // entries after which a checkpoint is made; 0 means DefaultEvery
	Interval time.Duration // after which one is made if there are new entries; 0 means DefaultInterval

	To    string            // a file that holds the newest checkpoint; "" for none
	Offer func(note []byte) // is told of each checkpoint, and does not wait; nil: nobody is
	Keep  time.Duration     // how long payloads stay; 0: for ever
	// Tell records an event; it is needed with Keep.
	Tell func(ctx context.Context, text string) error
}

// How often a checkpoint is made where nothing is said.
const (
	DefaultEvery    = 1000
	DefaultInterval = time.Minute
)

// A Keeper makes checkpoints of a log while it grows. Several may keep one log.
type Keeper struct {
	o    Options
	end  context.CancelFunc
	work sync.WaitGroup

	mu   sync.Mutex // held while one is made
	tree *blackbox.Tree
	ages ages // of the goroutine that retains
}

// Keep starts a keeper. Close ends it.
func Keep(o Options) *Keeper {
	if o.Every == 0 {
		o.Every = DefaultEvery
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	ctx, end := context.WithCancel(context.Background())
	k := &Keeper{o: o, end: end}
	k.work.Go(func() { k.run(ctx) })
	if o.Keep > 0 {
		k.work.Go(func() { k.retain(ctx) })
	}
	return k
}

// Close makes a last checkpoint and ends the keeper.
func (k *Keeper) Close(ctx context.Context) error {
	k.end()
	k.work.Wait()
	return k.Checkpoint(ctx)
}

// look is how often it is looked whether enough entries have come.
const look = 2 * time.Second

func (k *Keeper) run(ctx context.Context) {
	tick := time.NewTicker(min(look, k.o.Interval))
	defer tick.Stop()
	made, failing := time.Now(), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		head, err := k.o.Log.Head(ctx)
		if err == nil && head.Seq >= k.size()+blackbox.Seq(k.o.Every) || time.Since(made) >= k.o.Interval {
			err = k.Checkpoint(ctx)
			made = time.Now()
		}
		if err != nil && ctx.Err() == nil && !failing { // once an outage
			k.o.Logger.Warn("no checkpoint of the blackbox could be made", "err", err)
		}
		failing = err != nil
	}
}

func (k *Keeper) size() blackbox.Seq {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tree == nil {
		return 0
	}
	return k.tree.Size()
}

// Checkpoint signs the log as it is now, unless nothing has come since the last one.
func (k *Keeper) Checkpoint(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.renew(); err != nil {
		return err
	}
	if k.tree == nil {
		tree, err := k.resume(ctx)
		if err != nil {
			return err
		}
		k.tree = tree
	}
	before := k.tree.Size()
	if err := grow(ctx, k.o.Log, k.tree); err != nil {
		k.tree = nil // it may have grown by half
		return err
	}
	if k.tree.Size() == before {
		return nil
	}
	c, err := k.o.Signer.Sign(k.tree)
	if err != nil {
		return err
	}
	if err := k.o.Log.AddCheckpoint(ctx, c); err != nil {
		return err
	}
	if k.o.Offer != nil {
		k.o.Offer(c.Note)
	}
	if k.o.To == "" {
		return nil
	}
	return replace(k.o.To, c.Note)
}

// renew takes up a key that was made since.
func (k *Keeper) renew() error {
	if k.o.Renew == nil {
		return nil
	}
	s, err := k.o.Renew()
	if err != nil {
		return err
	}
	if s.Key() != k.o.Signer.Key() {
		k.o.Logger.Info("checkpoints are signed with another key from now on", "key", s.Key())
		k.o.Signer = s
	}
	return nil
}

// resume goes on from the newest checkpoint of this key. One of another key is no ground to stand on.
func (k *Keeper) resume(ctx context.Context) (*blackbox.Tree, error) {
	kept, err := k.o.Log.Checkpoints(ctx)
	if err != nil {
		return nil, err
	}
	for i := len(kept) - 1; i >= 0; i-- {
		tree, err := blackbox.TreeAt(kept[i].Size, kept[i].Frontier)
		if err != nil {
			continue
		}
		if s, err := blackbox.OpenNote(kept[i].Note, k.o.Signer.Key()); err == nil && s.Root == tree.Root() && s.Size == kept[i].Size {
			return tree, nil
		}
	}
	return new(blackbox.Tree), nil
}

// grow adds what has come since. What this process has committed itself need not be read.
func grow(ctx context.Context, log store.Log, tree *blackbox.Tree) error {
	if r, ok := log.(interface {
		Recent(from blackbox.Seq) [][32]byte
	}); ok {
		for _, leaf := range r.Recent(tree.Size() + 1) {
			tree.Append(leaf)
		}
	}
	for leaf, err := range log.Leaves(ctx, tree.Size()+1) {
		if err != nil {
			return err
		}
		tree.Append(leaf)
	}
	return nil
}

// A Proof shows that an entry is in a log that somebody has signed for. It needs no database to be checked.
type Proof struct {
	Entry      []byte     // its encoding
	Path       [][32]byte // RFC 6962 audit path
	Checkpoint []byte     // signed note
}

var errNone = errors.New("there is no entry")

// ProofOf makes the proof of entry n under a checkpoint of the log as it is now. Nothing is signed for a log that does not verify, or that disagrees
// with the evidence, of which the signer's key is a part.
func ProofOf(ctx context.Context, log store.Log, signer blackbox.Signer, n blackbox.Seq, e Evidence) (p Proof, err error) {
	for row, err := range log.Rows(ctx, n) {
		if err != nil {
			return p, err
		}
		if row.Seq == n {
			p.Entry = row.Encoded
		}
		break
	}
	if p.Entry == nil {
		return p, fmt.Errorf("%w %d; see navra blackbox list", errNone, n)
	}
	tree, err := whole(ctx, log, e)
	if err != nil {
		return p, err
	}
	c, err := signer.Sign(tree)
	if err != nil {
		return p, err
	}
	p.Checkpoint = c.Note
	if p.Path, err = blackbox.ProveInclusion(log.Leaves(ctx, 1), n, c.Size); err != nil {
		return p, err
	}
	if _, _, err = p.Check(signer.Key()); err != nil { // it was changed meanwhile
		return Proof{}, errors.Join(errDisagrees, err)
	}
	return p, nil
}

// whole verifies a log that is to be signed for, and returns its tree.
func whole(ctx context.Context, log store.Log, e Evidence) (*blackbox.Tree, error) {
	f, err := Verify(ctx, log, e)
	if err != nil {
		return nil, err
	}
	if !f.OK() {
		return nil, fmt.Errorf("%w: entry %d: %s", errDisagrees, f.At, f.Problem)
	}
	return &f.tree, nil
}

var errDisagrees = errors.New("the log is not whole, or not that of its checkpoints and heads file; run navra blackbox verify")

// Check checks a proof by the verifier key of its log, and returns the entry.
func (p Proof) Check(key string) (blackbox.Entry, blackbox.Signed, error) {
	s, err := blackbox.OpenNote(p.Checkpoint, key)
	if err != nil {
		return blackbox.Entry{}, s, err
	}
	e, err := blackbox.Decode(p.Entry)
	if err == nil {
		err = blackbox.CheckInclusion(blackbox.Hash(p.Entry), e.Seq, s.Size, p.Path, s.Root)
	}
	return e, s, err
}
