package chokepoint

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	"navra/internal/auth"
	"navra/internal/blackbox"
	"navra/internal/filter"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/scope"
)

// Navra is the principal of navra's own messages.
const Navra = "navra"

// own admits one of navra's own messages. Its bytes are made here, from constants, configuration and what was admitted or released
// before; no caller hands any in.
func (p *Chokepoint) own(ctx context.Context, l Lane, id jsonrpc.ID, method string, params jsonrpc.Raw, v *Visit) (ToUpstream, error) {
	return p.ownFor(ctx, "", l, id, method, params, v)
}

// ownFor is own for a message that a request with that trace caused: the entry says so, the message does not.
func (p *Chokepoint) ownFor(ctx context.Context, trace string, l Lane, id jsonrpc.ID, method string, params jsonrpc.Raw, v *Visit) (ToUpstream, error) {
	x := p.beginOwn(l, method)
	p.lead(&x)
	x.body = x.trail.carry(params)
	if trace != "" {
		x.entry.Trace = trace
	}
	if err := p.pass(ctx, &x); err != nil {
		return ToUpstream{}, fmt.Errorf("record %s: %w", method, err)
	}
	c := &clearance{by: p, lane: l, id: id, method: method, visit: v, seq: x.entry.Seq}
	c.body = jsonrpc.Message{ID: id, Method: method, Params: x.final}
	c.x = x
	if id.IsZero() {
		p.endedAlone(&x)
	}
	return ToUpstream{c}, nil
}

func (p *Chokepoint) beginOwn(l Lane, method string) Crossing {
	v := policy.Allowed(policy.StageName)
	x := Crossing{way: toUpstream, began: p.now(), pre: &v}
	x.facts.Who = auth.Self()
	x.facts.Item.Upstream = p.book.Upstream(l.upstream)
	x.entry = blackbox.Entry{Kind: blackbox.Own, Ref: blackbox.NewRef(), Principal: Navra, Auth: Navra, Upstream: l.upstream, Method: method}
	return x
}

// AdmitCancel makes the cancellation of a message that was sent: its id alone, without the client's reason.
func (p *Chokepoint) AdmitCancel(ctx context.Context, m ToUpstream) (ToUpstream, error) {
	if m.c == nil || m.c.by != p || !m.c.spent.Load() || m.c.lane.upstream == Self || m.c.id.IsZero() {
		return ToUpstream{}, ErrUncleared
	}
	params := new(jsonrpc.Object).Raw("requestId", m.c.id.Raw()).Done()
	return p.ownFor(ctx, m.c.x.entry.Trace, m.c.lane, jsonrpc.ID{}, mcp.Cancelled, params, nil)
}

// Resent records that a message goes to its upstream once more: its connection was lost before anything of it had left, or it only reads.
func (p *Chokepoint) Resent(ctx context.Context, m ToUpstream) error {
	if m.c == nil || m.c.by != p {
		return ErrUncleared
	}
	const why = "the connection was lost; it is sent once more"
	x := p.beginOwn(m.c.lane, m.c.method)
	x.pre.Reason = why
	x.entry.Cause, x.entry.Target, x.entry.RequestID = m.c.seq, m.c.x.entry.Target, m.c.id.String()
	if m.c.asked { // by a client: it may not be allowed any more
		x.pre, x.facts = nil, m.c.x.facts
		x.anew = func(pol *policy.Policy) policy.Verdict {
			v := pol.Name(x.facts)
			if !v.Denies() {
				v.Effect, v.Reason = policy.Allow, why
			}
			return v
		}
	}
	if err := p.pass(ctx, &x); err != nil {
		return err
	}
	if !x.verdict.Permits() {
		return errors.New(x.verdict.Reason)
	}
	return nil
}

// AdmitRootsChanged makes the notice that the client's roots are others now.
func (p *Chokepoint) AdmitRootsChanged(ctx context.Context, l Lane) (ToUpstream, error) {
	return p.own(ctx, l, jsonrpc.ID{}, mcp.RootsChanged, nil, nil)
}

// AdmitLevel makes the request that log messages of a connection begin at a level. Its answer is learnt by the visit.
func (v *Visit) AdmitLevel(ctx context.Context, level mcp.Level) (ToUpstream, error) {
	return v.by.own(ctx, v.lane, v.nextID(), mcp.SetLevel, new(jsonrpc.Object).Text("level", level.String()).Done(), v)
}

// AdmitReply judges and records a request that an upstream started, and makes navra's own answer to it: ping is answered,
// roots/list where the operator gave the upstream a root, and everything else is refused as a method that is not there.
func (p *Chokepoint) AdmitReply(ctx context.Context, in FromUpstream) (ToUpstream, error) {
	if in.by != p || in.kind != unsolicited || in.msg.Kind() != jsonrpc.Request {
		return ToUpstream{}, ErrUncleared
	}
	reply := jsonrpc.Message{ID: in.msg.ID}
	v := policy.Allowed(policy.StageName)
	u := p.book.Upstream(in.lane.upstream)
	switch {
	case in.msg.Method == mcp.Ping:
		reply.Result = jsonrpc.Raw("{}")
	case in.msg.Method == mcp.RootsList && u.Root != "":
		reply.Result = new(jsonrpc.Object).Raw("roots", jsonrpc.Array(new(jsonrpc.Object).Text("uri", fileURI(u.Root)).Done())).Done()
	default:
		reply.Error = &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}
		v = policy.Denied(policy.StageName, "navra does not pass this on to a client")
	}
	x := p.beginOwn(in.lane, in.msg.Method)
	x.pre, x.way, x.body, x.entry.Kind = &v, toClient, in.msg.Params, blackbox.FromUpstream
	x.entry.Principal, x.entry.RequestID = in.lane.principal, in.msg.ID.String()
	if err := p.pass(ctx, &x); err != nil {
		return ToUpstream{}, fmt.Errorf("record %s: %w", in.msg.Method, err)
	}
	y := p.beginOwn(in.lane, in.msg.Method)
	y.entry.Cause, y.body = x.entry.Seq, reply.Result
	if err := p.pass(ctx, &y); err != nil {
		return ToUpstream{}, fmt.Errorf("record the answer to %s: %w", in.msg.Method, err)
	}
	return ToUpstream{&clearance{by: p, lane: in.lane, wire: in.wire, method: in.msg.Method, body: reply, x: y}}, nil
}

func fileURI(path string) string {
	path = filepath.ToSlash(path)
	if len(path) > 0 && path[0] != '/' {
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// maxHeardMethods bounds what is counted for one lane: an upstream chooses the names.
const maxHeardMethods = 32

// Overhear takes a notification that an upstream started. None goes on to a client; it is counted, and recorded when its count is
// 1, 10, 100 and so on. It returns the method, so that navra can refresh its lists.
func (p *Chokepoint) Overhear(ctx context.Context, in FromUpstream) string {
	if in.by != p || in.kind != unsolicited || in.msg.Kind() == jsonrpc.Request {
		return ""
	}
	method := in.msg.Method
	if method == "" {
		method = "response to nothing"
	}
	if decade(p.count(heard{in.lane, false}, method, 1)) {
		v := policy.Denied(policy.StageName, "navra does not pass this on to a client")
		x := p.beginOwn(in.lane, method)
		x.pre, x.way, x.entry.Kind, x.entry.Principal = &v, toClient, blackbox.FromUpstream, in.lane.principal
		x.entry.Notes = []blackbox.Count{{Name: method, N: p.count(heard{in.lane, false}, "", 0)}}
		if err := p.pass(ctx, &x); err != nil {
			return ""
		}
	}
	return in.msg.Method
}

// decade reports whether n is 1, 10, 100 and so on.
func decade(n int64) bool {
	for n >= 10 && n%10 == 0 {
		n /= 10
	}
	return n == 1
}

// A heard is where notifications come over, and whether they go on to the client.
type heard struct {
	Lane
	passed bool
}

// count adds n to what was heard of a method and returns the sum; the empty method returns the sum over all.
func (p *Chokepoint) count(l heard, method string, n int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.heard[l]
	if of == nil {
		of = map[string]int64{}
		p.heard[l] = of
	}
	if method == "" {
		var sum int64
		for _, n := range of {
			sum += n
		}
		return sum
	}
	if _, ok := of[method]; !ok && len(of) >= maxHeardMethods {
		method = "others"
	}
	of[method] += n
	return of[method]
}

// Forget drops what was counted for a lane that is gone.
func (p *Chokepoint) Forget(l Lane) {
	p.tasks.forget(l)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.heard, heard{l, false})
	delete(p.heard, heard{l, true})
}

// clean takes secrets out of a definition. One whose name or URI holds a secret is left out: ok is false.
func (p *Chokepoint) clean(def jsonrpc.Raw) (out jsonrpc.Raw, ok bool) {
	out, found, err := p.filter.Apply(def, func(f filter.Finding) (string, bool) { return "[" + f.Kind + "]", true })
	if err != nil {
		return nil, false
	}
	if len(found) == 0 {
		return def, true
	}
	for _, key := range []string{"name", "uri", "uriTemplate"} {
		was, _ := def.Get(key)
		is, _ := out.Get(key)
		if string(was) != string(is) {
			return nil, false
		}
	}
	return out, true
}

// Redact takes the secrets out of text that an upstream wrote beside the protocol (its stderr), for the log.
func (p *Chokepoint) Redact(text string) string {
	v, _, err := p.filter.Apply(jsonrpc.Quote(text), func(f filter.Finding) (string, bool) { return "[" + f.Kind + "]", true })
	if err != nil {
		return "not shown: it could not be examined"
	}
	s, _ := v.Text()
	return s
}

// Announce records and makes a notification of navra's own to a client: that a list has changed.
func (p *Chokepoint) Announce(ctx context.Context, to Peer, topic mcp.Topic) (Released, error) {
	x := p.begin(to)
	x.anew, x.way, x.open = named(to), toClient, scope.Opening{}
	x.entry.Kind, x.entry.Upstream, x.entry.RequestID = blackbox.Notification, Self, ""
	x.entry.Method = map[mcp.Topic]string{
		mcp.Tool: "notifications/tools/list_changed", mcp.Prompt: "notifications/prompts/list_changed", mcp.Resource: "notifications/resources/list_changed",
		mcp.Template: "notifications/resources/list_changed",
	}[topic]
	if to.Who.IsZero() || x.entry.Method == "" {
		return Released{}, ErrUncleared
	}
	if err := p.pass(ctx, &x); err != nil {
		return Released{}, err
	}
	return Released{Msg: jsonrpc.Message{Method: x.entry.Method}, Drop: !x.verdict.Permits()}, nil
}
