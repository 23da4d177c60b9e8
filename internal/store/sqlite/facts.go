package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"iter"
	"sync"

	"modernc.org/sqlite"

	"navra/internal/blackbox"
)

// Facts implements store.Log. Facts are found out within SQLite, by a function that is called with each row: the row is not copied out of its memory,
// which to verify large payloads costs half of all.
func (db *DB) Facts(ctx context.Context, from blackbox.Seq) iter.Seq2[blackbox.Fact, error] {
	return pages(from, blackbox.Fact.Number, func(s span) pageOf[blackbox.Fact] { return db.facts(ctx, s) })
}

func (db *DB) facts(ctx context.Context, s span) pageOf[blackbox.Fact] {
	f := new(finder)
	n := finders.add(f)
	defer finders.remove(n)
	var to [2]driver.Value
	return readPage(ctx, db, fmt.Sprintf("seq, navra_facts(%d, seq, bodies, hashes, payloads)", n), s, to[:], func(p *pageOf[blackbox.Fact], _ int64) {
		row, _ := to[1].(int64)
		p.list = append(p.list, f.of(row)...)
	})
}

// A finder finds the facts of the rows of a page. SQLite may call it with rows in another order than it then returns them in.
type finder struct {
	check    blackbox.Checker
	facts    []blackbox.Fact
	ends     []int // in facts, of each row
	entries  []blackbox.Row
	payloads []blackbox.Payload
}

// row finds the facts of a row, and returns how many rows there were before. Nothing of the row is kept: its memory is SQLite's.
func (f *finder) row(s stored) (int64, error) {
	if len(f.facts) > maxFacts {
		return 0, errKey
	}
	if f.payloads == nil {
		f.payloads = make([]blackbox.Payload, 2*maxRow)
	}
	f.entries = s.entries(f.entries[:0], f.payloads[:0])
	for _, e := range f.entries {
		f.facts = append(f.facts, f.check.Fact(e))
	}
	clear(f.entries)
	clear(f.payloads)
	f.ends = append(f.ends, len(f.facts))
	return int64(len(f.ends) - 1), nil
}

// maxFacts is how many facts of a page there may be: SQLite finds those of one row more than are taken, unless it has to sort the table first.
const maxFacts = 1 << 20

var errKey = errors.New("the table of entries has no key, and is too large to be verified without: somebody made it anew")

// of returns the facts of the row before which there were n.
func (f *finder) of(n int64) []blackbox.Fact {
	if n == 0 {
		return f.facts[:f.ends[0]]
	}
	return f.facts[f.ends[n-1]:f.ends[n]]
}

// finders are those of all pages that are being read, by number: the function is one for all connections.
var finders = registry{list: map[int64]*finder{}}

type registry struct {
	mu   sync.Mutex
	last int64
	list map[int64]*finder
}

func (r *registry) add(f *finder) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	r.list[r.last] = f
	return r.last
}

func (r *registry) remove(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.list, n)
}

func (r *registry) get(n driver.Value) *finder {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, _ := n.(int64)
	return r.list[i]
}

var errFinder = errors.New("navra_facts is for navra alone")

// register makes the function known to connections that are opened from then on.
var register = sync.OnceValue(func() error {
	sqlite.RegisterConnectionHook(guard)
	return sqlite.RegisterFunction("navra_facts", &sqlite.FunctionImpl{NArgs: 5, VolatileArgs: true, Scalar: func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		f := finders.get(args[0])
		if f == nil {
			return nil, errFinder
		}
		seq, ok := args[1].(int64)
		if !ok {
			return nil, errNoNumber
		}
		return f.row(stored{seq: seq, bodies: raw(args[2]), hashes: raw(args[3]), payloads: raw(args[4])})
	}})
})
