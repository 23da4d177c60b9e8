//go:build unix

package witness

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/heads"
	"navra/internal/ifc"
	"navra/internal/scope"
	"navra/internal/seal"
	"navra/internal/store"
	"navra/internal/store/sqlite"
)

// A meter is what calls of several callers cost.
type meter struct {
	mu   sync.Mutex
	took []time.Duration
}

// cpu is the processor time of this process.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// run has callers share b.N calls; call gets the caller and how many calls it has made. Each waits about think before a call.
func (m *meter) run(b *testing.B, callers int, think time.Duration, call func(caller, n int)) {
	var wg sync.WaitGroup
	b.ResetTimer()
	before := cpu(b)
	for c := range callers {
		wg.Go(func() {
			took := make([]time.Duration, 0, b.N/callers+1)
			for n := range (b.N + callers - 1 - c) / callers {
				if think > 0 {
					time.Sleep(time.Duration(rand.ExpFloat64() * float64(think)))
				}
				began := time.Now()
				call(c, n)
				took = append(took, time.Since(began))
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.took = append(m.took, took...)
		})
	}
	wg.Wait()
	b.StopTimer()
	if used := cpu(b) - before; think == 0 { // else most of it is waking up
		b.ReportMetric(float64(used.Nanoseconds())/1e3/float64(b.N), "cpu-µs/call")
	}
	slices.Sort(m.took)
	b.ReportMetric(float64(m.took[len(m.took)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(0, "ns/op")
}

// A caller is a session with a scope of its own.
type caller struct {
	name    string
	scope   scope.ID
	version scope.Version
}

var (
	arguments = bytes.Repeat([]byte(`{"path":"a/b"} `), 200/15+1)[:200]
	result    = bytes.Repeat([]byte(`{"text":"some of the content"} `), 1024/31+1)[:1024]
)

// entry is what the gateway records of a request, or of its answer where cause is its number.
func (c *caller) entry(cause blackbox.Seq, label string) blackbox.Entry {
	e := blackbox.Entry{
		Kind: blackbox.Request, Time: time.Now().UTC(), Ref: "k3v9q2m7x8r4t6w1", Cause: cause, Principal: c.name, Auth: "token", Role: "developer",
		Session: "0f1e2d3c4b5a69788796a5b4c3d2e1f0", Scope: string(c.scope), Transport: "streamable", Era: "stateful", Version: "2025-11-25",
		Upstream: "files", Method: "tools/call", Target: "files/read_file", RequestID: "17", Trace: "4bf92f3577b34da6a3ce929d0e0e4736",
		Verdict: "allow", Stage: "name", Before: label, After: label,
		Policy:    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		Durations: []blackbox.Count{{Name: "resolve", N: 3}, {Name: "judge", N: 17}, {Name: "filter", N: 41}},
	}
	if cause > 0 {
		e.Kind, e.Outcome = blackbox.Answer, "ran"
	}
	return e
}

const (
	raiseEvery = 50 // calls
	raises     = 8  // of one scope
)

// call commits a permit and an outcome, as a call of the gateway does. Every 50th raises the label of its scope.
func (c *caller) call(b *testing.B, s store.Store, n int) {
	if n%(raiseEvery*raises) == 0 {
		c.scope = scope.ID(fmt.Sprint(c.name, "/", n))
		sc, err := s.Scope(b.Context(), scope.Opening{ID: c.scope})
		if err != nil {
			b.Error(err)
		}
		c.version = sc.Version
	}
	permit := c.entry(0, "trusted public")
	permit.Payloads = []blackbox.Payload{blackbox.NewPayload("arguments", arguments, arguments)}
	r, err := s.Commit(b.Context(), store.Commit{Entry: permit, Scope: c.scope, IfScope: c.version, Raise: ifc.Bottom()})
	if err != nil {
		b.Error(err)
	}
	outcome := c.entry(r.Seq, "trusted public")
	outcome.Payloads = []blackbox.Payload{blackbox.NewPayload("result", result, result)}
	commit := store.Commit{Entry: outcome, Scope: c.scope, IfScope: c.version, Raise: ifc.Bottom(), Reserve: true}
	if n%raiseEvery == raiseEvery-1 {
		commit.Raise = ifc.Of(fmt.Sprint("s", n), ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.Sensitive})
		c.version++
	}
	if _, err := s.Commit(b.Context(), commit); err != nil {
		b.Error(err)
	}
}

// wired is a database as the gateway has it: with a heads file, a keeper, and a limit. It counts groups.
func wired(b *testing.B, o sqlite.Options, groups *int) store.Store {
	dir := b.TempDir()
	db, err := sqlite.Open(b.Context(), filepath.Join(dir, "navra.db"), o)
	if err != nil {
		b.Fatal(err)
	}
	key := seal.New()
	h, err := heads.Open(filepath.Join(dir, "navra.heads"), key.For("heads").Tag, o.Fsync)
	if err != nil {
		b.Fatal(err)
	}
	db.OnCommit(func(r store.Receipt) error { *groups++; return h.Note(r.Seq, r.Hash) })
	signer, err := blackbox.NewSigner(key.Seed("checkpoints"))
	if err != nil {
		b.Fatal(err)
	}
	k := Keep(Options{Log: db, Signer: signer, Logger: slog.New(slog.DiscardHandler)})
	b.Cleanup(func() {
		if err := k.Close(b.Context()); err != nil && b.Context().Err() == nil {
			b.Error(err)
		}
		for _, c := range []interface{ Close() error }{db, h} {
			if err := c.Close(); err != nil {
				b.Error(err)
			}
		}
	})
	limit := store.NewLimit(0, func(string, bool, store.Room) {})
	room, err := db.Room(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	limit.Measured(room)
	return store.Limited{Store: db, Limit: limit}
}

// BenchmarkCall tells what the two entries of a call cost, beside the same without a store, and beside the least that could be done
// with their bytes.
func BenchmarkCall(b *testing.B) {
	for _, n := range []int{1, 16} {
		b.Run(fmt.Sprintf("unlogged/callers=%d", n), func(b *testing.B) { unlogged(b, n) })
		b.Run(fmt.Sprintf("floor/callers=%d", n), func(b *testing.B) { floor(b, n) })
		b.Run(fmt.Sprintf("sqlite/callers=%d", n), func(b *testing.B) { logged(b, n, 0) })
	}
	b.Run("sqlite/callers=16,think=5ms", func(b *testing.B) { logged(b, 16, 5*time.Millisecond) })
}

func logged(b *testing.B, n int, think time.Duration) {
	groups := 0
	s := wired(b, sqlite.Options{}, &groups)
	callers := make([]caller, n)
	for i := range callers {
		callers[i].name = fmt.Sprint("agent", i)
	}
	var m meter
	m.run(b, n, think, func(c, i int) { callers[c].call(b, s, i) })
	b.ReportMetric(2*float64(b.N)/float64(groups), "entries/group")
}

// unlogged makes the entries and drops them.
func unlogged(b *testing.B, n int) {
	callers := make([]caller, n)
	var m meter
	kinds := make([]blackbox.Entry, n)
	m.run(b, n, 0, func(c, i int) {
		kinds[c] = callers[c].entry(0, "trusted public")
		kinds[c] = callers[c].entry(blackbox.Seq(i), "trusted public")
	})
}

// floor hashes what the entries of a group come to, and writes it to a file at once. A group has an entry of each caller.
func floor(b *testing.B, n int) {
	f, err := os.Create(filepath.Join(b.TempDir(), "floor"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	c := caller{name: "agent0", scope: "agent0/0"}
	bytesOf := func(cause blackbox.Seq, payload []byte) []byte {
		e := c.entry(cause, "trusted public")
		e.Payloads = []blackbox.Payload{blackbox.NewPayload("result", payload, payload)}
		return append(e.Encode(), payload...)
	}
	parts := [][]byte{bytesOf(0, arguments), bytesOf(1, result)}
	var group []byte
	var m meter
	m.run(b, 1, 0, func(_, i int) {
		for _, part := range parts { // first all permits of a group, then all outcomes: bytes are what counts
			sum := sha256.Sum256(part)
			group = append(append(group, sum[:]...), part...)
			if n == 1 {
				group = write(b, f, group)
			}
		}
		if n > 1 && i%(n/2) == n/2-1 {
			group = write(b, f, group)
		}
	})
}

func write(b *testing.B, f *os.File, group []byte) []byte {
	if _, err := f.Write(group); err != nil {
		b.Fatal(err)
	}
	return group[:0]
}
