package chokepoint

import (
	"context"
	"fmt"

	"navra/internal/blackbox"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// codeOpenURL asks the client to have URLs opened before it calls again. MCP 2025-11-25, client/elicitation §URL Elicitation Required.
const codeOpenURL = -32042

// releaseURLs releases an error that asks for URLs to be opened: as it is to a client that knows it, as a result that asks to one of the
// stateless era, and without the URLs to any other, whose person could not tell who asks.
func (p *Chokepoint) releaseURLs(ctx context.Context, c *clearance, x *Crossing, e jsonrpc.Error) (Released, error) {
	list, _ := e.Data.Get("elicitations")
	if err := p.recordAsking(ctx, x); err != nil {
		return Released{Msg: p.deny(c.from, x, Unknown).Msg}, nil
	}
	var questions []*Question
	for v := range list.Elements() {
		q := &Question{by: p, call: c, kind: mcp.AskElicitation, lane: c.lane, key: fmt.Sprintf("url%d", len(questions)+1), to: c.from}
		verdict, err := p.pose(ctx, q, v.With("mode", jsonrpc.Quote("url")))
		if err != nil || !verdict.Permits() || len(questions) >= maxRound || c.rounds >= maxRounds {
			if c.from.Version.Stateless() {
				return p.unasked(c, x, q, verdict), nil
			}
			questions = nil
			break
		}
		questions = append(questions, q)
	}
	switch {
	case len(questions) == 0:
		text := "the upstream asks for a URL to be opened, which this client has not agreed to"
		return Released{Msg: jsonrpc.Message{ID: c.from.In.Msg.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: text}}}, nil
	case c.from.Version.Stateless():
		return Released{Msg: p.inputRequired(c, questions, retry{again: true})}, nil
	}
	var urls []jsonrpc.Raw
	for _, q := range questions {
		urls = append(urls, q.params)
	}
	data := new(jsonrpc.Object).Raw("elicitations", jsonrpc.Array(urls...)).Done()
	return Released{Msg: jsonrpc.Message{ID: c.from.In.Msg.ID, Error: &jsonrpc.Error{Code: codeOpenURL, Message: "a URL must be opened first", Data: data}}}, nil
}

// wanting answers a call whose upstream says that its client cannot be asked what it needs.
func (c *clearance) wanting(e jsonrpc.Error) Released {
	need, _ := e.Data.Get("requiredCapabilities")
	caps := mcp.CapabilitiesOf(need, mcp.V20260728)
	if missing := caps &^ c.from.Caps; missing != 0 {
		return c.lacking(missing)
	}
	text := "the upstream needs something of the client that it cannot be asked: " + string(need)
	if caps != 0 {
		text = "denied by navra: the upstream needs to ask the client, and no rule lets it: " + string(caps.Object(mcp.V20260728))
	}
	return Released{Msg: jsonrpc.Message{ID: c.from.In.Msg.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: text, Data: e.Data}}}
}

// serves reports whether what comes over a lane is for the peer, and for nobody else.
func (p *Chokepoint) serves(l Lane, to Peer) bool {
	return l.session != "" && !to.Who.IsZero() && l == p.lane(to, l.upstream)
}

// ReleaseUnasked judges what an upstream sent to a session without a call that it belongs to: a question, or a notification. It may go to the
// one client whose session the connection serves. Notifications that cross are counted, and recorded when their count is 1, 10, 100 and so on.
func (p *Chokepoint) ReleaseUnasked(ctx context.Context, in FromUpstream, to Peer) (Released, error) {
	if in.by != p || in.kind != unsolicited || !p.serves(in.lane, to) {
		return Released{}, ErrUncleared
	}
	if in.msg.Kind() == jsonrpc.Request {
		return p.releaseQuestion(ctx, nil, in, to)
	}
	if in.msg.Method == mcp.TaskStatus || in.msg.Method == mcp.Progress {
		return p.releaseTaskNews(ctx, in, to)
	}
	if m := in.msg.Method; m != mcp.Logging && m != mcp.Elicited {
		return Released{Drop: true}, nil
	}
	if in.msg.Method == mcp.Logging && !wanted(in.msg, to) {
		return Released{Drop: true}, nil
	}
	q := &Question{by: p, lane: in.lane, to: to}
	x := p.questioning(q)
	x.entry.Kind, x.entry.RequestID = blackbox.FromUpstream, ""
	x.anew = func(pol *policy.Policy) policy.Verdict { return anyRole(pol, to) }
	if x.anew(p.policy.Load()).Denies() {
		return Released{Drop: true}, nil
	}
	at := heard{in.lane, true}
	if n := p.count(at, in.msg.Method, 1); decade(n) {
		x.entry.Notes = []blackbox.Count{{Name: in.msg.Method, N: n}}
	}
	if !p.light(ctx, &x, in.msg.Method, withoutMeta(in.msg.Params)) {
		p.count(at, in.msg.Method, -1) // it did not cross
		return Released{Drop: true}, nil
	}
	return Released{Msg: jsonrpc.Message{Method: in.msg.Method, Params: x.final}}, nil
}

// anyRole permits by the role of a peer whose clearance is held against what no call of its asked for.
func anyRole(pol *policy.Policy, to Peer) policy.Verdict {
	for _, name := range pol.Roles(to.Who) {
		return policy.Verdict{Effect: policy.Allow, Stage: policy.StageName, Role: name}
	}
	return policy.Denied(policy.StageName, "the principal has no role")
}
