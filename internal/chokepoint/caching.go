package chokepoint

import (
	"time"

	"navra/internal/catalogue"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// maxTTL bounds how long an upstream's word on how long something may be used is believed.
const maxTTL = 24 * time.Hour

// ttlOf reads what a result of the stateless era says of how long it may be used, and by whom. What is absent or no such value says: not at
// all, and by this client alone. MCP 2026-07-28, basic/utilities/caching.
func ttlOf(result jsonrpc.Raw) (ttl time.Duration, public bool) {
	raw, _ := result.Get("ttlMs")
	if ms, ok := raw.Int(); ok && ms > 0 {
		ttl = min(time.Duration(min(ms, maxTTL.Milliseconds()))*time.Millisecond, maxTTL)
	}
	raw, _ = result.Get("cacheScope")
	who, _ := raw.Text()
	return ttl, who == "public"
}

// hint keeps what a page of a list says of its use: of all pages, the least.
func (v *Visit) hint(method string, page jsonrpc.Raw, altered bool) {
	if !v.listing.Version.Stateless() {
		return
	}
	topic := mcp.ListTopic(method)
	ttl, public := ttlOf(page)
	h := catalogue.Hint{Until: v.by.now().Add(ttl), Public: public && !altered}
	if v.listing.Hints == nil {
		v.listing.Hints = map[mcp.Topic]catalogue.Hint{}
	}
	if had, more := v.listing.Hints[topic]; more {
		h.Public = h.Public && had.Public
		if had.Until.Before(h.Until) {
			h.Until = had.Until
		}
	}
	v.listing.Hints[topic] = h
}

// Stale reports whether the lane's upstream said that by now its list of a topic is to be read again.
func (p *Chokepoint) Stale(l Lane, topic mcp.Topic) bool {
	listing, ok := p.book.For(l.principal).Listing(l.upstream)
	if !ok || !listing.Version.Stateless() {
		return false
	}
	if _, has := listing.Capabilities.Get(capabilityOf(topic)); !has {
		return false
	}
	return !p.now().Before(listing.Hints[topic].Until)
}

func capabilityOf(topic mcp.Topic) string {
	switch topic {
	case mcp.Tool:
		return "tools"
	case mcp.Prompt:
		return "prompts"
	}
	return "resources"
}

// hinted tells a client of the stateless era how long it may use a result, and whether others may: never longer than the upstreams say,
// and nobody else where anything of it depends on who asks.
func (c *clearance) hinted(v jsonrpc.Raw) jsonrpc.Raw {
	var ttl time.Duration
	public := false
	switch {
	case c.x.facts.Topic == mcp.List:
		ttl, public = c.by.listHint(c.shown, c.from, mcp.ListTopic(c.method))
	case c.method == mcp.ResourcesRead:
		ttl, public = ttlOf(v)
		public = public && !c.altered && c.by.policy.Load().Open(mcp.Resource, c.x.facts.Item)
	case c.method != mcp.Discover:
		return v
	}
	who := "private"
	if public {
		who = "public"
	}
	number := new(jsonrpc.Object).Int("ttlMs", ttl.Milliseconds()).Done()
	ms, _ := number.Get("ttlMs")
	return v.With("ttlMs", ms).With("cacheScope", jsonrpc.Quote(who))
}

// listHint is how long the list of a topic may be used, and whether it is the same for all: that of the upstream that says least.
func (p *Chokepoint) listHint(pol *policy.Policy, from Peer, topic mcp.Topic) (ttl time.Duration, public bool) {
	s, now := p.book.For(from.Who.Name()), p.now()
	ttl, public = maxTTL, true
	for _, u := range p.book.Upstreams() {
		l, ok := s.Listing(u.Name)
		if _, has := l.Capabilities.Get(capabilityOf(topic)); ok && !has {
			continue
		}
		h := l.Hints[topic]
		ttl, public = min(ttl, max(h.Until.Sub(now), 0)), public && h.Public
	}
	for _, it := range s.Items(topic) {
		public = public && pol.Open(topic, it)
	}
	return ttl, public
}
