package blackbox

import "bytes"

// What the reason of an event begins with that records that the log was found to be changed. The log goes on from what was found, and its chain is whole
// again after that: the event is what is left to see of it.
const (
	ChangedLive  = "the log was changed while navra ran: "
	ChangedSince = "the heads file disagreed: " // found at a start
)

// maxAlarms is how many of them a Report names.
const maxAlarms = 20

// Both as they stand in an encoded entry. A text cannot hold them: its quotes are escaped.
var (
	anEvent = []byte(`,"kind":"` + Event + `",`)
	changes = [][]byte{[]byte(`,"reason":"` + ChangedLive), []byte(`,"reason":"` + ChangedSince)}
)

// kindEnds is behind the kind in each encoded entry: seq and time come before it.
const kindEnds = 100

// alarm reports whether an entry that can be read is such an event.
func alarm(encoded []byte) bool {
	return bytes.Contains(encoded[:min(len(encoded), kindEnds)], anEvent) && (bytes.Contains(encoded, changes[0]) || bytes.Contains(encoded, changes[1]))
}
