package websocket

import (
	"context"
	"sync"
)

// A room counts connections.
type room struct {
	most int

	mu    sync.Mutex
	all   int
	taken map[string]int  // by principal; no zeros
	empty []chan struct{} // closed when all is 0; once there is one nobody enters
}

// enter takes a place, if there is one for the principal.
func (r *room) enter(principal string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all >= r.most || r.taken[principal] >= MaxPerPrincipal || r.empty != nil {
		return false
	}
	r.all++
	r.taken[principal]++
	return true
}

// leave gives the place back.
func (r *room) leave(principal string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	if r.taken[principal]--; r.taken[principal] == 0 {
		delete(r.taken, principal)
	}
	r.tell()
}

func (r *room) tell() {
	if r.all > 0 {
		return
	}
	for i, c := range r.empty {
		if c != nil {
			close(c)
			r.empty[i] = nil
		}
	}
}

// wait lets nobody in any more and waits until everybody has left.
func (r *room) wait(ctx context.Context) error {
	empty := make(chan struct{})
	r.mu.Lock()
	r.empty = append(r.empty, empty)
	r.tell()
	r.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
