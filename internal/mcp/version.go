package mcp

import "slices"

// A Version is a dated revision of the protocol. The zero Version is unknown.
type Version string

// The revisions that navra knows of. Up to 2025-11-25 is the stateful era (initialize, sessions); from 2026-07-28 on the
// stateless one (every request says its version, server/discover).
const (
	V20241105 Version = "2024-11-05"
	V20250326 Version = "2025-03-26"
	V20250618 Version = "2025-06-18"
	V20251125 Version = "2025-11-25"
	V20260728 Version = "2026-07-28"
)

var (
	// spoken to clients, newest first.
	stateless = []Version{V20260728}
	stateful  = []Version{V20251125, V20250618, V20250326}
	// known as revisions of the stateful era; upstreams may speak any of them.
	statefulKnown = []Version{V20251125, V20250618, V20250326, V20241105}
)

// Latest is the revision that a stateful client is answered with where it asks for one that navra does not speak.
const Latest = V20251125

// Supported returns the revisions that navra speaks to clients, newest first.
func Supported() []Version { return slices.Concat(stateless, stateful) }

// Stateless reports whether v is a revision of the stateless era that navra speaks.
func (v Version) Stateless() bool { return slices.Contains(stateless, v) }

// Stateful reports whether v is a known revision of the stateful era.
func (v Version) Stateful() bool { return slices.Contains(statefulKnown, v) }

// Batches reports whether messages of v may come as an array. MCP 2025-03-26 alone has that, basic/index §Batching.
func (v Version) Batches() bool { return v == V20250326 }

// Primes reports whether a client of v knows events without data, and comes back where its stream ends before the answer. MCP 2025-11-25,
// basic/transports §Sending Messages to the Server.
func (v Version) Primes() bool { return v == V20251125 }

// Negotiate answers a stateful client that asks for a version: that one where navra speaks it, else [Latest].
// MCP 2025-11-25, basic/lifecycle §Version Negotiation.
func Negotiate(asked string) Version {
	if v := Version(asked); slices.Contains(stateful, v) {
		return v
	}
	return Latest
}
