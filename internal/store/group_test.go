package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"navra/internal/blackbox"
)

// TestEachCallerHearsOfItsOwnCommit: whoever ends while it waits has written nothing, or hears that it did; nobody hears of another's.
func TestEachCallerHearsOfItsOwnCommit(t *testing.T) {
	var mu sync.Mutex
	written := map[int64]int{}
	c := NewCommitter(func(commits []Commit) ([]Result, error) {
		mu.Lock()
		defer mu.Unlock()
		results := make([]Result, len(commits))
		for i, commit := range commits {
			n := commit.Entry.Durations[0].N
			written[n]++
			results[i].Receipt.Seq = blackbox.Seq(n)
			if n%7 == 0 {
				results[i] = Result{Err: ErrStale}
			}
		}
		return results, nil
	})
	var all sync.WaitGroup
	var said sync.Map
	var given atomic.Int64
	for range 40 {
		all.Go(func() {
			for range 200 {
				n := given.Add(1)
				ctx, cancel := context.WithCancel(t.Context())
				if rand.IntN(4) == 0 {
					go cancel()
				}
				r, err := c.Commit(ctx, Commit{Entry: blackbox.Entry{Durations: []blackbox.Count{{N: n}}}})
				cancel()
				switch {
				case errors.Is(err, context.Canceled):
					continue
				case n%7 == 0 && !errors.Is(err, ErrStale), n%7 != 0 && (err != nil || r.Seq != blackbox.Seq(n)):
					t.Errorf("commit %d came to %+v, %v", n, r, err)
				}
				said.Store(n, true)
			}
		})
	}
	all.Wait()
	c.Close()
	if _, err := c.Commit(t.Context(), Commit{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	for n, times := range written {
		if _, ok := said.Load(n); !ok || times != 1 {
			t.Errorf("commit %d was written %d times, and its caller told so: %v", n, times, ok)
		}
	}
	said.Range(func(n, _ any) bool {
		if written[n.(int64)] != 1 {
			t.Errorf("commit %d was said to be written and was not", n)
		}
		return true
	})
}

// TestAGroupWaitsForItsCallers: those who were answered together share the next group too; a caller that comes alone does not wait for them.
func TestAGroupWaitsForItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		c := NewCommitter(func(commits []Commit) ([]Result, error) {
			sizes = append(sizes, len(commits))
			time.Sleep(time.Millisecond)
			return make([]Result, len(commits)), nil
		})
		defer c.Close()
		commit := func() {
			if _, err := c.Commit(t.Context(), Commit{}); err != nil {
				t.Error(err)
			}
		}
		var all sync.WaitGroup
		for caller := range 16 {
			all.Go(func() {
				for range 10 {
					time.Sleep(time.Duration(caller) * lull / 20) // none comes at the same moment
					commit()
				}
			})
		}
		all.Wait()
		if n := len(sizes); n > 24 {
			t.Errorf("160 commits took %d groups: %v", n, sizes)
		}
		var slowest time.Duration
		for range 100 {
			began := time.Now()
			commit()
			slowest = max(slowest, time.Since(began))
			time.Sleep(time.Second)
		}
		if slowest > time.Millisecond+lull {
			t.Errorf("a caller alone waited %s", slowest)
		}
	})
}

// TestNobodyWaitsForWhoHasPaused: callers that were answered together and then do something else are not waited for, and those that come late are
// waited for less and less.
func TestNobodyWaitsForWhoHasPaused(t *testing.T) {
	limits := map[string]int{"all": 0, "all but one": 20}
	for name, pause := range map[string]time.Duration{"all": 2 * lull, "all but one": lull / 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := NewCommitter(func(commits []Commit) ([]Result, error) {
					time.Sleep(time.Millisecond)
					return make([]Result, len(commits)), nil
				})
				defer c.Close()
				commit := func() (took time.Duration) {
					began := time.Now()
					if _, err := c.Commit(t.Context(), Commit{}); err != nil {
						t.Error(err)
					}
					return time.Since(began)
				}
				waited := 0
				for range 400 {
					var all sync.WaitGroup
					for range 8 {
						all.Go(func() { commit() })
					}
					all.Wait()
					time.Sleep(pause)
					if commit() > time.Millisecond {
						waited++
					}
					time.Sleep(time.Second)
				}
				if most := limits[name]; waited > most {
					t.Errorf("%d of 400 commits waited for others that did not come, want at most %d", waited, most)
				}
			})
		})
	}
}

// TestCloseWaitsForWhoIsAlone: a caller that writes by itself is not cut off, those that come meanwhile share a group or are refused, and nothing is written
// after Close.
func TestCloseWaitsForWhoIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		c := NewCommitter(func(commits []Commit) ([]Result, error) {
			time.Sleep(time.Second)
			sizes = append(sizes, len(commits))
			return make([]Result, len(commits)), nil
		})
		var all sync.WaitGroup
		commit := func(want error) {
			all.Go(func() {
				if _, err := c.Commit(t.Context(), Commit{}); !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			})
			synctest.Wait()
		}
		commit(nil)
		commit(nil)
		commit(nil)
		all.Wait()
		if !slices.Equal(sizes, []int{1, 2}) {
			t.Errorf("groups of %v, want one alone and two together", sizes)
		}
		began := time.Now()
		commit(nil)
		commit(ErrClosed)
		c.Close()
		if took := time.Since(began); took != time.Second || len(sizes) != 3 {
			t.Errorf("Close took %s, and %d groups are written, want a second and 3", took, len(sizes))
		}
		commit(ErrClosed)
		all.Wait()
		if len(sizes) != 3 {
			t.Errorf("groups of %v were written after Close", sizes[3:])
		}
	})
}

// TestAPanicIsTheCallersAlone: one that writes by itself and panics does not keep others from writing, nor is its commit written with theirs.
func TestAPanicIsTheCallersAlone(t *testing.T) {
	first := true
	var sizes []int
	c := NewCommitter(func(commits []Commit) ([]Result, error) {
		sizes = append(sizes, len(commits))
		if first {
			first = false
			panic("broken")
		}
		return make([]Result, len(commits)), nil
	})
	defer c.Close()
	func() {
		defer func() {
			if p := recover(); p != "broken" {
				t.Errorf("the caller's panic is %v", p)
			}
		}()
		_, _ = c.Commit(t.Context(), Commit{})
	}()
	if _, err := c.Commit(t.Context(), Commit{}); err != nil || !slices.Equal(sizes, []int{1, 1}) {
		t.Errorf("%v, groups of %v, want the second commit alone", err, sizes)
	}
}
