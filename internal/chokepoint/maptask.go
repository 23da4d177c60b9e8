package chokepoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// Reasons why a request about a task is not answered as it was meant.
var (
	ErrTaskEnded     = errors.New("the task has ended")
	ErrTaskCancelled = errors.New("the task was cancelled")
	ErrNoTask        = errors.New("the upstream knows the task no longer")
	ErrForbidden     = errors.New("the policy does not allow the task's tool any more")
	ErrTooManyWait   = errors.New("too many newer requests wait for results of tasks; the task goes on, and can be asked for again")
)

// maxTaskAsks bounds what one task asks of its client while it is waited for.
const maxTaskAsks = maxRound * maxRounds

// maps reports whether c is about a task, or makes one, that the client knows in the form of 2025-11-25 and the upstream has in that of the
// extension.
func (c *clearance) maps() bool { return c.wish == mappedTask || c.task != nil && c.task.mapped }

// coreTask puts a Task object of the extension in the form of 2025-11-25, which has the result apart. A call that came to an error of its tool has
// failed there. MCP 2025-11-25, basic/utilities/tasks §Task Status.
func coreTask(said jsonrpc.Raw) jsonrpc.Raw {
	if wrong, _ := said.Get("result", "isError"); string(wrong) == "true" {
		said = said.With("status", jsonrpc.Quote("failed"))
	}
	ttl, _ := said.Get("ttlMs")
	if _, whole := ttl.Int(); !whole {
		ttl = jsonrpc.Raw("null")
	}
	pause, _ := said.Get("pollIntervalMs")
	for _, name := range []string{"result", "error", "ttlMs", "pollIntervalMs", "resultType"} {
		said = said.Without(name)
	}
	said = said.With("ttl", ttl)
	if _, whole := pause.Int(); whole {
		said = said.With("pollInterval", pause)
	}
	return said
}

func (c *clearance) keptKey(id string) keptKey { return keptAt(c.lane, c.from.Who.Name(), id) }

// heldKey is what navra keeps of the task under that c is about. A task of the upstream's goes by the client's id: an upstream that was begun anew may
// give its own again.
func (c *clearance) heldKey() keptKey {
	if c.task.kept {
		return c.keptKey(c.task.id)
	}
	return c.keptKey(c.task.public)
}

// keepResult answers a call that was to become a task and has ended: with a task that has ended, whose result navra keeps until it is asked for.
func (p *Chokepoint) keepResult(ctx context.Context, c *clearance, x *Crossing, result jsonrpc.Raw) (Released, error) {
	now, life := p.now().UTC(), keptLife
	if raw, has := c.from.In.Msg.Params.Get("task", "ttl"); has {
		if ms, whole := raw.Int(); whole {
			life = min(life, time.Duration(min(ms, keptLife.Milliseconds()))*time.Millisecond)
		}
	}
	id, at := rand.Text(), now.Format(time.RFC3339)
	said := new(jsonrpc.Object).Text("taskId", id).Text("status", "completed").Text("createdAt", at).Text("lastUpdatedAt", at).Int("ttlMs", life.Milliseconds()).Done()
	if wrong, _ := result.Get("isError"); string(wrong) == "true" {
		said = said.With("status", jsonrpc.Quote("failed"))
	}
	v := policy.Verdict{Effect: policy.Allow, Stage: policy.StageMessage, Reason: "the call has ended at once; its result is kept until the client asks for it", Role: x.role}
	x.pre, x.label, x.entry.Outcome = &v, ifc.Bottom(), string(Ran)
	if p.pass(ctx, x) != nil {
		return Released{Msg: p.deny(c.from, x, Ran).Msg}, nil
	}
	p.kept.put(c.keptKey(id), keptTask{said: said, result: bytes.Clone(result), until: now.Add(life)}, now)
	return p.madeTask(c, new(jsonrpc.Object).Raw("task", coreTask(said.Without("taskId"))).Done(), task{id: id, mapped: true, kept: true}), nil
}

// ForgetKept drops what is kept of tasks of sessions that are over.
func (p *Chokepoint) ForgetKept(lanes []Lane) {
	for _, l := range lanes {
		p.kept.forget(l)
	}
}

// Maps reports whether m is about a task that its client and its upstream know in different forms.
func (m ToUpstream) Maps() bool { return m.c != nil && m.c.task != nil && m.c.task.mapped }

// Method is m's method; "" for the zero value.
func (m ToUpstream) Method() string {
	if m.c == nil {
		return ""
	}
	return m.c.method
}

// Held answers a request about a task that navra speaks for itself; ok is false where the upstream is to be asked.
func (p *Chokepoint) Held(m ToUpstream) (f FromUpstream, ok bool) {
	c := m.c
	if !m.Maps() || c.by != p {
		return FromUpstream{}, false
	}
	k, has := p.kept.get(c.heldKey(), p.now())
	if !has && !c.task.kept {
		return FromUpstream{}, false
	}
	if _, err := m.Spend(p); err != nil {
		return m.Failed(NotSent, err), true
	}
	switch {
	case !has: // since it was admitted
		return m.Failed(NotSent, ErrNoTask), true
	case c.method == mcp.TasksCancel:
		return m.Failed(NotSent, ErrTaskEnded), true
	case c.method == mcp.TasksGet:
		return m.Answer(jsonrpc.Message{Result: k.said}, 0), true
	case k.result == nil:
		return m.Failed(Unknown, ErrTaskCancelled), true
	}
	return m.Answer(jsonrpc.Message{Result: k.result}, 0), true
}

// MapTask begins to ask an upstream about a task in the place of its client's request m, which is not sent.
func (p *Chokepoint) MapTask(m ToUpstream) (*OwnTask, error) {
	if !m.Maps() {
		return nil, ErrUncleared
	}
	if _, err := m.Spend(p); err != nil {
		return nil, err
	}
	return &OwnTask{by: p, c: m.c, id: m.c.task.id, asked: map[string]bool{}}, nil
}

// Latched returns whether the client has cancelled the task, and what is closed when it may have done so.
func (t *OwnTask) Latched() (yes bool, next <-chan struct{}) {
	next = t.by.kept.next()
	_, yes = t.by.kept.get(t.c.heldKey(), t.by.now())
	return yes, next
}

// Latch is what a client is answered that has cancelled the task. To it the task is cancelled from now on: the upstream may go on with it all the same.
func (t *OwnTask) Latch() FromUpstream {
	now := t.by.now()
	said := t.said.With("status", jsonrpc.Quote("cancelled")).With("lastUpdatedAt", jsonrpc.Quote(now.UTC().Format(time.RFC3339)))
	for _, name := range []string{"statusMessage", "result", "error", "inputRequests", "resultType", "_meta"} {
		said = said.Without(name)
	}
	t.by.kept.put(t.c.heldKey(), keptTask{said: bytes.Clone(said)}, now)
	return ToUpstream{t.c}.Answer(jsonrpc.Message{Result: said}, 0)
}

// Outcome is what a client's tasks/result is answered when the task is over.
func (t *OwnTask) Outcome() FromUpstream {
	m := ToUpstream{t.c}
	_, status, _ := stateOf(t.said)
	if cancelled, _ := t.Latched(); cancelled { // in this moment
		status = "cancelled"
	}
	result, _ := t.said.Get("result")
	wrong, _ := t.said.Get("error")
	switch {
	case status == "cancelled":
		return m.Failed(Unknown, ErrTaskCancelled)
	case status == "completed" && result.IsObject():
		return m.Answer(jsonrpc.Message{Result: result}, 0)
	case status == "failed" && wrong.IsObject():
		e := errorOf(wrong)
		return m.Answer(jsonrpc.Message{Error: &e}, 0)
	}
	return m.Failed(Ran, ErrBadAnswer)
}

// An Unanswered reports what an upstream asked for during a task, and did not get.
type Unanswered struct{ Kind mcp.Question }

func (e Unanswered) Error() string { return "it asked for " + e.Kind.String() + ", and got no answer" }

// Asks returns what the upstream asks during the task and the client was not asked before for this request, released to go there.
func (t *OwnTask) Asks(ctx context.Context) (out []*Question, err error) {
	_, status, _ := stateOf(t.said)
	asks, _ := t.said.Get("inputRequests")
	if status != "input_required" {
		return nil, nil
	}
	for key, v := range asks.Members() {
		if t.asked[key] {
			continue
		}
		if t.asked[key] = true; len(t.asked) > maxTaskAsks || len(out) >= maxRound {
			return nil, fmt.Errorf("the upstream asks too much: %w", ErrBadAnswer)
		}
		raw, _ := v.Get("method")
		method, _ := raw.Text()
		params, _ := v.Get("params")
		q := &Question{by: t.by, call: t.c, kind: mcp.QuestionOf(method), lane: t.c.lane, key: key, to: t.c.from}
		verdict, err := t.by.pose(ctx, q, params)
		if err != nil {
			return nil, err
		}
		if !verdict.Permits() {
			return nil, Unanswered{q.kind}
		}
		out = append(out, q)
	}
	return out, nil
}

// Update judges what a client answers to a question of the task's, and makes of it what the upstream is told. A message with neither result nor
// error stands for no answer. The error is Unanswered where there is nothing that could go on. It may be called concurrently, once for each question.
func (t *OwnTask) Update(ctx context.Context, from Peer, q *Question, msg jsonrpc.Message) (ToUpstream, error) {
	p := t.by
	if q == nil || q.by != p || q.call != t.c || !q.to.Who.Same(from.Who) || q.answered.Swap(true) {
		return ToUpstream{}, ErrUncleared
	}
	value, bad, err := p.judgeAnswer(ctx, from, q, msg)
	if no := (*misfit)(nil); errors.As(err, &no) { // as in AdmitAnswer
		value, err = cancelled, nil
	}
	if err != nil {
		return ToUpstream{}, err
	}
	if bad != nil && q.kind == mcp.AskElicitation && msg.Result == nil {
		value, bad = cancelled, nil
	}
	if bad != nil { // sampling and roots have no form of refusal there
		return ToUpstream{}, Unanswered{q.kind}
	}
	return t.own(ctx, mcp.TasksUpdate, q.seq, new(jsonrpc.Object).Raw("inputResponses", new(jsonrpc.Object).Raw(q.key, value).Done()).Done())
}
