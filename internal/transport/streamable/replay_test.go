package streamable

import (
	"fmt"
	"testing"
	"time"

	"navra/internal/jsonrpc"
)

var text [1 << 20]byte

// fill opens a stream and puts n answers of size bytes, eventCost included, into it.
func fill(b *book, of place, n, size int) *stream {
	s := b.open(of, jsonrpc.IntID(1), true, nil)
	if s == nil {
		return nil
	}
	for range n {
		b.put(s, event{text: text[:size-eventCost], answer: true})
	}
	b.finish(s)
	return s
}

// held checks that what the book counts is what it holds, within the bounds, and returns it.
func held(t *testing.T, b *book) (all bound) {
	t.Helper()
	sum := map[place]bound{}
	for _, s := range b.streams {
		bytes := 0
		for _, e := range s.events {
			bytes += len(e.text) + eventCost
		}
		if bytes != s.bytes || bytes > maxStreamBytes || len(s.events) > maxStreamEvents {
			t.Errorf("a stream holds %d bytes in %d events and counts %d", bytes, len(s.events), s.bytes)
		}
		for _, p := range s.of.places() {
			sum[p] = bound{sum[p].streams + 1, sum[p].bytes + bytes}
		}
	}
	for p, u := range sum {
		level := 0
		if p.who != "" {
			level++
		}
		if p.session != "" {
			level++
		}
		if b.used[p] == nil || *b.used[p] != u || u.bytes > bounds[level].bytes || u.streams > bounds[level].streams {
			t.Errorf("%v: %+v is used, %v is counted, the bound is %+v", p, u, b.used[p], bounds[level])
		}
	}
	if len(b.used) != len(sum) {
		t.Errorf("%d places are counted, %d used", len(b.used), len(sum))
	}
	return sum[place{}]
}

// TestBounds writes more than each bound lets in.
func TestBounds(t *testing.T) {
	for _, tt := range []struct {
		name           string
		whos, sessions int // per principal
		streams, size  int // of each session
		want           bound
	}{
		{"bytes of a session", 1, 1, 32, 1 << 20, bound{8, 8 << 20}},
		{"streams of a session", 1, 1, 256, 1 << 10, bound{64, 64 << 10}},
		{"bytes of a principal", 1, 8, 8, 1 << 20, bound{16, 16 << 20}},
		{"streams of a principal", 1, 5, 64, 1 << 10, bound{256, 256 << 10}},
		{"bytes of all", 16, 2, 8, 1 << 20, bound{64, 64 << 20}},
		{"streams of all", 9, 4, 64, 1 << 10, bound{2048, 2 << 20}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBook()
			for w := range tt.whos {
				for s := range tt.sessions {
					for range tt.streams {
						if fill(b, place{fmt.Sprint(w), fmt.Sprint(w, s)}, 1, tt.size) == nil {
							t.Fatal("no room for one more, though all others wait")
						}
					}
				}
			}
			if got := held(t, b); got != tt.want {
				t.Errorf("held %+v, want %+v", got, tt.want)
			}
			for w := range tt.whos {
				for s := range tt.sessions {
					b.close(place{fmt.Sprint(w), fmt.Sprint(w, s)})
				}
			}
			if got := held(t, b); got != (bound{}) {
				t.Errorf("after the sessions ended: %+v", got)
			}
		})
	}
}

// TestFloodSparesOthers: what one session writes takes nothing from a session of another principal, and nothing that is read now.
func TestFloodSparesOthers(t *testing.T) {
	b := newBook()
	other := fill(b, place{"bob", "1"}, 1, 1<<20)
	read := b.open(place{"ann", "1"}, jsonrpc.IntID(1), true, nil)
	r := b.attach(read, 0, func() {})
	done := make(chan struct{})
	go func() {
		b.put(read, event{text: []byte("x")})
		close(done)
	}()
	<-r.news
	b.wrote(read, r, 1)
	<-done
	for range 200 {
		fill(b, place{"ann", "1"}, 3, 1<<20)
	}
	held(t, b)
	if !other.kept || len(other.events) != 1 || !read.kept {
		t.Error("a flood of one session took what is another's")
	}
}

// TestPlacesAreFull: where all streams are read there is no room for one more.
func TestPlacesAreFull(t *testing.T) {
	b := newBook()
	of := place{"ann", "1"}
	for range bounds[2].streams {
		b.attach(b.open(of, jsonrpc.ID{}, true, nil), 0, func() {})
	}
	if b.open(of, jsonrpc.ID{}, true, nil) != nil {
		t.Error("a stream over the bound was opened")
	}
	if b.open(place{"ann", "2"}, jsonrpc.ID{}, true, nil) == nil {
		t.Error("another session has no room")
	}
	held(t, b)
}

// TestWhoGoesFirst: the one that has its answer, then the one that waits longest.
func TestWhoGoesFirst(t *testing.T) {
	b := newBook()
	of := place{"ann", "1"}
	open := b.open(of, jsonrpc.ID{}, true, nil)
	old, young := fill(b, of, 1, 1000), fill(b, of, 1, 1000)
	young.since = old.since.Add(time.Second)
	for i, want := range []*stream{old, young, open} {
		b.evict(of, nil)
		if want.kept {
			t.Errorf("the %dth to go is another", i+1)
		}
	}
	if b.evict(of, nil) {
		t.Error("more went than there was")
	}
}
