// Package store says what one commit to the database holds: the entry, the scope version the verdict was judged on, and
// the label it raises. The databases themselves are the packages below it; storetest is the suite that each passes.
package store

import (
	"context"
	"errors"
	"iter"
	"time"

	"navra/internal/auth"
	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/scope"
)

// ErrStale reports a commit whose scope has moved on since it was read: judge again. ErrNotFound reports what is not there.
var (
	ErrStale    = errors.New("scope moved on")
	ErrNotFound = errors.New("not found")
)

// A Commit is written whole or not at all.
type Commit struct {
	Entry blackbox.Entry // Seq and Prev are filled in by the store

	// Scope, where not empty, must still be at version IfScope, else ErrStale. Its last use is set to the entry's time.
	Scope   scope.ID
	IfScope scope.Version
	Raise   ifc.Label // joined into the scope's label; the version grows if that changes it. ifc.Bottom() raises nothing

	// IfGeneration, where not 0, must still be the generation of what operators have said, else ErrChanged.
	IfGeneration Generation

	Reserve bool // it may use the room that is kept back: what belongs to a call that was let through, or to this process

	// Judge, where not nil, takes the place of Entry, IfScope and Raise: it is called inside the transaction with the scope as it stands then,
	// and with the controls, where these are others than those of IfGeneration.
	Judge func(scope.Scope, *Controls) (blackbox.Entry, ifc.Label)
}

// A Receipt is what a commit came to.
type Receipt struct {
	Seq  blackbox.Seq
	Hash [32]byte
}

// A Store is a database of entries and state. Its methods may be called concurrently, and by several processes at once.
type Store interface {
	Commit(context.Context, Commit) (Receipt, error)

	// Scope opens a scope, making it if it is not there or has ended: see scope.Opening.
	Scope(context.Context, scope.Opening) (scope.Scope, error)

	// Placeholders returns those of a scope. AddPlaceholders merges ps into a scope's: a value (by Tag) that is there keeps
	// its number and gains the objects; others get the next number of their kind. It returns ps with numbers and merged objects, in order.
	Placeholders(context.Context, scope.ID) ([]scope.Placeholder, error)
	AddPlaceholders(context.Context, scope.ID, []scope.Placeholder) ([]scope.Placeholder, error)

	// Kept returns what Keep stored under the key, or ErrNotFound.
	Kept(ctx context.Context, key string) ([]byte, error)
	Keep(ctx context.Context, key string, value []byte) error
	// Swap stores value under the key if what is there is old, nil meaning nothing, and reports whether it did.
	Swap(ctx context.Context, key string, old, value []byte) (bool, error)

	// EndSession marks a session's nonce as ended until it would have expired; SessionEnded asks.
	EndSession(ctx context.Context, nonce string, expires time.Time) error
	SessionEnded(ctx context.Context, nonce string) (bool, error)

	AddToken(context.Context, auth.Token) error
	TokenByHash(context.Context, [32]byte) (auth.Token, error) // or ErrNotFound
	Tokens(context.Context) ([]auth.Token, error)

	// Controls returns what operators have said to all processes. Control adds to it: when it returns, no commit that was judged before
	// is written any more.
	Controls(context.Context) (Controls, error)
	Control(context.Context, Change) (Receipt, error)
}

// A Stray is a payload of no entry.
type Stray struct {
	Seq  int64 // that it names; 0 for none
	Name string
}

// A Log is read by those who verify, prove and show what was committed, while others commit. Its methods may be called concurrently.
type Log interface {
	// Rows yields the entries from a number on, in order, with what their payloads hold. It holds no lock and no transaction for
	// long: entries that are committed meanwhile are yielded too. An error ends the sequence. From 0 on are also rows with a number below the
	// first, negative ones as int64 has them, which nobody but an intruder has written: for who verifies.
	Rows(ctx context.Context, from blackbox.Seq) iter.Seq2[blackbox.Row, error]
	// Facts yields what is to be said of the rows that Rows yields, for who verifies: to find that out a store need not copy them.
	Facts(ctx context.Context, from blackbox.Seq) iter.Seq2[blackbox.Fact, error]
	// Leaves yields the hashes of the entries from a number on, in order, as Rows does.
	Leaves(ctx context.Context, from blackbox.Seq) iter.Seq2[[32]byte, error]
	// Head returns the newest entry's number and hash; zero where there is none.
	Head(ctx context.Context) (Receipt, error)

	// Checkpoints returns all, smallest first. AddCheckpoint adds one; that of a size that has one is dropped without an error.
	Checkpoints(ctx context.Context) ([]blackbox.Checkpoint, error)
	AddCheckpoint(ctx context.Context, c blackbox.Checkpoint) error

	// Strays returns payloads that name an entry which is not there: limit at most, the smallest number first. Nobody but an intruder makes some.
	Strays(ctx context.Context, limit int) ([]Stray, error)

	// Room tells how much room there is.
	Room(ctx context.Context) (Room, error)
	// Turn takes the turn of a name, and reports whether it did: nobody, in any process, has taken it for that long.
	Turn(ctx context.Context, name string, every time.Duration) (bool, error)
	// DropPayloads removes payloads and their salts of entries below a number, of limit entries at most, oldest first, and reports of how many.
	DropPayloads(ctx context.Context, below blackbox.Seq, limit int) (int, error)
}
