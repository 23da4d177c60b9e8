package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A sample is one measurement. CPU is processor time per call, user and system.
type sample struct {
	Calls          int     `json:"calls"`
	CallsPerSecond float64 `json:"calls_per_second"`
	P50            float64 `json:"p50_us"`
	P99            float64 `json:"p99_us"`
	P999           float64 `json:"p999_us"`
	CPU            float64 `json:"cpu_us_per_call"`
	UpstreamCPU    float64 `json:"upstream_cpu_us_per_call"` // of the echo server, where it is not itself under test
	ClientCPU      float64 `json:"client_cpu_us_per_call"`
	RSS            float64 `json:"rss_mib"` // of the process under test, at the end
}

func newSample(res loadResult, before, after reading) sample {
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	n := float64(res.Calls)
	return sample{
		Calls: res.Calls, CallsPerSecond: n / res.Elapsed.Seconds(),
		P50: us(res.P50), P99: us(res.P99), P999: us(res.P999),
		CPU: us(after.process.cpu-before.process.cpu) / n, UpstreamCPU: us(after.upstream.cpu-before.upstream.cpu) / n, ClientCPU: us(res.CPU) / n,
		RSS: float64(after.process.rss) / (1 << 20),
	}
}

// A row is a target at one size: medians over the rounds, their spread, and the ratios to reverseproxy.
type row struct {
	Target      string   `json:"target"`
	Size        int      `json:"size"`
	Median      sample   `json:"median"`
	Spread      spread   `json:"spread"`
	Ratios      *ratios  `json:"to_reverseproxy,omitempty"`
	Rounds      []sample `json:"rounds"`
	hasUpstream bool
}

// A spread is half of the distance between the smallest and the largest round, as a part of the median.
type spread struct {
	CallsPerSecond float64 `json:"calls_per_second"`
	P50            float64 `json:"p50"`
	CPU            float64 `json:"cpu"`
}

// ratios compare medians with those of reverseproxy at the same size.
type ratios struct {
	CPU            float64 `json:"cpu"`
	CallsPerSecond float64 `json:"calls_per_second"`
	P50            float64 `json:"p50"`
}

// A report is all of a run.
type report struct {
	Machine  string        `json:"machine"`
	Navra    string        `json:"navra,omitempty"` // commit or binary
	Upstream string        `json:"navra_upstream,omitempty"`
	Store    string        `json:"navra_store,omitempty"` // file system
	Era      string        `json:"era"`
	Conns    int           `json:"conns"`
	Time     time.Duration `json:"time_ns"`
	Load     [2]string     `json:"load_average"` // of the minute before the run and of its last one; the rig itself makes about 2
	Rows     []*row        `json:"rows"`
}

func newReport(r *rig) *report {
	rep := &report{Machine: machine(), Era: r.era, Conns: r.conns, Time: r.time, Load: [2]string{loadAverage()}}
	if r.navra != nil {
		rep.Navra, rep.Upstream, rep.Store = r.commit, "stdio", fileSystem(r.dir)
		if r.navra.http {
			rep.Upstream = "http"
		}
	}
	return rep
}

func (rep *report) row(target string, size int) *row {
	for _, r := range rep.Rows {
		if r.Target == target && r.Size == size {
			return r
		}
	}
	return nil
}

func (rep *report) add(target string, size int, s sample) {
	r := rep.row(target, size)
	if r == nil {
		r = &row{Target: target, Size: size}
		rep.Rows = append(rep.Rows, r)
	}
	r.Rounds = append(r.Rounds, s)
}

// summarise orders the rows by size and target and computes what is derived.
func (rep *report) summarise(targets []target, sizes []int) {
	rep.Load[1] = loadAverage()
	var rows []*row
	for _, size := range sizes {
		base := rep.row("reverseproxy", size)
		if base != nil {
			base.Median = medians(base.Rounds)
		}
		for _, t := range targets {
			r := rep.row(t.name, size)
			r.hasUpstream = t.child || t.upstream != nil
			r.Median = medians(r.Rounds)
			of := func(f func(sample) float64) float64 { return spreadOf(values(r.Rounds, f)) }
			r.Spread = spread{of(callsPerSecond), of(p50), of(cpu)}
			if base != nil {
				m, b := r.Median, base.Median
				r.Ratios = &ratios{m.CPU / b.CPU, m.CallsPerSecond / b.CallsPerSecond, m.P50 / b.P50}
			}
			rows = append(rows, r)
		}
	}
	rep.Rows = rows
}

func callsPerSecond(s sample) float64 { return s.CallsPerSecond }
func p50(s sample) float64            { return s.P50 }
func cpu(s sample) float64            { return s.CPU }

func medians(rounds []sample) sample {
	of := func(f func(sample) float64) float64 { return median(values(rounds, f)) }
	return sample{
		Calls:          int(of(func(s sample) float64 { return float64(s.Calls) })),
		CallsPerSecond: of(callsPerSecond), P50: of(p50), CPU: of(cpu),
		P99:         of(func(s sample) float64 { return s.P99 }),
		P999:        of(func(s sample) float64 { return s.P999 }),
		UpstreamCPU: of(func(s sample) float64 { return s.UpstreamCPU }),
		ClientCPU:   of(func(s sample) float64 { return s.ClientCPU }),
		RSS:         of(func(s sample) float64 { return s.RSS }),
	}
}

func values(rounds []sample, f func(sample) float64) (v []float64) {
	for _, s := range rounds {
		v = append(v, f(s))
	}
	return v
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

func spreadOf(v []float64) float64 {
	return (slices.Max(v) - slices.Min(v)) / 2 / median(v)
}

func (rep *report) print(w io.Writer) {
	fmt.Fprintf(w, "%s, load average %s before and %s after\n", rep.Machine, rep.Load[0], rep.Load[1])
	if rep.Navra != "" {
		fmt.Fprintf(w, "navra %s, upstream over %s, database on %s\n", rep.Navra, rep.Upstream, rep.Store)
	}
	fmt.Fprintf(w, "%s era, %d connections, medians of rounds of %v; ± is half the range of the rounds; ×rp is the ratio to reverseproxy\n", rep.Era, rep.Conns, rep.Time)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer tw.Flush()
	size := 0
	for _, r := range rep.Rows {
		if r.Size != size {
			size = r.Size
			fmt.Fprintf(tw, "\t\n%d bytes\tcalls/s\t±\tp50 µs\tp99 µs\tp99.9 µs\tCPU µs/call\t±\tupstream CPU\tRSS MiB\tCPU ×rp\tcalls/s ×rp\tp50 ×rp\t\n", size)
		}
		m := r.Median
		up, ratio := "–", "–\t–\t–"
		if r.hasUpstream {
			up = fmt.Sprintf("%.1f", m.UpstreamCPU)
		}
		if q := r.Ratios; q != nil {
			ratio = fmt.Sprintf("%.2f\t%.2f\t%.2f", q.CPU, q.CallsPerSecond, q.P50)
		}
		fmt.Fprintf(tw, "%s\t%.0f\t%.0f%%\t%.0f\t%.0f\t%.0f\t%.1f\t%.0f%%\t%s\t%.0f\t%s\t\n", r.Target, m.CallsPerSecond, 100*r.Spread.CallsPerSecond, m.P50, m.P99, m.P999, m.CPU, 100*r.Spread.CPU, up, m.RSS, ratio)
	}
}

// machine describes where the run took place.
func machine() string {
	model := "unknown processor"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	return fmt.Sprintf("%s/%s, %d cores, %s, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), model, runtime.Version())
}

// loadAverage is that of the last minute.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}

// fileSystem names the type of file system that holds dir: on tmpfs, durable means nothing.
func fileSystem(dir string) string {
	b, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return "unknown"
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "unknown"
	}
	longest, kind := -1, "unknown"
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 3 || len(f[1]) < longest {
			continue
		}
		if rel, err := filepath.Rel(f[1], dir); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			longest, kind = len(f[1]), f[2]
		}
	}
	return kind
}
