package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"navra/internal/store"
)

const (
	// measureEvery is how often room is measured; what this process writes in between is counted. Where much of what is left was written it is measured
	// sooner, but not more often than measureSoon.
	measureEvery = 500 * time.Millisecond
	measureSoon  = 10 * time.Millisecond
	measureTime  = 5 * time.Second
)

// A space knows how much room there is for entries, and says so when it becomes low.
type space struct {
	limit *store.Limit
	end   context.CancelFunc
	work  sync.WaitGroup
}

// watchSpace measures now, and from time to time until close.
func watchSpace(ctx context.Context, db database, maxBytes int64, log *slog.Logger) *space {
	s := &space{limit: store.NewLimit(maxBytes, func(why string, full bool, r store.Room) {
		switch {
		case full:
			log.Error("the blackbox has "+why, "used", r.Used, "free", r.Free)
		case why != "":
			log.Warn("the blackbox has "+why, "used", r.Used, "free", r.Free)
		default:
			log.Info("the blackbox has enough space again", "used", r.Used, "free", r.Free)
		}
	})}
	ctx, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.measure(ctx, db)
	s.work.Go(func() {
		tick := time.NewTicker(measureEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.measure(ctx, db)
			case <-s.limit.Due():
				s.measure(ctx, db)
				select {
				case <-ctx.Done():
				case <-time.After(measureSoon):
				}
			}
		}
	})
	return s
}

// measure takes how much room there is. Where that cannot be told, the store is in trouble, which who commits is told.
func (s *space) measure(ctx context.Context, db database) {
	ctx, stop := context.WithTimeout(ctx, measureTime)
	defer stop()
	if room, err := db.Room(ctx); err == nil {
		s.limit.Measured(room)
	}
}

// ready is what readiness asks: whether the store can be written, and whether the newest commit was.
func (s *space) ready(ctx context.Context, db database) error {
	if err := s.limit.Failed(); err != nil {
		return err
	}
	return db.Keep(ctx, "readyz", []byte{})
}

func (s *space) close() {
	s.end()
	s.work.Wait()
}
