package chokepoint

import (
	"context"
	"slices"
	"sync"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// Bounds on what is remembered of tasks. What is forgotten can still be asked for by its id; it is only missing in lists, and nothing is told
// of it unasked.
const (
	maxLaneTasks = 256
	maxTaskLanes = 4096
)

// A taskTable remembers which tasks were made over connections of sessions, the oldest first. Upstreams cannot be asked: many list what
// others made, too.
type taskTable struct {
	mu    sync.Mutex
	lanes map[Lane][]tabled // guarded by mu
}

type tabled struct {
	task
	principal, session string
}

func (t *taskTable) add(c *clearance, id, public string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lanes == nil {
		t.lanes = map[Lane][]tabled{}
	}
	list := t.lanes[c.lane]
	if list == nil && len(t.lanes) >= maxTaskLanes {
		return
	}
	if len(list) >= maxLaneTasks {
		list = slices.Delete(list, 0, 1)
	}
	t.lanes[c.lane] = append(list, tabled{task{id, public}, c.from.Who.Name(), c.from.Session})
}

// public is what the session of a lane knows an upstream's task by; "" for none.
func (t *taskTable) public(l Lane, id string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.lanes[l] {
		if e.id == id && id != "" {
			return e.public
		}
	}
	return ""
}

func (t *taskTable) forget(l Lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.lanes, l)
}

// Tasks returns the ids of the tasks that a session made, by upstream and then the oldest first.
func (p *Chokepoint) Tasks(from Peer) (ids []string) {
	lanes := p.Lanes(from)
	p.tasks.mu.Lock()
	defer p.tasks.mu.Unlock()
	for _, l := range lanes {
		for _, e := range p.tasks.lanes[l] {
			if e.principal == from.Who.Name() && e.session == from.Session {
				ids = append(ids, e.public)
			}
		}
	}
	return ids
}

// taskNews puts the client's id in the place of the upstream's in what an upstream says of a task unasked; nil where the session has none such.
func (p *Chokepoint) taskNews(l Lane, params jsonrpc.Raw, to Peer) (public string, body jsonrpc.Raw) {
	id, _, ok := stateOf(params)
	if public = p.tasks.public(l, id); !ok || public == "" || mcp.TasksIn(to.Version) != mcp.CoreTasks {
		return "", nil
	}
	return public, withoutMeta(params.Without("taskId"))
}

// releaseTaskNews lets go on what an upstream says of a task of the session's, unasked.
func (p *Chokepoint) releaseTaskNews(ctx context.Context, in FromUpstream, to Peer) (Released, error) {
	public, body := p.taskNews(in.lane, in.msg.Params, to)
	t, ok := p.openTask(to, public)
	if public == "" || !ok {
		return Released{Drop: true}, nil
	}
	x := p.questioning(&Question{by: p, lane: in.lane, to: to})
	x.facts.Topic, x.facts.Item, x.label, x.entry.Target, x.entry.RequestID = mcp.Tool, t.item, t.item.Label(), t.item.Canonical(), ""
	v := p.policy.Load().Name(x.facts)
	x.role = v.Role
	if !v.Permits() || !p.light(ctx, &x, in.msg.Method, body) {
		return Released{Drop: true}, nil
	}
	return Released{Msg: jsonrpc.Message{Method: in.msg.Method, Params: x.final.With("taskId", jsonrpc.Quote(public))}}, nil
}

// publicTask is what the client that is asked a question knows its task by; "" where it knows none.
func (p *Chokepoint) publicTask(q *Question) string {
	if q.call != nil && q.call.task != nil && q.call.task.id == q.task {
		return q.call.task.public
	}
	return p.tasks.public(q.lane, q.task)
}
