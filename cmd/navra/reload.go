package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"navra/internal/auth"
	"navra/internal/blackbox"
	"navra/internal/chokepoint"
	"navra/internal/config"
	"navra/internal/listener"
	"navra/internal/policy"
	"navra/internal/store"
)

// lookEvery is how often the configuration file is looked at. A look finds what writes over the network, renames and swaps links too, at the
// cost of one stat, without a limit on watches or a dependency. A file that was changed is read when it was the same for two looks: half
// a file may be a valid one, without its last rules.
const lookEvery = 500 * time.Millisecond

// announceTime is how long the record of a new policy may wait for others' commits.
const announceTime = 5 * time.Second

// A reloader takes up the policy of a configuration file again when that changes: roles, principals, flow and filters. All of it is valid or
// none of it counts. The store is told first, so that no process judges by an older policy than another one has told of.
type reloader struct {
	path       string
	check      func(*config.File) error          // what the command asks of a file besides; nil: nothing
	principals func(*config.File) auth.Directory // who is known by a file
	log        *slog.Logger
	use        func(*policy.Policy)
	refresh    func(context.Context) error
	store      store.Store

	mu      sync.Mutex   // held while the file is read and taken up
	seen    os.FileInfo  // of the file, before it was read for the first time
	running *config.File // whose other sections are in force, with the newest policy; guarded by mu
	dir     atomic.Pointer[auth.Directory]
	behind  atomic.Bool            // another process has told of a policy that the file does not hold here
	failed  atomic.Pointer[string] // why the file is not in force; nil or "" where it is

	end  context.CancelFunc
	work sync.WaitGroup
}

// loadPlan reads the file at path, checks it, and returns it with the plan of a gateway that takes its policy up again when it changes. principals
// says who is known by a file.
func loadPlan(path string, check func(*config.File) error, principals func(*config.File) auth.Directory, log *slog.Logger) (*config.File, plan, error) {
	seen := stat(path) // before it is read: what changes in between is found
	f, err := config.Load(path)
	if err == nil && check != nil {
		err = check(f)
	}
	if err != nil {
		return nil, plan{}, err
	}
	p, err := configPlan(f)
	if err != nil {
		return nil, plan{}, err
	}
	r := &reloader{path: f.Path, check: check, principals: principals, seen: seen, running: f, log: log}
	if p.Principals, p.Policy, err = r.plan(f); err != nil {
		return nil, plan{}, err
	}
	r.dir.Store(&p.Principals)
	if seen == nil || !seen.Mode().IsRegular() { // a pipe cannot be read again
		p.Policy.File = ""
		return f, p, nil
	}
	p.Reload = r
	return f, p, nil
}

// named are the principals that a file names.
func named(f *config.File) auth.Directory {
	if f.Principals == nil {
		return auth.Directory{}
	}
	return f.Principals
}

// plan is what of a file can be taken up while the gateway runs.
func (r *reloader) plan(f *config.File) (auth.Directory, policy.Options, error) {
	dir := r.principals(f)
	o, err := policyOptions(f)
	o.Principals, o.File, o.Name = dir, f.Path, f.PolicyName()
	return dir, o, err
}

// directory returns the principals that are known now.
func (r *reloader) directory() auth.Directory { return *r.dir.Load() }

// begin tells the store which policy this process begins with, and looks after the file until close.
func (r *reloader) begin(ctx context.Context, cp *chokepoint.Chokepoint, db store.Store) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.use, r.refresh, r.store = cp.Use, cp.Refresh, db
	err := r.announce(ctx, r.running, r.seen)
	for try := 0; errors.Is(err, errMoved) && try < 5; try++ { // it was changed since it was read
		err = r.takeUp(ctx)
	}
	if err != nil {
		return err
	}
	ctx, r.end = context.WithCancel(context.WithoutCancel(ctx))
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	r.work.Go(func() {
		defer signal.Stop(hup)
		r.look(ctx, hup)
	})
	return nil
}

// close ends looking. It may be called where begin was not.
func (r *reloader) close() {
	if r == nil || r.end == nil {
		return
	}
	r.end()
	r.work.Wait()
}

// look reads the file when it has changed, or a signal says so.
func (r *reloader) look(ctx context.Context, hup <-chan os.Signal) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	seen := r.seen
	last := seen
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			seen = r.reload(ctx)
			_ = r.refresh(ctx)
		case <-tick.C:
			now := stat(r.path)
			if !unchanged(seen, now) && unchanged(last, now) && now != nil { // a file that is away is being replaced
				seen = r.reload(ctx)
				_ = r.refresh(ctx) // so that clients hear of it; a store that cannot be read is told of elsewhere
			}
			if last = now; r.behind.Load() {
				_ = r.refresh(ctx) // nobody may come while navra is not ready
			}
		}
	}
}

func stat(path string) os.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

func unchanged(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// reload takes the file up as it is now. One that cannot be used leaves what is in force. It returns the file that was seen, or nil where it
// is to be tried again however it looks.
func (r *reloader) reload(ctx context.Context) os.FileInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := stat(r.path)
	switch err := r.takeUp(ctx); {
	case errors.Is(err, errMoved):
		return nil
	case errors.Is(err, errUntold):
		r.fail(err)
		return nil
	case err != nil:
		r.fail(err)
	default:
		r.behind.Store(false)
		r.failed.Store(nil)
	}
	return seen
}

// takeUp reads the file, puts its policy in force and tells the store.
func (r *reloader) takeUp(ctx context.Context) error {
	seen := stat(r.path)
	next, others, err := r.read()
	if err != nil {
		return err
	}
	if err := r.take(next, func() error { return r.announce(ctx, next, seen) }); err != nil {
		return err
	}
	if len(others) > 0 {
		r.log.Warn("a part of the configuration that was changed needs a restart", "file", r.path, "sections", strings.Join(others, ", "))
	}
	return nil
}

// renew takes the file up if it holds the policy of that name, which another process has told of.
func (r *reloader) renew(ctx context.Context, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running.PolicyName() != name { // what was told meanwhile, by this process too, counts
		said, err := r.store.Controls(ctx)
		if err != nil {
			return // who asks finds out too
		}
		name = said.Policies[r.path]
	}
	if r.running.PolicyName() == name {
		if r.behind.Swap(false) {
			r.failed.Store(nil)
		}
		return
	}
	next, _, err := r.read()
	switch {
	case err != nil:
		r.behind.Store(true)
		r.fail(err)
	case next.PolicyName() != name:
		r.behind.Store(true)
		r.fail(errors.New("another process has taken up a newer policy of this file than the file holds here, so calls are denied"))
	default:
		if err := r.take(next, func() error { return nil }); err != nil {
			r.fail(err)
			return
		}
		r.behind.Store(false)
		r.failed.Store(nil)
	}
}

// fail says once that the file is not in force.
func (r *reloader) fail(err error) {
	text := err.Error()
	if was := r.failed.Swap(&text); was == nil || *was != text {
		r.log.Error("the configuration was not reloaded; what was in force stays", "file", r.path, "err", err)
	}
}

// read returns what is in force with the policy of the file as it is now, and the sections that would need a restart.
func (r *reloader) read() (next *config.File, others []string, err error) {
	f, err := config.Load(r.path)
	if err == nil && r.check != nil {
		err = r.check(f)
	}
	if err != nil {
		return nil, nil, err
	}
	next, others = r.running.WithPolicyOf(f)
	return next, others, nil
}

// take puts a policy in force, once tell has told of it.
func (r *reloader) take(next *config.File, tell func() error) error {
	dir, o, err := r.plan(next)
	if err != nil {
		return err
	}
	pol, err := policy.New(o)
	if err != nil {
		return err
	}
	if err := tell(); err != nil {
		return fmt.Errorf("%w: %w", errUntold, err)
	}
	before := r.running.PolicyName()
	r.dir.Store(&dir)
	r.use(pol)
	if r.running = next; before != o.Name {
		r.log.Warn("a new policy is in force", "file", r.path, "before", before, "now", o.Name)
	}
	return nil
}

// errTold ends a change that would say what is said already, errMoved one that would say what the file no longer holds. errUntold is another
// failure to say it.
var (
	errUntold = errors.New("it could not be recorded")
	errTold   = errors.New("it is told")
	errMoved  = errors.New("the file was changed meanwhile")
)

// announce tells the store which policy of the file is the newest. Inside the transaction the file is still the one that was seen before it
// was read: so nobody tells of an older policy after a newer one.
func (r *reloader) announce(ctx context.Context, f *config.File, seen os.FileInfo) error {
	name, digest := f.PolicyName(), f.Digest()
	ctx, stop := context.WithTimeout(ctx, announceTime)
	defer stop()
	_, err := r.store.Control(ctx, store.Change{Apply: func(c *store.Controls) (blackbox.Entry, error) {
		before := c.Policies[r.path]
		if !unchanged(seen, stat(r.path)) {
			return blackbox.Entry{}, errMoved
		}
		if before == name {
			return blackbox.Entry{}, errTold
		}
		c.Policies[r.path] = name
		text := fmt.Sprintf("policy of %s: %s", r.path, name)
		if before != "" {
			text = fmt.Sprintf("policy of %s: from %s to %s", r.path, before, name)
		}
		e := spoken(policy.StagePolicy, text)
		e.Principal, e.Auth, e.Policy = chokepoint.Navra, chokepoint.Navra, hex.EncodeToString(digest[:])
		return e, nil
	}})
	if errors.Is(err, errTold) {
		return nil
	}
	return err
}

// checks says whether the file is in force, for who asks whether navra is ready; it names nothing of the file.
func (r *reloader) checks() []listener.Check {
	if r == nil {
		return nil
	}
	c := listener.Check{Name: "configuration", OK: r.failed.Load() == nil, Why: "the configuration file was changed and is not in force; see the log"}
	if c.Down = r.behind.Load(); c.Down {
		c.Why = "another process has taken up a newer policy than the configuration file holds here, so calls are denied"
	}
	return []listener.Check{c}
}
