package chokepoint

import (
	"context"
	"strings"

	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// immediate says what the model may be told while a task runs. MCP 2025-11-25, basic/utilities/tasks §Model Immediate Response.
const immediate = mcp.Meta + "model-immediate-response"

// tellsOfTask reports whether the answer to c makes a task, or is about one.
func (c *clearance) tellsOfTask(result jsonrpc.Raw) bool {
	if c.task != nil {
		return true
	}
	if c.method != mcp.ToolsCall {
		return false
	}
	_, made := result.Get("task")
	kind, _ := result.Get("resultType")
	return c.wish != noTask && made || c.caps&mcp.CanTask != 0 && string(kind) == `"task"`
}

// stateOf returns the task's id and status of a Task object; ok is false where they are not valid.
func stateOf(said jsonrpc.Raw) (id, status string, ok bool) {
	raw, _ := said.Get("taskId")
	id, ok = raw.Text()
	raw, _ = said.Get("status")
	status, _ = raw.Text()
	_, known := mcp.TaskEnded(status)
	return id, status, ok && known && id != "" && len(id) <= maxTaskID
}

// releaseTask judges an answer that makes a task or is about one. What it holds is filtered and labelled like the answer to the call; the
// upstream's id stays here.
func (p *Chokepoint) releaseTask(ctx context.Context, c *clearance, x *Crossing, result jsonrpc.Raw) (Released, error) {
	if c.wish == ownTask || !result.IsObject() {
		return p.releaseFailure(ctx, c, x, FromUpstream{outcome: Unknown, err: ErrBadAnswer})
	}
	switch {
	case c.method == mcp.TasksResult:
		return p.releaseTaskResult(ctx, c, x, result)
	case c.method == mcp.TasksUpdate, c.method == mcp.TasksCancel && c.from.Version.Stateless():
		x.body, x.label, x.entry.Outcome = jsonrpc.Raw("{}"), ifc.Bottom(), string(Unknown) // it says only that it was heard
		if p.pass(ctx, x) != nil || !x.verdict.Permits() {
			return Released{Msg: p.deny(c.from, x, Unknown).Msg}, nil
		}
		return c.reply(false, x.final), nil
	}
	said := result
	if c.wish == asTask {
		said, _ = result.Get("task")
	}
	id, status, ok := stateOf(said)
	if !ok || c.task != nil && c.task.id != id {
		return p.releaseFailure(ctx, c, x, FromUpstream{outcome: Unknown, err: ErrBadAnswer})
	}
	asked, _ := said.Get("inputRequests")
	if inner, has := said.Get("result"); has {
		said = said.With("result", withoutMeta(inner))
	}
	said = said.Without("taskId").Without("inputRequests").Without("requestState")
	outcome := Unknown
	if status == "completed" || status == "failed" {
		outcome = Ran
	}
	x.entry.Outcome, x.body, x.inner = string(outcome), said, true
	switch {
	case c.wish == asTask:
		x.body = result.With("task", said)
	case c.wish == mappedTask:
		x.body = new(jsonrpc.Object).Raw("task", coreTask(withoutMeta(said)).Without("_meta")).Done()
	case c.maps():
		x.body = coreTask(said)
	}
	if p.pass(ctx, x) != nil || !x.verdict.Permits() {
		return Released{Msg: p.deny(c.from, x, outcome).Msg}, nil
	}
	if c.task != nil {
		return p.retold(ctx, c, x, status, asked), nil
	}
	return p.madeTask(c, x.final, task{id: id, mapped: c.maps()}), nil
}

// madeTask is the answer to a call that goes on as a task.
func (p *Chokepoint) madeTask(c *clearance, final jsonrpc.Raw, t task) Released {
	public := p.sealTask(c, t)
	if c.wish == noTask {
		return c.reply(false, final.With("taskId", jsonrpc.Quote(public)))
	}
	said, _ := final.Get("task")
	told, _ := final.Get("_meta", immediate)
	out := c.reply(false, new(jsonrpc.Object).Raw("task", said.With("taskId", jsonrpc.Quote(public))).Done())
	if _, text := told.Text(); text {
		out.Msg.Result = out.Msg.Result.With("_meta", new(jsonrpc.Object).Raw(immediate, told).Done())
	}
	p.tasks.add(c, t.id, public)
	return out
}

// retold is the answer to a question about a task. What the upstream asks the client for is judged question by question.
func (p *Chokepoint) retold(ctx context.Context, c *clearance, x *Crossing, status string, asked jsonrpc.Raw) Released {
	if ended, _ := mcp.TaskEnded(status); ended {
		p.tasks.ended(c.lane, c.task.id)
	}
	out := c.publiclySaid(x.final).With("taskId", jsonrpc.Quote(c.task.public))
	if status != "input_required" || !c.from.Version.Stateless() {
		return c.reply(false, out)
	}
	asks, n := new(jsonrpc.Object), 0
	for key, v := range asked.Members() {
		raw, _ := v.Get("method")
		method, _ := raw.Text()
		params, _ := v.Get("params")
		q := &Question{by: p, call: c, kind: mcp.QuestionOf(method), lane: c.lane, key: key, to: c.from}
		verdict, err := p.pose(ctx, q, params)
		if n++; err != nil || !verdict.Permits() || n > maxRound {
			return p.unasked(c, x, q, verdict)
		}
		asks.Raw(key, q.input())
	}
	return c.reply(false, out.With("inputRequests", asks.Done()))
}

// releaseTaskResult judges what a task came to, like the answer to the call that it is.
func (p *Chokepoint) releaseTaskResult(ctx context.Context, c *clearance, x *Crossing, r jsonrpc.Raw) (Released, error) {
	x.body, x.result, x.entry.Outcome = r, true, string(Ran)
	if p.pass(ctx, x) != nil || !x.verdict.Permits() {
		return Released{Msg: p.deny(c.from, x, Ran).Msg}, nil
	}
	p.tasks.ended(c.lane, c.task.id)
	out := c.reply(false, result(x.final, c.from.Version, mcp.ToolsCall))
	out.Msg.Result = related(out.Msg.Result, c.task.public)
	return out, nil
}

// related says of which task a message is.
func related(v jsonrpc.Raw, id string) jsonrpc.Raw {
	meta, _ := v.Get("_meta")
	return v.With("_meta", orEmpty(meta).With(mcp.RelatedTask, new(jsonrpc.Object).Text("taskId", id).Done()))
}

// relatedTo returns the upstream's id of the task that a message says it is of; "" for none.
func relatedTo(params jsonrpc.Raw) string {
	raw, _ := params.Get("_meta", mcp.RelatedTask, "taskId")
	id, _ := raw.Text()
	return id
}

// maxMentions bounds how often a text is let name its task: an upstream's id may be one sign, and the client's is long.
const maxMentions = 16

// publicly is an upstream's error text about a task, with the id that the client knows. What names it more often loses the rest of the names.
func (c *clearance) publicly(text string) string {
	if c.task == nil || c.task.public == "" {
		return text
	}
	parts := strings.SplitN(text, c.task.id, maxMentions+1)
	last := len(parts) - 1
	parts[last] = strings.ReplaceAll(parts[last], c.task.id, "")
	return strings.Join(parts, c.task.public)
}

// publiclySaid puts the id that the client knows into what a Task object says in words.
func (c *clearance) publiclySaid(said jsonrpc.Raw) jsonrpc.Raw {
	for _, at := range []string{"statusMessage", "error"} {
		v, has := said.Get(at)
		if !has {
			continue
		}
		if text, ok := v.Text(); ok {
			said = said.With(at, jsonrpc.Quote(c.publicly(text)))
			continue
		}
		raw, _ := v.Get("message")
		if text, ok := raw.Text(); ok {
			said = said.With(at, v.With("message", jsonrpc.Quote(c.publicly(text))))
		}
	}
	return said
}
