package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"navra/internal/auth"
	"navra/internal/blackbox"
	"navra/internal/catalogue"
	"navra/internal/chokepoint"
	"navra/internal/config"
	"navra/internal/filter"
	"navra/internal/gateway"
	"navra/internal/policy"
	"navra/internal/seal"
	"navra/internal/shim"
	"navra/internal/store"
	"navra/internal/store/postgres"
	"navra/internal/store/sqlite"
	"navra/internal/telemetry"
)

// A plan is what a gateway is built from, whichever command it is for.
type plan struct {
	Store      string         // path of the database
	StoreURL   gateway.Secret // in the place of Store: a PostgreSQL database
	Key        string         // path of the key's file; "": beside Store
	Upstreams  []*catalogue.Upstream
	Specs      []gateway.Spec
	Principals auth.Directory
	Policy     policy.Options
	NamesMax   int // 0: the default
	Blackbox   config.Blackbox
	Telemetry  telemetryOptions
	Remotes    remotes
	Reload     *reloader     // of the configuration file; nil for none
	Farewell   time.Duration // that delivering what was recorded may take at the end; 0: lastCheckpoint
}

// A running is a gateway with what it stands on.
type running struct {
	gateway    *gateway.Gateway
	chokepoint *chokepoint.Chokepoint
	store      database
	guard      *guard
	spans      *telemetry.Exporter // nil for none
	space      *space
	carriers   *carriers
	lastSpans  time.Duration
	farewell   time.Duration
	reload     *reloader // nil for none
}

// build puts a gateway together, leaves first. close undoes it.
func (p plan) build(ctx context.Context, log *slog.Logger) (*running, error) {
	pol, err := policy.New(p.Policy)
	if err != nil {
		return nil, err
	}
	var renew func(context.Context, string)
	if p.Reload != nil {
		renew = p.Reload.renew
	}
	detectors, err := filter.New()
	if err != nil {
		return nil, err
	}
	db, key, err := p.openStore(ctx, log)
	if err != nil {
		return nil, err
	}
	spans, err := p.Telemetry.open(log)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	room := watchSpace(ctx, db, p.Blackbox.MaxBytes, log)
	cp := chokepoint.New(chokepoint.Options{
		Policy: pol, Filter: detectors, Store: store.Limited{Store: db, Limit: room.limit}, Catalogue: catalogue.NewBook(p.Upstreams, p.NamesMax), Vault: key.For("placeholders"),
		Logger: log, Version: version, Spans: tell(spans), Baggage: p.Telemetry.Baggage, Renew: renew,
	})
	carriers := p.carry(db, key, cp.Event, log)
	guard, err := watch(ctx, db, p, key, cp.Event, carriers.offer(), log)
	if err != nil {
		spans.Close(ctx)
		room.close()
		return nil, errors.Join(err, carriers.close(ctx, 0), db.Close())
	}
	if err = cp.Started(ctx, guard.said...); err == nil && p.Reload != nil {
		err = p.Reload.begin(ctx, cp, db)
	}
	if err != nil {
		spans.Close(ctx)
		room.close()
		return nil, errors.Join(fmt.Errorf("the blackbox %s cannot be written: %w", p.blackbox(), err), guard.close(ctx), carriers.close(ctx, 0), db.Close())
	}
	carriers.start()
	gw := gateway.New(gateway.Options{
		Chokepoint: cp, Upstreams: p.Specs, Sessions: db, Seal: key.For("sessions"), Logger: log, Version: version, Supervisor: shim.Program(),
	})
	return &running{gw, cp, db, guard, spans, room, carriers, p.Telemetry.farewell(), p.Farewell, p.Reload}, nil
}

// close ends upstreams first and the store last.
func (r *running) close(ctx context.Context) error {
	r.spans.Hurry() // most of them leave while upstreams end
	r.reload.close()
	r.gateway.Stop()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	sent := r.sendLast(ctx)
	defer sent()
	r.space.close()
	return errors.Join(r.chokepoint.Stopped(ctx), r.guard.close(ctx), r.carriers.close(ctx, r.farewell), r.store.Close())
}

// A database is what commands need of a store, whichever it is.
type database interface {
	store.Store
	store.Log
	OnCommit(func(store.Receipt) error)
	Expect(store.Receipt, func(problem string))
	Last(context.Context) (blackbox.Seq, error)
	Verify(context.Context) (blackbox.Report, error)
	Close() error
}

// openDatabase opens the database of a URL, or the file at path where there is none.
func openDatabase(ctx context.Context, path string, url gateway.Secret, o sqlite.Options) (database, error) {
	if url != "" {
		return asDatabase(postgres.Open(ctx, string(url), postgres.Options{Logger: o.Logger, ReadOnly: o.ReadOnly}))
	}
	if strings.Contains(path, "://") { // not shown: it may hold a password
		return nil, usageError{errors.New("--store takes the path of a file; the URL of a database belongs under store in the configuration")}
	}
	return asDatabase(sqlite.Open(ctx, path, o))
}

// asDatabase keeps the nil of a failed opening a nil.
func asDatabase[T database](db T, err error) (database, error) {
	if err != nil {
		return nil, err
	}
	return db, nil
}

// databaseURL returns the URL that a configuration names, "" for none.
func databaseURL(f *config.File) (gateway.Secret, error) {
	url, err := f.DatabaseURL(os.LookupEnv, os.ReadFile)
	return gateway.Secret(url), err
}

// blackbox is what errors call the place of the entries.
func (p plan) blackbox() string {
	if p.StoreURL != "" {
		return "in PostgreSQL"
	}
	return p.Store
}

// openStore opens the database and its key.
func (p plan) openStore(ctx context.Context, log *slog.Logger) (database, seal.Key, error) {
	db, err := openDatabase(ctx, p.Store, p.StoreURL, sqlite.Options{Logger: log, Fsync: p.Blackbox.Fsync})
	if err != nil {
		return nil, seal.Key{}, err
	}
	path := p.keyPath()
	key, err := seal.LoadOrCreate(path)
	if err == nil && p.StoreURL != "" {
		err = checkKey(ctx, db, key, path)
	}
	if err != nil {
		return nil, seal.Key{}, errors.Join(err, db.Close())
	}
	return db, key, nil
}

// keyPath is where the key lies.
func (p plan) keyPath() string {
	if p.Key != "" {
		return p.Key
	}
	return p.Store + ".key"
}

// checkKey refuses a key that is not the one of the replicas before: with another, sessions and placeholders of theirs could not be
// opened. The database knows it by a tag.
func checkKey(ctx context.Context, db database, key seal.Key, path string) error {
	tag := key.For("replicas").Tag([]byte("navra"))
	known, err := db.Kept(ctx, "key")
	switch {
	case errors.Is(err, store.ErrNotFound):
		return db.Keep(ctx, "key", tag[:])
	case err != nil:
		return fmt.Errorf("store: %w", err)
	case !bytes.Equal(known, tag[:]):
		return fmt.Errorf("the key %s is not the one that this database was begun with: copy the file of another replica to it, or name it as key in the configuration", path)
	}
	return nil
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
