package chokepoint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"navra/internal/blackbox"
	"navra/internal/catalogue"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/scope"
)

// Reasons why a resource is not followed.
var (
	ErrUnfollowed = errors.New("the upstream does not let this resource be followed")
	ErrTooMany    = errors.New("more subscriptions than navra keeps")
)

// A Watch is a resource, or a task, whose changes a client may be told of: it was judged and recorded as if it were read. It is comparable; the
// zero Watch is refused.
type Watch struct {
	by   *Chokepoint
	lane Lane
	uri  string // of a task: the upstream's id
	task string // the client's id; "" for a resource
}

// Lane is the connection over which the upstream is asked to tell.
func (w Watch) Lane() Lane { return w.lane }

// URI is the resource; for a task it is the upstream's id.
func (w Watch) URI() string { return w.uri }

// Key tells apart what one client follows.
func (w Watch) Key() string {
	if w.task != "" {
		return "task " + w.task
	}
	return "resource " + w.uri
}

// IsTask reports whether w is a task.
func (w Watch) IsTask() bool { return w.task != "" }

// In reports whether what an upstream grants has w in it.
func (w Watch) In(granted mcp.Wish) bool {
	if w.IsTask() {
		return slices.Contains(granted.Tasks, w.uri)
	}
	return slices.Contains(granted.URIs, w.uri)
}

// Missed is the news of what may have changed while nobody was told.
func (w Watch) Missed() News { return News{by: w.by, lane: w.lane, about: w.uri, task: w.IsTask()} }

// Watch makes of an admitted resources/subscribe or resources/unsubscribe what it is about. None of the two is sent on: navra asks
// the upstream by itself, once for all that want to be told.
func (m ToUpstream) Watch(by *Chokepoint) (Watch, error) {
	c, err := m.Spend(by)
	if err != nil {
		return Watch{}, err
	}
	if c.Method != mcp.Subscribe && c.Method != mcp.Unsubscribe {
		return Watch{}, ErrUncleared
	}
	return Watch{by: by, lane: c.Lane, uri: m.c.x.facts.Item.Name}, nil
}

// AdmitWatch judges and records one of the resources that a subscriptions/listen names, as if it were read.
func (p *Chokepoint) AdmitWatch(ctx context.Context, from Peer, uri string) (Watch, bool) {
	x := p.begin(from)
	x.facts.Topic, x.entry.Target = mcp.Resource, uri
	x.body = uriObject(uri)
	it, ok := p.book.For(from.Who.Name()).Find(mcp.Resource, uri)
	if !ok || from.In.Msg.Method != mcp.Listen {
		v := policy.Denied(policy.StageMessage, "Resource not found")
		x.pre, x.open = &v, scope.Opening{}
	} else {
		x.facts.Item, x.label = it, it.Label()
		x.entry.Upstream, x.entry.Target = it.Upstream.Name, it.Canonical()
	}
	if p.pass(ctx, &x) != nil || !x.verdict.Permits() {
		return Watch{}, false
	}
	return Watch{by: p, lane: p.lane(from, it.Upstream.Name), uri: it.Name}, true
}

func uriObject(uri string) jsonrpc.Raw { return new(jsonrpc.Object).Text("uri", uri).Done() }

// AdmitFollow makes navra's own request to a stateful upstream to tell of w, and AdmitUnfollow the one to tell no more.
func (p *Chokepoint) AdmitFollow(ctx context.Context, w Watch) (ToUpstream, error) {
	return p.ownOf(ctx, w, mcp.Subscribe)
}

// AdmitUnfollow is the opposite of AdmitFollow.
func (p *Chokepoint) AdmitUnfollow(ctx context.Context, w Watch) (ToUpstream, error) {
	return p.ownOf(ctx, w, mcp.Unsubscribe)
}

func (p *Chokepoint) ownOf(ctx context.Context, w Watch, method string) (ToUpstream, error) {
	if w.by != p {
		return ToUpstream{}, ErrUncleared
	}
	if w.IsTask() {
		return ToUpstream{}, ErrUnfollowed
	}
	return p.own(ctx, w.lane, jsonrpc.IntID(p.next.Add(1)), method, uriObject(w.uri), nil)
}

// AdmitListen makes navra's own subscriptions/listen to a stateless upstream: for lists, or for resources and tasks of its lane.
func (p *Chokepoint) AdmitListen(ctx context.Context, l Lane, lists mcp.Wish, watches []Watch) (ToUpstream, error) {
	lists.URIs, lists.Tasks = nil, nil
	for _, w := range watches {
		switch {
		case w.by != p || w.lane != l:
			return ToUpstream{}, ErrUncleared
		case w.IsTask():
			lists.Tasks = append(lists.Tasks, w.uri)
		default:
			lists.URIs = append(lists.URIs, w.uri)
		}
	}
	params := new(jsonrpc.Object).Raw("notifications", lists.Object()).Done()
	m, err := p.own(ctx, l, jsonrpc.IntID(p.next.Add(1)), mcp.Listen, params, nil)
	if err == nil && len(lists.Tasks) > 0 {
		m.c.caps = mcp.CanTask
	}
	return m, err
}

// Follows are the lists whose changes the upstream says that it tells of.
func (v *Visit) Follows() mcp.Wish {
	has := func(capability string) bool {
		on, _ := v.listing.Capabilities.Get(capability, "listChanged")
		return string(on) == "true"
	}
	return mcp.Wish{Tools: has("tools"), Prompts: has("prompts"), Resources: has("resources")}
}

// Heed releases to navra itself the answer to one of its own requests to tell, or to tell no more. The error says why it was refused;
// it is ErrUnfollowed where the upstream said so.
func (p *Chokepoint) Heed(ctx context.Context, in FromUpstream) error {
	c := in.cause
	if c == nil || c.by != p || !c.from.Who.IsZero() || c.visit != nil || c.answered.Swap(true) {
		return ErrUncleared
	}
	x := p.returning(c, blackbox.OwnAnswer)
	var bad error
	refused := false
	switch m := in.msg; {
	case in.kind == failure:
		if bad = in.err; bad == nil {
			bad = ErrUnavailable
		}
		x.entry.Outcome = string(in.outcome)
	case m.Error != nil:
		bad = fmt.Errorf("%s: the upstream answers error %d: %w", c.method, m.Error.Code, ErrUnfollowed)
		x.body, refused = errorBody(*m.Error), true
	case !m.Result.IsObject():
		bad = fmt.Errorf("%s: %w", c.method, ErrBadAnswer)
	default:
		x.body = m.Result
	}
	v := ownVerdict(bad, refused)
	if errors.Is(bad, context.Canceled) {
		v = policy.Allowed(policy.StageName)
		v.Reason = "ended by navra"
	}
	x.pre = &v
	if err := p.pass(ctx, &x); err != nil {
		return fmt.Errorf("record the answer to %s: %w", c.method, err)
	}
	return bad
}

// Granted releases to navra itself the acknowledgement of its listen m, and returns what of it the upstream tells of.
func (p *Chokepoint) Granted(ctx context.Context, m ToUpstream, in FromUpstream) (mcp.Wish, error) {
	c := m.c
	if c == nil || c.by != p || c.method != mcp.Listen || in.by != p || in.kind != unsolicited || in.lane != c.lane || in.msg.Method != mcp.Acknowledged {
		return mcp.Wish{}, ErrUncleared
	}
	x := p.returning(c, blackbox.OwnAnswer)
	v := policy.Allowed(policy.StageName)
	x.pre, x.body, x.entry.Method = &v, in.msg.Params, in.msg.Method
	if err := p.pass(ctx, &x); err != nil {
		return mcp.Wish{}, fmt.Errorf("record the acknowledgement: %w", err)
	}
	w, bad := mcp.WishOf(in.msg.Params)
	if bad != nil {
		return mcp.Wish{}, fmt.Errorf("%s: %w", mcp.Acknowledged, ErrBadAnswer)
	}
	return w, nil
}

// resourceOf is a resource of a lane's upstream that news is about: it may be in no list.
func (p *Chokepoint) resourceOf(l Lane, uri string) catalogue.Item {
	return catalogue.Item{Topic: mcp.Resource, Upstream: p.book.Upstream(l.upstream), Name: uri, Public: uri, Class: readClass}
}
