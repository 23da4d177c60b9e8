package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"navra/internal/blackbox"
)

// ErrChanged is ErrStale where operators have said something since the commit was judged, and not its scope has moved on.
var ErrChanged = fmt.Errorf("operators have spoken since: %w", ErrStale)

// A Generation counts what operators have said to all processes: it grows with each pause, resumption, revocation and change of a policy. The
// first is 1.
type Generation uint64

// A Pause stops a principal, an upstream, or, where neither is named, everything.
type Pause struct {
	Principal string    `json:"principal,omitempty"`
	Upstream  string    `json:"upstream,omitempty"`
	Why       string    `json:"why,omitempty"`
	By        string    `json:"by"`
	At        time.Time `json:"at"`
}

// Same reports whether p and q stop the same.
func (p Pause) Same(q Pause) bool { return p.Principal == q.Principal && p.Upstream == q.Upstream }

// Controls are what operators have said to all processes. Those that a store returns are the caller's own.
type Controls struct {
	Generation Generation        `json:"-"`
	Pauses     []Pause           `json:"pauses,omitempty"`
	Policies   map[string]string `json:"policies,omitempty"` // the newest policy's name, by the path of its file
	Revoked    map[string]bool   `json:"-"`                  // ids of tokens; Change.Revoke adds one
}

// Paused returns the pause that holds for a call of the principal to the upstream.
func (c Controls) Paused(principal, upstream string) (Pause, bool) {
	for _, p := range c.Pauses {
		if (p.Principal == "" || p.Principal == principal) && (p.Upstream == "" || p.Upstream == upstream) {
			return p, true
		}
	}
	return Pause{}, false
}

// A Change is something that operators say. It is written with its entry or not at all; every commit that was judged before is stale then.
type Change struct {
	Revoke string // a token's id, or ErrNotFound
	// Apply changes pauses and policies as they stand inside the transaction, and makes the entry. Its error ends the change.
	Apply func(*Controls) (blackbox.Entry, error)
}

// The keys under which controls are kept. The generation stands by itself: each commit reads it.
const (
	KeptGeneration = "generation"
	KeptControls   = "controls"
)

// ParseGeneration reads what is kept as the generation; nil: nothing was said yet.
func ParseGeneration(kept []byte) (Generation, error) {
	if kept == nil {
		return 1, nil
	}
	n, err := strconv.ParseUint(string(kept), 10, 64)
	if err != nil || n == 0 {
		return 0, errors.New("the generation of what operators have said is damaged")
	}
	return Generation(n), nil
}

// ParseControls reads what is kept as the generation and as the controls; nil: nothing was said yet.
func ParseControls(generation, controls []byte) (c Controls, err error) {
	if controls != nil {
		if err := json.Unmarshal(controls, &c); err != nil {
			return Controls{}, fmt.Errorf("what operators have said is damaged: %w", err)
		}
	}
	c.Revoked = map[string]bool{}
	if c.Policies == nil {
		c.Policies = map[string]string{}
	}
	c.Generation, err = ParseGeneration(generation)
	return c, err
}

// Next applies a change. It returns what is to be kept, and the entry that is to be written behind head.
func (c *Controls) Next(ch Change, head Receipt, now time.Time) (generation, controls []byte, w Written, err error) {
	e, err := ch.Apply(c)
	if err != nil {
		return nil, nil, w, err
	}
	c.Generation++
	if controls, err = json.Marshal(c); err != nil {
		return nil, nil, w, err
	}
	w, err = chained(head, e, now)
	return strconv.AppendUint(nil, uint64(c.Generation), 10), controls, w, err
}

// chained is an entry behind head.
func chained(head Receipt, e blackbox.Entry, now time.Time) (w Written, err error) {
	if full(head) {
		return w, errNumber
	}
	if e.Time.IsZero() {
		e.Time = now
	}
	e.Seq, e.Prev = head.Seq+1, head.Hash
	w = Written{Seq: e.Seq, Encoded: e.Encode()}
	w.Hash = blackbox.Hash(w.Encoded)
	return w, nil
}
