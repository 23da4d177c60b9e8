package chokepoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"navra/internal/blackbox"
	"navra/internal/catalogue"
	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/scope"
)

// An Ask is a call that needs a person's word before it may go on. It was recorded as such; Refusal is what the client is
// answered where nobody gives it.
type Ask struct {
	Reason  string
	Refusal *Refusal
}

// Admit judges a client's request on its way to an upstream. Exactly one of the three is set: a message to send, an ask, or
// an error, which is a *Refusal that holds the answer to the client.
func (p *Chokepoint) Admit(ctx context.Context, from Peer) (ToUpstream, *Ask, error) {
	x, bad := p.arrive(from)
	pol := p.policy.Load()
	c := &clearance{by: p, from: from, asked: true, method: from.In.Msg.Method, open: x.open, retry: x.retry, rounds: x.rounds, task: x.task, wish: x.wish}
	if x.pre == nil && x.facts.Topic.Crosses() {
		p.destine(c, &x, pol)
		c.id = jsonrpc.IntID(p.next.Add(1))
	} else {
		c.lane = Lane{upstream: Self, principal: from.Who.Name()}
	}
	if refusal := p.goesOn(ctx, from, c, &x); refusal != nil {
		bad = refusal
		if x.pre == nil {
			v := x.verdict // that of what came with it
			if v.Reason == "" {
				v = policy.Denied(policy.StageMessage, refusal.Error())
			}
			x.wrong = &v
		}
	}
	if err := p.pass(ctx, &x); err != nil {
		return ToUpstream{}, nil, p.deny(from, &x, NotSent)
	}
	switch {
	case bad != nil && (x.pre != nil || x.verdict == *x.wrong):
		bad.Msg.ID = from.In.Msg.ID
		return ToUpstream{}, nil, bad
	case x.verdict.Denies():
		return ToUpstream{}, nil, p.deny(from, &x, NotSent)
	case x.verdict.Asks():
		return ToUpstream{}, &Ask{Reason: x.verdict.Reason, Refusal: p.deny(from, &x, NotSent)}, nil
	}
	if x.policy != pol && c.lane.upstream != Self {
		p.destine(c, &x, x.policy)
	}
	if c.id.IsZero() {
		c.id = from.In.Msg.ID // navra answers itself, under the client's id
	}
	if token, _ := from.In.Msg.Params.Get("_meta", "progressToken"); token != nil {
		if _, ok := jsonrpc.IDOf(token); ok { // a string or an integer; nothing else is one
			c.token = token
		}
	}
	c.body = jsonrpc.Message{ID: c.id, Method: c.method, Params: c.outgoing(x.final)}
	c.x, c.seq = x, x.entry.Seq
	if c.lane.upstream != Self {
		c.sent = x.body
	}
	c.x.body, c.x.final = nil, nil
	return ToUpstream{c}, nil, nil
}

// destine says over which connection a call goes, and what its upstream may ask meanwhile, as a policy has it.
func (p *Chokepoint) destine(c *clearance, x *Crossing, pol *policy.Policy) {
	c.lane = p.laneBy(pol, c.from, x.facts.Item.Upstream.Name)
	c.caps = pol.Relays(c.from.Who, c.from.Caps) | p.takesTasks(c.from, x, c.lane.upstream)
	if x.task != nil {
		c.lane = x.made
	}
}

// dropped names what a client sent in vain.
func dropped(from Peer) string {
	if m := from.In.Msg.Method; m != "" {
		return m
	}
	return "response to nothing"
}

// Notify judges and records a client's notification, or a response that answers nothing. None of them crosses: navra acts on those it
// knows (initialized, cancelled) and drops the rest, which are counted, and recorded when their count is 1, 10, 100 and so on. It reports whether navra may act on it.
func (p *Chokepoint) Notify(ctx context.Context, from Peer) bool {
	x := p.begin(from)
	x.entry.Kind = blackbox.Notification
	x.body = from.In.Msg.Params
	v := policy.Denied(policy.StageMessage, "it is dropped: nothing here takes it")
	if m := from.In.Msg.Method; !from.Who.IsZero() && (m == mcp.Initialized || m == mcp.Cancelled || m == mcp.RootsChanged && from.Caps&mcp.CanTellRoots != 0) {
		v = policy.Allowed(policy.StageMessage)
	}
	if v.Denies() {
		n := p.count(heard{Lane{upstream: Self, principal: from.Who.Name()}, false}, dropped(from), 1)
		if !decade(n) {
			return false
		}
		x.entry.Notes = []blackbox.Count{{Name: dropped(from), N: n}}
	}
	x.pre = &v
	x.open = scope.Opening{}
	p.follow(&x, from)
	return p.pass(ctx, &x) == nil && x.verdict.Permits()
}

// arrive resolves what a client's request is about. Where that fails, the refusal says what the client is to be answered.
func (p *Chokepoint) arrive(from Peer) (Crossing, *Refusal) {
	x := p.begin(from)
	p.follow(&x, from)
	subject, refusal := p.subject(from)
	x.facts.Topic, x.entry.Target = subject.Topic, subject.Name
	switch {
	case refusal != nil || !subject.Topic.Crosses():
	case subject.Topic == mcp.Task:
		refusal = p.aboutTask(from, &x, subject.Name)
	default:
		it, ok := p.find(from, subject)
		if ok {
			x.facts.Item = it
			x.entry.Upstream, x.entry.Target = it.Upstream.Name, it.Canonical()
			x.label = it.Label()
			x.body = x.trail.carry(params(from.In.Msg, it))
			if refusal = unmirrored(from, it); refusal == nil {
				x.retry, refusal = p.reopen(from, it, x.body, &x.rounds)
				if x.bound = x.retry != nil && x.retry.same; x.bound {
					x.basis = x.retry.basis
				}
			}
			if refusal == nil {
				x.wish, refusal = p.wishes(from, it)
			}
		} else {
			refusal = unknownName(from, subject)
		}
	}
	if refusal != nil {
		v := policy.Denied(policy.StageMessage, refusal.Msg.Error.Message)
		x.body, x.open = from.In.Msg.Params, scope.Opening{}
		if x.facts.Item.Upstream != nil { // what may not be called is not there, whatever else is wrong
			x.wrong = &v
		} else {
			x.pre = &v
		}
		return x, refusal
	}
	if !subject.Topic.Crosses() {
		x.entry.Upstream, x.body, x.open = Self, from.In.Msg.Params, scope.Opening{}
	}
	return x, nil
}

// find returns what a request is about. To be helped with an argument is to read.
func (p *Chokepoint) find(from Peer, s mcp.Subject) (catalogue.Item, bool) {
	snapshot := p.book.For(from.Who.Name())
	it, ok := snapshot.Find(s.Topic, s.Name)
	if from.In.Msg.Method == mcp.Complete {
		if !ok && s.Topic == mcp.Template {
			it, ok = snapshot.Find(mcp.Resource, s.Name)
		}
		it.Class = ifc.Read
	}
	return it, ok
}

// unmirrored refuses a call over HTTP whose Mcp-Param- headers do not say what its arguments say. MCP 2026-07-28,
// basic/transports §Custom Headers from Tool Parameters.
func unmirrored(from Peer, it catalogue.Item) *Refusal {
	if it.Topic != mcp.Tool || from.In.Header == nil || !from.Version.Stateless() {
		return nil
	}
	schema, _ := it.Definition.Get("inputSchema")
	mirrored, err := mcp.MirroredParams(schema)
	if err != nil { // such a tool of the stateful era has never been told what the member means
		return nil
	}
	args, _ := from.In.Msg.Params.Get("arguments")
	for _, p := range mirrored {
		if wrong := p.Mirrors(from.In.Header[p.Header], args); wrong != "" {
			return refusedAs(http.StatusBadRequest, jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: wrong})
		}
	}
	return nil
}

// subject says what a message is about, or how it is refused.
func (p *Chokepoint) subject(from Peer) (mcp.Subject, *Refusal) {
	m := from.In.Msg
	switch {
	case from.In.Fault != nil && from.In.Fault.Batch != nil && from.Refused == nil:
		return mcp.Subject{}, faulty(from)
	case from.In.Fault != nil && from.In.Fault.Batch == nil && (m.Method == "" || mcp.IsMethod(m.Method)): // else its method is the first thing wrong with it
		return mcp.Subject{}, faulty(from)
	case from.Refused != nil:
		return mcp.Subject{}, refusedAs(from.Refused.Status, from.Refused.Err)
	}
	s, bad := mcp.SubjectOf(m, from.Version)
	if need := mcp.CapabilityOf(m.Method); bad == nil && need != "" && !p.book.Offers(from.Who.Name(), need) {
		bad = &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}
	}
	if bad == nil && mcp.IsTask(m.Method) {
		if refusal := p.mayTask(from); refusal != nil {
			return s, refusal
		}
	}
	if bad != nil {
		return s, refusedAs(statusOf(bad.Code, from.Version), *bad)
	}
	if m.Method == mcp.Listen && from.Caps&mcp.CanTask == 0 {
		if wish, _ := mcp.WishOf(m.Params); len(wish.Tasks) > 0 {
			return s, undeclared(from)
		}
	}
	return s, nil
}

// begin fills in what is known of a client's message before anything is judged.
func (p *Chokepoint) begin(from Peer) Crossing {
	x := Crossing{way: toUpstream, began: p.now(), open: opening(from)}
	x.facts.Who = from.Who
	x.entry = blackbox.Entry{
		Kind: blackbox.Request, Ref: blackbox.NewRef(), Principal: from.Who.Name(), Auth: from.Who.Method(),
		Scope: string(x.open.ID), Transport: string(from.In.Transport), Era: era(from.Version), Version: string(from.Version),
		Method: from.In.Msg.Method, RequestID: from.In.Msg.ID.String(),
	}
	if from.Session != "" {
		sum := sha256.Sum256([]byte(from.Session))
		x.entry.Session = hex.EncodeToString(sum[:8])
	}
	return x
}

// era is how entries call the era of a version; "" where there is none yet.
func era(v mcp.Version) string {
	switch {
	case v.Stateless():
		return "stateless"
	case v.Stateful():
		return "stateful"
	}
	return ""
}

// lane names the connection that a peer's calls to an upstream use.
func (p *Chokepoint) lane(from Peer, upstream string) Lane {
	return p.laneBy(p.policy.Load(), from, upstream)
}

func (p *Chokepoint) laneBy(pol *policy.Policy, from Peer, upstream string) Lane {
	if u := p.book.Upstream(upstream); u != nil && u.Shared {
		return Lane{upstream: upstream, principal: catalogue.Everyone}
	}
	l := Lane{upstream: upstream, principal: from.Who.Name(), caps: pol.Relays(from.Who, from.Caps)}
	if !from.Version.Stateless() {
		l.session = from.Session
	}
	return l
}

// Lanes returns the connections that a peer may come to use, in the operator's order: none for a principal without a role.
func (p *Chokepoint) Lanes(from Peer) []Lane {
	if len(p.policy.Load().Roles(from.Who)) == 0 {
		return nil
	}
	var out []Lane
	for _, u := range p.book.Upstreams() {
		out = append(out, p.lane(from, u.Name))
	}
	return out
}

// opening derives the scope that a peer's calls gather taint in: the host's conversation, else the host process, else the
// user, over stdio; the principal elsewhere.
func opening(from Peer) scope.Opening {
	h := from.In.Host
	switch {
	case from.In.Transport != mcp.Stdio:
		return scope.Opening{ID: scope.ID("principal/" + from.Who.Name())}
	case h.Conversation != "":
		return scope.Opening{ID: scope.ID("conversation/" + h.User + "/" + h.Conversation), Lasting: true}
	case h.Process != "":
		return scope.Opening{ID: scope.ID("process/" + h.User + "/" + h.Process), Lineage: h.User + " " + h.Folder}
	}
	return scope.Opening{ID: scope.ID("user/" + h.User)}
}
