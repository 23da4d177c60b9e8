package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"mime"
	"net/http"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
)

// get opens a stream: that of what the upstream pushes, or one that broke off, from the event after last on.
func (w *web) get(ctx context.Context, last string) (*http.Response, error) {
	r, err := w.request(ctx, http.MethodGet, w.conn.spec.URL.String(), nil, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "text/event-stream")
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := w.client.Do(r)
	if err != nil {
		return nil, withoutURL(err)
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); resp.StatusCode != http.StatusOK || media != "text/event-stream" {
		resp.Body.Close()
		return nil, chokepoint.HTTPStatus(resp.StatusCode)
	}
	return resp, nil
}

// listen takes what the upstream pushes, until the wire is over or the upstream offers no such stream.
func (w *web) listen() {
	ctx, stop := context.WithCancel(w.ctx)
	defer stop()
	w.conn.pool.work.Go(func() {
		select {
		case <-w.dead:
			stop()
		case <-ctx.Done():
		}
	})
	last, wait, fails, opened := "", pushAgain, 0, false
	for ctx.Err() == nil {
		resp, err := w.get(ctx, last)
		status := chokepoint.HTTPStatus(0)
		refused := errors.As(err, &status) && status < 500
		w.deaf.Store(refused)
		w.heard()
		if refused {
			if status == http.StatusNotFound && opened { // the session is over, and with it what was subscribed to
				w.bury()
			}
			return
		}
		if err == nil {
			began, heard := time.Now(), false
			opened = true
			s := newEvents(resp.Body, maxMessage)
			for {
				e, err := s.next()
				if err != nil {
					break
				}
				if e.hasID {
					last = e.id
				}
				if e.retry > 0 {
					wait = max(min(e.retry, pushAgainMax), pushAgainMin)
				}
				if m, _, fault := jsonrpc.ParseUpstream(e.data); fault == nil && len(e.data) > 0 {
					heard = true
					if !w.pushed(m) {
						w.conn.hear(ctx, m)
					}
				}
			}
			resp.Body.Close()
			if heard || time.Since(began) > pushLasted {
				fails = 0
			}
		}
		pause := min(wait<<min(fails, 10), pushAgainMax)
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		}
		fails++
	}
}
