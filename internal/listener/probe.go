package listener

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"navra/internal/jsonrpc"
)

// A Check is one thing that has to be right for the gateway to be ready. Name and Why may name upstreams; neither holds a secret.
type Check struct {
	Name string
	OK   bool
	Why  string // where it is not
}

// ProbeOptions are the parts of the probes; all but Upstreams are required.
type ProbeOptions struct {
	Gate *Gate
	// Store writes to the store.
	Store  func(ctx context.Context) error
	Logger *slog.Logger
	// Upstreams tells of each upstream; nil: nothing is to be told.
	Upstreams func() []Check
}

const (
	// checkEvery is the least time between two writes to the store, however often somebody asks.
	checkEvery = time.Second
	// checkTime is how long the store may take before it counts as not writable.
	checkTime = 2 * time.Second
)

// Probes answer /healthz and /readyz, without authentication. Their methods may be called concurrently.
type Probes struct {
	o ProbeOptions

	turn  chan struct{} // taken by the one that asks the store; the others wait for its answer
	asked time.Time     // guarded by turn
	err   error         // guarded by turn
}

// NewProbes returns the probes.
func NewProbes(o ProbeOptions) *Probes { return &Probes{o: o, turn: make(chan struct{}, 1)} }

// Public returns the handler for everybody: of upstreams it tells how many are not ready, but not which.
func (p *Probes) Public(next http.Handler) http.Handler { return p.serve(false, next) }

// Operators returns the handler for operators, who see each upstream.
func (p *Probes) Operators(next http.Handler) http.Handler { return p.serve(true, next) }

func (p *Probes) serve(names bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/healthz" && r.URL.Path != "/readyz":
			next.ServeHTTP(w, r)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the method must be GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.URL.Path == "/healthz" {
			reply(w, http.StatusOK, "text/plain; charset=utf-8", "ok\n")
			return
		}
		status, body := p.ready(r.Context(), names)
		reply(w, status, "application/json", body)
	})
}

func reply(w http.ResponseWriter, status int, media, body string) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // to a client that is gone there is nothing to say
}

// ready returns the answer of /readyz.
func (p *Probes) ready(ctx context.Context, names bool) (status int, body string) {
	draining := p.o.Gate.Draining()
	checks := []Check{{Name: "draining", OK: !draining, Why: "navra is shutting down"}, {Name: "store", OK: p.store(ctx), Why: "the store cannot be written"}}
	own := len(checks)
	if p.o.Upstreams != nil {
		ups := p.o.Upstreams()
		if !names {
			ups = summed(ups)
		}
		checks = append(checks, ups...)
	}
	word, status := "ready", http.StatusOK
	list := []byte{'['}
	for i, c := range checks {
		if i > 0 {
			list = append(list, ',')
		}
		one := new(jsonrpc.Object).Text("name", c.Name).Bool("ok", c.OK)
		if !c.OK {
			one.Text("why", c.Why)
			if i < own {
				word, status = "not ready", http.StatusServiceUnavailable
			} else if word == "ready" { // an upstream that is down degrades its own tools; the gateway serves the others'
				word = "degraded"
			}
		}
		list = append(list, one.Done()...)
	}
	if draining {
		word = "draining"
	}
	return status, string(new(jsonrpc.Object).Text("status", word).Raw("checks", append(list, ']')).Done()) + "\n"
}

// summed makes one check of those of all upstreams.
func summed(all []Check) []Check {
	bad := 0
	for _, c := range all {
		if !c.OK {
			bad++
		}
	}
	return []Check{{Name: "upstreams", OK: bad == 0, Why: strconv.Itoa(bad) + " of " + strconv.Itoa(len(all)) + " are not ready"}}
}

// store reports whether the store can be written, as of a second ago at most.
func (p *Probes) store(ctx context.Context) bool {
	p.turn <- struct{}{} // no longer than checkTime: the next finds an answer that is fresh
	defer func() { <-p.turn }()
	if time.Since(p.asked) >= checkEvery {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), checkTime) // the answer is not for this client alone
		defer stop()
		err := p.o.Store(ctx)
		switch {
		case err != nil && p.err == nil:
			p.o.Logger.WarnContext(ctx, "store cannot be written", slog.Any("err", err))
		case err == nil && p.err != nil:
			p.o.Logger.InfoContext(ctx, "store can be written again")
		}
		p.err, p.asked = err, time.Now()
	}
	return p.err == nil
}
