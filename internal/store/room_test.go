package store

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"navra/internal/blackbox"
)

func TestLimit(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name string
		max  int64
		room Room
		why  string
		full bool
	}{
		{"enough", 160 * mib, Room{Used: 139 * mib}, "", false},
		{"low", 160 * mib, Room{Used: 141 * mib}, "low space: max_bytes is nearly used up", false},
		{"the reserve", 160 * mib, Room{Used: 151 * mib}, "low space: only the reserve of max_bytes is left, so new calls are denied", true},
		{"over it", 160 * mib, Room{Used: 200 * mib}, "low space: only the reserve of max_bytes is left, so new calls are denied", true},
		{"no limit", 0, Room{Used: 1 << 50}, "", false},
		{"a small disk", 0, Room{Free: 11 * mib, Disk: 160 * mib}, "low space: the disk is nearly used up", false},
		{"a small disk's reserve", 0, Room{Free: 9 * mib, Disk: 160 * mib}, "low space: only the reserve of the disk is left, so new calls are denied", true},
		{"of a large disk 64 MiB", 0, Room{Free: 129 * mib, Disk: 1 << 40}, "", false},
		{"a large disk's reserve", 0, Room{Free: 63 * mib, Disk: 1 << 40}, "low space: only the reserve of the disk is left, so new calls are denied", true},
		{"the disk is worse", 160 * mib, Room{Used: 141 * mib, Free: 1, Disk: 1 << 40}, "low space: only the reserve of the disk is left, so new calls are denied", true},
		{"the limit is worse", 160 * mib, Room{Used: 159 * mib, Free: 65 * mib, Disk: 1 << 40}, "low space: only the reserve of max_bytes is left, so new calls are denied", true},
	} {
		var told []string
		l := NewLimit(tt.max, func(why string, _ bool, _ Room) { told = append(told, why) })
		l.Measured(tt.room)
		if why, full := l.State(); why != tt.why || full != tt.full {
			t.Errorf("%s: State = %q, %v, want %q, %v", tt.name, why, full, tt.why, tt.full)
		}
		l.Measured(Room{Free: 1 << 40, Disk: 1 << 40})
		if want := 2; tt.why != "" && (len(told) != want || told[0] != tt.why || told[1] != "") || tt.why == "" && len(told) > 0 {
			t.Errorf("%s: told %q", tt.name, told)
		}
	}
}

// A taker is a store that takes every commit.
type taker struct {
	Store
	n   int
	err error
}

func (s *taker) Commit(context.Context, Commit) (Receipt, error) {
	s.n++
	return Receipt{}, s.err
}

// TestLimitCountsBetweenMeasurements: what is written in between counts, and what is owed passes nevertheless.
func TestLimitCountsBetweenMeasurements(t *testing.T) {
	const most = 16 << 20
	s := &taker{}
	l := Limited{s, NewLimit(most, func(string, bool, Room) {})}
	l.Limit.Measured(Room{Used: 10 << 20})
	c := Commit{Entry: blackbox.Entry{Payloads: []blackbox.Payload{{Stored: make([]byte, 4096)}}}}
	err := error(nil)
	due := 0
	for s.n < 5000 && err == nil {
		_, err = l.Commit(t.Context(), c)
		select {
		case <-l.Limit.Due():
			due = cmp.Or(due, s.n)
		default:
		}
	}
	if !errors.Is(err, ErrFull) || s.n < 350 || s.n > 640 { // each takes up 4 KiB and more, twice
		t.Errorf("%v after %d commits, want it full after 5 MiB", err, s.n)
	}
	if due < 90 || due > 192 {
		t.Errorf("it is to be measured again after %d commits, want after a quarter of 6 MiB", due)
	}
	c.Reserve = true
	if _, err := l.Commit(t.Context(), c); err != nil {
		t.Errorf("what is owed: %v", err)
	}
	s.err = errors.New("no")
	if _, err := l.Commit(t.Context(), c); err == nil || l.Limit.Failed() == nil {
		t.Error("a commit that failed counts against the store")
	}
	s.err = nil
	if _, err := l.Commit(t.Context(), c); err != nil || l.Limit.Failed() != nil {
		t.Errorf("one that did not ends that: %v, %v", err, l.Limit.Failed())
	}
}

// TestWhoWaitsBehindASlowFailureFailsWithIt: in one group's time, however many wait.
func TestWhoWaitsBehindASlowFailureFailsWithIt(t *testing.T) {
	began, go1 := make(chan struct{}), make(chan struct{})
	groups := 0
	c := NewCommitter(func([]Commit) ([]Result, error) {
		if groups++; groups == 1 {
			close(began)
			<-go1
			time.Sleep(slow)
		}
		return nil, errors.New("the server is silent")
	})
	defer c.Close()
	var all sync.WaitGroup
	commit := func() {
		if _, err := c.Commit(t.Context(), Commit{}); err == nil || !strings.Contains(err.Error(), "silent") {
			t.Errorf("Commit: %v", err)
		}
	}
	all.Go(commit)
	<-began
	for range MaxGroup {
		all.Go(commit)
	}
	for c.Waiting() < MaxGroup {
		time.Sleep(time.Millisecond)
	}
	close(go1)
	all.Wait()
	if groups != 1 {
		t.Errorf("%d groups were tried, want the one that failed", groups)
	}
}
