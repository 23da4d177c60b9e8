package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"navra/internal/auth"
	"navra/internal/catalogue"
	"navra/internal/chokepoint"
	"navra/internal/filter"
	"navra/internal/gateway"
	"navra/internal/policy"
	"navra/internal/seal"
	"navra/internal/shim"
	"navra/internal/store/sqlite"
)

// A plan is what a gateway is built from, whichever command it is for.
type plan struct {
	Store      string // path of the database
	Upstreams  []*catalogue.Upstream
	Specs      []gateway.Spec
	Principals auth.Directory
	Policy     policy.Options
	NamesMax   int // 0: the default
}

// A running is a gateway with what it stands on.
type running struct {
	gateway    *gateway.Gateway
	chokepoint *chokepoint.Chokepoint
	store      *sqlite.DB
}

// build puts a gateway together, leaves first. close undoes it.
func (p plan) build(ctx context.Context, log *slog.Logger) (*running, error) {
	pol, err := policy.New(p.Policy)
	if err != nil {
		return nil, err
	}
	detectors, err := filter.New()
	if err != nil {
		return nil, err
	}
	db, key, err := openStore(ctx, p.Store, log)
	if err != nil {
		return nil, err
	}
	cp := chokepoint.New(chokepoint.Options{
		Policy: pol, Filter: detectors, Store: db, Catalogue: catalogue.NewBook(p.Upstreams, p.NamesMax), Vault: key.For("placeholders"),
		Logger: log, Version: version,
	})
	if err := cp.Started(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the blackbox %s cannot be written: %w", p.Store, err), db.Close())
	}
	gw := gateway.New(gateway.Options{
		Chokepoint: cp, Upstreams: p.Specs, Sessions: db, Seal: key.For("sessions"), Logger: log, Version: version, Supervisor: shim.Program(),
	})
	return &running{gw, cp, db}, nil
}

// close ends upstreams first and the store last.
func (r *running) close(ctx context.Context) error {
	r.gateway.Stop()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	return errors.Join(r.chokepoint.Stopped(ctx), r.store.Close())
}

// openStore opens the database and the key that lies beside it.
func openStore(ctx context.Context, path string, log *slog.Logger) (*sqlite.DB, seal.Key, error) {
	db, err := sqlite.Open(ctx, path, sqlite.Options{Logger: log})
	if err != nil {
		return nil, seal.Key{}, err
	}
	key, err := seal.LoadOrCreate(path + ".key")
	if err != nil {
		return nil, seal.Key{}, errors.Join(err, db.Close())
	}
	return db, key, nil
}

// defaultStore is where the database lies when nobody says: the platform's folder for state.
func defaultStore() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "navra", "navra.db"), nil
	}
	switch runtime.GOOS {
	case "windows", "darwin":
		dir, err := os.UserConfigDir() // AppData, Application Support
		if err != nil {
			return "", fmt.Errorf("no folder for the store: %w; name one with --store", err)
		}
		return filepath.Join(dir, "navra", "navra.db"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no folder for the store: %w; name one with --store", err)
	}
	return filepath.Join(home, ".local", "state", "navra", "navra.db"), nil
}
