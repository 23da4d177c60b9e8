package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"navra/internal/auth"
	"navra/internal/auth/local"
	"navra/internal/chokepoint"
	"navra/internal/config"
	"navra/internal/listener"
	"navra/internal/mcp"
	"navra/internal/transport/streamable"
	"navra/internal/transport/websocket"
)

const (
	// operatorConnections is how many connections the operators' address takes at once.
	operatorConnections = 64
	// farewell is how long connections may take to end once their answers are given.
	farewell = time.Second
	// reportTime is how long the recording of refused requests may wait for others' commits.
	reportTime = 5 * time.Second
	// shipFarewell is how long the last entries and the last checkpoint may take to their servers.
	shipFarewell = 2 * time.Second
)

// A door is an address that is listened on.
type door struct {
	net.Listener
	cert *listener.Certificate // nil for plain HTTP
}

func openDoor(what, address string, t config.TLS, log *slog.Logger) (d door, err error) {
	if t.On() {
		if d.cert, err = listener.LoadCertificate(t.Cert, t.Key, log); err != nil {
			return door{}, fmt.Errorf("%s.tls: %w", what, err)
		}
	}
	if d.Listener, err = net.Listen("tcp", address); err != nil {
		return door{}, fmt.Errorf("listen on %s: %w", address, err)
	}
	return d, nil
}

func (d door) url() string {
	if d.cert != nil {
		return "https://" + d.Addr().String()
	}
	return "http://" + d.Addr().String()
}

func (d door) loopback() bool {
	tcp, ok := d.Addr().(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// checkCertificates reads the certificates that the configuration names.
func checkCertificates(f *config.File) error {
	var errs []error
	for _, at := range []struct {
		what string
		tls  config.TLS
	}{{"listen", f.Listen.TLS}, {"admin", f.Admin.TLS}} {
		if !at.tls.On() {
			continue
		}
		if _, err := listener.LoadCertificate(at.tls.Cert, at.tls.Key, nil); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s.tls: %w", f.Path, at.what, err))
		}
	}
	return errors.Join(errs...)
}

// A front is what of a running gateway faces the network.
type front struct {
	gate      *listener.Gate
	clients   *listener.Server
	endpoint  *streamable.Server
	sockets   *websocket.Server
	operators *listener.Server // nil for none
	failed    chan error       // why a server ended
	running   sync.WaitGroup
	refusals  listener.Refusals
}

// serve runs a gateway until ctx ends. ready, where not nil, hears the address once it listens.
func serve(ctx context.Context, f *config.File, p plan, s std, log *slog.Logger, ready func(addr string)) (err error) {
	in, err := openDoor("listen", f.Listen.Address, f.Listen.TLS, log) // before anything is built: a taken port is the commonest fault
	if err != nil {
		return err
	}
	var admin door
	if f.Admin.Address != "" {
		if admin, err = openDoor("admin", f.Admin.Address, f.Admin.TLS, log); err != nil {
			return errors.Join(err, in.Close())
		}
	}
	p.Farewell = shipFarewell
	r, err := p.build(ctx, log)
	if err != nil {
		err = errors.Join(err, in.Close())
		if admin.Listener != nil {
			err = errors.Join(err, admin.Close())
		}
		return err
	}
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	front := newFront(base, f, r, in, admin, authenticator(f, p, r.store), log)
	greet(s, f, in, admin)
	if ready != nil {
		ready(in.Addr().String())
	}
	front.run()
	reported := front.report(r.chokepoint, log)
	defer reported() // once nobody is refused any more
	select {
	case err := <-front.failed:
		stop()
		return errors.Join(err, front.end())
	case <-ctx.Done():
	}
	front.drain(r, f.Listen.Drain, s)
	stop() // streams that only listen
	return front.end()
}

// report records what was refused, until the function that it returns is called: then for a last time.
func (x *front) report(cp *chokepoint.Chokepoint, log *slog.Logger) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		failing := false
		x.refusals.Report(ctx, func(by listener.Sender, counts map[string]int64) error {
			ctx, done := context.WithTimeout(context.WithoutCancel(ctx), reportTime)
			defer done()
			var err error
			if by == (listener.Sender{}) {
				err = cp.Refused(ctx, counts)
			} else {
				err = cp.RefusedUnread(ctx, by.Principal, by.Auth, by.Transport, counts)
			}
			if err != nil && !failing {
				log.Error("refused requests could not be recorded; they are counted until they can be", "err", err)
			}
			failing = err != nil
			return err
		})
	})
	return func() {
		stop()
		work.Wait()
	}
}

func greet(s std, f *config.File, in, admin door) {
	fmt.Fprintf(s.err, "navra %s listens on %s/mcp\n", version, in.url())
	if f.Listen.PublicURL != "" {
		fmt.Fprintf(s.err, "clients know it as %s/mcp\n", f.Listen.PublicURL)
	}
	if admin.Listener != nil {
		fmt.Fprintf(s.err, "operators find it at %s\n", admin.url())
	}
	if f.AuthNone {
		fmt.Fprintln(s.err, "warning: auth is none: every program on this machine that reaches this address is the principal \"local\"")
	}
	if warning := f.Warning(); warning != "" {
		fmt.Fprintln(s.err, "warning: "+warning)
	}
	if f.AuthNone && len(f.Principals[local.Name]) == 0 {
		fmt.Fprintln(s.err, "warning: "+roleless(local.Name))
	}
}

// roleless says why a principal finds nothing, which looks like a gateway without upstreams, and what to do.
func roleless(principal string) string {
	return fmt.Sprintf("principal %s has no role, so it sees no tool and calls none: give it one under principals", principal)
}

// newFront puts the handlers together, innermost first. base ends streams and calls.
func newFront(base context.Context, f *config.File, r *running, in, admin door, who auth.Authenticator, log *slog.Logger) *front {
	x := &front{gate: new(listener.Gate), failed: make(chan error, 2)}
	probes := listener.NewProbes(listener.ProbeOptions{
		Gate: x.gate, Logger: log,
		Upstreams: func() (checks []listener.Check) {
			for _, h := range r.gateway.Health() {
				checks = append(checks, listener.Check{Name: "upstream " + h.Name, OK: h.OK, Why: h.Why})
			}
			return checks
		},
		Store: func(ctx context.Context) error { return r.space.ready(ctx, r.store) },
		Space: r.space.limit.State,
		More:  func() []listener.Check { return r.reload.checks() },
	})
	var hosts []string
	if name := f.Listen.PublicHost(); name != "" {
		hosts = []string{name}
	}
	mux := http.NewServeMux()
	x.endpoint = streamable.New(streamable.Options{
		Base: base, Handler: x.gate.Guard(r.gateway), Auth: who, Logger: log, Loopback: in.loopback(), AllowedHosts: hosts, AllowedOrigins: f.Listen.Origins,
		Poll: f.Listen.Poll, Refused: x.refusals.Of(mcp.HTTP),
	})
	mux.Handle("/mcp", listener.CORS(f.Listen.Origins, x.endpoint))
	x.sockets = websocket.New(websocket.Options{
		Base: base, Handler: x.gate.Guard(r.gateway), Auth: who, Logger: log, Loopback: in.loopback(), AllowedHosts: hosts, AllowedOrigins: f.Listen.Origins,
		Changed: r.chokepoint.Changed, Refused: x.refusals.Of(mcp.WebSocket),
	})
	mux.Handle("/ws", x.sockets)
	x.clients = listener.NewServer(in, listener.Options{
		Handler: listener.Clients(f.Listen.Proxies, x.refusals.Count(listener.Log(log, probes.Public(mux)))),
		Logger:  log, MaxHeader: streamable.MaxHeader, MaxConnections: f.Listen.MaxConnections, Certificate: in.cert,
	})
	if admin.Listener != nil {
		x.operators = listener.NewServer(admin, listener.Options{
			Handler: listener.Clients(nil, listener.Log(log, listener.Operators(admin.loopback(), probes.Operators(http.NotFoundHandler())))),
			Logger:  log, MaxHeader: streamable.MaxHeader, MaxConnections: operatorConnections, Certificate: admin.cert,
		})
	}
	return x
}

func (x *front) run() {
	x.running.Go(func() { x.failed <- x.clients.Run() })
	if x.operators != nil {
		x.running.Go(func() { x.failed <- x.operators.Run() })
	}
}

// drain lets calls that are under way finish, for limit at most or until a second signal. The listener stays open meanwhile: who watches
// /readyz sees why, new clients are told to come back instead of finding nobody, and a client of a call under way can cancel it, or give
// the answer that it waits for, over a connection that it opens anew.
func (x *front) drain(r *running, limit time.Duration, s std) {
	again, undo := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer undo()
	ctx, done := context.WithTimeout(again, limit)
	defer done()
	empty := x.gate.Shut()
	x.clients.SetKeepAlivesEnabled(false)
	r.gateway.Conclude()
	select {
	case <-empty:
	default:
		fmt.Fprintf(s.err, "navra is shutting down: calls under way have %s; a second signal ends them at once\n", limit)
	}
	select {
	case <-empty:
	case <-ctx.Done():
	}
	r.gateway.Drain(ctx)
}

// end closes both servers and waits for them. Connections that do not end are cut.
func (x *front) end() (err error) {
	defer x.running.Wait()
	waiting, gaveUp := context.WithTimeout(context.Background(), farewell)
	defer gaveUp()
	_ = x.sockets.Wait(waiting) // those that have not ended by then are cut off with the process
	for _, srv := range []*listener.Server{x.clients, x.operators} {
		if srv == nil {
			continue
		}
		ctx, done := context.WithTimeout(context.Background(), farewell)
		e := srv.Shutdown(ctx)
		done()
		if errors.Is(e, context.DeadlineExceeded) {
			e = srv.Close()
		}
		err = errors.Join(err, e)
	}
	_ = x.endpoint.Wait(waiting) // likewise
	return err
}
