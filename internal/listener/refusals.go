package listener

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// maxSources bounds how many addresses are counted singly between two reports; the rest are counted together.
const maxSources = 1000

const others = "others"

// Refusals counts requests that were refused before anybody was proven to send them, by address. The zero Refusals is ready. Its methods
// may be called concurrently.
type Refusals struct {
	mu     sync.Mutex
	counts map[string]int64 // guarded by mu
}

// Count counts what next refuses with 401 or 403. It never waits.
func (r *Refusals) Count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(&observed{ResponseWriter: w, heard: func(status int) {
			if status == http.StatusUnauthorized || status == http.StatusForbidden {
				r.add(clientOf(req.Context()).addr.String())
			}
		}}, req)
	})
}

func (r *Refusals) add(from string) { r.addMany(from, 1) }

func (r *Refusals) addMany(from string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]int64{}
	}
	if _, known := r.counts[from]; !known && len(r.counts) >= maxSources && from != others {
		from = others
	}
	r.counts[from] += n
}

// take returns what was counted since the last time; nil for nothing.
func (r *Refusals) take() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts
	r.counts = nil
	return c
}

// putBack counts again what could not be told.
func (r *Refusals) putBack(counts map[string]int64) {
	for from, n := range counts {
		r.addMany(from, n)
	}
}

// Report calls tell with what was counted, at most once a second, until ctx ends, and then once more if there is something. What could not
// be told is told with the next.
func (r *Refusals) Report(ctx context.Context, tell func(counts map[string]int64) error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		if c := r.take(); c != nil && tell(c) != nil {
			r.putBack(c)
		}
		if ctx.Err() != nil {
			return
		}
	}
}
