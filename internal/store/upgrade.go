package store

import (
	"fmt"
	"time"

	"navra/internal/blackbox"
)

// Upgraded is the entry behind head by which the chain says itself that a newer navra has changed the tables.
func Upgraded(head Receipt, from, to int, now time.Time) (Written, error) {
	return chained(head, blackbox.Entry{
		Kind: blackbox.Event, Ref: blackbox.NewRef(), Principal: "navra", Verdict: "allow", Stage: "message",
		Reason: fmt.Sprintf("schema: upgraded from version %d to %d; no entry before this one was changed", from, to),
	}, now)
}
