package chokepoint

import (
	"context"
	"fmt"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// Release judges what an upstream sent on its way to a client: an answer, a failure, or progress. What it returns may be
// sent; an error means that in is not this chokepoint's to open, and nothing may be sent.
func (p *Chokepoint) Release(ctx context.Context, in FromUpstream, to Peer) (Released, error) {
	c := in.cause
	if c == nil || c.by != p || c.visit != nil || !c.from.Who.Same(to.Who) {
		return Released{}, ErrUncleared
	}
	switch in.kind {
	case progress:
		return p.releaseProgress(ctx, c, in.msg)
	case note:
		return p.releaseLog(ctx, c, in.msg)
	case question:
		return p.releaseQuestion(ctx, c, in, to)
	}
	if in.kind != answer && in.kind != failure || c.answered.Swap(true) {
		return Released{}, ErrUncleared
	}
	x := p.returning(c, blackbox.Answer)
	x.trail.back(in)
	c.asNews(&x)
	if n := c.notes.Load(); n > 0 {
		x.entry.Notes = append(x.entry.Notes, blackbox.Count{Name: mcp.Progress, N: n})
	}
	if n := c.logs.Load(); n > 0 {
		x.entry.Notes = append(x.entry.Notes, blackbox.Count{Name: mcp.Logging, N: n})
	}
	if in.kind == failure {
		return p.releaseFailure(ctx, c, &x, in)
	}
	if in.repaired > 0 {
		x.entry.Findings = append(x.entry.Findings, blackbox.Count{Name: "lone surrogate mended", N: int64(in.repaired)})
	}
	if why := p.Halts(c.from.Who, c.lane.upstream); why != nil && c.lane.upstream != Self {
		return p.releaseFailure(ctx, c, &x, FromUpstream{outcome: Ran, err: why})
	}
	if in.says != nil {
		if c.lane.upstream != Self {
			return Released{}, ErrUncleared
		}
		x.shown = p.policy.Load()
		in.msg = in.says(p.viewBy(x.shown, c.from))
		x.says = func(pol *policy.Policy) jsonrpc.Raw { return in.says(p.viewBy(pol, c.from)).Result }
	}
	m := in.msg
	switch {
	case m.Error != nil && m.Error.Code == codeOpenURL:
		return p.releaseURLs(ctx, c, &x, *m.Error)
	case m.Error != nil:
		x.body, x.says = errorBody(*m.Error), nil
		if c.method == mcp.TasksGet && m.Error.Code == jsonrpc.CodeInvalidParams {
			p.tasks.drop(c.lane, c.task.id) // the upstream keeps it no longer
		}
	case c.asksBack(m.Result):
		return p.releaseRound(ctx, c, &x, m.Result)
	case c.tellsOfTask(m.Result):
		return p.releaseTask(ctx, c, &x, m.Result)
	case c.wish == mappedTask && complete(m.Result):
		return p.keepResult(ctx, c, &x, m.Result)
	case c.lane.upstream != Self && !complete(m.Result):
		return p.releaseFailure(ctx, c, &x, FromUpstream{outcome: Ran, err: ErrBadAnswer})
	default:
		x.body, x.result = m.Result, c.method == mcp.ToolsCall
	}
	x.entry.Outcome = string(Ran)
	if p.pass(ctx, &x) != nil || !x.verdict.Permits() {
		return Released{Msg: p.deny(c.from, &x, Ran).Msg}, nil
	}
	if c.missing != 0 && c.from.Version.Stateless() && unsuccessful(m) {
		return c.lacking(c.missing), nil
	}
	c.altered, c.shown = len(x.found) > 0, x.policy
	return c.reply(m.Error != nil, x.final), nil
}

// unsuccessful reports whether a call did not do what it was to do.
func unsuccessful(m jsonrpc.Message) bool {
	wrong, _ := m.Result.Get("isError")
	return m.Error != nil || string(wrong) == "true"
}

// complete reports whether a result is one that ends its call. Any other kind asks the client for something, and nothing was
// agreed on that could.
func complete(result jsonrpc.Raw) bool {
	kind, has := result.Get("resultType")
	s, _ := kind.Text()
	return result.IsObject() && (!has || s == "complete")
}

// returning begins the crossing of what comes back for c.
func (p *Chokepoint) returning(c *clearance, kind blackbox.Kind) Crossing {
	x := Crossing{way: toClient, began: p.now(), open: c.open, facts: c.x.facts, role: c.x.verdict.Role, label: c.x.label}
	e := c.x.entry
	x.entry = blackbox.Entry{
		Kind: kind, Ref: blackbox.NewRef(), Cause: c.seq, Principal: e.Principal, Auth: e.Auth, Session: e.Session, Scope: e.Scope,
		Transport: e.Transport, Era: e.Era, Version: e.Version, Upstream: e.Upstream, Method: e.Method, Target: e.Target, RequestID: e.RequestID, Trace: e.Trace,
	}
	if kind != blackbox.Notification { // progress is part of the exchange
		x.trail = c.x.trail
	}
	if c.lane.upstream == Self {
		x.label = ifc.Bottom()
	}
	if c.sent != nil {
		x.paths = func() []string {
			paths, err := namedPaths(c.sent, c.x.facts.Item.Upstream)
			if err != nil {
				return nil
			}
			return paths
		}
	}
	return x
}

// releaseFailure records that a call has no answer, and makes the one that navra gives in its place. It carries nothing of the upstream's.
func (p *Chokepoint) releaseFailure(ctx context.Context, c *clearance, x *Crossing, in FromUpstream) (Released, error) {
	x.label = ifc.Bottom()
	outcome := in.outcome
	if outcome == "" {
		outcome = Unknown
	}
	x.entry.Outcome = string(outcome)
	f := failureOf(in.err, c.from.Version, c.x.facts.Topic)
	v := policy.Verdict{Effect: policy.Allow, Stage: policy.StageMessage, Reason: f.reason + ": " + errorText(in.err), Role: x.role}
	x.pre = &v
	if p.pass(ctx, x) != nil {
		return Released{Msg: p.deny(c.from, x, outcome).Msg}, nil
	}
	data := new(jsonrpc.Object).Text("reason", f.reason)
	if f.size != nil {
		data.Int("limit", f.size.Limit).Int("actual", f.size.Actual)
	}
	data.Text("outcome", string(outcome)).Text("ref", x.entry.Ref)
	text := fmt.Sprintf("navra: upstream %s: %s. %s Reference %s.", c.lane.upstream, f.text, outcomeText(outcome), x.entry.Ref)
	return Released{Msg: jsonrpc.Message{ID: c.from.In.Msg.ID, Error: &jsonrpc.Error{Code: f.code, Message: text, Data: data.Done()}}}, nil
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// releaseProgress lets progress through under the client's own token. It is recorded by itself only where it raises a
// label or is denied; else it is counted in the answer's entry.
func (p *Chokepoint) releaseProgress(ctx context.Context, c *clearance, m jsonrpc.Message) (Released, error) {
	if c.token == nil || c.answered.Load() || m.Method != mcp.Progress {
		return Released{Drop: true}, nil
	}
	x := p.returning(c, blackbox.Notification)
	if !p.light(ctx, &x, m.Method, withoutMeta(m.Params.Without("progressToken"), mcp.TraceParent, mcp.TraceState, mcp.Baggage)) {
		return Released{Drop: true}, nil
	}
	c.notes.Add(1)
	params := new(jsonrpc.Object).Raw("progressToken", c.token)
	for k, v := range x.final.Members() {
		params.Raw(k, v)
	}
	return Released{Msg: jsonrpc.Message{Method: m.Method, Params: params.Done()}}, nil
}

// light judges a notification that an upstream sends. It is recorded by itself only where it raises a label, is denied, or says how many there were.
func (p *Chokepoint) light(ctx context.Context, x *Crossing, method string, body jsonrpc.Raw) bool {
	x.entry.Method, x.body = method, body
	s, err := p.store.Scope(ctx, x.open)
	if err != nil || p.hearsay(ctx) != nil {
		return false
	}
	x.scope = s
	if p.settle(ctx, x) != nil {
		return false
	}
	v := p.judge(x)
	if !v.Permits() || !s.Label.Covers(x.label) || len(x.entry.Notes) > 0 {
		return p.pass(ctx, x) == nil && x.verdict.Permits()
	}
	return true
}

// releaseLog lets a log message through, where the call's client wants it.
func (p *Chokepoint) releaseLog(ctx context.Context, c *clearance, m jsonrpc.Message) (Released, error) {
	if c.answered.Load() || m.Method != mcp.Logging || !wanted(m, c.from) {
		return Released{Drop: true}, nil
	}
	x := p.returning(c, blackbox.Notification)
	if !p.light(ctx, &x, m.Method, withoutMeta(m.Params)) {
		return Released{Drop: true}, nil
	}
	c.logs.Add(1)
	return Released{Msg: jsonrpc.Message{Method: m.Method, Params: x.final}}, nil
}

// wanted reports whether a log message is one that its client asked for: in the stateless era by the request, in the other by setting a level;
// where it has set none, the upstream decides.
func wanted(m jsonrpc.Message, from Peer) bool {
	raw, _ := m.Params.Get("level")
	name, _ := raw.Text()
	level, ok := mcp.ParseLevel(name)
	return ok && level >= from.Level && (from.Level != 0 || !from.Version.Stateless())
}

// errorBody is an error object's text and data, for the filter; the code is a number and says nothing else.
func errorBody(e jsonrpc.Error) jsonrpc.Raw {
	return new(jsonrpc.Object).Int("code", int64(e.Code)).Text("message", e.Message).Raw("data", e.Data).Done()
}

// reply makes the client's answer from what was released, in the form of the client's version.
func (c *clearance) reply(failed bool, body jsonrpc.Raw) Released {
	out := Released{Msg: jsonrpc.Message{ID: c.from.In.Msg.ID}}
	if !failed {
		out.Msg.Result = c.adorn(body)
		return out
	}
	e := errorOf(body)
	e.Message = c.publicly(e.Message)
	v := c.from.Version
	switch {
	case c.lane.upstream == Self:
		out.Status = statusOf(e.Code, v)
	case e.Code == mcp.CodeMissingCapability:
		return c.wanting(e)
	case v.Stateless() && e.Code == -32002 && c.x.facts.Topic == mcp.Resource:
		e.Code, e.Data = jsonrpc.CodeInvalidParams, orEmpty(e.Data).With("uri", jsonrpc.Quote(c.x.facts.Item.Name))
	case e.Code == codeStopped || e.Code == codeDenied: // navra's own words about a call
		e.Code = jsonrpc.CodeInternal
	case e.Code <= -32020 && e.Code >= -32099: // the specification's own codes between two peers: they are about that hop
		e.Code = jsonrpc.CodeInternal
	}
	out.Msg.Error = &e
	return out
}

func orEmpty(v jsonrpc.Raw) jsonrpc.Raw {
	if v.IsObject() {
		return v
	}
	return jsonrpc.Raw("{}")
}

func errorOf(body jsonrpc.Raw) jsonrpc.Error {
	code, _ := body.Get("code")
	text, _ := body.Get("message")
	data, _ := body.Get("data")
	n, _ := code.Int()
	s, _ := text.Text()
	return jsonrpc.Error{Code: int(n), Message: s, Data: data}
}

// adorn adds what a result of the stateless era must carry, and takes out what belongs to the other hop.
func (c *clearance) adorn(v jsonrpc.Raw) jsonrpc.Raw {
	if c.lane.upstream != Self {
		v = result(withoutMeta(v), c.from.Version, c.method)
	}
	if !c.from.Version.Stateless() {
		return v
	}
	if _, has := v.Get("resultType"); !has {
		v = v.With("resultType", jsonrpc.Quote("complete"))
	}
	v = c.hinted(v)
	meta, _ := v.Get("_meta")
	return v.With("_meta", orEmpty(meta).With(mcp.Meta+"serverInfo", ServerInfo(c.by.version)))
}

// ServerInfo is what navra says of itself to both sides.
func ServerInfo(version string) jsonrpc.Raw {
	return new(jsonrpc.Object).Text("name", Navra).Text("version", version).Done()
}
