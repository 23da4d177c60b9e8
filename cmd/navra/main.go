// Command navra is a security gateway for the Model Context Protocol: agents connect to it instead of to MCP servers, and every
// message crosses one chokepoint that authorizes, tracks information flow, filters and records.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"navra/internal/shim"
)

// version is set by the linker at a release.
var version = "0.1.0-dev"

// Exit codes.
const (
	exitOK    = 0
	exitError = 1 // it did not work, or what was checked is not right
	exitUsage = 2 // the command line is wrong
)

func main() {
	shim.Enter()
	keepInherited()
	log.SetOutput(io.Discard) // net/http prints there what an upstream sent out of turn: content that nobody has judged
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], std{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

// std is the process's standard streams.
type std struct {
	in       io.Reader
	out, err io.Writer
}

// run is main without the process around it.
func run(ctx context.Context, args []string, s std) int {
	root := commands(s)
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	c, err := root.ExecuteContextC(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(s.err, "navra: %v\nTry '%s --help'.\n", err, c.CommandPath())
		return exitUsage
	default:
		fmt.Fprintf(s.err, "navra: %v\n", err)
		return exitError
	}
}

// A usageError is a command line that cannot be understood.
type usageError struct{ error }

func commands(s std) *cobra.Command {
	root := &cobra.Command{
		Use:           "navra",
		Short:         "A security gateway for the Model Context Protocol",
		Long:          "navra stands between an agent and its MCP servers: every call is authorized, checked for where its data may flow,\nlooked through for secrets, and recorded in a tamper-evident blackbox.",
		Example:       "  navra wrap -- npx -y @modelcontextprotocol/server-filesystem .\n  navra serve --config navra.yaml",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(wrapCmd(s), stdioCmd(s), serveCmd(s), checkCmd(s), tokenCmd(s), pauseCmd(s), resumeCmd(s), blackboxCmd(s), demoCmd(s), schemaCmd(s), versionCmd(s))
	asUsage(root)
	return root
}

// asUsage makes wrong arguments usage errors, for c and all below it.
func asUsage(c *cobra.Command) {
	if !c.Runnable() { // it only holds others
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q for %q", args[0], c.CommandPath())}
			}
			return c.Help()
		}
	}
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usageError{fmt.Errorf("%w; the usage is: %s", err, c.UseLine())}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		asUsage(sub)
	}
}

func versionCmd(s std) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print navra's version", Args: cobra.NoArgs, Example: "  navra version",
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(s.out, "navra "+version)
			return err
		},
	}
}

// logger writes to stderr: stdout belongs to the protocol.
func logger(s std, verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: level}))
}
