package chokepoint

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"navra/internal/blackbox"
	"navra/internal/filter"
	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/scope"
	"navra/internal/store"
)

// record commits the entry, on the condition that the scope is still the one the verdict was judged on, with the label that
// an answer raises. The last time the verdict is made inside the commit.
func (p *Chokepoint) record(ctx context.Context, x *Crossing, last bool) error {
	if x.seal == nil {
		x.seal = p.payload(x)
	}
	c := store.Commit{Entry: p.entry(x), Scope: x.open.ID, IfGeneration: x.generation(), IfScope: x.scope.Version, Raise: x.raise(), Reserve: owed(x.entry) || x.event}
	if last {
		c.Judge = func(s scope.Scope, said *store.Controls) (blackbox.Entry, ifc.Label) {
			if x.scope = s; said != nil {
				newest := outdated(x.policy, said)
				x.late = newest != "" && x.said != nil && newest != outdated(x.policy, x.said)
				x.said = said
			}
			x.verdict = p.judge(x)
			return p.entry(x), x.raise()
		}
	}
	receipt, err := p.store.Commit(ctx, c)
	if err == nil {
		x.entry.Seq = receipt.Seq
		if !x.event {
			p.caughtUp(ctx)
		}
	}
	return err
}

// shortestSecret is the length below which no detector finds anything, in bytes.
const shortestSecret = 6

// raise is what a crossing adds to its scope: the label of what the client gets, and nothing where it gets nothing.
func (x *Crossing) raise() ifc.Label {
	if x.way == toClient && x.verdict.Permits() && x.open.ID != "" {
		return x.label
	}
	return ifc.Bottom()
}

// entry is the account of x as judged.
func (p *Chokepoint) entry(x *Crossing) blackbox.Entry {
	e := x.entry
	e.Time = p.now().UTC()
	e.Verdict, e.Stage, e.Reason = x.verdict.Effect.String(), string(x.verdict.Stage), x.verdict.Reason
	e.Role = x.verdict.Role
	for _, text := range []*string{&e.Target, &e.Reason, &e.RequestID, &e.Method} {
		p.clear(text)
	}
	e.Notes = slices.Clone(e.Notes)
	for i := range e.Notes {
		p.clear(&e.Notes[i].Name)
	}
	pol := x.policy
	if pol == nil {
		pol = p.policy.Load()
	}
	e.Policy = pol.Digest()
	if x.way == toUpstream && !x.verdict.Permits() {
		e.Outcome = string(NotSent)
	}
	if x.open.ID != "" {
		e.Before, e.After = x.scope.Label.String(), x.scope.Label.Join(x.raise()).String()
	}
	e.Findings = append(slices.Clone(e.Findings), counts(x.found)...)
	e.Durations = slices.Clone(e.Durations)
	if x.seal != nil && x.seal.Name != "" {
		e.Payloads = []blackbox.Payload{*x.seal}
	}
	return e
}

// clear takes secrets out of a text that a peer chose.
func (p *Chokepoint) clear(text *string) {
	if len(*text) >= shortestSecret && !mcp.IsMethod(*text) {
		*text = p.Redact(*text)
	}
}

func counts(found []secret) (out []blackbox.Count) {
	for _, s := range found {
		i := slices.IndexFunc(out, func(c blackbox.Count) bool { return c.Name == s.Kind })
		if i < 0 {
			out = append(out, blackbox.Count{Name: s.Kind})
			i = len(out) - 1
		}
		out[i].N++
	}
	return out
}

// payload keeps the beginning of what was received, with its secrets taken out, and commits to the whole.
func (p *Chokepoint) payload(x *Crossing) *blackbox.Payload {
	if x.body == nil {
		return &blackbox.Payload{}
	}
	name := "arguments"
	if x.way == toClient {
		name = "result"
	}
	if x.clean { // what was looked through with the same filter needs no second look
		out := blackbox.NewPayload(name, x.body, x.body)
		return &out
	}
	set := x.set
	if set == nil { // nothing of it crosses
		set = p.filter
	}
	stored, _, err := set.Apply(x.body, func(f filter.Finding) (string, bool) { return "[" + f.Kind + "]", true })
	if err != nil { // what could not be looked through is not kept
		stored = jsonrpc.Quote("not kept: it could not be examined")
	}
	out := blackbox.NewPayload(name, x.body, stored)
	return &out
}

// tell records an event that is no crossing: start, stop.
func (p *Chokepoint) tell(ctx context.Context, reason string) error {
	x := Crossing{way: toUpstream, began: p.now(), verdict: policy.Allowed(policy.StageMessage), event: true}
	x.verdict.Reason = reason
	x.entry = blackbox.Entry{Kind: blackbox.Event, Principal: Navra}
	return p.record(ctx, &x, false)
}

// Event records something that matters and is no crossing.
func (p *Chokepoint) Event(ctx context.Context, text string) error { return p.tell(ctx, text) }

// Refused records how many requests were refused before anybody was proven to send them, by address: those with the most singly, the rest
// together.
func (p *Chokepoint) Refused(ctx context.Context, counts map[string]int64) error {
	return p.refused(ctx, "refused before authentication", blackbox.Entry{Principal: Navra}, counts)
}

// RefusedUnread records how many requests of a principal were refused before anything in them was read, by status and reason.
func (p *Chokepoint) RefusedUnread(ctx context.Context, principal, way, transport string, counts map[string]int64) error {
	return p.refused(ctx, "refused before the method was known", blackbox.Entry{Principal: principal, Auth: way, Transport: transport}, counts)
}

func (p *Chokepoint) refused(ctx context.Context, why string, e blackbox.Entry, counts map[string]int64) error {
	x := Crossing{way: toUpstream, began: p.now(), verdict: policy.Denied(policy.StageMessage, why), entry: e}
	x.entry.Kind = blackbox.Event
	most := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b)) })
	for _, from := range most {
		x.entry.Notes = append(x.entry.Notes, blackbox.Count{Name: from, N: counts[from]})
	}
	return p.record(ctx, &x, false)
}

// Started and Stopped record the life of this process. more is what was found at the start and belongs into the record.
func (p *Chokepoint) Started(ctx context.Context, more ...string) error {
	for _, text := range more {
		if err := p.tell(ctx, text); err != nil {
			return err
		}
	}
	return p.tell(ctx, "navra started")
}

// Stopped records that this process ends in order.
func (p *Chokepoint) Stopped(ctx context.Context) error { return p.tell(ctx, "navra stopped") }
