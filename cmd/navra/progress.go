package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"navra/internal/blackbox"
	"navra/internal/store"
)

// progressEvery is how often a person is shown how far it is.
const progressEvery = 250 * time.Millisecond

// A watched is a log whose verification a person can watch.
type watched struct {
	store.Log
	to    io.Writer
	total blackbox.Seq
	every time.Duration
	now   func() time.Time
}

// watching returns a log that shows on a terminal how far it was verified; where there is none it shows nothing.
func watching(ctx context.Context, log store.Log, to io.Writer) (store.Log, error) {
	if _, is := terminal(to); !is {
		return log, nil
	}
	head, err := log.Head(ctx)
	if err != nil {
		return nil, err
	}
	return watched{log, to, head.Seq, progressEvery, time.Now}, nil
}

// Facts yields the log's, and shows how far it is; the line is wiped at the end.
func (w watched) Facts(ctx context.Context, from blackbox.Seq) iter.Seq2[blackbox.Fact, error] {
	return func(yield func(blackbox.Fact, error) bool) {
		began := w.now()
		shown, last := false, began
		defer func() {
			if shown {
				fmt.Fprint(w.to, "\r\x1b[K")
			}
		}()
		n := uint64(0)
		for f, err := range w.Log.Facts(ctx, from) {
			if n++; n&63 == 0 || w.every == 0 { // the clock is not asked at each
				if at := w.now(); at.Sub(last) >= w.every {
					shown, last = true, at
					fmt.Fprintf(w.to, "\r\x1b[K%d of %d entries, %.0f a second", f.Number(), max(w.total, f.Number()), float64(n)/max(at.Sub(began).Seconds(), 1e-6))
				}
			}
			if !yield(f, err) {
				return
			}
		}
	}
}
