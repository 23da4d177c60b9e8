package chokepoint

import (
	"context"
	"fmt"
	"time"

	"navra/internal/blackbox"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// How often navra asks for the state of a task that it waits for. Each time is recorded, and the upstream says when: so an upstream that wants to
// be asked at once is asked less often as time goes on.
const (
	pollLeast = 50 * time.Millisecond
	pollMore  = 25 * time.Millisecond // that it waits longer after each time, up to pollUsual
	pollUsual = time.Second
	pollMost  = 30 * time.Second
)

// An OwnTask is a task that navra asks an upstream about by itself: one that it made of a call for a client that does not know tasks, or one that
// the client knows in the other form. It is used by one goroutine, but for what says otherwise.
type OwnTask struct {
	by    *Chokepoint
	c     *clearance // the client's call, or its request about the task
	id    string
	Wait  time.Duration   // before the task is asked for again
	Over  bool            // there is nothing to wait for: the result is to be had, or the client has to be asked by asking for it
	polls int64           // that were answered
	n     int64           // of the last progress
	told  time.Time       // when there was progress last
	said  jsonrpc.Raw     // of the task, last
	asked map[string]bool // what the client was asked, by the upstream's keys
}

// Waits reports whether m is a call that navra makes as a task and waits for.
func (m ToUpstream) Waits() bool { return m.c != nil && m.c.wish == ownTask }

// TaskMade takes the answer to such a call. It returns nil where it made no task: then it is released like any other.
func (p *Chokepoint) TaskMade(ctx context.Context, f FromUpstream) *OwnTask {
	c := f.cause
	if c == nil || c.by != p || f.kind != answer || c.wish != ownTask || c.answered.Load() {
		return nil
	}
	said, _ := f.msg.Result.Get("task")
	id, _, ok := stateOf(said)
	if !ok {
		return nil
	}
	x := p.returning(c, blackbox.Answer)
	v := policy.Verdict{Effect: policy.Allow, Stage: policy.StageMessage, Reason: "the call goes on as a task, which navra waits for", Role: x.role}
	x.pre, x.entry.Outcome, x.trail = &v, string(Unknown), nil
	if p.pass(ctx, &x) != nil {
		return nil
	}
	t := &OwnTask{by: p, c: c, id: id}
	t.heard(said)
	return t
}

// heard takes from a Task object how the task stands.
func (t *OwnTask) heard(said jsonrpc.Raw) {
	_, status, _ := stateOf(said)
	ended, _ := mcp.TaskEnded(status)
	t.polls++
	t.said, t.Over = said, ended || status == "input_required" && !t.c.maps()
	raw, has := said.Get("pollInterval")
	if !has {
		raw, _ = said.Get("pollIntervalMs")
	}
	t.Wait = pollUsual
	if ms, ok := raw.Int(); ok && ms >= 0 && ms < pollMost.Milliseconds() {
		t.Wait = max(min(pollLeast+time.Duration(t.polls)*pollMore, pollUsual), time.Duration(ms)*time.Millisecond)
	} else if ok {
		t.Wait = pollMost
	}
}

// Ask admits a request about the task: tasks/get, tasks/result or tasks/cancel.
func (t *OwnTask) Ask(ctx context.Context, method string) (ToUpstream, error) {
	if method != mcp.TasksGet && method != mcp.TasksResult && method != mcp.TasksCancel {
		return ToUpstream{}, ErrUncleared
	}
	if t.c.maps() && t.by.policy.Load().Name(t.c.x.facts).Denies() { // the request may wait for an hour
		return ToUpstream{}, ErrForbidden
	}
	return t.own(ctx, method, t.c.seq, nil)
}

// own admits one of navra's own requests about the task.
func (t *OwnTask) own(ctx context.Context, method string, cause blackbox.Seq, params jsonrpc.Raw) (ToUpstream, error) {
	p := t.by
	x := p.beginOwn(t.c.lane, method)
	x.entry.Cause, x.entry.Trace, x.entry.Target = cause, t.c.x.entry.Trace, t.c.x.entry.Target
	x.body = params
	if err := p.pass(ctx, &x); err != nil {
		return ToUpstream{}, fmt.Errorf("record %s: %w", method, err)
	}
	c := &clearance{by: p, lane: t.c.lane, id: jsonrpc.IntID(p.next.Add(1)), method: method, seq: x.entry.Seq, task: &task{id: t.id}, x: x}
	if t.c.maps() {
		c.caps = t.c.caps
	}
	if method == mcp.TasksResult { // the client may be asked meanwhile
		c.from, c.caps = t.c.from, t.c.caps
	}
	c.body = jsonrpc.Message{ID: c.id, Method: method, Params: c.tasked(params)}
	return ToUpstream{c}, nil
}

// mine reports whether f belongs to a request that Ask made.
func (t *OwnTask) mine(f FromUpstream) bool {
	c := f.cause
	return c != nil && c.by == t.by && c.task != nil && c.task.public == "" && c.task.id == t.id && c.lane == t.c.lane
}

// Learn records an answer to tasks/get, tasks/cancel or tasks/update, and takes from it how the task stands, where it says so. For tasks/update it
// may be called concurrently.
func (t *OwnTask) Learn(ctx context.Context, f FromUpstream) error {
	if !t.mine(f) || !f.Last() || f.cause.answered.Swap(true) {
		return ErrUncleared
	}
	id, _, ok := stateOf(f.msg.Result)
	acked := t.c.maps() && f.cause.method != mcp.TasksGet // by an empty result
	err := f.err
	switch {
	case f.kind == failure && err == nil:
		err = ErrUnavailable
	case f.kind == failure:
	case f.msg.Error != nil && f.msg.Error.Code == jsonrpc.CodeInvalidParams && t.c.maps():
		err = ErrNoTask
	case f.msg.Error != nil:
		err = fmt.Errorf("%s: the upstream answers error %d: %w", f.cause.method, f.msg.Error.Code, ErrBadAnswer)
	case acked && !f.msg.Result.IsObject(), !acked && (!ok || id != t.id):
		err = fmt.Errorf("%s: %w", f.cause.method, ErrBadAnswer)
	}
	if bad := t.note(ctx, f, err); bad != nil {
		return bad
	}
	if err == nil && !acked {
		t.heard(f.msg.Result)
	}
	return err
}

// note records what came for a request of Ask's.
func (t *OwnTask) note(ctx context.Context, f FromUpstream, err error) error {
	x := t.by.returning(f.cause, blackbox.OwnAnswer)
	v := policy.Allowed(policy.StageName)
	if err != nil {
		v = policy.Denied(policy.StageMessage, err.Error())
	}
	x.pre, x.entry.Outcome, x.trail = &v, string(f.outcome), nil
	if err := t.by.pass(ctx, &x); err != nil {
		return fmt.Errorf("record the answer to %s: %w", f.cause.method, err)
	}
	return nil
}

// As turns what comes for tasks/result into what comes for the client's call. The zero FromUpstream is refused by whoever gets it.
func (t *OwnTask) As(ctx context.Context, f FromUpstream) FromUpstream {
	if !t.mine(f) {
		return FromUpstream{}
	}
	if f.Last() {
		if f.cause.answered.Swap(true) {
			return FromUpstream{}
		}
		if err := t.note(ctx, f, f.err); err != nil {
			return t.Failed(Unknown, err)
		}
	}
	f.cause = t.c
	return f
}

// Failed says that the client's call will have no answer.
func (t *OwnTask) Failed(o Outcome, err error) FromUpstream {
	return ToUpstream{t.c}.Failed(o, err)
}

// Alive is progress that says nothing but that the call is not forgotten; ok is false where the last such was a moment ago.
func (t *OwnTask) Alive() (f FromUpstream, ok bool) {
	if now := t.by.now(); now.Sub(t.told) < pollUsual {
		return f, false
	} else {
		t.told = now
	}
	t.n++
	params := new(jsonrpc.Object).Int("progress", t.n).Text("message", "working").Done()
	return ToUpstream{t.c}.Progress(jsonrpc.Message{Method: mcp.Progress, Params: params}), true
}
