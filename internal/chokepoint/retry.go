package chokepoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"navra/internal/catalogue"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// Bounds on what an upstream asks in one result, and how often.
const (
	maxRound  = 16        // questions
	maxRounds = 10        // of one call; MCP SDKs give up there too
	maxState  = 256 << 10 // bytes of an upstream's requestState
	stateLife = time.Hour // of a sealed requestState: a person may be slow
)

// A round is what an upstream's result asks for.
type round struct {
	n         int
	questions []*Question
	state     jsonrpc.Raw // the upstream's; nil: none
}

// A retry is what a request says of the one that it goes on with.
type retry struct {
	inputs   jsonrpc.Raw // inputResponses; nil: none
	parked   string      // handle of a call that waits for them
	upstream jsonrpc.Raw // the upstream's own state
	kinds    map[string]mcp.Question
	forms    map[string]jsonrpc.Raw // that answers are held against
	sealed   bool                   // the state was made here, for this call of this principal
	same     bool                   // nothing else is said with it either, and it is used for the first time
	again    bool                   // the call is made anew: it has not run
	basis    string                 // digest of the policy that the call was judged by
}

// asksBack reports whether a result asks for something before the call can end.
func (c *clearance) asksBack(result jsonrpc.Raw) bool {
	if c.lane.upstream == Self || c.method != mcp.ToolsCall && c.method != mcp.PromptsGet && c.method != mcp.ResourcesRead {
		return false
	}
	kind, _ := result.Get("resultType")
	return string(kind) == `"input_required"`
}

// releaseRound releases what a result asks for: to a client of the stateless era as a result that asks, to another as questions.
func (p *Chokepoint) releaseRound(ctx context.Context, c *clearance, x *Crossing, result jsonrpc.Raw) (Released, error) {
	requests, _ := result.Get("inputRequests")
	state, hasState := result.Get("requestState")
	if _, text := state.Text(); hasState && !text || len(state) > maxState || !hasState && firstMember(requests) == nil || c.rounds >= maxRounds {
		return p.releaseFailure(ctx, c, x, FromUpstream{outcome: Unknown, err: ErrBadAnswer})
	}
	if x.trail != nil {
		x.trail.goesOn = !c.from.Version.Stateless()
	}
	if err := p.recordAsking(ctx, x); err != nil {
		return Released{Msg: p.deny(c.from, x, Unknown).Msg}, nil
	}
	r := &round{n: c.rounds + 1, state: state}
	for key, v := range requests.Members() {
		raw, _ := v.Get("method")
		method, _ := raw.Text()
		params, _ := v.Get("params")
		q := &Question{by: p, call: c, kind: mcp.QuestionOf(method), lane: c.lane, key: key, to: c.from}
		verdict, err := p.pose(ctx, q, params)
		if err != nil || !verdict.Permits() || len(r.questions) >= maxRound {
			return p.unasked(c, x, q, verdict), nil
		}
		r.questions = append(r.questions, q)
	}
	if !c.from.Version.Stateless() {
		c.round = r
		return Released{Round: r.questions, Rounds: true}, nil
	}
	return Released{Msg: p.inputRequired(c, r.questions, retry{upstream: state})}, nil
}

// ErrWithheld reports that a client is not asked what it was to be asked: it may be no more.
var ErrWithheld = errors.New("the client may not be asked any more")

// recordAsking judges and records the answer to a request that ends with questions instead, which may have been judged a while ago.
func (p *Chokepoint) recordAsking(ctx context.Context, x *Crossing) error {
	x.anew = func(pol *policy.Policy) policy.Verdict {
		if !pol.Names(x.facts.Who) {
			return policy.Denied(policy.StageAuth, ErrUnnamed.Error())
		}
		return policy.Verdict{Effect: policy.Allow, Stage: policy.StageMessage, Reason: "the upstream asks for input", Role: x.role}
	}
	x.body, x.entry.Outcome = nil, string(Unknown)
	if err := p.pass(ctx, x); err != nil {
		return err
	}
	if !x.verdict.Permits() {
		return ErrWithheld
	}
	return nil
}

// unasked answers a call whose upstream asks what the client is not asked.
func (p *Chokepoint) unasked(c *clearance, x *Crossing, q *Question, v policy.Verdict) Released {
	if missing := q.kind.Capabilities() & c.missing; missing != 0 {
		return c.lacking(missing)
	}
	if v.Permits() {
		v = policy.Denied(policy.StageMessage, "the upstream asks too much at once")
	}
	x.verdict = v
	if v.Stage == policy.StageName {
		x.verdict.Stage = policy.StageContent // the tool's name is known to whom it says this
	}
	return Released{Msg: p.deny(c.from, x, Unknown).Msg}
}

// lacking answers a call that cannot go on, since the client cannot be asked. MCP 2026-07-28, basic/versioning §Missing capabilities.
func (c *clearance) lacking(caps mcp.Capabilities) Released {
	data := new(jsonrpc.Object).Raw("requiredCapabilities", caps.Object(mcp.V20260728)).Done()
	e := jsonrpc.Error{Code: mcp.CodeMissingCapability, Message: "Missing required client capability", Data: data}
	out := Released{Status: http.StatusBadRequest}
	if !c.from.Version.Stateless() {
		e.Code, e.Message, out.Status = jsonrpc.CodeInternal, "the upstream needs a client that it can ask: "+string(caps.Object(mcp.V20260728)), 0
	}
	out.Msg = jsonrpc.Message{ID: c.from.In.Msg.ID, Error: &e}
	return out
}

func firstMember(o jsonrpc.Raw) jsonrpc.Raw {
	for _, v := range o.Members() {
		return v
	}
	return nil
}

// inputRequired makes the result that asks a client of the stateless era.
func (p *Chokepoint) inputRequired(c *clearance, questions []*Question, r retry) jsonrpc.Message {
	o := new(jsonrpc.Object).Text("resultType", "input_required")
	asks := new(jsonrpc.Object)
	r.kinds, r.forms = map[string]mcp.Question{}, map[string]jsonrpc.Raw{}
	for _, q := range questions {
		asks.Raw(q.key, q.input())
		r.kinds[q.key] = q.kind
		if q.form != nil && r.parked == "" { // a parked call knows its questions
			r.forms[q.key] = q.form
		}
	}
	if len(questions) > 0 {
		o.Raw("inputRequests", asks.Done())
	}
	o.Text("requestState", p.sealState(c, r))
	o.Raw("_meta", new(jsonrpc.Object).Raw(mcp.Meta+"serverInfo", ServerInfo(p.version)).Done())
	return jsonrpc.Message{ID: c.from.In.Msg.ID, Result: o.Done()}
}

// stateContext binds a state to who it was given to.
func stateContext(principal string) []byte { return []byte("request state\x00" + principal) }

// sealState seals what a retry has to say. It is good for the same call of the same principal.
func (p *Chokepoint) sealState(c *clearance, r retry) string {
	kinds := new(jsonrpc.Object)
	for key, kind := range r.kinds {
		kinds.Text(key, kind.String())
	}
	o := new(jsonrpc.Object).Text("call", callDigest(c.method, c.x.facts.Item, c.sent)).Text("meta", metaDigest(c.from, c.sent)).Int("until", p.now().Add(stateLife).Unix())
	if len(r.forms) > 0 {
		forms := new(jsonrpc.Object)
		for key, form := range r.forms {
			forms.Raw(key, form)
		}
		o.Raw("forms", forms.Done())
	}
	o.Raw("asked", kinds.Done()).Raw("state", r.upstream).Int("rounds", int64(c.rounds+1))
	if r.parked != "" {
		o.Text("parked", r.parked)
	}
	if r.again {
		o.Bool("again", true)
	}
	if pol := c.x.policy; pol != nil {
		o.Text("policy", pol.Digest())
	}
	return p.vault.Seal(o.Done(), stateContext(c.from.Who.Name()))
}

// callDigest tells a call by what it asks for: its method, what it is about, and all its params but _meta.
func callDigest(method string, it catalogue.Item, params jsonrpc.Raw) string {
	sum := sha256.Sum256([]byte(method + "\x00" + it.Upstream.Name + "\x00" + it.Canonical() + "\x00" + string(params.Without("_meta"))))
	return hex.EncodeToString(sum[:])
}

// metaDigest tells what goes with a call besides: a client may say other things there each time, and then the call is judged as a new one.
// Navra's own span is another each time; the client's trace is what it says.
func metaDigest(from Peer, params jsonrpc.Raw) string {
	meta, _ := params.Get("_meta")
	trace, _ := mcp.TraceOf(from.In)
	sum := sha256.Sum256(append(trace.ID[:], orEmpty(meta).Without(mcp.TraceParent)...))
	return hex.EncodeToString(sum[:])
}

var unknownState = jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Invalid params: unknown or expired requestState"}

// reopen reads what a request of the stateless era says of the one that it goes on with; nil where it says nothing.
func (p *Chokepoint) reopen(from Peer, it catalogue.Item, params jsonrpc.Raw, rounds *int) (*retry, *Refusal) {
	if !from.Version.Stateless() {
		return nil, nil
	}
	inputs, has := from.In.Msg.Params.Get("inputResponses")
	raw, stated := from.In.Msg.Params.Get("requestState")
	if !has && !stated {
		return nil, nil
	}
	r := &retry{kinds: map[string]mcp.Question{}}
	if has && !inputs.IsNull() {
		if !inputs.IsObject() {
			return nil, refusedAs(http.StatusBadRequest, jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Invalid params: inputResponses must be an object"})
		}
		r.inputs = inputs
	}
	if !stated {
		return r, nil
	}
	text, _ := raw.Text()
	plain, err := p.vault.Open(text, stateContext(from.Who.Name()))
	if err != nil {
		return nil, refusedAs(http.StatusBadRequest, unknownState)
	}
	s := jsonrpc.Raw(plain)
	call, _ := s.Get("call")
	until, _ := s.Get("until")
	end, _ := until.Int()
	if digest, _ := call.Text(); digest != callDigest(from.In.Msg.Method, it, params) || p.now().Unix() > end {
		return nil, refusedAs(http.StatusBadRequest, unknownState)
	}
	meta, _ := s.Get("meta")
	digest, _ := meta.Text()
	r.sealed, r.same = true, digest == metaDigest(from, params) && p.states.first(text)
	r.upstream, _ = s.Get("state")
	parked, _ := s.Get("parked")
	r.parked, _ = parked.Text()
	again, _ := s.Get("again")
	r.again = string(again) == "true"
	basis, _ := s.Get("policy")
	r.basis, _ = basis.Text()
	n, _ := s.Get("rounds")
	count, _ := n.Int()
	*rounds = int(count)
	forms, _ := s.Get("forms")
	r.forms = map[string]jsonrpc.Raw{}
	for key, form := range forms.Members() {
		r.forms[key] = form
	}
	asked, _ := s.Get("asked")
	for key, v := range asked.Members() {
		word, _ := v.Text()
		for _, q := range mcp.Questions() {
			if q.String() == word {
				r.kinds[key] = q
			}
		}
	}
	return r, nil
}

// kindOf guesses what a response answers that comes without a state.
func kindOf(v jsonrpc.Raw) mcp.Question {
	if _, has := v.Get("action"); has {
		return mcp.AskElicitation
	}
	if _, has := v.Get("roots"); has {
		return mcp.AskRoots
	}
	return mcp.AskSampling
}

// goesOn judges what a request brings for the one that it goes on with. The refusal says what the client is answered where it cannot.
func (p *Chokepoint) goesOn(ctx context.Context, from Peer, c *clearance, x *Crossing) *Refusal {
	r := c.retry
	if r == nil || x.pre != nil || x.wrong != nil || r.parked != "" {
		return nil
	}
	if x.unjudged = p.barred(ctx, c, x); x.unjudged {
		return nil
	}
	if r.again {
		for key := range r.kinds {
			action, _ := r.inputs.Get(key, "action")
			if string(action) != `"accept"` {
				v := policy.Denied(policy.StageMessage, "the URL that the upstream needs to be opened was not accepted")
				x.wrong = &v
			}
		}
	}
	if v := p.spoken(c.lane); v != "" && !v.Stateless() || r.again {
		if r.sealed && !r.again { // the upstream is another one now: nothing runs twice by itself
			return refusedAs(http.StatusBadRequest, unknownState)
		}
		c.retry, x.since = nil, nil // there is nothing that could go on
		return nil
	}
	c.x = *x
	if r.inputs == nil {
		x.since = nil
		return nil
	}
	return p.admitInputs(ctx, from, c, x, r)
}

// barred reports whether a request is forbidden whatever comes with it, as far as this process knows when it has just heard.
func (p *Chokepoint) barred(ctx context.Context, c *clearance, x *Crossing) bool {
	bars := func() bool {
		x.since = p.policy.Load()
		return p.Halts(c.from.Who, c.lane.upstream) != nil || x.since.Name(x.facts).Denies()
	}
	return bars() && (p.Refresh(ctx) != nil || bars())
}

// admitInputs judges the answers that a request brings, each by itself, and puts what may go on in their place.
func (p *Chokepoint) admitInputs(ctx context.Context, from Peer, c *clearance, x *Crossing, r *retry) *Refusal {
	out := new(jsonrpc.Object)
	n := 0
	for key, v := range r.inputs.Members() {
		kind, asked := r.kinds[key]
		if r.sealed && !asked {
			continue
		}
		if !r.sealed {
			kind = kindOf(v)
		}
		if !p.mayName(key) {
			x.verdict = policy.Denied(policy.StageContent, "the name of an answer is too long, or holds what is no name")
			return refusedAs(http.StatusBadRequest, jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Invalid params: inputResponses has a name that is too long, or that is none"})
		}
		if n++; n > maxRound {
			return refusedAs(http.StatusBadRequest, jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("Invalid params: more than %d inputResponses", maxRound)})
		}
		q := &Question{by: p, kind: kind, call: c, lane: c.lane, key: key, to: from, role: p.policy.Load().Name(x.facts).Role, unbidden: !r.sealed, form: r.forms[key]}
		if !fits(kind, v) && c.task != nil { // what was asked, only the upstream knows; it ignores other keys
			continue
		}
		if !fits(kind, v) { // the upstream asks anew, or refuses
			return refusedAs(http.StatusBadRequest, jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Invalid params: the response " + keyOf(key) + " is no answer to what was asked"})
		}
		value, bad, err := p.judgeAnswer(ctx, from, q, jsonrpc.Message{Result: v})
		if no := (*misfit)(nil); errors.As(err, &no) {
			x.verdict = policy.Denied(policy.StageSchema, no.Error())
			return refusedAs(http.StatusBadRequest, jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Invalid params: the response " + keyOf(key) + ": " + no.Error()})
		}
		if err != nil || bad != nil {
			x.verdict = policy.Denied(policy.StageContent, "an answer that goes with the call may not go to its upstream")
			return p.deny(from, x, NotSent)
		}
		out.Raw(key, value)
	}
	r.inputs = out.Done()
	return nil
}

// keyOf is a key that a client is told of.
func keyOf(key string) string { return strings.ToValidUTF8(key[:min(len(key), 64)], "") }

// A Reply is what a client answers to a question, and who it was: the principal may have several credentials.
type Reply struct {
	From Peer
	Msg  jsonrpc.Message
}

// AdmitRound judges what a client answered to the questions of m's result, and makes the retry of the call. Where the call cannot go on,
// the error is a *Refusal that holds the answer to the client.
func (p *Chokepoint) AdmitRound(ctx context.Context, from Peer, m ToUpstream, answers map[*Question]Reply) (ToUpstream, error) {
	c := m.c
	if c == nil || c.by != p || c.round == nil || !c.from.Who.Same(from.Who) {
		return ToUpstream{}, ErrUncleared
	}
	r := c.round
	c.round = nil
	x := p.begin(c.from)
	x.trail = c.x.trail.another()
	x.facts, x.label, x.body, x.bound = c.x.facts, c.x.label, x.trail.carry(c.sent), true
	if x.basis = c.x.policy.Digest(); len(r.questions) > 0 {
		x.since = p.policy.Load()
	}
	x.entry.Cause, x.entry.Upstream, x.entry.Target, x.entry.Trace = c.seq, c.lane.upstream, c.x.entry.Target, c.x.entry.Trace
	inputs := new(jsonrpc.Object)
	for _, q := range r.questions {
		a, ok := answers[q]
		if !ok {
			a.From = from
		}
		if !q.For(a.From) || q.answered.Swap(true) {
			return ToUpstream{}, ErrUncleared
		}
		value, bad, err := p.judgeAnswer(ctx, a.From, q, a.Msg)
		if no := (*misfit)(nil); errors.As(err, &no) {
			value, err = cancelled, nil
		}
		if bad != nil && q.kind == mcp.AskElicitation && (!ok || a.Msg.Error != nil) {
			value, bad = cancelled, nil
		}
		if err != nil || bad != nil {
			v := policy.Denied(policy.StageMessage, "the client gave no answer to what the upstream asked for")
			x.pre, x.body = &v, nil
			if p.pass(ctx, &x) != nil {
				return ToUpstream{}, p.deny(c.from, &x, Unknown)
			}
			return ToUpstream{}, p.unanswered(c, q)
		}
		inputs.Raw(q.key, value)
	}
	next := &clearance{by: p, lane: c.lane, id: jsonrpc.IntID(p.next.Add(1)), method: c.method, from: c.from, asked: true, caps: c.caps, open: c.open, token: c.token, rounds: r.n, wish: c.wish}
	next.retry = &retry{inputs: inputs.Done(), upstream: r.state}
	if err := p.pass(ctx, &x); err != nil || !x.verdict.Permits() {
		return ToUpstream{}, p.deny(c.from, &x, Unknown)
	}
	next.body = jsonrpc.Message{ID: next.id, Method: next.method, Params: next.outgoing(x.final)}
	next.x, next.seq, next.sent = x, x.entry.Seq, c.sent
	next.x.body, next.x.final = nil, nil
	return ToUpstream{next}, nil
}

// unanswered answers a call whose client refused what the upstream asked for.
func (p *Chokepoint) unanswered(c *clearance, q *Question) *Refusal {
	text := fmt.Sprintf("navra: upstream %s asked for %s, and got no answer; the call cannot go on. %s", c.lane.upstream, q.kind, outcomeText(Unknown))
	data := new(jsonrpc.Object).Text("reason", "refused").Text("request", q.kind.Method()).Text("outcome", string(Unknown)).Done()
	return &Refusal{Msg: jsonrpc.Message{ID: c.from.In.Msg.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: text, Data: data}}}
}
