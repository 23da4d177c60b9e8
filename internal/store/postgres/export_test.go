package postgres

import (
	"context"
	"slices"
)

// HeadLock is the key of the lock that appending holds.
func (db *DB) HeadLock() int64 { return db.head() }

// Queued counts the commits that no group has taken; Writing reports whether a group is being written.
func (db *DB) Queued() int   { return db.group.Waiting() }
func (db *DB) Writing() bool { return db.commits.Stat().AcquiredConns() > 0 }

// Stopping reports whether Close was called.
func (db *DB) Stopping() bool { return db.group.Closing() }

// OpenNext opens a database as a navra does whose schema has these steps more.
func OpenNext(ctx context.Context, url string, o Options, more ...string) (*DB, error) {
	return open(ctx, url, o, slices.Concat(steps, more))
}
