package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"navra/internal/auth/local"
	"navra/internal/auth/token"
	"navra/internal/blackbox"
	"navra/internal/config"
	"navra/internal/gateway"
	"navra/internal/policy"
	"navra/internal/store"
	"navra/internal/store/sqlite"
)

// storeFlags say which database a command works on: the one named, else the configuration's, else the default.
type storeFlags struct{ config, store string }

func (o *storeFlags) add(c *cobra.Command) {
	c.PersistentFlags().StringVarP(&o.config, "config", "c", "", "take the database of this configuration file")
	c.PersistentFlags().StringVar(&o.store, "store", "", "the database file; default: in your state folder")
}

// where names the database, for people. A URL may hold a password, so the file that it stands in is named.
func (o *storeFlags) where() string {
	switch {
	case o.store != "":
		return o.store
	case o.config != "":
		return "the database of " + o.config
	}
	path, err := defaultStore()
	if err != nil {
		return "the default database"
	}
	return path + "; --config names another database"
}

func (o *storeFlags) open(ctx context.Context, s std, readOnly bool) (database, *config.File, error) {
	path, url := o.store, gateway.Secret("")
	var f *config.File
	var err error
	if o.config != "" {
		if f, err = config.Load(o.config); err != nil {
			return nil, nil, err
		}
		if path == "" {
			path = f.Store
			if url, err = databaseURL(f); err != nil {
				return nil, nil, err
			}
		}
	}
	if path == "" && url == "" {
		if path, err = defaultStore(); err != nil {
			return nil, nil, err
		}
	}
	db, err := openDatabase(ctx, path, url, sqlite.Options{Logger: logger(s, false), ReadOnly: readOnly, Fsync: !readOnly}) // what an operator does is rare, and to last
	return db, f, err
}

func tokenCmd(s std) *cobra.Command {
	var o storeFlags
	c := &cobra.Command{Use: "token", Short: "Make, list and revoke the tokens that agents show"}
	o.add(c)
	var life string
	create := &cobra.Command{
		Use: "create PRINCIPAL", Short: "Make a token for a principal; it is shown once", Example: "  navra token create claude --expires 90d", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return createToken(cmd.Context(), s, o, args[0], life) },
	}
	create.Flags().StringVar(&life, "expires", "", "how long it is good for, such as 90d or 12h; default: until it is revoked")
	list := &cobra.Command{
		Use: "list", Short: "List tokens, without the tokens themselves", Example: "  navra token list", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return listTokens(cmd.Context(), s, o) },
	}
	revoke := &cobra.Command{
		Use: "revoke ID", Short: "Revoke a token at once; its calls under way are cancelled", Example: "  navra token revoke 1a2b3c4d", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := o.control(cmd.Context(), s, store.Change{Revoke: args[0], Apply: func(*store.Controls) (blackbox.Entry, error) {
				return spoken(policy.StageAuth, fmt.Sprintf("revoked token %s, by %s", args[0], local.Subject())), nil
			}})
			if errors.Is(err, store.ErrNotFound) {
				return fmt.Errorf("there is no token %q; see navra token list", args[0])
			} else if err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.out, "token %s is revoked\n", args[0])
			return err
		},
	}
	c.AddCommand(create, list, revoke)
	return c
}

func createToken(ctx context.Context, s std, o storeFlags, principal, life string) error {
	var expires time.Time
	if life != "" {
		d, err := parseLife(life)
		if err != nil {
			return usageError{err}
		}
		expires = time.Now().Add(d)
	}
	db, f, err := o.open(ctx, s, false)
	if err != nil {
		return err
	}
	defer db.Close()
	if f != nil {
		if _, ok := f.Principals[principal]; !ok {
			return fmt.Errorf("%s names no principal %q: add it under principals, with its roles", f.Path, principal)
		}
	}
	secret, t := token.New(principal, time.Now(), expires)
	said := spoken(policy.StageAuth, fmt.Sprintf("made token %s for %s, by %s", t.ID, principal, local.Subject()))
	if _, err := o.control(ctx, s, store.Change{Apply: func(*store.Controls) (blackbox.Entry, error) { return said, nil }}); err != nil {
		return err // before the token is there: none is without its entry
	}
	if err := db.AddToken(ctx, t); err != nil {
		return err
	}
	fmt.Fprintf(s.err, "token %s for %s; it is not shown again:\n", t.ID, principal)
	_, err = fmt.Fprintln(s.out, secret.Reveal())
	return err
}

func parseLife(text string) (time.Duration, error) {
	bad := fmt.Errorf("--expires %q is no duration such as 90d or 12h", text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n <= 0 || n > 36500 {
			return 0, bad
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, bad
	}
	return d, nil
}

func listTokens(ctx context.Context, s std, o storeFlags) error {
	db, _, err := o.open(ctx, s, true)
	if err != nil {
		return err
	}
	defer db.Close()
	all, err := db.Tokens(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tPRINCIPAL\tCREATED\tEXPIRES\tSTATE")
	for _, t := range all {
		state, expires := "valid", "never"
		if !t.Expires.IsZero() {
			expires = t.Expires.Local().Format(time.DateTime)
		}
		switch {
		case !t.Revoked.IsZero():
			state = "revoked " + t.Revoked.Local().Format(time.DateTime)
		case !t.Valid(time.Now()):
			state = "expired"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.ID, t.Principal, t.Created.Local().Format(time.DateTime), expires, state)
	}
	return w.Flush()
}
