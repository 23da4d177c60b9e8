package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"navra/internal/auth"
	"navra/internal/auth/local"
	"navra/internal/auth/token"
	"navra/internal/config"
	"navra/internal/policy"
	"navra/internal/store"
	"navra/internal/store/sqlite"
	"navra/internal/transport/streamable"
	"navra/internal/transport/websocket"
)

const (
	defaultConfig = "navra.yaml"
	// drainTimeout is how long answers that are under way may take when the gateway stops.
	drainTimeout  = 5 * time.Second
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

func configFlag(c *cobra.Command, path *string) {
	c.Flags().StringVarP(path, "config", "c", defaultConfig, "the configuration file")
}

func serveCmd(s std) *cobra.Command {
	var path string
	var verbose bool
	c := &cobra.Command{
		Use: "serve", Short: "Run the gateway for many agents over Streamable HTTP", Example: "  navra serve --config navra.yaml", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := config.Load(path)
			if err == nil {
				err = f.CheckServe()
			}
			if err != nil {
				return err
			}
			p, err := configPlan(f)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), f, p, s, logger(s, verbose), nil)
		},
	}
	configFlag(c, &path)
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log more to stderr")
	return c
}

// serve runs a gateway until ctx ends. ready, where not nil, hears the address once it listens.
func serve(ctx context.Context, f *config.File, p plan, s std, log *slog.Logger, ready func(addr string)) (err error) {
	ln, err := net.Listen("tcp", f.Listen) // before anything is built: a taken port is the commonest fault
	if err != nil {
		return fmt.Errorf("listen on %s: %w", f.Listen, err)
	}
	r, err := p.build(ctx, log)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	mux := http.NewServeMux()
	mux.Handle("/mcp", streamable.New(streamable.Options{
		Base: base, Handler: r.gateway, Auth: authenticator(f, p, r.store), Logger: log, Loopback: isLoopback(ln.Addr()), AllowedOrigins: f.Origins,
	}))
	sockets := websocket.New(websocket.Options{
		Base: base, Handler: r.gateway, Auth: authenticator(f, p, r.store), Logger: log, Loopback: isLoopback(ln.Addr()), AllowedOrigins: f.Origins,
	})
	mux.Handle("/ws", sockets)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: streamable.MaxHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	fmt.Fprintf(s.err, "navra %s listens on http://%s/mcp\n", version, ln.Addr())
	if f.AuthNone {
		fmt.Fprintln(s.err, "warning: auth is none: every program on this machine that reaches this address is the principal \"local\"")
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	if ready != nil {
		ready(ln.Addr().String())
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	drain, done := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer done()
	shut := make(chan error, 1)
	go func() { shut <- srv.Shutdown(context.WithoutCancel(drain)) }() // nobody comes in any more
	r.gateway.Drain(drain)
	stop() // streams that only listen, and sockets
	waiting, gaveUp := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer gaveUp()
	_ = sockets.Wait(waiting) // what has not ended by then is cut off with the process
	select {
	case <-shut:
	case <-time.After(time.Second): // a connection that does not end
		err = srv.Close()
	}
	if err != nil {
		return errors.Join(err, <-failed)
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func authenticator(f *config.File, p plan, db *sqlite.DB) auth.Authenticator {
	if f.AuthNone {
		return local.None(p.Principals)
	}
	return tokens(db, p.Principals)
}

func tokens(db *sqlite.DB, dir auth.Directory) token.Authenticator {
	return token.Authenticator{Tokens: db, NotFound: store.ErrNotFound, Directory: dir, Now: time.Now}
}

// tokenPrincipal is the owner of a token in the environment.
func tokenPrincipal(ctx context.Context, db *sqlite.DB, dir auth.Directory, text string) (auth.Principal, error) {
	who, err := tokens(db, dir).Verify(ctx, text)
	if err != nil {
		return auth.Principal{}, fmt.Errorf("NAVRA_TOKEN: %w", err)
	}
	return who, nil
}

func stdioCmd(s std) *cobra.Command {
	var path string
	var verbose bool
	c := &cobra.Command{
		Use: "stdio", Short: "Run the gateway of a configuration for one agent over stdin and stdout", Example: "  navra stdio --config navra.yaml", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := config.Load(path)
			if err != nil {
				return err
			}
			p, err := configPlan(f)
			if err != nil {
				return err
			}
			if len(p.Principals) == 0 {
				p.Principals = auth.Directory{local.Name: {policy.LocalDefault}}
			}
			return serveStdio(cmd.Context(), s, p, verbose)
		},
	}
	configFlag(c, &path)
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log more to stderr")
	return c
}
