package main

import (
	"context"
	"fmt"
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

func authenticator(f *config.File, p plan, db database) auth.Authenticator {
	if f.AuthNone {
		return local.None(p.Principals)
	}
	return tokens(db, p.Principals)
}

func tokens(db database, dir auth.Directory) token.Authenticator {
	return token.Authenticator{Tokens: db, NotFound: store.ErrNotFound, Directory: dir, Now: time.Now}
}

// tokenPrincipal is the owner of a token in the environment.
func tokenPrincipal(ctx context.Context, db database, dir auth.Directory, text string) (auth.Principal, error) {
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
