package postgres

// HeadLock is the key of the lock that appending holds.
func (db *DB) HeadLock() int64 { return db.head() }

// Queued counts the commits that no group has taken; Writing reports whether a group is being written.
func (db *DB) Queued() int   { return len(db.queue) }
func (db *DB) Writing() bool { return db.commits.Stat().AcquiredConns() > 0 }

// Stopping reports whether Close was called.
func (db *DB) Stopping() bool {
	select {
	case <-db.stop:
		return true
	default:
		return false
	}
}
