package blackbox

import (
	"iter"
	"runtime"
	"sync"
)

// batchRows is how many rows are looked at in one go.
const batchRows = 64

// A batch is some rows that follow one another, with what each says by itself. With err the rows end.
type batch struct {
	rows  []Row
	facts []Fact
	err   error
	done  chan struct{} // closed when facts are there
}

func (b *batch) check() {
	defer close(b.done)
	var c Checker
	b.facts = make([]Fact, len(b.rows))
	for i, row := range b.rows {
		b.facts[i] = c.Fact(row)
	}
}

// Facts yields what is to be said of rows, which is found out on all processors. rows is run on another goroutine, which has ended when the sequence has.
func Facts(rows iter.Seq2[Row, error]) iter.Seq2[Fact, error] {
	return func(yield func(Fact, error) bool) {
		for b := range checked(rows) {
			for _, f := range b.facts {
				if !yield(f, nil) {
					return
				}
			}
			if b.err != nil {
				yield(Fact{}, b.err)
				return
			}
		}
	}
}

// checked yields rows in batches, in order, while others are looked at on all processors.
func checked(rows iter.Seq2[Row, error]) iter.Seq[*batch] {
	return func(yield func(*batch) bool) {
		n := runtime.GOMAXPROCS(0)
		work, order, stop := make(chan *batch), make(chan *batch, 2*n), make(chan struct{})
		var all sync.WaitGroup
		defer all.Wait()
		defer close(stop)
		for range n {
			all.Go(func() {
				for b := range work {
					b.check()
				}
			})
		}
		all.Go(func() {
			defer close(work)
			defer close(order)
			for b := range batches(rows) {
				for _, to := range []chan *batch{order, work} {
					select {
					case to <- b:
					case <-stop:
						return
					}
				}
			}
		})
		for b := range order {
			if <-b.done; !yield(b) {
				return
			}
		}
	}
}

// batches gathers rows.
func batches(rows iter.Seq2[Row, error]) iter.Seq[*batch] {
	return func(yield func(*batch) bool) {
		next := func() *batch { return &batch{rows: make([]Row, 0, batchRows), done: make(chan struct{})} }
		b := next()
		for row, err := range rows {
			if err != nil {
				b.err = err
				break
			}
			if b.rows = append(b.rows, row); len(b.rows) < batchRows {
				continue
			}
			if !yield(b) {
				return
			}
			b = next()
		}
		if len(b.rows) > 0 || b.err != nil {
			yield(b)
		}
	}
}
