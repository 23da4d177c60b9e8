package sqlite

import (
	"context"
	"fmt"
	"testing"
)

// LimitPages bounds the file, as a full disk would.
func (db *DB) LimitPages(t *testing.T, n int) {
	t.Helper()
	if _, err := db.write.ExecContext(context.Background(), fmt.Sprintf("PRAGMA max_page_count = %d", n)); err != nil {
		t.Fatal(err)
	}
}

// Queued is how often somebody had to wait for the connection that writes, and how many wait for their turn to.
func (db *DB) Queued() int64 { return db.write.Stats().WaitCount + db.writing.waiting.Load() }
