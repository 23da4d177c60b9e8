package ship

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/seal"
	"navra/internal/store"
	"navra/internal/store/sqlite"
	"navra/test/collector"
)

// A bench is a store, a collector, and what was told and logged.
type bench struct {
	t    *testing.T
	db   database
	path string // of a SQLite store
	to   *collector.Server
	mu   sync.Mutex
	told []string
	log  bytes.Buffer

	anyOrder bool
}

const token = "tok-5e1f-hunter2"

type database interface {
	store.Store
	store.Log
	Close() error
}

func newBench(t *testing.T) *bench {
	path := filepath.Join(t.TempDir(), "navra.db")
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &bench{t: t, db: db, path: path, to: collector.New(t)}
}

var tag = seal.New().For("shipped").Tag

func (b *bench) remote() *Remote {
	u, err := url.Parse(b.to.URL() + "/v1/logs")
	if err != nil {
		b.t.Fatal(err)
	}
	return NewRemote(RemoteOptions{URL: u, Header: map[string]Secret{"Authorization": "Bearer " + token}, Timeout: 5 * time.Second, Agent: "navra/test"})
}

func (b *bench) tell(_ context.Context, text string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, text)
	return nil
}

func (b *bench) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.log.Write(p) }

func (b *bench) said() (told []string, log string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.told), b.log.String()
}

// start starts a shipper that waits little, and has it closed at the test's end.
func (b *bench) start(change func(*Options)) *Shipper {
	o := Options{
		Log: b.db, Store: b.db, To: b.remote(), Version: "1", Logger: slog.New(slog.NewTextHandler(b, nil)), Tell: b.tell, Tag: tag,
		Poll: 5 * time.Millisecond, FirstWait: 2 * time.Millisecond, Batch: 10,
	}
	if change != nil {
		change(&o)
	}
	s := Start(o)
	b.t.Cleanup(func() { s.end(); s.work.Wait() })
	return s
}

// add commits entries and returns the number of the last.
func (b *bench) add(n int) int64 {
	b.t.Helper()
	var r store.Receipt
	for i := range n {
		e := blackbox.Entry{
			Kind: blackbox.Request, Time: time.Now(), Principal: "ann", Method: "tools/call", Target: "files/read", Verdict: "allow", Trace: "0af7651916cd43dd8448eb211c80319c",
			RequestID: fmt.Sprint(i), Findings: []blackbox.Count{{Name: "jwt", N: 2}},
			Payloads: []blackbox.Payload{blackbox.NewPayload("arguments", []byte("whole"), []byte("stored"))},
		}
		var err error
		if r, err = b.db.Commit(b.t.Context(), store.Commit{Entry: e, Raise: ifc.Bottom()}); err != nil {
			b.t.Fatal(err)
		}
	}
	return int64(r.Seq)
}

// rests waits until a shipper knows that all up to an entry arrived.
func (b *bench) rests(s *Shipper, seq int64) {
	b.t.Helper()
	until(b.t, "it rests", func() bool {
		p, err := b.db.Kept(b.t.Context(), s.turn.key)
		return err == nil && strings.HasPrefix(string(p), fmt.Sprint(seq, " - "))
	})
}

// inOrder wants entries 1 to n once each, in order, less those that are missing.
func (b *bench) inOrder(n int64, missing ...int64) {
	b.t.Helper()
	var want, got []int64
	for i := int64(1); i <= n; i++ {
		if !slices.Contains(missing, i) {
			want = append(want, i)
		}
	}
	for _, r := range b.to.Took() {
		got = append(got, r.Seq)
	}
	if b.anyOrder {
		slices.Sort(got)
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("took %v, want %v", got, want)
	}
}

func TestEntriesArriveAsTheyWereRecorded(t *testing.T) {
	b := newBench(t)
	b.start(func(o *Options) { o.Payloads = true })
	last := b.add(25)
	b.to.UntilSeq(last)
	b.inOrder(last)
	prev := strings.Repeat("0", 64)
	for _, r := range b.to.Took() {
		body := r.Body.GetStringValue()
		if hash := fmt.Sprintf("%x", blackbox.Hash([]byte(body))); r.Text["navra.hash"] != hash || r.Text["navra.prev"] != prev {
			t.Fatalf("entry %d: its hash is %s, want %s; prev %s, want %s", r.Seq, r.Text["navra.hash"], hash, r.Text["navra.prev"], prev)
		}
		prev = r.Text["navra.hash"]
		e, err := blackbox.Decode([]byte(body))
		if err != nil || int64(e.Seq) != r.Seq || r.TimeUnixNano != uint64(e.Time.UnixNano()) {
			t.Errorf("entry %d: %+v, %v", r.Seq, e, err)
		}
		if r.EventName != "navra.request" || r.SeverityText != "INFO" || fmt.Sprintf("%x", r.TraceId) != "0af7651916cd43dd8448eb211c80319c" || r.Text["navra.target"] != "files/read" ||
			r.Text["mcp.method.name"] != "tools/call" || r.Text["navra.arguments"] != "stored" || strings.Contains(r.String(), "whole\"") {
			t.Errorf("entry %d: %v", r.Seq, r.LogRecord)
		}
	}
	if got := b.to.Header(); got.Get("Authorization") != "Bearer "+token || got.Get("User-Agent") != "navra/test" {
		t.Errorf("headers: %v", got)
	}
	if slices.Max(b.to.Sizes()) > 10 {
		t.Errorf("requests of %v records, want 10 at most", b.to.Sizes())
	}
}

func TestPayloadsStayUnlessAskedFor(t *testing.T) {
	b := newBench(t)
	b.start(nil)
	b.to.UntilSeq(b.add(1))
	if _, ok := b.to.Took()[0].Text["navra.arguments"]; ok {
		t.Error("arguments were sent")
	}
}

func TestSeverityIsTheVerdicts(t *testing.T) {
	for verdict, want := range map[string]string{"allow": "INFO", "ask": "WARN", "deny": "ERROR", "": "INFO"} {
		if _, got := severity(verdict); got != want {
			t.Errorf("severity(%q) = %s, want %s", verdict, got, want)
		}
	}
}

// TestTroubleIsWaitedFor lets the collector be away, or answer that it cannot now, and wants each entry once all the same.
func TestTroubleIsWaitedFor(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reply collector.Reply
	}{
		{"429", collector.Reply{Status: 429}}, {"503 with Retry-After", collector.Reply{Status: 503, RetryAfter: "1"}}, {"502", collector.Reply{Status: 502}},
		{"401", collector.Reply{Status: 401}}, {"404", collector.Reply{Status: 404}}, {"a redirect", collector.Reply{Status: 307}},
		{"400 whatever comes", collector.Reply{Status: 400}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			refused := make(chan struct{})
			b.to.Reply(func(n int, _ []collector.Record) collector.Reply {
				if n == 3 {
					close(refused)
				}
				select {
				case <-refused:
					if tt.reply.Status != 400 || n > 40 {
						return collector.Reply{}
					}
				default:
				}
				return tt.reply
			})
			last := b.add(25)
			s := b.start(nil)
			b.to.UntilSeq(last)
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.anyOrder = tt.reply.Status == 400 // what was refused while nothing was taken comes after what was not
			b.inOrder(last)
			told, log := b.said()
			if len(told) > 0 || strings.Contains(log, token) || !strings.Contains(log, "could not be delivered") {
				t.Errorf("told %q, logged\n%s", told, log)
			}
		})
	}
	t.Run("down", func(t *testing.T) {
		b := newBench(t)
		s := b.start(func(o *Options) { o.TellAfter = time.Nanosecond })
		b.rests(s, b.add(5)) // one that is cut off before it knows that they came sends them again
		b.to.Stop()
		last := b.add(25)
		until(t, "it is recorded", func() bool { told, _ := b.said(); return len(told) == 1 })
		b.to.Start()
		b.to.UntilSeq(last)
		b.inOrder(last)
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		told, log := b.said()
		if len(told) != 2 || !strings.Contains(told[0], "could not be delivered for") || !strings.Contains(told[1], "delivered again") || strings.Contains(log+fmt.Sprint(told), token) {
			t.Errorf("told %q, logged\n%s", told, log)
		}
	})
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what + ": not yet")
		}
	}
}

// TestPoisonIsLeftOut refuses batches that hold certain entries.
func TestPoisonIsLeftOut(t *testing.T) {
	for _, tt := range []struct {
		name   string
		poison []int64
		empty  int // answered to a request without records
	}{
		{"in the middle", []int64{13}, 400}, {"the first", []int64{1}, 400}, {"the last of all", []int64{25}, 0}, {"several", []int64{2, 3, 4, 11, 20, 21}, 400}, {"a full batch but one", []int64{11, 12, 13, 14}, 400},
	} {
		for _, status := range []int{400, 413} {
			t.Run(fmt.Sprint(tt.name, " ", status), func(t *testing.T) {
				b := newBench(t)
				b.to.Reply(func(_ int, batch []collector.Record) collector.Reply {
					if len(batch) == 0 {
						return collector.Reply{Status: tt.empty}
					}
					for _, r := range batch {
						if slices.Contains(tt.poison, r.Seq) {
							return collector.Reply{Status: status}
						}
					}
					return collector.Reply{}
				})
				last := b.add(25)
				b.start(nil)
				until(t, "it is recorded", func() bool { told, _ := b.said(); return len(told) == 1 })
				b.inOrder(last, tt.poison...)
				told, _ := b.said()
				want := fmt.Sprintf("did not take %d entries among %d to %d: the server answered %d", len(tt.poison), slices.Min(tt.poison), slices.Max(tt.poison), status)
				if !strings.Contains(told[0], want) {
					t.Errorf("told %q, want %q", told, want)
				}
			})
		}
	}
}

func TestPartialSuccessIsNotSentAgain(t *testing.T) {
	b := newBench(t)
	b.to.Reply(func(n int, _ []collector.Record) collector.Reply {
		if n == 1 {
			return collector.Reply{Rejected: 3, Message: "no\x1b more of Bearer " + token}
		}
		return collector.Reply{Message: "slow down"}
	})
	last := b.add(25)
	b.start(nil)
	until(t, "it is recorded", func() bool { told, _ := b.said(); return len(told) == 1 })
	b.inOrder(last)
	told, log := b.said()
	if want := "did not take 3 entries among 1 to 10: no  more of [redacted]"; !strings.Contains(told[0], want) || strings.Contains(told[0]+log, token) || !strings.Contains(log, "slow down") {
		t.Errorf("told %q, want %q; logged\n%s", told, want, log)
	}
}

// TestOneShipsAtATime starts several shippers on one store while entries come.
func TestOneShipsAtATime(t *testing.T) {
	b := newBench(t)
	var all []*Shipper
	for range 4 {
		all = append(all, b.start(nil))
	}
	var last int64
	for range 20 {
		last = b.add(7)
	}
	b.to.UntilSeq(last)
	b.inOrder(last)
	for _, s := range all {
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.inOrder(last)
}

// TestAnotherTakesOver ends a shipper as a kill would, while the collector has a request of it: what it had not been told that it arrived is sent again by the next.
func TestAnotherTakesOver(t *testing.T) {
	b := newBench(t)
	held, release := make(chan struct{}), make(chan struct{})
	b.to.Reply(func(n int, _ []collector.Record) collector.Reply {
		if n == 2 {
			close(held)
			<-release
			return collector.Reply{Status: 503}
		}
		return collector.Reply{}
	})
	last := b.add(25)
	dying := b.start(nil)
	<-held
	dying.turn.store = mute{b.db} // it writes no more
	dying.end()
	dying.work.Wait()
	close(release)
	p, err := b.db.Kept(t.Context(), dying.turn.key)
	if err != nil || !strings.HasPrefix(string(p), "10 "+dying.turn.me) {
		t.Fatalf("the place is %q, %v, want 10 with its holder", p, err)
	}
	b.start(nil)
	// The lease in the store is that of the dying: shorten it, as time would.
	short := place{at: dying.turn.at.at, Holder: dying.turn.me, Lease: time.Millisecond, Beat: 99}
	if err := b.db.Keep(t.Context(), dying.turn.key, dying.turn.seal(short)); err != nil {
		t.Fatal(err)
	}
	b.to.UntilSeq(last)
	b.inOrder(last)
}

type mute struct{ store.Store }

func (mute) Swap(context.Context, string, []byte, []byte) (bool, error) {
	return false, context.Canceled
}

// TestALeaseIsLeftAlone: as long as another's lease runs nothing is sent.
func TestALeaseIsLeftAlone(t *testing.T) {
	b := newBench(t)
	b.add(3)
	turn := newTurn(b.db, "k", tag)
	if free, err := turn.read(t.Context()); !free || err != nil {
		t.Fatalf("read = %v, %v", free, err)
	}
	if err := turn.write(t.Context(), store.Receipt{}, time.Hour); err != nil {
		t.Fatal(err)
	}
	other := newTurn(b.db, "k", tag)
	if free, err := other.read(t.Context()); free || err != nil {
		t.Errorf("another's read = %v, %v, want it is not free", free, err)
	}
	other.since = time.Now().Add(-time.Hour)
	if free, err := other.read(t.Context()); !free || err != nil {
		t.Errorf("an hour later: %v, %v", free, err)
	}
	if err := turn.write(t.Context(), store.Receipt{Seq: 1}, time.Hour); err != nil { // it lives
		t.Fatal(err)
	}
	if free, err := other.read(t.Context()); free || err != nil {
		t.Errorf("after a sign of life: %v, %v", free, err)
	}
	other.since = time.Time{}
	if free, _ := other.read(t.Context()); !free {
		t.Error("never free")
	}
	if err := other.write(t.Context(), store.Receipt{Seq: 1}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := turn.write(t.Context(), store.Receipt{Seq: 2}, time.Hour); err != errLost {
		t.Errorf("the first writes on: %v, want %v", err, errLost)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "86400": maxRetryAfter, "Mon, 30 Nov 2026 12:00:30 GMT": 30 * time.Second, "Mon, 30 Nov 2026 11:00:00 GMT": 0,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("retryAfter(%q) = %v, want %v", text, got, want)
		}
	}
}

func TestBackoffGrowsToABound(t *testing.T) {
	var b backoff
	for i := range 40 {
		whole := min(firstWait<<min(i, 16), maxWait)
		if got := b.next(context.Canceled); got < whole/2 || got > whole {
			t.Errorf("wait %d = %v, want from %v to %v", i, got, whole/2, whole)
		}
	}
	if got := b.next(&refusal{429, 3 * time.Second}); got < 3*time.Second {
		t.Errorf("asked to wait 3s: %v", got)
	}
}

// TestALeaseThatNobodyAsksForIsShort: one of years does not stop shipping for longer than an hour.
func TestALeaseThatNobodyAsksForIsShort(t *testing.T) {
	b := newBench(t)
	at := newTurn(b.db, "shipped/x", tag)
	if err := b.db.Keep(t.Context(), "shipped/x", at.seal(place{at: store.Receipt{Seq: 3}, Holder: "nobody's", Lease: 100 * 365 * 24 * time.Hour})); err != nil {
		t.Fatal(err)
	}
	if free, err := at.read(t.Context()); err != nil || free {
		t.Fatalf("at first sight: %v, %v", free, err)
	}
	for ago, want := range map[time.Duration]bool{maxLease - time.Minute: false, maxLease: true} {
		at.since = time.Now().Add(-ago)
		if free, err := at.read(t.Context()); err != nil || free != want {
			t.Errorf("after %s: %v, %v, want %v", ago, free, err, want)
		}
	}
}
