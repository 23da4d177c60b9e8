package policy

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"navra/internal/auth"
	"navra/internal/catalogue"
	"navra/internal/ifc"
	"navra/internal/mcp"
)

// Options is the operator's word, from which New makes a Policy. Zero values are the strictest.
type Options struct {
	Roles       map[string]Role
	OnViolation Effect // of information flow; Allow observes: the violation is recorded and passes
	Results     Action // on secrets in results
	Arguments   Effect // on secrets in arguments: Deny, Ask where the receiver does not own it, or Allow
	Digest      [32]byte
	// Principals, where not nil, are the roles that count, whatever a principal came in with: it may have done so under an older policy.
	Principals auth.Directory
	// File is the configuration file that the policy is of, and Name tells its policies apart; both "" where there is no file.
	File, Name string
}

// A Role is a set of rules. The zero Role permits nothing.
type Role struct {
	Clearance ifc.Confidentiality // highest confidentiality of its results
	Allow     []Patterns
	Ask       []Patterns
	Deny      []Patterns
}

// Patterns are globs: on canonical names of tools and prompts, and on URIs of resources. Client names the kinds of what an upstream may ask of the client.
type Patterns struct{ Tools, Prompts, Resources, Client []string }

// LocalDefault is the role of a developer's own machine: everything of its upstreams.
const LocalDefault = "local-default"

// DefaultRole returns the rules of LocalDefault.
func DefaultRole() Role {
	return Role{
		Clearance: ifc.PII,
		Allow:     []Patterns{{Tools: []string{"*"}, Prompts: []string{"*"}, Resources: []string{"*"}, Client: []string{"elicitation", "roots"}}},
		Ask:       []Patterns{{Client: []string{"sampling"}}},
	}
}

// An Action is what becomes of a secret in a result. The zero Action denies the result.
type Action uint8

// The actions.
const (
	DenyResult Action = iota
	Pseudonymise
	Record
)

// A Policy is a compiled set of rules. The zero Policy denies everything.
type Policy struct {
	roles       map[string]role
	onViolation Effect
	results     Action
	arguments   Effect
	digest      string
	principals  auth.Directory
	file, name  string
}

type role struct {
	clearance        ifc.Confidentiality
	allow, ask, deny ruleset
}

// A ruleset is what one effect of a role applies to. The zero ruleset is nothing.
type ruleset struct {
	names  map[mcp.Topic][]glob
	client []mcp.Question
}

func (s ruleset) has(topic mcp.Topic, subject string) bool { return matches(s.names[topic], subject) }

func (s ruleset) asks(q mcp.Question) bool { return slices.Contains(s.client, q) }

// New compiles o. The error names each pattern that is none.
func New(o Options) (*Policy, error) {
	p := &Policy{roles: map[string]role{}, onViolation: o.OnViolation, results: o.Results, arguments: o.Arguments, digest: hex.EncodeToString(o.Digest[:]), principals: o.Principals, file: o.File, name: o.Name}
	var errs []error
	for name, r := range o.Roles {
		allow, err := compileAll(r.Allow)
		if err != nil {
			errs = append(errs, fmt.Errorf("role %q: allow: %w", name, err))
		}
		ask, err := compileAll(r.Ask)
		if err != nil {
			errs = append(errs, fmt.Errorf("role %q: ask: %w", name, err))
		}
		deny, err := compileAll(r.Deny)
		if err != nil {
			errs = append(errs, fmt.Errorf("role %q: deny: %w", name, err))
		}
		p.roles[name] = role{r.Clearance, allow, ask, deny}
	}
	return p, errors.Join(errs...)
}

func compileAll(list []Patterns) (ruleset, error) {
	out := ruleset{names: map[mcp.Topic][]glob{}}
	for _, ps := range list {
		for _, word := range ps.Client {
			i := slices.IndexFunc(mcp.Questions(), func(q mcp.Question) bool { return q.String() == word })
			if i < 0 {
				return ruleset{}, fmt.Errorf("client: %q is none of sampling, elicitation, roots", word)
			}
			out.client = append(out.client, mcp.Questions()[i])
		}
		for _, kind := range []struct {
			topic    mcp.Topic
			patterns []string
			compile  func(string) (glob, error)
		}{{mcp.Tool, ps.Tools, nameGlob}, {mcp.Prompt, ps.Prompts, nameGlob}, {mcp.Resource, ps.Resources, uriGlob}} {
			for _, pattern := range kind.patterns {
				g, err := kind.compile(pattern)
				if err != nil {
					return ruleset{}, err
				}
				out.names[kind.topic] = append(out.names[kind.topic], g)
			}
		}
	}
	return out, nil
}

// Digest identifies the policy in each entry.
func (p *Policy) Digest() string { return p.digest }

// Source returns the configuration file that the policy is of, and what tells it from others of that file; "" for none.
func (p *Policy) Source() (file, name string) { return p.file, p.name }

// Roles returns the roles that a principal has now.
func (p *Policy) Roles(who auth.Principal) []string {
	if p.principals != nil && !who.IsZero() {
		return p.principals[who.Name()]
	}
	return who.Roles()
}

// Has reports whether there is a role of that name.
func (p *Policy) Has(role string) bool {
	_, has := p.roles[role]
	return has
}

// Names reports whether a principal is one of those that count.
func (p *Policy) Names(who auth.Principal) bool {
	_, named := p.principals[who.Name()]
	return named || p.principals == nil
}

// Facts are what is judged about one crossing towards an upstream.
type Facts struct {
	Who   auth.Principal
	Topic mcp.Topic
	Item  catalogue.Item // zero for what navra answers itself
	Label ifc.Label      // of the scope
}

// Name judges who may touch this at all. A deny in any role wins; in a role an ask stands before what it allows. Of several roles that
// permit it the one that asks nobody counts, and of these the one with the highest clearance; it is named in the verdict.
func (p *Policy) Name(f Facts) Verdict {
	if f.Who.IsZero() {
		return Denied(StageName, "no principal")
	}
	if f.Topic == mcp.Lifecycle || f.Topic == mcp.List || f.Topic == mcp.Subscription {
		return Allowed(StageName) // lists show only what Name permits singly; what a listen names is judged singly too
	}
	if f.Topic == mcp.Template && f.Item.Upstream != nil {
		return p.template(f)
	}
	if !f.Topic.Crosses() || f.Item.Upstream == nil {
		return Denied(StageName, "unknown")
	}
	subject, ok := f.Item.Canonical(), true
	if f.Topic == mcp.Resource {
		if subject, ok = normalURI(subject); !ok {
			return Denied(StageName, "the URI cannot be normalised")
		}
	}
	best := Denied(StageName, "no rule of "+p.rolesText(f.Who)+" allows it")
	var ceiling ifc.Confidentiality
	for _, name := range p.Roles(f.Who) {
		r, known := p.roles[name]
		if !known {
			return Denied(StageName, fmt.Sprintf("role %q does not exist", name))
		}
		if r.deny.has(f.Topic, subject) {
			return Denied(StageName, fmt.Sprintf("role %q denies it", name))
		}
		v := Verdict{Effect: Allow, Stage: StageName, Role: name}
		switch {
		case r.ask.has(f.Topic, subject):
			v.Effect, v.Reason = Ask, fmt.Sprintf("role %q asks before it", name)
		case !r.allow.has(f.Topic, subject):
			continue
		}
		if v.Effect > best.Effect || v.Effect == best.Effect && r.clearance.Exceeds(ceiling) {
			best, ceiling = v, r.clearance
		}
	}
	return best
}

// Open reports whether all roles may touch an item alike, without being asked: what is made of such items is the same for everybody.
func (p *Policy) Open(topic mcp.Topic, it catalogue.Item) bool {
	if it.Upstream == nil {
		return false
	}
	subject, ok := it.Canonical(), true
	if topic == mcp.Resource {
		if subject, ok = normalURI(subject); !ok {
			return false
		}
	}
	begins, _, _ := strings.Cut(subject, "{")
	for _, r := range p.roles {
		if topic == mcp.Template { // rules are on URIs
			if len(r.deny.names[mcp.Resource]) > 0 || !slices.ContainsFunc(r.allow.names[mcp.Resource], func(g glob) bool { return g.all && strings.HasPrefix(begins, g.begins) }) {
				return false
			}
			continue
		}
		if r.deny.has(topic, subject) || r.ask.has(topic, subject) || !r.allow.has(topic, subject) {
			return false
		}
	}
	return true
}

// Asks judges whether an upstream may ask the client a question of the kind. role is the one that permitted the call that the question
// belongs to, and alone decides; "" where it belongs to none: then any of the principal's roles may permit it. A deny in any role wins.
func (p *Policy) Asks(who auth.Principal, roleName string, q mcp.Question) Verdict {
	best := Denied(StageName, "no rule of "+p.rolesText(who)+" lets an upstream ask for "+q.String())
	if who.IsZero() || q == mcp.NoQuestion {
		return best
	}
	for _, name := range p.Roles(who) {
		r, known := p.roles[name]
		if !known || r.deny.asks(q) {
			return Denied(StageName, fmt.Sprintf("role %q does not let an upstream ask for %s", name, q))
		}
		v := Verdict{Effect: Allow, Stage: StageName, Role: name}
		switch {
		case roleName != "" && name != roleName:
			continue
		case r.ask.asks(q):
			v.Effect, v.Reason = Ask, fmt.Sprintf("role %q asks a person before an upstream may ask for %s", name, q)
		case !r.allow.asks(q):
			continue
		}
		if v.Effect > best.Effect {
			best = v
		}
	}
	return best
}

// Relays returns those of a client's capabilities that upstreams are told of: what a role of the principal may let them ask.
func (p *Policy) Relays(who auth.Principal, caps mcp.Capabilities) (out mcp.Capabilities) {
	for _, q := range mcp.Questions() {
		if p.Asks(who, "", q).Permits() {
			out |= caps & q.Capabilities()
		}
	}
	return out
}

// template judges who sees a template: a role that may read one of the URIs it stands for, as far as that can be told from where
// template and rule begin. Each URI is judged by itself when it is read.
func (p *Policy) template(f Facts) Verdict {
	begins, _, _ := strings.Cut(f.Item.Name, "{")
	seen := Denied(StageName, "no rule of "+p.rolesText(f.Who)+" allows it")
	for _, name := range p.Roles(f.Who) {
		r, known := p.roles[name]
		if !known || slices.ContainsFunc(r.deny.names[mcp.Resource], func(g glob) bool { return g.all && strings.HasPrefix(begins, g.begins) }) {
			return Denied(StageName, fmt.Sprintf("role %q denies it", name))
		}
		if slices.ContainsFunc(r.allow.names[mcp.Resource], func(g glob) bool {
			return strings.HasPrefix(begins, g.begins) || strings.HasPrefix(g.begins, begins)
		}) {
			seen = Verdict{Effect: Allow, Stage: StageName, Role: name}
		}
	}
	return seen
}

func matches(globs []glob, subject string) bool {
	return slices.ContainsFunc(globs, func(g glob) bool { return g.match(subject) })
}

func (p *Policy) rolesText(who auth.Principal) string {
	if roles := p.Roles(who); len(roles) > 0 {
		return "role " + strings.Join(roles, ", ")
	}
	return "any role (the principal has none)"
}

// Flow judges whether what the scope has gathered may go where this call goes, and whether the role may see what comes back.
func (p *Policy) Flow(f Facts, roleName string) Verdict {
	if !f.Topic.Crosses() {
		return Allowed(StageFlow)
	}
	v := p.Above(f.Item.Label(), roleName)
	bad := ifc.Flow(f.Label, f.Item.Upstream.Name, f.Item.Class, f.Item.Upstream.Label.Confidentiality)
	if bad.IsZero() {
		return v
	}
	return v.And(Verdict{Effect: p.onViolation, Stage: StageFlow, Reason: flowText(f, bad)})
}

func flowText(f Facts, bad ifc.Violation) string {
	from := strings.Join(bad.Sources, ", ")
	if from == "" {
		from = "a source that is not known"
	}
	if bad.Reason == "integrity" {
		return fmt.Sprintf("this conversation has read suspect content from %s, which may be steering this %s call to %s", from, f.Item.Class, f.Item.Canonical())
	}
	return fmt.Sprintf("this conversation has read data of %s, which may not flow to %s: as %s it may receive only data that is %s",
		from, f.Item.Canonical(), withArticle(f.Item.Class), bad.Ceiling)
}

func withArticle(c ifc.Class) string {
	switch c {
	case ifc.Egress:
		return "an egress call (it reaches beyond the upstream's own data)"
	case ifc.Unclassified:
		return "a call that nobody has classified"
	}
	return "a " + c.String() + " call"
}

// Above judges a label against the clearance of a role: no read up.
func (p *Policy) Above(l ifc.Label, roleName string) Verdict {
	r, known := p.roles[roleName]
	if !known {
		return Denied(StageFlow, "no role")
	}
	if c := l.Confidentiality(); c.Exceeds(r.clearance) {
		return Denied(StageFlow, fmt.Sprintf("the result is %s, which is above the clearance of role %q (%s)", c, roleName, r.clearance))
	}
	return Allowed(StageFlow)
}

// A Known is a secret found in arguments, with the upstreams it is known to come from in this scope.
type Known struct {
	Kind string
	From []string
}

// Content judges the secrets found in arguments. One that the receiver itself is known to hold may go back to it, unless
// the call reaches beyond it.
func (p *Policy) Content(f Facts, found []Known) Verdict {
	v := Allowed(StageContent)
	for _, k := range found {
		own := f.Item.Upstream != nil && f.Item.Class != ifc.Egress && slices.Contains(k.From, f.Item.Upstream.Name)
		if own && p.arguments != Deny {
			continue
		}
		v = v.And(Verdict{Effect: p.arguments, Stage: StageContent, Reason: fmt.Sprintf("the arguments carry a secret (%s) that %s is not known to hold", k.Kind, f.Item.Canonical())})
	}
	return v
}

// Results says what becomes of secrets in results.
func (p *Policy) Results() Action { return p.results }
