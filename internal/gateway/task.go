package gateway

import (
	"context"
	"iter"
	"strconv"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

const (
	// taskLimit is how long navra waits for a task that it made of a call.
	taskLimit = time.Hour
	// dropWait is how long an upstream may take to be told that nobody waits for a task any more.
	dropWait = 5 * time.Second
	// taskPage is how many tasks a page of a list has: each of them is asked for.
	taskPage = 20
	// listWait is how long the upstreams have for a page; what they do not answer in that time is left out.
	listWait = 30 * time.Second
)

// withTasks adds tasks to what navra says it has, in the form of the version, if an upstream has them in that form.
func withTasks(caps jsonrpc.Raw, view chokepoint.View, v mcp.Version) jsonrpc.Raw {
	offered, lists, cancel := view.Tasks()
	empty := jsonrpc.Raw("{}")
	switch {
	case !offered:
		return caps
	case v.Stateless():
		return caps.With("extensions", new(jsonrpc.Object).Raw(mcp.TaskExtension, empty).Done())
	}
	o := new(jsonrpc.Object)
	if lists {
		o.Raw("list", empty)
	}
	if cancel {
		o.Raw("cancel", empty)
	}
	calls := new(jsonrpc.Object).Raw("call", empty).Done()
	return caps.With("tasks", o.Raw("requests", new(jsonrpc.Object).Raw("tools", calls).Done()).Done())
}

// sending sends m and yields what comes back. A call that its upstream makes a task only, for a client that does not know tasks, goes on until
// the task has ended. w is how its client is asked something.
func (g *Gateway) sending(ctx context.Context, m chokepoint.ToUpstream, w way) iter.Seq[chokepoint.FromUpstream] {
	switch {
	case m.Maps():
		return g.mapped(ctx, m, w)
	case !m.Waits():
		return g.upstreams.Send(ctx, m)
	}
	return func(yield func(chokepoint.FromUpstream) bool) {
		var made *chokepoint.OwnTask
		for f := range g.upstreams.Send(ctx, m) {
			if f.Last() {
				made = g.chokepoint.TaskMade(ctx, f)
			}
			if made == nil && !yield(f) {
				return
			}
		}
		if made != nil {
			g.await(ctx, made, yield)
		}
	}
}

// await asks for a task until there is something to have, and then for that. A task that nobody waits for any more is cancelled.
func (g *Gateway) await(ctx context.Context, t *chokepoint.OwnTask, yield func(chokepoint.FromUpstream) bool) {
	ctx, stop := context.WithTimeoutCause(ctx, taskLimit, chokepoint.ErrDeadline)
	defer stop()
	for !t.Over {
		if f, ok := t.Alive(); ok && !yield(f) {
			g.dropTask(ctx, t)
			return
		}
		select {
		case <-ctx.Done():
			g.dropTask(ctx, t)
			yield(t.Failed(chokepoint.Unknown, context.Cause(ctx)))
			return
		case <-time.After(t.Wait):
		}
		if err := g.askTask(ctx, t, mcp.TasksGet); err != nil && ctx.Err() == nil {
			yield(t.Failed(chokepoint.Unknown, err))
			return
		}
	}
	m, err := t.Ask(ctx, mcp.TasksResult)
	if err != nil {
		yield(t.Failed(chokepoint.Unknown, err))
		return
	}
	for f := range g.upstreams.Send(ctx, m) {
		if f.Last() && ctx.Err() != nil {
			g.dropTask(ctx, t)
		}
		if !yield(t.As(context.WithoutCancel(ctx), f)) {
			return
		}
	}
}

// askTask makes one short request about a task.
func (g *Gateway) askTask(ctx context.Context, t *chokepoint.OwnTask, method string) error {
	m, err := t.Ask(ctx, method)
	if err != nil {
		return err
	}
	return g.learnTask(ctx, t, m)
}

func (g *Gateway) learnTask(ctx context.Context, t *chokepoint.OwnTask, m chokepoint.ToUpstream) (err error) {
	for f := range g.upstreams.Send(ctx, m) {
		if f.Last() {
			err = t.Learn(context.WithoutCancel(ctx), f)
		}
	}
	return err
}

// dropTask cancels a task that nobody waits for.
func (g *Gateway) dropTask(ctx context.Context, t *chokepoint.OwnTask) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), dropWait)
	defer stop()
	if err := g.askTask(ctx, t, mcp.TasksCancel); err != nil {
		g.log.Warn("a task that nobody waits for could not be cancelled", "err", err)
	}
}

// taskCursor binds a cursor to whose list it goes on with.
func taskCursor(from chokepoint.Peer) []byte {
	return []byte("tasks\x00" + from.Session + "\x00" + from.Who.Name())
}

// listTasks answers with the tasks that a session has made. Each is asked for by itself, as the session itself would: its state is as it is
// now, and was judged.
func (g *Gateway) listTasks(ctx context.Context, from chokepoint.Peer) jsonrpc.Message {
	m := jsonrpc.Message{ID: from.In.Msg.ID}
	first := 0
	if raw, has := from.In.Msg.Params.Get("cursor"); has && !raw.IsNull() {
		text, _ := raw.Text()
		plain, err := g.seal.Open(text, taskCursor(from))
		if first, _ = strconv.Atoi(string(plain)); err != nil || first <= 0 {
			m.Error = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Invalid params: unknown cursor"}
			return m
		}
	}
	ids := g.chokepoint.Tasks(from)
	end := min(first+taskPage, len(ids))
	ctx, stop := context.WithTimeout(ctx, listWait)
	defer stop()
	var tasks []jsonrpc.Raw
	for _, id := range ids[min(first, end):end] {
		if said := g.getTask(ctx, from, id); said != nil {
			tasks = append(tasks, said.Without("_meta"))
		}
	}
	o := new(jsonrpc.Object).Raw("tasks", jsonrpc.Array(tasks...))
	if end < len(ids) {
		o.Text("nextCursor", g.seal.Seal([]byte(strconv.Itoa(end)), taskCursor(from)))
	}
	m.Result = o.Done()
	return m
}

// getTask asks for one task as the peer would; nil where it is not to be had.
func (g *Gateway) getTask(ctx context.Context, from chokepoint.Peer, id string) (said jsonrpc.Raw) {
	from.In.Msg.Method = mcp.TasksGet
	from.In.Msg.Params = new(jsonrpc.Object).Text("taskId", id).Done()
	out, _, err := g.chokepoint.Admit(ctx, from)
	if err != nil || out.IsZero() {
		return nil
	}
	for f := range g.sending(ctx, out, way{}) {
		if m, err := g.chokepoint.Release(ctx, f, from); err == nil && f.Last() {
			said = m.Msg.Result
		}
	}
	return said
}
