package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// answerPatience is how long a client waits for one answer before it is lost.
const answerPatience = 30 * time.Second

// maxChildren is how many children of one upstream navra starts for one principal.
const maxChildren = 4

// A rig holds the processes that are measured.
type rig struct {
	options
	self    string // the rig's own program
	dir     string // temporary
	navra   *navra // where it is measured
	bin     string
	commit  string
	servers []*server // in order of start
	targets []target
}

// A target is something that clients can call.
type target struct {
	name, url, token string
	process          *server // the one under test
	upstream         *server // the echo server behind it; nil for direct, and where it is a child of process
	child            bool    // the echo server is a child of process
}

// open builds navra and starts all processes.
func (r *rig) open(ctx context.Context) (err error) {
	if r.dir, err = os.MkdirTemp(r.folder, "navra-bench-"); err != nil {
		return err
	}
	echo, err := r.start(ctx, "echo", r.self, "echo", r.era)
	if err != nil {
		return err
	}
	url := "http://" + echo.addr + "/mcp"
	for _, name := range targetNames {
		if !slices.Contains(r.only, name) {
			continue
		}
		t := target{name: name, upstream: echo}
		switch name {
		case "direct":
			t.process, t.upstream = echo, nil
		case "navra":
			if t, err = r.openNavra(ctx, t, url); err != nil {
				return err
			}
		default:
			if t.process, err = r.start(ctx, name, r.self, name, url); err != nil {
				return err
			}
		}
		t.url = "http://" + t.process.addr + "/mcp"
		r.targets = append(r.targets, t)
	}
	return nil
}

func (r *rig) openNavra(ctx context.Context, t target, echoURL string) (target, error) {
	if r.bin, r.commit = r.options.navra, r.options.navra; r.bin == "" {
		c, err := findCheckout()
		if err != nil {
			return t, err
		}
		r.bin, r.commit = filepath.Join(r.dir, "navra"), c.commit()
		if err := c.build(ctx, r.bin); err != nil {
			return t, err
		}
	}
	n, err := setUpNavra(ctx, r.bin, r.dir, r.options.upstream, echoURL, []string{r.self, "echo-stdio", stateful})
	if err != nil {
		return t, err
	}
	r.navra, t.token = n, n.token
	if !n.http {
		t.upstream, t.child = nil, true
		if r.era == stateful && r.conns > maxChildren {
			fmt.Fprintf(os.Stderr, "note: navra gives each stateful session a child of its own and a principal at most %d: with -conns %d this measures how fast children start. Use -conns %d, -era stateless, or -upstream http\n", maxChildren, r.conns, maxChildren)
		}
	}
	t.process, err = r.start(ctx, t.name, r.bin, "serve", "--config", n.config)
	return t, err
}

func (r *rig) start(ctx context.Context, name string, argv ...string) (*server, error) {
	s, err := startServer(ctx, name, argv...)
	if err == nil {
		r.servers = append(r.servers, s)
	}
	return s, err
}

// close stops all processes, the last one first, and removes what they wrote.
func (r *rig) close() error {
	var errs []error
	for _, s := range slices.Backward(r.servers) {
		errs = append(errs, s.stop())
	}
	if r.dir != "" {
		errs = append(errs, os.RemoveAll(r.dir))
	}
	return errors.Join(errs...)
}

// measure lets the targets take turns, each round beginning with another one.
func (r *rig) measure(ctx context.Context) (*report, error) {
	rep := newReport(r)
	for round := range r.rounds {
		for _, size := range r.sizes {
			for i := range r.targets {
				t := r.targets[(round+i)%len(r.targets)]
				s, err := r.sample(ctx, t, size)
				if err != nil {
					return nil, err
				}
				rep.add(t.name, size, s)
				fmt.Fprintf(os.Stderr, "round %d of %d: %-12s %6d bytes: %7.0f calls/s\n", round+1, r.rounds, t.name, size, s.CallsPerSecond)
			}
		}
	}
	rep.summarise(r.targets, r.sizes)
	return rep, nil
}

// sample runs the load once against a target and takes the processor time that passes meanwhile.
func (r *rig) sample(ctx context.Context, t target, size int) (sample, error) {
	plan, err := json.Marshal(loadPlan{URL: t.url, Token: t.token, Era: r.era, Size: size, Conns: r.conns, Warm: r.warm, Time: r.time, Patience: answerPatience})
	if err != nil {
		return sample{}, err
	}
	cmd := exec.CommandContext(ctx, r.self, "load")
	cmd.Env = append(os.Environ(), planVariable+"="+string(plan))
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return sample{}, err
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return sample{}, err
	}
	if err := cmd.Start(); err != nil {
		return sample{}, err
	}
	out := bufio.NewReader(pipe)
	fail := func(err error) (sample, error) {
		in.Close()
		werr := cmd.Wait()
		return sample{}, fmt.Errorf("%s, %d bytes: %w: %s\nlast lines of %s's log:\n%s", t.name, size, errors.Join(err, werr), strings.TrimSpace(said.String()), t.process.name, t.process.tail)
	}
	if _, err := out.ReadString('\n'); err != nil {
		return fail(errors.New("the load ended early"))
	}
	before, err := t.usage()
	if err != nil {
		return fail(err)
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		return fail(err)
	}
	var res loadResult
	line, err := out.ReadBytes('\n')
	if err != nil {
		return fail(errors.New("the load failed"))
	}
	after, err := t.usage()
	if err != nil {
		return fail(err)
	}
	if err := json.Unmarshal(line, &res); err != nil {
		return fail(err)
	}
	if err := cmd.Wait(); err != nil {
		return fail(err)
	}
	return newSample(res, before, after), nil
}

// A reading is what a target's processes have used so far.
type reading struct{ process, upstream used }

func (t target) usage() (m reading, err error) {
	if m.process, err = usage(t.process.cmd.Process.Pid); err != nil {
		return m, err
	}
	switch {
	case t.child:
		m.upstream, err = usageBelow(t.process.cmd.Process.Pid)
	case t.upstream != nil:
		m.upstream, err = usage(t.upstream.cmd.Process.Pid)
	}
	return m, err
}
