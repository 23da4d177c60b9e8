// Package blackbox is the tamper-evident log: the entry, its canonical encoding, the chain of hashes, and verification.
// It does not know where entries are stored, nor what the strings in them mean.
package blackbox

import "time"

// A Seq numbers the entries of a chain, from 1, without a gap.
type Seq uint64

// A Kind says what an entry records.
type Kind string

// The kinds of entries.
const (
	Request      Kind = "request"       // a client's request: permit, ask or denial
	Answer       Kind = "answer"        // what became of it
	ClientAnswer Kind = "client-answer" // a client's answer to what an upstream asked
	Notification Kind = "notification"  // one that was dropped, swallowed, or raised a label
	Own          Kind = "own"           // navra's own message to an upstream
	OwnAnswer    Kind = "own-answer"    // what the upstream answered to it
	FromUpstream Kind = "from-upstream" // a request or notification that an upstream started
	Event        Kind = "event"         // start, stop, and other things that matter
)

// A Payload is the arguments or the result of a message, as far as it is kept. Stored is at most 4 KiB, redacted, valid
// UTF-8. It enters the hash only by its commitments; Stored and the salts may be removed later without breaking the chain.
type Payload struct {
	Name        string // "arguments" or "result"
	Stored      []byte
	StoredSalt  []byte   // 16 bytes
	WholeSalt   []byte   // 16 bytes
	Length      int64    // bytes of the whole
	StoredProof [32]byte // SHA-256(StoredSalt ‖ Stored)
	WholeProof  [32]byte // SHA-256(WholeSalt ‖ whole)
}

// A Count is how often something was seen: findings by kind, notifications by method, microseconds by stage.
type Count struct {
	Name string
	N    int64
}

// An Entry is one record. The zero values of its fields mean "does not apply".
type Entry struct {
	Seq       Seq
	Time      time.Time // UTC, microseconds
	Kind      Kind
	Ref       string // 80 random bits, what a denied client is told
	Cause     Seq    // an answer's request; an upstream's message's request
	Principal string
	Actor     string // who acts for the principal, where a credential says so
	Auth      string // how it was authenticated
	Role      string // that permitted
	Session   string // digest of the session's id, or the connection
	Scope     string
	Transport string
	Era       string // stateful or stateless
	Version   string // the MCP revision towards the client, or the upstream for own messages
	Upstream  string
	Method    string // RPC method
	Target    string // canonical tool or prompt name, URI
	RequestID string // the client's, as JSON
	Trace     string // W3C trace id
	Verdict   string // allow, ask, deny
	Stage     string // what decided: name, resolve, filter, content, flow, record
	Reason    string
	Outcome   string // not-sent, ran, unknown
	Findings  []Count
	Notes     []Count // notifications that crossed with this call
	Before    string  // label of the scope
	After     string
	Policy    string  // digest, hex
	Approval  string  // the reference of the approval that let it pass
	Durations []Count // microseconds per stage
	Payloads  []Payload
	Prev      [32]byte
}

// A Checkpoint fixes the log at a size: whoever has one can show whether the log was changed below it.
type Checkpoint struct {
	Size     Seq        // entries that it covers
	Note     []byte     // a signed note, C2SP tlog-checkpoint
	Frontier [][32]byte // the compact range of the tree at that size, from which the next root is computed
}
