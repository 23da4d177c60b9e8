package sqlite

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// TestTurnsAreInOrder has hundreds wait behind those who read: who came first is served first, and who gives up is in nobody's way.
func TestTurnsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 300
		at := newTurns(2)
		for range 2 {
			if err := at.take(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var order, want []int
		for i := range many {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			go func() {
				switch err := at.take(ctx); {
				case err == nil:
					order = append(order, i)
				case i%10 != 3 || !errors.Is(err, context.Canceled):
					t.Errorf("%d: %v", i, err)
				}
			}()
			synctest.Wait()
			if i%10 == 3 {
				leave()
				synctest.Wait()
				continue
			}
			want = append(want, i)
		}
		for range want {
			at.give()
			synctest.Wait()
		}
		if !slices.Equal(order, want) {
			t.Errorf("served %v", order)
		}
	})
}
