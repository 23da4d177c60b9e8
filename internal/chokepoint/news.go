package chokepoint

import (
	"context"
	"strings"

	"navra/internal/auth"
	"navra/internal/blackbox"
	"navra/internal/catalogue"
	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/scope"
)

const readClass = ifc.Read

// maxNewsURI bounds the URI of a resource that changed, in bytes.
const maxNewsURI = 4 << 10

// News says that a resource or a task has changed. It is comparable: two of one resource over one lane are the same news. Nothing of it goes to a
// client but by Tell, and of a task nothing but what is asked for then.
type News struct {
	by    *Chokepoint
	lane  Lane
	about string // a URI, or the upstream's id of a task; not named as in a Watch, so that neither converts to the other
	task  bool
}

// News opens a notification of an upstream that a resource or a task has changed; false where it is none.
func (p *Chokepoint) News(in FromUpstream) (News, bool) {
	if in.by != p || in.kind != unsolicited || in.msg.Method != mcp.ResourceUpdated && in.msg.Method != mcp.TaskNews {
		return News{}, false
	}
	task, key := in.msg.Method == mcp.TaskNews, "uri"
	if task {
		key = "taskId"
	}
	raw, _ := in.msg.Params.Get(key)
	name, ok := raw.Text()
	return News{p, in.lane, name, task}, ok && name != "" && len(name) <= maxNewsURI
}

// Lane is the connection over which the news came.
func (n News) Lane() Lane { return n.lane }

// Under reports whether n is about w: about the resource itself or one beneath it. MCP, server/resources §Subscriptions: what is told of
// may be a sub-resource of what was subscribed to.
func (n News) Under(w Watch) bool {
	if n.by != w.by || n.lane != w.lane || n.task != w.IsTask() {
		return false
	}
	if n.task {
		return n.about == w.uri
	}
	rest, ok := strings.CutPrefix(n.about, w.uri)
	return ok && (rest == "" || strings.HasSuffix(w.uri, "/") || strings.IndexByte("/?#", rest[0]) >= 0)
}

// Exact reports whether n is about the very resource of w.
func (n News) Exact(w Watch) bool { return n.about == w.uri }

// Tell judges, labels, filters and records news on its way to one of those who asked for it: each is told by itself. to is the peer of
// the session, or of the listen. Who may not read the resource is not told.
func (p *Chokepoint) Tell(ctx context.Context, n News, w Watch, to Peer) (Released, error) {
	owner := w.lane.principal == catalogue.Everyone || w.lane.principal == to.Who.Name()
	if n.by != p || to.Who.IsZero() || !n.Under(w) || n.task || !owner {
		return Released{}, ErrUncleared
	}
	x := p.begin(to)
	x.way, x.entry.Kind, x.entry.Method = toClient, blackbox.Notification, mcp.ResourceUpdated
	x.facts.Topic, x.facts.Item = mcp.Resource, p.resourceOf(n.lane, n.about)
	x.entry.Upstream, x.entry.Target = n.lane.upstream, n.about
	x.label, x.body = x.facts.Item.Label(), uriObject(n.about)
	x.anew = func(pol *policy.Policy) policy.Verdict { return unaskedName(pol, x.facts) }
	if x.anew(p.policy.Load()).Denies() {
		x.open = scope.Opening{}
	}
	if p.pass(ctx, &x) != nil || !x.verdict.Permits() {
		return Released{Drop: true, Later: x.verdict.Stage == policy.StagePolicy}, nil
	}
	return Released{Msg: tagged(jsonrpc.Message{Method: mcp.ResourceUpdated, Params: x.final}, to)}, nil
}

// unaskedName judges a notification by name: nobody is asked about one.
func unaskedName(pol *policy.Policy, f policy.Facts) policy.Verdict {
	v := pol.Name(f)
	if !v.Permits() {
		v.Effect = policy.Deny
	}
	return v
}

// named permits navra's own words to whoever is named.
func named(to Peer) func(*policy.Policy) policy.Verdict {
	return func(pol *policy.Policy) policy.Verdict {
		if !pol.Names(to.Who) {
			return policy.Denied(policy.StageAuth, ErrUnnamed.Error())
		}
		return policy.Allowed(policy.StageName)
	}
}

// AnnounceTo is Announce to the peer of a session, or of a listen.
func (p *Chokepoint) AnnounceTo(ctx context.Context, to Peer, topic mcp.Topic) (Released, error) {
	out, err := p.Announce(ctx, to, topic)
	if err == nil {
		out.Msg = tagged(out.Msg, to)
	}
	return out, err
}

// Acknowledge records and makes the first message of a client's listen: what of it is granted.
func (p *Chokepoint) Acknowledge(ctx context.Context, to Peer, granted mcp.Wish) (Released, error) {
	if to.Who.IsZero() || to.In.Msg.Method != mcp.Listen {
		return Released{}, ErrUncleared
	}
	x := p.begin(to)
	x.anew, x.way, x.open = named(to), toClient, scope.Opening{}
	x.entry.Kind, x.entry.Upstream, x.entry.Method = blackbox.Notification, Self, mcp.Acknowledged
	x.body = new(jsonrpc.Object).Raw("notifications", granted.Object()).Done()
	if err := p.pass(ctx, &x); err != nil {
		return Released{}, err
	}
	return Released{Msg: tagged(jsonrpc.Message{Method: mcp.Acknowledged, Params: x.body}, to), Drop: !x.verdict.Permits()}, nil
}

// tagged names the listen that a message to a client of the stateless era belongs to, by the client's own id.
func tagged(m jsonrpc.Message, to Peer) jsonrpc.Message {
	if to.Version.Stateless() && to.In.Msg.Method == mcp.Listen {
		m.Params = orEmpty(m.Params).With("_meta", ListenMeta(to))
	}
	return m
}

// ListenMeta is the _meta of what belongs to a client's listen.
func ListenMeta(to Peer) jsonrpc.Raw {
	return new(jsonrpc.Object).Raw(mcp.SubscriptionID, to.In.Msg.ID.Raw()).Done()
}

// A Change says which items of a principal's upstreams are others now.
type Change struct {
	principal string
	items     catalogue.Changes
}

// Empty reports whether nothing changed.
func (c Change) Empty() bool { return len(c.items) == 0 }

// Concerns returns the lists that look different to somebody now: those with a changed item that a role of theirs lets them see. The
// resources' list stands for that of templates too: the protocol has one notification for both.
func (p *Chokepoint) Concerns(who auth.Principal, c Change) (topics []mcp.Topic) {
	if c.principal != catalogue.Everyone && c.principal != who.Name() {
		return nil
	}
	pol := p.policy.Load()
	for _, t := range []mcp.Topic{mcp.Tool, mcp.Prompt, mcp.Resource, mcp.Template} {
		for _, it := range c.items[t] {
			if !pol.Name(policy.Facts{Who: who, Topic: t, Item: it}).Permits() {
				continue
			}
			if t == mcp.Template {
				t = mcp.Resource
			}
			if len(topics) == 0 || topics[len(topics)-1] != t {
				topics = append(topics, t)
			}
			break
		}
	}
	return topics
}
