package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"navra/internal/config"
	"navra/internal/seal"
	"navra/internal/ship"
)

// remotes are the servers that what was recorded is sent to; nil for none.
type remotes struct{ checkpoints, entries *ship.Remote }

// remotesOf reads what a configuration says of them.
func remotesOf(f *config.File) (r remotes, err error) {
	if f.Blackbox.Checkpoints.URL != "" {
		if r.checkpoints, err = remoteOf(f, f.Blackbox.Checkpoints, ""); err != nil {
			return r, fmt.Errorf("blackbox.checkpoint_to: %w", err)
		}
	}
	if f.Blackbox.Ship.URL != "" {
		if r.entries, err = remoteOf(f, f.Blackbox.Ship, "/v1/logs"); err != nil {
			return r, fmt.Errorf("blackbox.ship.otlp: %w", err)
		}
	}
	return r, nil
}

// remoteOf maps a server; path is added where its address has none.
func remoteOf(f *config.File, c config.Remote, path string) (*ship.Remote, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, errors.New("its address cannot be read")
	}
	if strings.Trim(u.Path, "/") == "" && path != "" {
		u.Path = path
	}
	header, err := c.Header(filepath.Dir(f.Path), os.LookupEnv, os.ReadFile)
	if err != nil {
		return nil, err
	}
	o := ship.RemoteOptions{URL: u, Header: map[string]ship.Secret{}, Timeout: c.Timeout, Agent: "navra/" + version}
	for name, value := range header {
		o.Header[name] = ship.Secret(value)
	}
	if o.TLS, err = trusting(c.CA); err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	return ship.NewRemote(o), nil
}

// carriers bring what was recorded to the servers of a plan.
type carriers struct {
	notes   *ship.Notes
	entries func() *ship.Shipper
	shipper *ship.Shipper
}

func (p plan) carry(db database, key seal.Key, tell func(context.Context, string) error, log *slog.Logger) *carriers {
	c := &carriers{}
	if to := p.Remotes.checkpoints; to != nil {
		c.notes = ship.NewNotes(ship.NotesOptions{To: to, Logger: log, Tell: tell})
	}
	if to := p.Remotes.entries; to != nil {
		c.entries = func() *ship.Shipper {
			return ship.Start(ship.Options{Log: db, Store: db, To: to, Version: version, Payloads: p.Blackbox.ShipPayloads, Logger: log, Tell: tell, Tag: key.For("shipped").Tag})
		}
	}
	return c
}

// offer is who hears of checkpoints, nil for nobody.
func (c *carriers) offer() func([]byte) {
	if c.notes == nil {
		return nil
	}
	return c.notes.Offer
}

// start begins to ship entries.
func (c *carriers) start() {
	if c.entries != nil {
		c.shipper = c.entries()
	}
}

// close delivers what there is within a time. What it cannot deliver the next start does.
func (c *carriers) close(ctx context.Context, within time.Duration) error {
	if within == 0 {
		within = lastCheckpoint
	}
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	var err error
	if c.shipper != nil {
		err = c.shipper.Close(ctx)
	}
	if c.notes != nil {
		err = errors.Join(err, c.notes.Close(ctx))
	}
	return err
}
