package sqlite

import (
	"sync"

	"navra/internal/blackbox"
	"navra/internal/store"
)

// maxRecent is how many hashes are remembered: eight megabytes.
const maxRecent = 1 << 18

// recent are the hashes of entries that this process has committed, up to the newest, without one of another process among them. Its methods
// may be called concurrently.
type recent struct {
	mu     sync.Mutex
	after  blackbox.Seq // the entry before the first of them
	hashes [][32]byte
}

// add takes what was committed after an entry.
func (r *recent) add(after blackbox.Seq, list []store.Written) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.after+blackbox.Seq(len(r.hashes)) != after || len(r.hashes)+len(list) > maxRecent {
		r.after, r.hashes = after, nil
	}
	for _, w := range list {
		r.hashes = append(r.hashes, w.Hash)
	}
}

// take returns those from a number on, and forgets all; nil where that one is not remembered.
func (r *recent) take(from blackbox.Seq) [][32]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from <= r.after || from > r.after+blackbox.Seq(len(r.hashes)) {
		return nil
	}
	out := r.hashes[from-1-r.after:]
	r.after, r.hashes = r.after+blackbox.Seq(len(r.hashes)), nil
	return out
}

// Recent returns the hashes of entries from a number on, as this process has committed them, and forgets them; nil where it did not, or does
// not remember. It is for who grows a tree: the tree then is of what was committed, whatever the database says by then.
func (db *DB) Recent(from blackbox.Seq) [][32]byte { return db.recent.take(from) }
