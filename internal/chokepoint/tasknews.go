package chokepoint

import (
	"context"

	"navra/internal/blackbox"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/scope"
)

// AdmitTaskWatch judges and records one of the tasks that a subscriptions/listen names, as if it were asked for.
func (p *Chokepoint) AdmitTaskWatch(ctx context.Context, from Peer, id string) (Watch, bool) {
	x := p.begin(from)
	refusal := p.aboutTask(from, &x, id)
	if refusal != nil || x.task == nil || from.In.Msg.Method != mcp.Listen || from.Caps&mcp.CanTask == 0 {
		v := policy.Denied(policy.StageMessage, "unknown task")
		x.pre, x.open = &v, scope.Opening{}
	}
	if p.pass(ctx, &x) != nil || !x.verdict.Permits() {
		return Watch{}, false
	}
	return Watch{p, x.made, x.task.id, id}, true
}

// AdmitTaskNews makes of news of a task the request for its state, as the client that listens would make it: what an upstream says of a task
// unasked does not go on. The error is a *Refusal where the client may not know of the task any more.
func (p *Chokepoint) AdmitTaskNews(ctx context.Context, n News, w Watch, to Peer) (ToUpstream, error) {
	if n.by != p || !n.task || !n.Under(w) || to.Who.IsZero() || to.In.Msg.Method != mcp.Listen {
		return ToUpstream{}, ErrUncleared
	}
	to.In.Msg = jsonrpc.Message{ID: to.In.Msg.ID, Method: mcp.TasksGet, Params: new(jsonrpc.Object).Text("taskId", w.task).Done()}
	m, ask, err := p.Admit(ctx, to)
	if ask != nil {
		err = ask.Refusal
	}
	if err != nil {
		return ToUpstream{}, err
	}
	m.c.news = true
	return m, nil
}

// TellTask releases the answer to a request that AdmitTaskNews made as the notification that the client asked for. It is judged and recorded like
// any answer about a task. Where there is none, or it may not go, nothing is told: the client can ask.
func (p *Chokepoint) TellTask(ctx context.Context, in FromUpstream, to Peer) (Released, error) {
	c := in.cause
	if c == nil || !c.news || !in.Last() || to.In.Msg.Method != mcp.Listen {
		return Released{}, ErrUncleared
	}
	out, err := p.Release(ctx, in, to)
	if err != nil || !out.Msg.Result.IsObject() {
		return Released{Drop: true}, err
	}
	said := out.Msg.Result.Without("resultType").Without("_meta")
	return Released{Msg: tagged(jsonrpc.Message{Method: mcp.TaskNews, Params: said}, to)}, nil
}

// asNews records the answer to a request that AdmitTaskNews made as what the client gets of it.
func (c *clearance) asNews(x *Crossing) {
	if c.news {
		x.entry.Kind, x.entry.Method = blackbox.Notification, mcp.TaskNews
	}
}
