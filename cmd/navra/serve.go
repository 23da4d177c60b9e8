package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"navra/internal/auth"
	"navra/internal/auth/local"
	"navra/internal/auth/token"
	"navra/internal/config"
	"navra/internal/policy"
	"navra/internal/store"
)

const defaultConfig = "navra.yaml"

func configFlag(c *cobra.Command, path *string) {
	c.Flags().StringVarP(path, "config", "c", defaultConfig, "the configuration file")
}

func serveCmd(s std) *cobra.Command {
	var path string
	var verbose bool
	c := &cobra.Command{
		Use: "serve", Short: "Run the gateway for many agents over Streamable HTTP", Example: "  navra serve --config navra.yaml", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := logger(s, verbose)
			f, p, err := loadPlan(path, (*config.File).CheckServe, named, log)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), f, p, s, log, nil)
		},
	}
	configFlag(c, &path)
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log more to stderr")
	return c
}

// namedOrLocal are the principals that a file names; where it names none, the local person may do what is the default on a machine of their own.
func namedOrLocal(f *config.File) auth.Directory {
	if len(f.Principals) == 0 {
		return auth.Directory{local.Name: {policy.LocalDefault}}
	}
	return f.Principals
}

// A knowing authenticator is one of the principals that are known when it is asked.
type knowing struct {
	directory func() auth.Directory
	with      func(auth.Directory) auth.Authenticator
}

// Authenticate implements auth.Authenticator.
func (k knowing) Authenticate(r *http.Request) (auth.Principal, error) {
	return k.with(k.directory()).Authenticate(r)
}

func authenticator(f *config.File, p plan, db database) auth.Authenticator {
	k := knowing{
		directory: func() auth.Directory { return p.Principals },
		with:      func(d auth.Directory) auth.Authenticator { return tokens(db, d) },
	}
	if f.AuthNone {
		k.with = local.None
	}
	if p.Reload != nil {
		k.directory = p.Reload.directory
	}
	return k
}

func tokens(db database, dir auth.Directory) token.Authenticator {
	return token.Authenticator{Tokens: db, NotFound: store.ErrNotFound, Directory: dir, Now: time.Now}
}

// tokenPrincipal is the owner of a token in the environment.
func tokenPrincipal(ctx context.Context, db database, dir auth.Directory, text string) (auth.Principal, error) {
	who, err := tokens(db, dir).Verify(ctx, text)
	if errors.Is(err, auth.ErrBadCredential) {
		return auth.Principal{}, fmt.Errorf("NAVRA_TOKEN: %w: it is no token of this database, was revoked or has run out, or its principal is not named any more; see navra token list", err)
	} else if err != nil {
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
			_, p, err := loadPlan(path, nil, namedOrLocal, logger(s, verbose))
			if err != nil {
				return err
			}
			return serveStdio(cmd.Context(), s, p, verbose)
		},
	}
	configFlag(c, &path)
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log more to stderr")
	return c
}
