package chokepoint

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
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
	call               jsonrpc.ID  // that made it: what progress is reported on
	token              jsonrpc.Raw // of its client; nil: it wants no progress, or the task has ended
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
	t.lanes[c.lane] = append(list, tabled{task{id: id, public: public}, c.from.Who.Name(), c.from.Session, c.id, c.token})
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

func (t *taskTable) drop(l Lane, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if list, ok := t.lanes[l]; ok {
		t.lanes[l] = slices.DeleteFunc(list, func(e tabled) bool { return e.id == id })
	}
}

// ended ends the progress of a task.
func (t *taskTable) ended(l Lane, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, e := range t.lanes[l] {
		if e.id == id {
			t.lanes[l][i].token = nil
		}
	}
}

// reported returns the task that progress under a token of navra's is of.
func (t *taskTable) reported(l Lane, params jsonrpc.Raw) (e tabled, ok bool) {
	raw, _ := params.Get("progressToken")
	call, is := jsonrpc.IDOf(raw)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.lanes[l] {
		if is && e.call == call && e.token != nil {
			return e, true
		}
	}
	return e, false
}

func (t *taskTable) forget(l Lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.lanes, l)
}

// over returns the tasks of a lane, whatever its client could be asked when they were made: a policy that changes that changes nothing about them. made
// are all lanes that have some; t.mu is held.
func (t *taskTable) over(l Lane, made []Lane) (all []tabled) {
	l.caps = 0
	for _, m := range made {
		bare := m
		if bare.caps = 0; bare == l {
			all = append(all, t.lanes[m]...)
		}
	}
	return all
}

// Tasks returns the ids of the tasks that a session made, by upstream and then the oldest first.
func (p *Chokepoint) Tasks(from Peer) (ids []string) {
	lanes := p.Lanes(from)
	p.tasks.mu.Lock()
	defer p.tasks.mu.Unlock()
	made := slices.SortedFunc(maps.Keys(p.tasks.lanes), func(a, b Lane) int { return cmp.Compare(a.caps, b.caps) })
	for _, l := range lanes {
		for _, e := range p.tasks.over(l, made) {
			if e.principal == from.Who.Name() && e.session == from.Session {
				ids = append(ids, e.public)
			}
		}
	}
	return ids
}

// Follows reports whether a message of an upstream's is progress of a task that was made over the lane.
func (p *Chokepoint) Follows(l Lane, m jsonrpc.Message) bool {
	_, ok := p.tasks.reported(l, m.Params)
	return ok
}

// releaseTaskNews lets go on what an upstream says of a task of the session's, unasked: its status, or progress of the call that made it.
func (p *Chokepoint) releaseTaskNews(ctx context.Context, in FromUpstream, to Peer) (Released, error) {
	key, id := "taskId", ""
	var value jsonrpc.Raw
	if in.msg.Method == mcp.Progress {
		e, _ := p.tasks.reported(in.lane, in.msg.Params)
		key, id, value = "progressToken", e.public, e.token
	} else if said, _, ok := stateOf(in.msg.Params); ok {
		id = p.tasks.public(in.lane, said)
		value = jsonrpc.Quote(id)
	}
	t, ok := p.openTask(to, id)
	if !ok || value == nil {
		return Released{Drop: true}, nil
	}
	body := withoutMeta(in.msg.Params.Without(key), mcp.TraceParent, mcp.TraceState, mcp.Baggage)
	x := p.questioning(&Question{by: p, lane: in.lane, to: to})
	x.facts.Topic, x.facts.Item, x.label, x.entry.Target, x.entry.RequestID = mcp.Tool, t.item, t.item.Label(), t.item.Canonical(), ""
	x.anew = func(pol *policy.Policy) policy.Verdict { return unaskedName(pol, x.facts) }
	if x.anew(p.policy.Load()).Denies() || !p.light(ctx, &x, in.msg.Method, body) {
		return Released{Drop: true}, nil
	}
	return Released{Msg: jsonrpc.Message{Method: in.msg.Method, Params: x.final.With(key, value)}}, nil
}

// publicTask is what the client that is asked a question knows its task by; "" where it knows none.
func (p *Chokepoint) publicTask(q *Question) string {
	if q.call != nil && q.call.task != nil && q.call.task.id == q.task {
		return q.call.task.public
	}
	return p.tasks.public(q.lane, q.task)
}
