package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"navra/internal/auth"
	"navra/internal/auth/local"
	"navra/internal/catalogue"
	"navra/internal/chokepoint"
	"navra/internal/config"
	"navra/internal/gateway"
	"navra/internal/ifc"
	"navra/internal/policy"
	"navra/internal/transport/stdio"
)

func wrapCmd(s std) *cobra.Command {
	var name, store, otlp string
	var verbose, clean bool
	c := &cobra.Command{
		Use:     "wrap [flags] -- COMMAND [ARG]...",
		Short:   "Guard one MCP server in place: put it before the server's command in your client's configuration",
		Example: "  navra wrap -- npx -y @modelcontextprotocol/server-filesystem .",
		Args: func(_ *cobra.Command, argv []string) error {
			if len(argv) == 0 {
				return errors.New("the server's command is missing, such as: navra wrap -- npx -y some-server")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, argv []string) error {
			if name != "" && (!givenName.MatchString(name) || name == chokepoint.Self || name == chokepoint.Navra) {
				return usageError{fmt.Errorf("--name %q: a name is of a-z, 0-9 and -, at most 48, and not self or navra", name)}
			}
			p, err := wrapPlan(argv, name, store, clean)
			if err != nil {
				return err
			}
			if p.Telemetry, err = wrapTelemetry(otlp); err != nil {
				return err
			}
			return serveStdio(cmd.Context(), s, p, verbose)
		},
	}
	c.Flags().SetInterspersed(false)
	c.Flags().StringVar(&name, "name", "", "the upstream's name; default: of the package or program")
	c.Flags().StringVar(&store, "store", "", "the database file; default: in your state folder, shared by all")
	c.Flags().StringVar(&otlp, "otlp", "", "send traces to the OTLP/HTTP collector at this address; headers for it come from "+otlpHeaders)
	c.Flags().BoolVar(&clean, "clean-env", false, "give the server only a base of the environment, not all that navra got")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log more to stderr")
	return c
}

// wrapPlan is the gateway of one server: nothing is renamed, and the person's own machine has the role local-default.
func wrapPlan(argv []string, name, store string, clean bool) (plan, error) {
	dir, err := os.Getwd()
	if err != nil {
		return plan{}, fmt.Errorf("working folder: %w", err)
	}
	if store == "" {
		if store, err = defaultStore(); err != nil {
			return plan{}, err
		}
	}
	if name == "" {
		name = wrapName(argv, dir)
	}
	env := wrappedEnv(os.Environ())
	if clean {
		env = childEnv(os.Environ(), nil)
	}
	return plan{
		Store: store,
		Upstreams: []*catalogue.Upstream{{
			Name: name, Bare: true, Folder: dir, Kept: kept(name, argv, dir),
			Label: ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.Sensitive},
		}},
		Specs:      []gateway.Spec{{Name: name, Command: argv, Env: env, Dir: dir, Connect: config.DefaultConnect, Call: config.DefaultCall, CallMax: config.DefaultCallMax}},
		Principals: auth.Directory{"local": {policy.LocalDefault}},
		Policy:     localPolicy(),
	}, nil
}

// localPolicy is what navra does on a developer's own machine where no file says otherwise.
func localPolicy() policy.Options {
	return policy.Options{
		Roles:       map[string]policy.Role{policy.LocalDefault: policy.DefaultRole()},
		OnViolation: policy.Ask, Results: policy.Pseudonymise, Arguments: policy.Ask,
		Digest: sha256.Sum256([]byte("built-in " + policy.LocalDefault)),
	}
}

var (
	givenName     = regexp.MustCompile(`^(?:[a-z0-9][a-z0-9-]{0,47})$`)
	versionSuffix = regexp.MustCompile(`(.)@[^@/]*$`)
	notInName     = regexp.MustCompile(`[^a-zA-Z0-9_-]+`)
	programs      = map[string]bool{"npx": true, "uvx": true, "bunx": true, "npm": true, "pnpm": true, "yarn": true, "node": true, "python": true, "python3": true, "uv": true, "pipx": true, "bun": true, "deno": true}
	words         = map[string]bool{"exec": true, "run": true, "dlx": true, "tool": true, "x": true}
)

// wrapName is the last path element of the package or program, without its version, and 8 digits of a hash of the command
// and the folder: the same command in another folder is another upstream.
func wrapName(argv []string, dir string) string {
	base := argv[0]
	if programs[programName(base)] {
		for _, arg := range argv[1:] {
			if !strings.HasPrefix(arg, "-") && !words[arg] {
				base = arg
				break
			}
		}
	}
	base = versionSuffix.ReplaceAllString(base, "$1")
	base = strings.Trim(notInName.ReplaceAllString(programName(base), "-"), "-_")
	if base == "" {
		base = "server"
	}
	return strings.ToLower(base[:min(len(base), 40)]) + "-" + digest(argv, dir)
}

func programName(path string) string {
	base := filepath.Base(filepath.ToSlash(path))
	for _, ext := range []string{".exe", ".cmd", ".js", ".mjs", ".py"} {
		base = strings.TrimSuffix(base, ext)
	}
	return base
}

func digest(argv []string, dir string) string {
	h := sha256.New()
	for _, a := range append([]string{dir}, argv...) {
		fmt.Fprintf(h, "%d:%s", len(a), a)
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// kept is the key under which an upstream's catalogue is kept: another command is another catalogue.
func kept(name string, argv []string, dir string) string { return name + "-" + digest(argv, dir) }

// serveStdio runs a gateway for the one client at stdin and stdout.
func serveStdio(ctx context.Context, s std, p plan, verbose bool) (err error) {
	log := logger(s, verbose)
	p.Telemetry.Hurried = true
	r, err := p.build(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	who, err := localPrincipal(ctx, r, p.Principals)
	if err != nil {
		return err
	}
	if len(who.Roles()) == 0 {
		log.Warn(roleless(who.Name()) + ", or say with a token in NAVRA_TOKEN who the agent is")
	}
	serving, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(chokepoint.ErrShutdown) })() // what is in flight hears why
	return stdio.Serve(serving, stdio.Options{In: s.in, Out: s.out, Who: who, Host: stdio.Host(), Handler: r.gateway, Logger: log})
}

// localPrincipal is who a stdio gateway acts for: the owner of the token in NAVRA_TOKEN where there is one, else the local person.
func localPrincipal(ctx context.Context, r *running, dir auth.Directory) (auth.Principal, error) {
	if text, ok := os.LookupEnv("NAVRA_TOKEN"); ok && text != "" {
		return tokenPrincipal(ctx, r.store, dir, text)
	}
	return local.Principal(dir), nil
}
