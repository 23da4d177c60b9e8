package catalogue

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// A Snapshot is all that one principal's upstreams offer. It is never written after it was made.
type Snapshot struct {
	items    map[mcp.Topic][]Item // sorted by public name
	byPublic map[mcp.Topic]map[string]Item
	Left     []Left
	listings map[string]Listing
}

// Find returns the item of a topic under its public name or URI.
//
// A URI that is in no list belongs to the upstream that has a template for it, of several to the one that stands first; one that is
// longer than URIs are belongs to nobody.
func (s *Snapshot) Find(topic mcp.Topic, public string) (Item, bool) {
	it, ok := s.byPublic[topic][public]
	if ok || topic != mcp.Resource || len(public) > maxMatched {
		return it, ok
	}
	var best Item
	for _, t := range s.items[mcp.Template] {
		if ok && t.rank > best.rank || !t.template.MatchString(public) {
			continue
		}
		if !ok || t.rank < best.rank || t.Class == ifc.Egress { // of one upstream's templates the class that is held to most
			best, ok = t, true
		}
	}
	if ok {
		it = Item{Topic: mcp.Resource, Upstream: best.Upstream, Name: public, Public: public, Class: best.Class}
	}
	return it, ok
}

// Items returns all of a topic, sorted by public name.
func (s *Snapshot) Items(topic mcp.Topic) []Item { return s.items[topic] }

// Listing returns what one upstream said of itself, and whether that is known.
func (s *Snapshot) Listing(upstream string) (Listing, bool) {
	l, ok := s.listings[upstream]
	return l, ok
}

// Everyone stands for all principals: what a shared upstream lists, it lists for them.
const Everyone = "*"

// A Book holds the snapshots, one for each principal: what an upstream lists for one is never shown to another, but where the operator says
// that they share it. Its methods may be called concurrently.
type Book struct {
	upstreams []*Upstream // in the operator's order
	maxName   int
	schemas   shelf

	mu       sync.Mutex
	listings map[string]map[string]Listing // by principal and upstream; guarded by mu
	pages    map[string]*Snapshot          // made from them; guarded by mu
}

// NewBook returns a book of the operator's upstreams. maxName bounds a public name with its prefix; 0 means DefaultMaxName.
func NewBook(upstreams []*Upstream, maxName int) *Book {
	return &Book{upstreams: upstreams, maxName: cmp.Or(maxName, DefaultMaxName), listings: map[string]map[string]Listing{}, pages: map[string]*Snapshot{}, schemas: shelf{kept: map[string]compiled{}}}
}

// Upstreams returns the operator's upstreams, in order.
func (b *Book) Upstreams() []*Upstream { return b.upstreams }

// Upstream returns the one of that name, or nil.
func (b *Book) Upstream(name string) *Upstream {
	if i := slices.IndexFunc(b.upstreams, func(u *Upstream) bool { return u.Name == name }); i >= 0 {
		return b.upstreams[i]
	}
	return nil
}

// For returns the principal's snapshot; an empty one where nothing is installed.
func (b *Book) For(principal string) *Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.page(principal)
}

// page returns the principal's snapshot, making it where something has changed. b.mu is held.
func (b *Book) page(principal string) *Snapshot {
	if s, ok := b.pages[principal]; ok {
		return s
	}
	all := maps.Clone(b.listings[Everyone])
	if all == nil {
		all = map[string]Listing{}
	}
	maps.Copy(all, b.listings[principal])
	if len(all) == 0 {
		return &Snapshot{}
	}
	s := b.build(all)
	b.pages[principal] = s
	return s
}

// Install puts a listing in the place of what the principal's upstream listed before, and returns what
// differs now, as it was and as it is.
func (b *Book) Install(principal, upstream string, l Listing) Changes {
	l.warm(b.schemas.compile)
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.page(principal)
	if b.listings[principal] == nil {
		b.listings[principal] = map[string]Listing{}
	}
	b.listings[principal][upstream] = l
	if principal == Everyone {
		clear(b.pages)
	} else {
		delete(b.pages, principal)
	}
	s := b.page(principal)
	return differences(old, s)
}

// Changes are the items of each topic that two snapshots do not share.
type Changes map[mcp.Topic][]Item

func differences(old, now *Snapshot) Changes {
	out := Changes{}
	for _, t := range []mcp.Topic{mcp.Tool, mcp.Prompt, mcp.Resource, mcp.Template} {
		for _, pair := range [][2]*Snapshot{{old, now}, {now, old}} {
			for _, it := range pair[0].items[t] {
				other, has := pair[1].byPublic[t][it.Public]
				if !has || other.Upstream != it.Upstream || string(other.Definition) != string(it.Definition) {
					out[t] = append(out[t], it)
				}
			}
		}
	}
	return out
}

// build joins listings into a snapshot. Where two items would have the same public name, or names that hosts spell alike, the one of the upstream
// that stands first keeps it; the other is held back, so that a newcomer never gets another's calls.
func (b *Book) build(listings map[string]Listing) *Snapshot {
	s := &Snapshot{items: map[mcp.Topic][]Item{}, byPublic: map[mcp.Topic]map[string]Item{}, listings: listings}
	for rank, u := range b.upstreams {
		l, ok := listings[u.Name]
		if !ok {
			continue
		}
		items, left := l.items(u, b.maxName, b.schemas.compile)
		s.Left = append(s.Left, left...)
		for _, it := range items {
			it.rank = rank
			if s.byPublic[it.Topic] == nil {
				s.byPublic[it.Topic] = map[string]Item{}
			}
			if first, taken := s.byPublic[it.Topic][it.Public]; taken {
				s.Left = append(s.Left, Left{u.Name, it.Name, "its public name " + it.Public + " is taken by " + first.Canonical()})
				continue
			}
			s.byPublic[it.Topic][it.Public] = it
			s.items[it.Topic] = append(s.items[it.Topic], it)
		}
	}
	for _, items := range s.items {
		slices.SortFunc(items, func(x, y Item) int { return cmp.Compare(x.Public, y.Public) })
	}
	return s
}

// Capabilities returns which of tools, prompts and resources any of the principal's upstreams has; all of them as long as an
// upstream has not been heard of.
func (b *Book) Capabilities(principal string) map[mcp.Topic]bool {
	s := b.For(principal)
	out := map[mcp.Topic]bool{}
	for _, u := range b.upstreams {
		l, heard := s.listings[u.Name]
		for t, name := range map[mcp.Topic]string{mcp.Tool: "tools", mcp.Prompt: "prompts", mcp.Resource: "resources"} {
			if _, has := l.Capabilities.Get(name); has || !heard {
				out[t] = true
			}
		}
	}
	return out
}

// Offers reports whether an upstream of the principal's that was heard of has a capability, or, after a slash, a member of one.
func (b *Book) Offers(principal, capability string) bool {
	s := b.For(principal)
	return slices.ContainsFunc(b.upstreams, func(u *Upstream) bool {
		v, has := s.listings[u.Name].Capabilities.Get(strings.Split(capability, "/")...)
		return has && string(v) != "false"
	})
}

// Instructions joins what the principal's upstreams say to the model of themselves.
func (s *Snapshot) Instructions(upstreams []*Upstream) string {
	var parts []string
	for _, u := range upstreams {
		if l := s.listings[u.Name]; l.Instructions != "" {
			parts = append(parts, l.Instructions)
		}
	}
	return strings.Join(parts, "\n\n")
}

// Definitions returns the public definitions of items.
func Definitions(items []Item) []jsonrpc.Raw {
	out := make([]jsonrpc.Raw, len(items))
	for i, it := range items {
		out[i] = it.Definition
	}
	return out
}
