package chokepoint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"navra/internal/blackbox"
	"navra/internal/catalogue"
	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// A Question is what an upstream asks of a client, released to go there. Its answer is admitted by AdmitAnswer, once.
type Question struct {
	by   *Chokepoint
	kind mcp.Question
	call *clearance // that it came with; nil: the session's
	lane Lane
	wire uint64     // connection that it came over
	id   jsonrpc.ID // the upstream's; zero in a round
	key  string     // in a round: the upstream's name for it
	task string     // of the upstream's that it belongs to; "" for none

	facts    policy.Facts
	role     string
	to       Peer
	ask      jsonrpc.ID // navra's id, towards the client
	params   jsonrpc.Raw
	form     jsonrpc.Raw // that the answer is held against; nil: none
	need     mcp.Capabilities
	posed    bool // it may go to the client
	unbidden bool // it is not known to have been asked: only its answer came
	seq      blackbox.Seq
	answered atomic.Bool
}

// ID is what the client is asked under. It cannot be guessed, and tells nothing of what others are asked.
func (q *Question) ID() jsonrpc.ID { return q.ask }

// For reports whether a peer is who is asked.
func (q *Question) For(from Peer) bool { return q.to.Who.Same(from.Who) }

// Suits reports whether a peer's client can be asked the question, which it may have been before: by the policy of now too.
func (q *Question) Suits(from Peer) bool {
	role := ""
	if q.call != nil {
		role = q.call.x.verdict.Role
	}
	return q.need&^from.Caps == 0 && q.by.policy.Load().Asks(from.Who, role, q.kind).Permits()
}

// maxID keeps ids within what every JSON parser takes for an integer.
const maxID = 1 << 53

func questionID() jsonrpc.ID { return jsonrpc.IntID(1 + rand.Int64N(maxID-1)) }

// Lane is the connection that the question came over.
func (q *Question) Lane() Lane { return q.lane }

// Request is the question as a request of the stateful era.
func (q *Question) Request() jsonrpc.Message {
	return jsonrpc.Message{ID: q.ask, Method: q.kind.Method(), Params: q.params}
}

// Is reports whether q is the question that the upstream of the lane asked under id.
func (q *Question) Is(l Lane, wire uint64, id jsonrpc.ID) bool {
	return q.lane == l && q.wire == wire && q.id == id
}

// input is the question as a value of inputRequests.
func (q *Question) input() jsonrpc.Raw {
	return new(jsonrpc.Object).Text("method", q.kind.Method()).Raw("params", orEmpty(q.params)).Done()
}

// releaseQuestion judges a request of an upstream's on its way to a client. Where the client is not asked, Reply is what the upstream is told.
func (p *Chokepoint) releaseQuestion(ctx context.Context, c *clearance, in FromUpstream, to Peer) (Released, error) {
	q := &Question{by: p, call: c, kind: mcp.QuestionOf(in.msg.Method), lane: in.lane, wire: in.wire, id: in.msg.ID, to: to}
	if c != nil {
		q.lane = c.lane
	}
	v, err := p.pose(ctx, q, in.msg.Params)
	if err == nil && v.Permits() {
		return Released{Msg: q.Request(), Question: q}, nil
	}
	reply, err := p.RefuseQuestion(ctx, q, v.Reason)
	return Released{Reply: reply, Drop: true}, err
}

// pose judges a question, records that, and puts it in the form of who is asked.
func (p *Chokepoint) pose(ctx context.Context, q *Question, params jsonrpc.Raw) (policy.Verdict, error) {
	x := p.questioning(q)
	x.body = params
	if params != nil {
		x.body = withoutMeta(params, "progressToken", mcp.TraceParent, mcp.TraceState, mcp.Baggage)
	}
	x.anew = func(pol *policy.Policy) policy.Verdict { return p.mayAsk(pol, q, x.body) }
	if v := x.anew(p.policy.Load()); !v.Permits() {
		x.pre = &v
	}
	if err := p.pass(ctx, &x); err != nil {
		return x.verdict, err
	}
	q.role = x.verdict.Role
	q.seq, q.ask, q.posed = x.entry.Seq, questionID(), x.verdict.Permits()
	if q.posed {
		q.form = formOf(q.kind, x.final)
		q.params = questionFor(q.kind, x.final, q.lane.upstream, q.to.Version, q.ask)
		if q.task = relatedTo(params); q.task != "" && mcp.TasksIn(q.to.Version) == mcp.CoreTasks {
			if public := p.publicTask(q); public != "" {
				q.params = related(q.params, public)
			}
		}
		if c := q.call; c != nil && c.task != nil && c.task.mapped {
			q.params = related(q.params, c.task.public)
		}
	}
	return x.verdict, nil
}

// questioning begins the crossing of a question, and of its answer.
func (p *Chokepoint) questioning(q *Question) Crossing {
	x := p.begin(q.to)
	x.way = toClient
	x.facts.Topic, x.facts.Item = mcp.Tool, catalogue.Item{Topic: mcp.Tool, Upstream: p.book.Upstream(q.lane.upstream), Name: q.kind.Method()}
	if q.call != nil {
		x.facts.Topic, x.facts.Item = q.call.x.facts.Topic, q.call.x.facts.Item
		x.entry.Cause, x.entry.Target, x.entry.Trace = q.call.seq, q.call.x.entry.Target, q.call.x.entry.Trace
	}
	x.facts.Item.Class = ifc.Write // what answers it says, it says to the upstream
	x.label = x.facts.Item.Label()
	x.entry.Kind, x.entry.Upstream, x.entry.Method, x.entry.RequestID = blackbox.FromUpstream, q.lane.upstream, q.kind.Method(), q.id.String()
	if q.id.IsZero() {
		x.entry.RequestID = q.key
	}
	q.facts = x.facts
	return x
}

// mayAsk judges whether the client is to be asked at all.
func (p *Chokepoint) mayAsk(pol *policy.Policy, q *Question, params jsonrpc.Raw) policy.Verdict {
	need := q.kind.Needs(params)
	q.need = need
	switch {
	case q.kind == mcp.NoQuestion:
		return policy.Denied(policy.StageName, "no upstream may ask for this")
	case need&^q.to.Caps != 0:
		if q.call != nil {
			q.call.missing |= need &^ q.to.Caps
		}
		return policy.Denied(policy.StageName, "the client cannot be asked for "+q.kind.String())
	}
	if !p.mayName(q.key) {
		return policy.Denied(policy.StageContent, "the upstream's name for the question is too long, or holds what is no name")
	}
	role := ""
	if q.call != nil {
		role = q.call.x.verdict.Role
	}
	v := pol.Asks(q.to.Who, role, q.kind)
	switch {
	case !v.Permits():
		return v
	case !q.id.IsZero() && need&^q.lane.caps != 0: // so it is over a connection that several principals share
		return policy.Denied(policy.StageName, "the upstream was not told that it may ask for "+q.kind.String())
	}
	if why := unfit(q.kind, params, q.to.Version); why != "" {
		return policy.Denied(policy.StageContent, why)
	}
	return v
}

// maxKey bounds what a question is called, in bytes.
const maxKey = 256

// mayName reports whether a question may be called so. What it is called crosses as it is, in both directions, so it is no place for content.
func (p *Chokepoint) mayName(key string) bool {
	return len(key) <= maxKey && (len(key) < shortestSecret || p.Redact(key) == key)
}

// RefuseQuestion records that a question has no answer of a client's, and makes what the upstream is told in its place. A question of a
// round has no reply of its own: the zero ToUpstream is returned.
func (p *Chokepoint) RefuseQuestion(ctx context.Context, q *Question, why string) (ToUpstream, error) {
	if q == nil || q.by != p || q.answered.Swap(true) {
		return ToUpstream{}, ErrUncleared
	}
	if q.id.IsZero() {
		return ToUpstream{}, nil
	}
	reply := jsonrpc.Message{ID: q.id}
	switch {
	case q.posed && q.kind == mcp.AskElicitation: // it was asked, and nobody answers
		reply.Result = cancelled
	case q.posed:
		reply.Error = &jsonrpc.Error{Code: codeRejected, Message: errNoAnswer.Error()}
	default:
		reply.Error = &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}
	}
	y := p.beginOwn(q.lane, q.kind.Method())
	y.entry.Cause, y.body = q.seq, reply.Result
	y.pre.Reason = why
	if err := p.pass(ctx, &y); err != nil {
		return ToUpstream{}, fmt.Errorf("record the answer to %s: %w", q.kind.Method(), err)
	}
	return ToUpstream{&clearance{by: p, lane: q.lane, wire: q.wire, method: q.kind.Method(), body: reply, x: y}}, nil
}

// Withdraw records that the client of the stateful era need not answer a question any more, and makes the notice.
func (p *Chokepoint) Withdraw(ctx context.Context, q *Question) (Released, error) {
	if q == nil || q.by != p || !q.posed {
		return Released{}, ErrUncleared
	}
	x := p.questioning(q)
	v := policy.Allowed(policy.StageMessage)
	x.pre, x.entry.Kind, x.entry.Cause, x.entry.Method = &v, blackbox.Notification, q.seq, mcp.Cancelled
	if err := p.pass(ctx, &x); err != nil {
		return Released{}, err
	}
	return Released{Msg: jsonrpc.Message{Method: mcp.Cancelled, Params: new(jsonrpc.Object).Raw("requestId", q.ask.Raw()).Done()}}, nil
}

// cancelled is the answer to an elicitation that nobody answers.
var cancelled = jsonrpc.Raw(`{"action":"cancel"}`)

// codeRejected is how clients by custom refuse a sampling. MCP 2025-11-25, client/sampling §Error Handling.
const codeRejected = -1

// AdmitAnswer judges a client's answer to a question on its way to the upstream that asked. from must be who was asked. What may not go is
// replaced by an error that says only that.
func (p *Chokepoint) AdmitAnswer(ctx context.Context, from Peer, q *Question, msg jsonrpc.Message) (ToUpstream, error) {
	if q == nil || q.by != p || q.id.IsZero() || !q.to.Who.Same(from.Who) || q.answered.Swap(true) {
		return ToUpstream{}, ErrUncleared
	}
	out, bad, err := p.judgeAnswer(ctx, from, q, msg)
	if no := (*misfit)(nil); errors.As(err, &no) { // the client has answered and is not told; the upstream is, as if it had closed the form
		out, err = cancelled, nil
	}
	if err != nil {
		return ToUpstream{}, err
	}
	c := &clearance{by: p, lane: q.lane, wire: q.wire, method: q.kind.Method(), body: jsonrpc.Message{ID: q.id, Result: out, Error: bad}}
	return ToUpstream{c}, nil
}

var (
	errAnswerShape = errors.New("the client's answer is not valid")
	errNoAnswer    = errors.New("the client did not answer")
)

// judgeAnswer judges and records what a client answers. It returns what goes on: a result, or an error. Its own error is a *misfit where the answer
// does not fit the form.
func (p *Chokepoint) judgeAnswer(ctx context.Context, from Peer, q *Question, msg jsonrpc.Message) (jsonrpc.Raw, *jsonrpc.Error, error) {
	x := p.questioning(q)
	x.way, x.asked, x.unbidden = toUpstream, q.kind, q.unbidden
	x.entry.Kind, x.entry.Cause, x.entry.Target = blackbox.ClientAnswer, q.seq, ""
	x.role = q.role
	x.facts.Who, x.entry.Principal, x.entry.Auth = from.Who, from.Who.Name(), from.Who.Method() // the principal's, with a credential of its own
	x.open = opening(from)
	no := misfitting(q.form, msg.Result)
	switch {
	case msg.Error != nil:
		x.body = errorBody(*msg.Error)
	case msg.Result == nil:
		v := policy.Denied(policy.StageMessage, errNoAnswer.Error())
		x.pre = &v
	case !fits(q.kind, msg.Result):
		v := policy.Denied(policy.StageMessage, errAnswerShape.Error())
		x.pre, x.body = &v, msg.Result
	case no != nil:
		v := policy.Denied(policy.StageSchema, no.Error())
		x.pre, x.body = &v, msg.Result
	default:
		x.body = withoutMeta(msg.Result)
	}
	if err := p.pass(ctx, &x); err != nil {
		return nil, nil, fmt.Errorf("record the answer to %s: %w", q.kind.Method(), err)
	}
	switch {
	case x.pre != nil && x.verdict.Stage == policy.StageSchema:
		return nil, nil, no
	case x.pre != nil && x.verdict.Denies():
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: errAnswerShape.Error()}, nil
	case !x.verdict.Permits():
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "navra withholds the client's answer"}, nil
	case msg.Error != nil:
		e := errorOf(x.final)
		return nil, &e, nil
	}
	out := answerFor(q.kind, x.final, p.spoken(q.lane))
	if q.task != "" {
		out = related(out, q.task)
	}
	return out, nil, nil
}

// spoken is the version that the lane's upstream was heard to speak; "" where it was never heard.
func (p *Chokepoint) spoken(l Lane) mcp.Version {
	heard, _ := p.book.For(l.principal).Listing(l.upstream)
	return heard.Version
}

// Answers reports whether navra itself answers a request that an upstream started.
func (p *Chokepoint) Answers(l Lane, method string) bool {
	if method == mcp.RootsList {
		u := p.book.Upstream(l.upstream)
		return u != nil && u.Root != ""
	}
	return mcp.QuestionOf(method) == mcp.NoQuestion
}
