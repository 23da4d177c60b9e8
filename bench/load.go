package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A loadPlan says what one load process does. It comes as JSON in its environment: arguments are for everyone to read, and it holds a token.
type loadPlan struct {
	URL, Token, Era string
	Size, Conns     int
	Warm, Time      time.Duration
	Patience        time.Duration // for one answer
}

// A loadResult is what the clients of one load process saw.
type loadResult struct {
	Calls          int
	Elapsed        time.Duration
	P50, P99, P999 time.Duration
	CPU            time.Duration // of the clients themselves
}

// load opens the sessions, warms up, says "ready", waits for a line, and then measures. The first wrong answer ends it.
func load(p loadPlan, in io.Reader, out io.Writer) error {
	pay := newPayload(p.Size)
	sessions := make([]*session, p.Conns)
	for i := range sessions {
		s, err := openSession(p.URL, p.Token, p.Era, i+1, pay, p.Patience)
		if err != nil {
			return fmt.Errorf("%s: open session %d: %w", p.URL, i+1, err)
		}
		defer s.close()
		sessions[i] = s
	}
	if _, err := run(sessions, p.Warm); err != nil {
		return fmt.Errorf("%s: %w", p.URL, err)
	}
	fmt.Fprintln(out, "ready")
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return errors.New("the rig has gone away")
	}
	before, _ := usage(os.Getpid())
	res, err := run(sessions, p.Time)
	if err != nil {
		return fmt.Errorf("%s: %w", p.URL, err)
	}
	after, _ := usage(os.Getpid())
	res.CPU = after.cpu - before.cpu
	return json.NewEncoder(out).Encode(res)
}

// run has each session call again and again for d, at least once, and ends with the last answer.
func run(sessions []*session, d time.Duration) (loadResult, error) {
	var work sync.WaitGroup
	var stop atomic.Bool
	took := make([][]time.Duration, len(sessions))
	errs := make([]error, len(sessions))
	start := time.Now()
	for i, s := range sessions {
		work.Go(func() {
			for first := true; first || !stop.Load() && time.Since(start) < d; first = false {
				t, err := s.echo()
				if err != nil {
					errs[i] = err
					stop.Store(true)
					return
				}
				took[i] = append(took[i], t)
			}
		})
	}
	work.Wait()
	res := loadResult{Elapsed: time.Since(start)}
	if err := errors.Join(errs...); err != nil {
		return res, err
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	res.Calls = len(all)
	res.P50, res.P99, res.P999 = quantile(all, 0.5), quantile(all, 0.99), quantile(all, 0.999)
	return res, nil
}

// quantile of sorted values, by nearest rank; 0 of none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
