package chokepoint

import (
	"context"
	"errors"

	"navra/internal/catalogue"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/store"
)

// A View is what a peer may see of what its upstreams offer: what its role may not call is not in it.
type View struct {
	Capabilities map[mcp.Topic]bool
	Instructions string
	snapshot     *catalogue.Snapshot
	book         *catalogue.Book
	policy       *policy.Policy
	peer         Peer
}

// View returns what a peer may see now.
func (p *Chokepoint) View(from Peer) View { return p.viewBy(p.policy.Load(), from) }

func (p *Chokepoint) viewBy(pol *policy.Policy, from Peer) View {
	who := from.Who.Name()
	s := p.book.For(who)
	v := View{Capabilities: p.book.Capabilities(who), snapshot: s, book: p.book, policy: pol, peer: from}
	if len(v.policy.Roles(from.Who)) > 0 {
		v.Instructions = s.Instructions(p.book.Upstreams())
	}
	return v
}

// Offers reports whether an upstream of the peer's has a capability.
func (v View) Offers(capability string) bool {
	return v.book.Offers(v.peer.Who.Name(), capability)
}

// Tasks reports whether the peer may use tasks in the form of its version, and whether it can list and cancel those of 2025-11-25.
func (v View) Tasks() (offered, list, cancel bool) {
	who, form := v.peer.Who.Name(), mcp.TasksIn(v.peer.Version)
	return v.book.OffersTasks(who, form), v.book.HasTasks(who, form), v.book.CancelsTasks(who)
}

// Definitions returns the definitions of a topic that the peer may see, sorted by public name.
func (v View) Definitions(topic mcp.Topic) []jsonrpc.Raw {
	var out []catalogue.Item
	for _, it := range v.snapshot.Items(topic) {
		if v.policy.Name(policy.Facts{Who: v.peer.Who, Topic: topic, Item: it}).Permits() {
			it.Definition = v.snapshot.Tasked(it)
			out = append(out, it)
		}
	}
	defs := catalogue.Definitions(out)
	for i := range defs {
		defs[i] = definition(defs[i], v.peer.Version)
	}
	return defs
}

// Heard reports whether it is known what the lane's upstream offers to its principal, from this run or the last.
func (p *Chokepoint) Heard(l Lane) bool {
	_, ok := p.book.For(l.principal).Listing(l.upstream)
	return ok
}

// Recall installs what was kept from the last run of the lanes' upstreams, once for each.
func (p *Chokepoint) Recall(ctx context.Context, lanes []Lane) {
	for _, l := range lanes {
		key := p.keptKey(l)
		p.mu.Lock()
		done := p.known[key]
		p.known[key] = true
		p.mu.Unlock()
		if done {
			continue
		}
		b, err := p.store.Kept(ctx, key)
		if err != nil {
			if !errors.Is(err, store.ErrNotFound) {
				p.log.Warn("kept catalogue cannot be read", "upstream", l.upstream, "err", err)
			}
			continue
		}
		listing, err := catalogue.Decode(b)
		if err != nil {
			p.log.Warn("kept catalogue is damaged, it is read anew", "upstream", l.upstream, "err", err)
			continue
		}
		if !p.Heard(l) {
			p.book.Install(l.principal, l.upstream, listing)
		}
	}
}

func (p *Chokepoint) keptKey(l Lane) string {
	return "catalogue/" + p.book.Upstream(l.upstream).Kept + "/" + l.principal
}
