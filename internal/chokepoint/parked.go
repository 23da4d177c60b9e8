package chokepoint

import (
	"context"
	"net/http"

	"navra/internal/blackbox"
	"navra/internal/jsonrpc"
	"navra/internal/policy"
)

// Parked returns the handle of the parked call that m goes on with; "" for none.
func (m ToUpstream) Parked() string {
	if m.c == nil || m.c.retry == nil {
		return ""
	}
	return m.c.retry.parked
}

// Input returns what the client answered to a question of the parked call that m goes on with.
func (m ToUpstream) Input(q *Question) (jsonrpc.Raw, bool) {
	if m.c == nil || m.c.retry == nil {
		return nil, false
	}
	return m.c.retry.inputs.Get(q.key)
}

// Fits reports whether v can be an answer to q.
func (q *Question) Fits(v jsonrpc.Raw) bool { return fits(q.kind, v) && misfitting(q.form, v) == nil }

// Key names the question in a result that asks a client of the stateless era.
func (q *Question) Key(key string) { q.key = key }

// Park answers the request of a call that goes on without it: with the questions, and a state under which a retry finds the call by its handle.
// Where the error is ErrWithheld the client is answered that instead, and the call is not parked.
func (p *Chokepoint) Park(ctx context.Context, m ToUpstream, handle string, questions []*Question) (Released, error) {
	c := m.c
	if c == nil || c.by != p || c.answered.Swap(true) {
		return Released{}, ErrUncleared
	}
	x := p.returning(c, blackbox.Answer)
	if err := p.recordAsking(ctx, &x); err != nil {
		return Released{Msg: p.deny(c.from, &x, Unknown).Msg}, err
	}
	return Released{Msg: p.inputRequired(c, questions, retry{parked: handle})}, nil
}

// Resume lets the parked call m go on for the request of the retry, which was admitted and is not sent.
func (p *Chokepoint) Resume(retry, m ToUpstream) error {
	r, c := retry.c, m.c
	if r == nil || c == nil || r.by != p || c.by != p || !c.answered.Load() || r.lane.upstream != c.lane.upstream || !r.from.Who.Same(c.from.Who) || r.spent.Swap(true) {
		return ErrUncleared
	}
	c.from, c.seq, c.token, c.rounds = r.from, r.seq, r.token, r.rounds
	c.x.entry, c.x.trail = r.x.entry, r.x.trail
	c.x.facts.Who, c.x.verdict, c.x.policy = r.x.facts.Who, r.x.verdict, r.x.policy // what comes is held against those
	c.answered.Store(false)
	return nil
}

// Abandon lets a parked call that nobody came back for end: what becomes of it is released once more, to nobody.
func (p *Chokepoint) Abandon(m ToUpstream) {
	if m.c != nil && m.c.by == p {
		m.c.answered.Store(false)
	}
}

// RefuseRetry is the answer to a retry whose call is not there.
func (p *Chokepoint) RefuseRetry(ctx context.Context, m ToUpstream) (Released, error) {
	c := m.c
	if c == nil || c.by != p || c.spent.Swap(true) || c.answered.Swap(true) {
		return Released{}, ErrUncleared
	}
	x := p.returning(c, blackbox.Answer)
	v := policy.Denied(policy.StageMessage, unknownState.Message)
	x.pre, x.entry.Outcome = &v, string(NotSent)
	if err := p.pass(ctx, &x); err != nil {
		return Released{}, err
	}
	e := unknownState
	return Released{Status: http.StatusBadRequest, Msg: jsonrpc.Message{ID: c.from.In.Msg.ID, Error: &e}}, nil
}
