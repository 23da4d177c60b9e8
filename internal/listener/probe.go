package listener

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"navra/internal/jsonrpc"
)

// A Check is one thing that has to be right for the gateway to be ready. Name and Why may name upstreams; neither holds a secret.
type Check struct {
	Name string
	OK   bool
	Why  string // where it is not
	Down bool   // where it is not, nobody can be served
}

// ProbeOptions are the parts of the probes; all but Upstreams are required.
type ProbeOptions struct {
	Gate *Gate
	// Store writes to the store. Of its error only what a method Public() string gives is shown.
	Store func(ctx context.Context) error
	// Space says that room for entries is low, and whether it is too low for new calls; nil: nothing is to be told.
	Space  func() (why string, full bool)
	Logger *slog.Logger
	// More tells of what else there is; nil: nothing is to be told.
	More func() []Check
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

	mu     sync.Mutex
	asking bool          // guarded by mu
	asked  time.Time     // when the last answer came; guarded by mu
	answer chan struct{} // closed when the next one has come; guarded by mu
	err    error         // guarded by mu
}

// NewProbes returns the probes.
func NewProbes(o ProbeOptions) *Probes { return &Probes{o: o} }

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
	failed := p.store(ctx)
	checks := []Check{{Name: "draining", OK: !draining, Why: "navra is shutting down"}, {Name: "store", OK: failed == nil, Why: unwritable(failed)}}
	own := len(checks)
	if p.o.Space != nil {
		why, full := p.o.Space()
		if checks = append(checks, Check{Name: "space", OK: why == "", Why: why}); full {
			own++
		}
	}
	if p.o.More != nil {
		checks = append(checks, p.o.More()...)
	}
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
			if i < own || c.Down {
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

// unwritable says why the store cannot be written, to anybody.
func unwritable(err error) string {
	const text = "the store cannot be written"
	var known interface{ Public() string }
	switch {
	case errors.As(err, &known):
		return text + ": " + known.Public()
	case errors.Is(err, context.DeadlineExceeded):
		return text + ": it does not answer in time"
	}
	return text
}

// store returns why the store cannot be written, as of a second ago at most. A store that does not answer keeps nobody waiting for
// longer than checkTime: one question is under way at a time, and the others hear that it is.
func (p *Probes) store(ctx context.Context) error {
	p.mu.Lock()
	if !p.asking && time.Since(p.asked) < checkEvery {
		defer p.mu.Unlock()
		return p.err
	}
	if !p.asking {
		p.asking, p.answer = true, make(chan struct{})
		go p.ask(context.WithoutCancel(ctx), p.answer) // it ends with its answer
	}
	answer := p.answer
	p.mu.Unlock()
	timer := time.NewTimer(checkTime)
	defer timer.Stop()
	select {
	case <-answer:
	case <-timer.C:
		p.heard(context.DeadlineExceeded)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// ask asks the store. The answer is not for one client alone.
func (p *Probes) ask(ctx context.Context, answer chan struct{}) {
	ctx, stop := context.WithTimeout(ctx, checkTime)
	defer stop()
	err := p.o.Store(ctx)
	p.heard(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking, p.asked = false, time.Now()
	close(answer)
}

// heard takes an answer, and tells the log where it is another than before.
func (p *Probes) heard(err error) {
	p.mu.Lock()
	before := p.err
	p.err = err
	p.mu.Unlock()
	switch {
	case err != nil && before == nil:
		p.o.Logger.Warn("store cannot be written", slog.Any("err", err))
	case err == nil && before != nil:
		p.o.Logger.Info("store can be written again")
	}
}
