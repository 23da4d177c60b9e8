package listener

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"navra/internal/auth"
	"navra/internal/mcp"
)

// maxSources bounds what is counted singly of one sender between two reports; the rest is counted together.
const maxSources = 1000

const others = "others"

// A Sender is a principal and the way in which it was proven. The zero Sender is nobody that was proven.
type Sender struct{ Principal, Auth, Transport string }

// Refusals counts requests that were refused before their method was known: those of nobody by address, those of a principal by reason. The zero
// Refusals is ready. Its methods may be called concurrently, and never wait.
type Refusals struct {
	mu     sync.Mutex
	counts map[Sender]map[string]int64 // guarded by mu
}

// Count counts what next refuses with 401 or 403.
func (r *Refusals) Count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(&observed{ResponseWriter: w, heard: func(status int) {
			if status == http.StatusUnauthorized || status == http.StatusForbidden {
				r.add(Sender{}, clientOf(req.Context()).addr.String(), 1)
			}
		}}, req)
	})
}

// Of returns what counts the refusals of principals that come over a transport. why is one of few texts.
func (r *Refusals) Of(transport mcp.Transport) func(who auth.Principal, status int, why string) {
	return func(who auth.Principal, status int, why string) {
		r.add(Sender{who.Name(), who.Method(), string(transport)}, strconv.Itoa(status)+" "+why, 1)
	}
}

func (r *Refusals) add(by Sender, source string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[Sender]map[string]int64{}
	}
	if r.counts[by] == nil {
		r.counts[by] = map[string]int64{}
	}
	if _, known := r.counts[by][source]; !known && len(r.counts[by]) >= maxSources {
		source = others
	}
	r.counts[by][source] += n
}

// take returns what was counted since the last time; nil for nothing.
func (r *Refusals) take() map[Sender]map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts
	r.counts = nil
	return c
}

// Report calls tell with what was counted of each sender, at most once a second, until ctx ends, and then once more if there is something. What
// could not be told is told with the next.
func (r *Refusals) Report(ctx context.Context, tell func(by Sender, counts map[string]int64) error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		for by, counts := range r.take() {
			if tell(by, counts) == nil {
				continue
			}
			for source, n := range counts {
				r.add(by, source, n)
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}
