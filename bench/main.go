// Bench measures what navra costs: calls per second, latency and processor time per call, beside the floors that any gateway
// stands on. It builds navra from the checkout, starts everything on loopback, and lets the targets take turns in short
// rounds, so that the noise of the machine hits all alike. Every answer is checked; a wrong one fails the run.
//
// It is a module of its own and knows nothing of navra's packages: it drives the binary from outside, as clients do.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// planVariable holds a load process's plan.
const planVariable = "NAVRA_BENCH_PLAN"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := part(ctx, os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// part plays one process of the rig: the rig starts its own program again for each. Without such a name it is the rig.
func part(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return rigMain(ctx, args)
	}
	switch args[0] {
	case "echo":
		return serve(newEcho(args[1]))
	case "echo-stdio":
		return newEcho(args[1]).serveStdio(os.Stdin, os.Stdout)
	case "reverseproxy", "relay":
		to, err := url.Parse(args[1])
		if err != nil {
			return err
		}
		if args[0] == "relay" {
			return serve(newRelay(to))
		}
		return serve(newReverseProxy(to))
	case "load":
		var p loadPlan
		if err := json.Unmarshal([]byte(os.Getenv(planVariable)), &p); err != nil {
			return fmt.Errorf("%s: %w", planVariable, err)
		}
		return load(p, os.Stdin, os.Stdout)
	}
	return rigMain(ctx, args)
}

// serve serves h on a free port of loopback until stdin ends, as it does with the rig.
func serve(h http.Handler) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "listens on http://%s\n", ln.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(ln, h)
}

// targetNames are what can be measured, in the order of the table.
var targetNames = []string{"direct", "reverseproxy", "relay", "navra"}

// options are the flags.
type options struct {
	rounds, conns       int
	time, warm          time.Duration
	sizes               []int
	only                []string
	era, upstream       string
	navra, json, folder string
}

func parseFlags(args []string) (o options, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", 5, "how often each target is measured at each size")
	f.DurationVar(&o.time, "time", 2*time.Second, "how long each measurement takes")
	f.DurationVar(&o.warm, "warm", 300*time.Millisecond, "how long each target is warmed up before a measurement")
	f.IntVar(&o.conns, "conns", 16, "clients, each with a connection and a session of its own; 1 measures latency without a queue")
	sizes := f.String("sizes", "200,8192,65536", "bytes of the text that is echoed")
	only := f.String("only", strings.Join(targetNames, ","), "the targets to measure")
	f.StringVar(&o.era, "era", stateful, "stateful (MCP "+version2025+") or stateless ("+version2026+")")
	f.StringVar(&o.upstream, "upstream", "auto", "how navra reaches the echo server: http, stdio (as a child), or auto: http where navra can")
	f.StringVar(&o.navra, "navra", "", "the navra binary to measure, instead of one built from the checkout")
	f.StringVar(&o.json, "json", "", "also write all rounds as JSON to this file")
	f.StringVar(&o.folder, "dir", "", "the folder in which a temporary one is made for navra's database; the disk under it is measured too")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	for s := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < minSize || n > maxSize {
			return o, fmt.Errorf("-sizes: %q is no number of bytes from %d to %d", s, minSize, maxSize)
		}
		o.sizes = append(o.sizes, n)
	}
	for s := range strings.SplitSeq(*only, ",") {
		if s = strings.TrimSpace(s); !slices.Contains(targetNames, s) {
			return o, fmt.Errorf("-only: there is no target %q; there are %s", s, strings.Join(targetNames, ", "))
		}
		o.only = append(o.only, s)
	}
	switch {
	case o.era != stateful && o.era != stateless:
		return o, fmt.Errorf("-era is %q, want %s or %s", o.era, stateful, stateless)
	case !slices.Contains([]string{"auto", "http", "stdio"}, o.upstream):
		return o, fmt.Errorf("-upstream is %q, want auto, http or stdio", o.upstream)
	case o.rounds < 1 || o.conns < 1 || o.time <= 0 || o.warm < 0:
		return o, errors.New("-rounds, -conns and -time must be above 0")
	}
	return o, nil
}

func rigMain(ctx context.Context, args []string) (err error) {
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	r := &rig{options: o, self: self}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(ctx); err != nil {
		return err
	}
	rep, err := r.measure(ctx)
	if err != nil {
		return err
	}
	rep.print(os.Stdout)
	if r.navra != nil {
		said, err := r.navra.verify(ctx)
		if err != nil {
			return fmt.Errorf("navra's blackbox does not verify after the run: %w", err)
		}
		fmt.Printf("\nblackbox after the run: %s\n", said)
	}
	if o.json == "" {
		return nil
	}
	b, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.json, append(b, '\n'), 0o644)
}
