// Package scope is what taint is gathered over: everything that may share one model's context. It holds the values a
// scope is made of and how its secrets are sealed; where they are kept is the store's business.
package scope

import (
	"time"

	"navra/internal/ifc"
)

// IdleLimit is how long a scope without a conversation's name lives after its last call, and how long a new host process
// in the same folder inherits from it.
const IdleLimit = 12 * time.Hour

// An ID names a scope. It is derived by the chokepoint, never taken from a client.
type ID string

// A Version counts the raises of a scope's label.
type Version uint64

// A Scope is one reading of a scope.
type Scope struct {
	ID      ID
	Version Version
	Label   ifc.Label
}

// An Opening says which scope a message belongs to and how it comes to be.
type Opening struct {
	ID ID
	// Lineage, where not empty, names the user and folder whose earlier scopes a new one inherits from within IdleLimit.
	Lineage string
	// Lasting scopes are named by a conversation and do not end by idling.
	Lasting bool
}

// An Object is where a secret was read: the upstream and the canonical path or URI.
type Object struct {
	Upstream string `json:"upstream"`
	Path     string `json:"path"`
}

// A Placeholder stands for a secret that a client is not shown. The value is sealed in Box; Tag finds it again without
// opening. One value has one number per kind in one scope.
type Placeholder struct {
	Kind      string
	N         int
	Principal string
	Tag       [32]byte // keyed hash of the value
	Box       []byte   // sealed value
	Objects   []Object // where it was read, alone
}
