package ship

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	"navra/internal/blackbox"
	"navra/internal/store"
)

// Options are the parts of a Shipper; all are required but those at the end.
type Options struct {
	Log      store.Log
	Store    store.Store
	To       *Remote
	Version  string
	Payloads bool // with what is kept of arguments and results
	Logger   *slog.Logger
	Tell     func(context.Context, string) error // records an event
	Tag      func([]byte) [32]byte               // makes the keyed hash of how far it is

	// Zero means the default.
	Poll, FirstWait, TellAfter, Margin time.Duration
	Batch                              int
}

// What a request holds at most.
const (
	batchEntries = 512
	batchBytes   = 1 << 20
)

const (
	pollEvery = time.Second
	// leaseMargin is what a lease has beyond the time that one request may take.
	leaseMargin = 5 * time.Second
	// maxDoubted is how many entries in a row a collector may refuse, each alone, before it is the collector that is doubted.
	maxDoubted = 8
)

// A Shipper sends the entries of a log to a collector of OpenTelemetry logs, in order and each at least once: how far it is, it writes down only
// after the collector has said that it has them. Of several on one store one ships at a time.
type Shipper struct {
	o    Options
	turn *turn
	wait backoff
	trouble
	skips tally

	end  context.CancelFunc
	stop chan struct{}
	work sync.WaitGroup
}

// Start starts a shipper. Close ends it.
func Start(o Options) *Shipper {
	for _, d := range []struct {
		to   *time.Duration
		them time.Duration
	}{{&o.Poll, pollEvery}, {&o.Margin, leaseMargin}, {&o.TellAfter, tellAfter}} {
		if *d.to == 0 {
			*d.to = d.them
		}
	}
	if o.Batch == 0 {
		o.Batch = batchEntries
	}
	to := sha256.Sum256([]byte(o.To.url)) // a collector of another address gets all entries
	ctx, end := context.WithCancel(context.Background())
	s := &Shipper{
		o: o, turn: newTurn(o.Store, "shipped/"+hex.EncodeToString(to[:8]), o.Tag), wait: backoff{first: o.FirstWait}, end: end, stop: make(chan struct{}),
		trouble: trouble{what: "entries of the blackbox", tell: o.Tell, log: o.Logger, long: o.TellAfter},
	}
	s.work.Go(func() { s.run(ctx) })
	return s
}

// Close ships what is there until ctx ends, and ends the shipper. What was not shipped is when a shipper starts again.
func (s *Shipper) Close(ctx context.Context) error {
	close(s.stop)
	defer context.AfterFunc(ctx, s.end)()
	s.work.Wait()
	s.end()
	s.o.To.client.CloseIdleConnections()
	return nil
}

func (s *Shipper) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		ending := false
		select {
		case <-timer.C:
		case <-s.stop:
			ending = true
		case <-ctx.Done():
			return
		}
		wait := s.once(ctx)
		if ending {
			break
		}
		timer.Reset(wait)
	}
	if s.turn.mine() { // it waits for the collector: let others try
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), s.o.Poll)
		defer stop()
		_ = s.turn.write(ctx, s.turn.at.at, 0) // else they wait until the lease is over
	}
}

// once ships what is there, and says when to look again.
func (s *Shipper) once(ctx context.Context) time.Duration {
	err := s.ship(ctx)
	switch {
	case err == nil:
		s.skips.tell(ctx, &s.trouble)
		return s.o.Poll
	case errors.Is(err, errLost) || ctx.Err() != nil:
		return s.o.Poll
	}
	wait := s.wait.next(err)
	s.failed(ctx, err, wait)
	if s.turn.mine() { // others are spared the same
		if err := s.turn.write(ctx, s.turn.at.at, wait+s.lease()); err != nil && ctx.Err() == nil {
			s.o.Logger.Debug("the turn of shipping could not be kept", "err", err)
		}
	}
	return wait
}

func (s *Shipper) lease() time.Duration { return s.o.To.timeout + s.o.Margin }

// ship sends batch after batch until nothing is left.
func (s *Shipper) ship(ctx context.Context) error {
	for {
		free, head, err := s.look(ctx)
		if why := distrust(""); errors.As(err, &why) {
			err = s.again(ctx, why)
			if err == nil {
				continue
			}
		}
		if err != nil || !free {
			return err
		}
		from := s.turn.at.at
		if head.Seq == from.Seq && !s.turn.mine() {
			return nil
		}
		if err := s.turn.write(ctx, from, s.lease()); err != nil {
			return err
		}
		batch, err := s.read(ctx, from.Seq+1)
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			return s.turn.write(ctx, from, 0)
		}
		if err := s.send(ctx, batch); err != nil {
			return err
		}
		s.wait.n = 0
		s.over(ctx)
	}
}

// look tells whether this process may ship, and where the log ends. The error is a distrust where how far it is does not count.
func (s *Shipper) look(ctx context.Context) (free bool, head store.Receipt, err error) {
	if free, err = s.turn.read(ctx); err != nil || !free {
		return false, head, err
	}
	if head, err = s.o.Log.Head(ctx); err != nil {
		return false, head, err
	}
	at := s.turn.at.at
	there, err := s.has(ctx, at, head)
	switch {
	case err != nil:
		return false, head, err
	case at.Seq > head.Seq: // what was cut off had come; what is there in its place has not
		return false, head, beyond
	case !there:
		return false, head, astray
	}
	s.turn.known = at
	return true, head, nil
}

// has reports whether the log has an entry with that number and hash; none is always there.
func (s *Shipper) has(ctx context.Context, at, head store.Receipt) (bool, error) {
	switch {
	case at.Seq == 0:
		return true, nil
	case at.Seq >= head.Seq:
		return at == head, nil
	}
	for hash, err := range s.o.Log.Leaves(ctx, at.Seq) {
		return hash == at.Hash, err
	}
	return false, nil
}

// again goes back to the last entry that this process knows to have been shipped, and to the start where it knows none: better twice than never.
func (s *Shipper) again(ctx context.Context, why distrust) error {
	from := s.turn.known
	head, err := s.o.Log.Head(ctx)
	if err != nil {
		return err
	}
	there, err := s.has(ctx, from, head)
	if err != nil {
		return err
	}
	if !there {
		from = store.Receipt{}
	}
	if err := s.turn.write(ctx, from, s.lease()); err != nil {
		return err
	}
	s.o.Logger.Error("entries of the blackbox are shipped again", "from", from.Seq+1, "err", why)
	s.record(ctx, fmt.Sprintf("%s; entries are shipped again from %d on", why.Error(), from.Seq+1))
	return nil
}

// read returns the entries from a number on, as many as a request may hold.
func (s *Shipper) read(ctx context.Context, from blackbox.Seq) (batch []blackbox.Row, err error) {
	size := 0
	for row, err := range s.o.Log.Rows(ctx, from) {
		if err != nil {
			return nil, err
		}
		batch = append(batch, row)
		size += len(row.Encoded)
		for _, p := range row.Payloads {
			size += len(p.Stored)
		}
		if len(batch) == s.o.Batch || size >= batchBytes {
			break
		}
	}
	return batch, nil
}

// send sends a batch. Where the collector finds fault with it, it is sent in parts: an entry that is refused alone is left out, if the
// collector takes others. A collector that takes nothing is waited for.
func (s *Shipper) send(ctx context.Context, batch []blackbox.Row) error {
	var doubted []blackbox.Row
	var last error
	n, took := len(batch), false
	for i := 0; i < len(batch); {
		part := batch[i:min(i+n, len(batch))]
		err := s.post(ctx, part)
		no := (*refusal)(nil)
		switch {
		case err == nil:
			took, i, n = true, i+len(part), 2*n
			if err = s.leaveOut(ctx, doubted); err == nil {
				err = s.settle(ctx, batch, i)
			}
			doubted = nil
		case !errors.As(err, &no) || !no.theirs():
		case len(part) > 1:
			n, err = len(part)/2, s.turn.write(ctx, s.turn.at.at, s.lease())
		case len(doubted) < maxDoubted:
			doubted, last = append(doubted, part[0]), err
			i, err = i+1, s.turn.write(ctx, s.turn.at.at, s.lease())
		}
		if err != nil {
			return err
		}
	}
	if len(doubted) == 0 {
		return nil
	}
	if !took && s.post(ctx, nil) != nil {
		return last
	}
	if err := s.leaveOut(ctx, doubted); err != nil {
		return err
	}
	return s.settle(ctx, batch, len(batch))
}

// settle writes down that the first i entries of a batch need not be sent again, and lets go where it was the last batch.
func (s *Shipper) settle(ctx context.Context, batch []blackbox.Row, i int) error {
	lease := s.lease()
	if i == len(batch) && i < s.o.Batch {
		lease = 0
	}
	return s.turn.write(ctx, store.Receipt{Seq: batch[i-1].Seq, Hash: batch[i-1].Hash}, lease)
}

func (s *Shipper) post(ctx context.Context, rows []blackbox.Row) error {
	body, err := s.encode(rows)
	if err != nil {
		return err
	}
	answer, err := s.o.To.post(ctx, "application/x-protobuf", body)
	if err != nil || len(rows) == 0 {
		return err
	}
	rejected, why, err := partial(answer)
	if err != nil {
		return nil // it has taken them, whatever it says
	}
	why = s.said(why)
	if rejected > 0 { // OTLP: they must not be sent again
		s.skips.add(int(rejected), rows[0].Seq, rows[len(rows)-1].Seq, why)
	} else if why != "" {
		s.o.Logger.Warn("the collector warns", "says", why)
	}
	return nil
}

const maxSaid = 200

// said is what a collector says, fit to be recorded.
func (s *Shipper) said(why string) string {
	why = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, s.o.To.hide.Replace(why))
	if len(why) > maxSaid {
		why = strings.ToValidUTF8(why[:maxSaid], "") + "…"
	}
	return why
}

// leaveOut gives up entries that the collector refuses once more, now that it takes others.
func (s *Shipper) leaveOut(ctx context.Context, rows []blackbox.Row) error {
	for _, row := range rows {
		if err := s.turn.write(ctx, s.turn.at.at, s.lease()); err != nil {
			return err
		}
		err := s.post(ctx, []blackbox.Row{row})
		if no := (*refusal)(nil); errors.As(err, &no) && no.theirs() {
			s.skips.add(1, row.Seq, row.Seq, err.Error())
		} else if err != nil {
			return err
		}
	}
	return nil
}

// A tally sums what a collector did not take, so that what is recorded of it, which is shipped too, does not become a loop.
type tally struct {
	n        int
	from, to blackbox.Seq
	why      string
	told     time.Time
}

// tellEvery is how often it is recorded at most.
const tellEvery = 10 * time.Minute

func (t *tally) add(n int, from, to blackbox.Seq, why string) {
	if t.n == 0 {
		t.from, t.to = from, to
	}
	t.n += n
	t.from, t.to, t.why = min(t.from, from), max(t.to, to), why
}

func (t *tally) tell(ctx context.Context, to *trouble) {
	if t.n == 0 || !t.told.IsZero() && time.Since(t.told) < tellEvery {
		return
	}
	text := fmt.Sprintf("the collector did not take %d entries among %d to %d: %s", t.n, t.from, t.to, t.why)
	to.log.Error("entries were not shipped", "count", t.n, "from", t.from, "to", t.to, "err", t.why)
	to.record(ctx, text)
	*t = tally{told: time.Now()}
}
