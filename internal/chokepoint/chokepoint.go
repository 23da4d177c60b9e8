// Package chokepoint is the gateway's reference monitor: every message that crosses between a client and an upstream, in
// either direction, is resolved, judged, labelled, filtered and recorded here, in one straight pipeline. What it hands out
// is the only thing an upstream accepts, and what an upstream yields only it can open. It keeps no connection and waits for no person.
package chokepoint

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"navra/internal/blackbox"
	"navra/internal/catalogue"
	"navra/internal/filter"
	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/scope"
	"navra/internal/seal"
	"navra/internal/store"
)

// ErrUncleared reports a message that this chokepoint did not clear, or that was sent or opened before.
var ErrUncleared = errors.New("message not cleared")

// Options are the parts of a Chokepoint. Policy, Filter, Store, Catalogue, Vault and Logger are required.
type Options struct {
	Policy    *policy.Policy
	Filter    *filter.Set
	Store     store.Store
	Catalogue *catalogue.Book
	Vault     seal.Sealer // seals the values behind placeholders
	Logger    *slog.Logger
	Version   string           // of navra, for handshakes
	Now       func() time.Time // nil: time.Now
	// Observe, where set, hears how long each stage took and how each crossing ended.
	Observe func(stage policy.Stage, took time.Duration, effect policy.Effect)
	// Spans, where set, is told of each finished span of a sampled trace, and may not block. Traces begin here only where it is set; a
	// client's is continued in any case.
	Spans func(Span)
	// Renew, where set, is told which policy of the policy's file is the newest: it has Use called with that, if the file holds it.
	Renew func(ctx context.Context, name string)
	// Baggage lets a client's baggage go on to upstreams. It is text that anybody on the client's side may have added to, for readers
	// that they know and navra does not: who the user is, which experiment they are in. So it stays here unless the operator says otherwise.
	Baggage bool
}

// A Chokepoint judges and records every crossing. Its methods may be called concurrently.
type Chokepoint struct {
	policy  atomic.Pointer[policy.Policy]
	said    atomic.Pointer[store.Controls] // what operators have said, as it was read last; nil before
	asOf    atomic.Int64                   // when that was read, in Unix nanoseconds
	renew   func(ctx context.Context, name string)
	filter  *filter.Set
	store   store.Store
	book    *catalogue.Book
	vault   seal.Sealer
	log     *slog.Logger
	version string
	now     func() time.Time
	observe func(policy.Stage, time.Duration, policy.Effect)
	spans   func(Span)
	baggage bool
	toll    toll
	tasks   taskTable
	kept    *keptTasks
	next    atomic.Int64 // ids and progress tokens towards upstreams, unique in this process
	states  used

	refresh sync.Mutex    // held while controls are read
	changed chan struct{} // closed when they are others; guarded by mu

	mu    sync.Mutex
	heard map[heard]map[string]int64 // notifications that upstreams started, by method; guarded by mu
	known map[string]bool            // principals whose kept catalogues were recalled; guarded by mu
}

// New returns a chokepoint. It panics if a required part is missing: a gateway without one of them is no gateway.
func New(o Options) *Chokepoint {
	if o.Policy == nil || o.Filter == nil || o.Store == nil || o.Catalogue == nil || o.Logger == nil {
		panic("chokepoint: a part is missing")
	}
	p := &Chokepoint{
		filter: o.Filter, store: o.Store, book: o.Catalogue, vault: o.Vault, log: o.Logger, version: o.Version,
		now: o.Now, observe: o.Observe, spans: o.Spans, baggage: o.Baggage, heard: map[heard]map[string]int64{}, known: map[string]bool{},
		renew: o.Renew, changed: make(chan struct{}), kept: newKeptTasks(),
	}
	if p.now == nil {
		p.now = time.Now
	}
	p.policy.Store(o.Policy)
	return p
}

// A Direction is which way a crossing goes. The zero Direction is refused.
type Direction uint8

const (
	toUpstream Direction = iota + 1
	toClient
)

// A Crossing is one message on its way across, in either direction, with all that is judged about it.
type Crossing struct {
	way   Direction
	facts policy.Facts
	open  scope.Opening // zero ID: nothing is gathered over this message
	scope scope.Scope
	entry blackbox.Entry
	said  *store.Controls // by operators, as it is judged on; nil: it is held against none
	// policy is the one that it is judged by; prepared is the one that it was prepared for.
	policy, prepared *policy.Policy

	pre *policy.Verdict // decided before the pipeline: no message, unknown method
	// anew, where not nil, judges by name what goes to a client that asked for nothing: no request of its was judged, so the policy of the moment counts.
	anew func(*policy.Policy) policy.Verdict
	// wrong, where not nil, is a denial that counts only for who may know of what the request is about.
	wrong *policy.Verdict
	// since, where not nil, is the policy that answers which came with the request were judged by: it does not go on by another. unjudged says that
	// they were not, since the request itself was forbidden then.
	since    *policy.Policy
	unjudged bool
	role     string    // that permitted the request, for the way back
	label    ifc.Label // of what comes back
	came     ifc.Label // the same, before it was looked through

	says  func(*policy.Policy) jsonrpc.Raw // makes body of what a policy lets its client see; nil: it depends on none
	shown *policy.Policy                   // that body was made by

	body     jsonrpc.Raw     // what was received, re-encoded: params, result or error
	final    jsonrpc.Raw     // what goes on
	paths    func() []string // canonical paths that the request named; on the way back
	found    []secret
	clean    bool                // the filter found nothing in body
	seal     *blackbox.Payload   // of body, for the entry
	table    []scope.Placeholder // the scope's secrets
	set      *filter.Set         // the filter, and what the scope knows as secrets
	resolved policy.Verdict
	failed   error        // of the filter
	asked    mcp.Question // on the way to an upstream: it answers a question of the kind
	unbidden bool         // that is not known to have been asked
	bound    bool         // the same call was judged before: it goes on
	basis    string       // digest of the policy that it was judged by; "" where what it sends depends on none
	late     bool         // the policy was changed after it was looked through by the one before, and there is no time to do so again
	result   bool         // body is the result of a call
	inner    bool         // body says of a task, and may hold the result of its call
	retry    *retry       // what a request says of the one that it goes on with
	rounds   int
	task     *task // that the request is about; nil: none
	made     Lane  // that the task was made over
	wish     wish
	event    bool // of this process, and no crossing
	verdict  policy.Verdict
	began    time.Time
	trail    *trail // nil for none
}

// pass judges one crossing and records the outcome. Every exit goes through record: what is not recorded did not pass.
// A verdict counts only for the scope it was judged on; else it is judged again, the third time inside the commit.
// A client that leaves changes nothing about that: what happened is recorded.
func (p *Chokepoint) pass(ctx context.Context, x *Crossing) error {
	ctx = context.WithoutCancel(ctx)
	if x.trail != nil {
		defer p.ended(x)
	}
	if x.open.ID != "" {
		s, err := p.store.Scope(ctx, x.open)
		if err != nil {
			return p.unrecorded(x, err)
		}
		x.scope = s
	}
	for try := 0; ; try++ {
		if err := p.settle(ctx, x); err != nil {
			return p.unrecorded(x, err)
		}
		began := x.trail.clock(p.now)
		x.verdict = p.judge(x)
		x.trail.step(stageJudge, began, p.now)
		began = x.trail.clock(p.now)
		err := p.record(ctx, x, try == 2)
		x.trail.step(policy.StageRecord, began, p.now)
		if !errors.Is(err, store.ErrStale) {
			return p.unrecorded(x, err)
		}
		if errors.Is(err, store.ErrChanged) {
			err = p.hear(ctx, x.said.Generation)
		} else {
			x.scope, err = p.store.Scope(ctx, x.open)
		}
		if err != nil {
			return p.unrecorded(x, err)
		}
	}
}

// judge is the pipeline: one straight function, every step of which can deny alone. What varies (rules, detectors) varies inside a step.
func (p *Chokepoint) judge(x *Crossing) policy.Verdict {
	if x.pre != nil {
		return *x.pre
	}
	pol := x.policy
	v := p.name(pol, x).And(halted(x))
	if v.Denies() { // who may touch this at all: before megabytes are read. An ask goes on: entry and approver must see redacted text
		return v
	}
	switch {
	case x.wrong != nil:
		return *x.wrong
	case x.unjudged, x.since != nil && x.since != pol:
		return policy.Denied(policy.StagePolicy, "the policy, or what operators say, was changed while the answers that came with it were judged; make the call again")
	}
	v = v.And(x.resolved).AndErr(policy.StageFilter, x.failed)
	v = v.And(p.content(pol, x))
	return v.And(p.flow(pol, x, v.Role))
}

func (p *Chokepoint) name(pol *policy.Policy, x *Crossing) policy.Verdict {
	if x.anew != nil {
		return x.anew(pol)
	}
	if x.way == toClient {
		return policy.Verdict{Effect: policy.Allow, Stage: policy.StageName, Role: x.role} // the request was judged
	}
	if x.asked != mcp.NoQuestion {
		return pol.Asks(x.facts.Who, x.role, x.asked)
	}
	v := pol.Name(x.facts)
	if x.task != nil && v.Asks() { // a person was asked about the call
		v.Effect, v.Reason = policy.Allow, ""
	}
	return v
}

func (p *Chokepoint) content(pol *policy.Policy, x *Crossing) policy.Verdict {
	if x.way == toUpstream {
		known := make([]policy.Known, len(x.found))
		for i, s := range x.found {
			known[i] = policy.Known{Kind: s.Kind, From: s.from}
		}
		return pol.Content(x.facts, known)
	}
	if len(x.found) > 0 && pol.Results() == policy.DenyResult {
		return policy.Denied(policy.StageContent, "the result carries a secret ("+x.found[0].Kind+")")
	}
	return policy.Allowed(policy.StageContent)
}

func (p *Chokepoint) flow(pol *policy.Policy, x *Crossing, role string) policy.Verdict {
	x.facts.Label = x.scope.Label
	switch {
	case x.open.ID == "":
		return policy.Allowed(policy.StageFlow) // nothing is gathered: navra's own words
	case x.asked != mcp.NoQuestion && x.asked != mcp.AskSampling && !x.unbidden:
		return policy.Allowed(policy.StageFlow) // a person's words
	case x.bound && (x.basis == "" || x.basis == pol.Digest()): // what it sends was judged when it was first made
		return pol.Above(x.facts.Item.Label(), role)
	case x.way == toUpstream:
		return pol.Flow(x.facts, role)
	default:
		if !pol.Has(role) { // since the call was judged
			role = pol.Name(x.facts).Role
		}
		return pol.Above(x.label, role)
	}
}

// settle takes up the policy and what operators have said, and does once for a policy what does not depend on the scope's label: references are
// replaced, text is filtered. What the crossing is judged on then holds in its commit, or it is judged again.
func (p *Chokepoint) settle(ctx context.Context, x *Crossing) error {
	if err := p.take(ctx, x); err != nil {
		return err
	}
	if x.prepared == nil {
		x.came = x.label
	}
	if x.prepared != x.policy {
		if x.says != nil && x.shown != x.policy {
			x.body, x.shown, x.seal = x.says(x.policy), x.policy, nil
		}
		x.label = x.came
		x.prepared, x.found, x.clean = x.policy, nil, false
		p.prepare(ctx, x)
	}
	return nil
}

func (p *Chokepoint) prepare(ctx context.Context, x *Crossing) {
	x.final, x.resolved = x.body, policy.Allowed(policy.StageResolve)
	if x.pre != nil || x.wrong != nil || x.body == nil || x.open.ID == "" || p.name(x.policy, x).Denies() {
		return // nothing crosses, or navra's own words, which were looked through when they were read
	}
	start := p.now()
	if x.failed = p.recollect(ctx, x); x.failed != nil {
		return
	}
	if x.way == toUpstream {
		x.resolved = p.putBack(x).And(x.fitting())
		p.took(x, policy.StageResolve, start)
		start = p.now()
		x.failed = p.examine(x)
	} else {
		x.failed = p.conceal(ctx, x)
		x.keepPromise()
	}
	p.took(x, policy.StageFilter, start)
}

// took notes a stage that began then and ends now.
func (p *Chokepoint) took(x *Crossing, stage policy.Stage, began time.Time) {
	d := p.now().Sub(began)
	x.trail.step(stage, began, func() time.Time { return began.Add(d) })
	x.entry.Durations = append(x.entry.Durations, blackbox.Count{Name: string(stage), N: d.Microseconds()})
}
