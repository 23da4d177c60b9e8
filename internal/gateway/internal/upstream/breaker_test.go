package upstream

import (
	"errors"
	"testing"
	"time"

	"navra/internal/chokepoint"
)

func TestBreaker(t *testing.T) {
	var b breaker
	now := time.Now()
	for i := range tripAfter {
		if err := b.enter(now); err != nil {
			t.Fatalf("call %d does not go on: %v", i, err)
		}
		b.note(true, now)
	}
	if err := b.enter(now); !errors.Is(err, chokepoint.ErrUnavailable) {
		t.Errorf("after %d failures: %v, want unavailable", tripAfter, err)
	}
	now = now.Add(tripFor)
	if err := b.enter(now); err != nil {
		t.Errorf("the trial does not go on: %v", err)
	}
	if err := b.enter(now); err == nil {
		t.Error("a second call goes on beside the trial")
	}
	b.note(true, now)
	if err := b.enter(now.Add(tripFor)); err == nil {
		t.Error("after a failed trial the while is no longer than before")
	}
	now = now.Add(2 * tripFor)
	if err := b.enter(now); err != nil {
		t.Fatal(err)
	}
	b.note(false, now)
	if err := b.enter(now); err != nil {
		t.Errorf("after an answer: %v", err)
	}
}
