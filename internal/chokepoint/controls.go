package chokepoint

import (
	"context"
	"strings"
	"time"

	"navra/internal/auth"
	"navra/internal/policy"
	"navra/internal/store"
)

// take has a crossing judged on what operators have said and on the policy, in this order: a policy that was announced is never older than
// the announcement that is judged on.
func (p *Chokepoint) take(ctx context.Context, x *Crossing) error {
	if x.pre == nil {
		if p.said.Load() == nil {
			if err := p.hear(ctx, 0); err != nil {
				return err
			}
		}
		x.said = p.said.Load()
	}
	x.policy = p.policy.Load()
	return nil
}

// generation is what the commit of a crossing is held against.
func (x *Crossing) generation() store.Generation {
	if x.said == nil {
		return 0
	}
	return x.said.Generation
}

// Refresh reads what operators have said; who waits for [Chokepoint.Changed] hears of what is new.
func (p *Chokepoint) Refresh(ctx context.Context) error {
	known := store.Generation(0)
	if said := p.said.Load(); said != nil {
		known = said.Generation
	}
	return p.hear(ctx, known)
}

// hearAgain is how old what this process has heard may be where it lets something through without a commit.
const hearAgain = time.Second

// hearsay reads what operators have said where that was read too long ago.
func (p *Chokepoint) hearsay(ctx context.Context) error {
	if age := p.now().UnixNano() - p.asOf.Load(); age >= 0 && age < hearAgain.Nanoseconds() {
		return nil
	}
	return p.Refresh(ctx)
}

// hear reads what operators have said, unless somebody has since the known generation, and takes up the newest policy of its file.
func (p *Chokepoint) hear(ctx context.Context, known store.Generation) error {
	p.refresh.Lock()
	defer p.refresh.Unlock()
	before := p.said.Load()
	if before != nil && before.Generation != known {
		return nil
	}
	at := p.now()
	now, err := p.store.Controls(ctx)
	if err != nil {
		return err
	}
	p.asOf.Store(at.UnixNano())
	if file, _ := p.policy.Load().Source(); file != "" && now.Policies[file] != "" && p.renew != nil {
		p.renew(ctx, now.Policies[file])
	}
	if before == nil || before.Generation != now.Generation {
		p.said.Store(&now)
		p.signal()
	}
	return nil
}

// Changed returns a channel that is closed when operators have said something new, as far as this process has heard, or another policy is in use:
// the file may hold it only after this process has heard of it.
func (p *Chokepoint) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// Use has crossings judged by another policy from here on. The store was told of it before, so that no process judges by an older one.
func (p *Chokepoint) Use(pol *policy.Policy) {
	p.policy.Store(pol)
	p.signal()
}

// signal wakes those who wait for what is new.
func (p *Chokepoint) signal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// PolicyDigest identifies the policy that judges now.
func (p *Chokepoint) PolicyDigest() string { return p.policy.Load().Digest() }

// outdated returns the name of the newest policy of a policy's file; "" where it is that.
func outdated(pol *policy.Policy, said *store.Controls) string {
	file, name := pol.Source()
	if newest := said.Policies[file]; file != "" && newest != "" && newest != name {
		return newest
	}
	return ""
}

// halted is what operators have said against a crossing. Handshakes and lists stay while something is paused, so that hosts do not drop navra.
func halted(x *Crossing) policy.Verdict {
	switch {
	case revoked(x.said, x.facts.Who):
		return policy.Denied(policy.StageAuth, "the token was revoked")
	case x.late:
		return policy.Denied(policy.StagePolicy, "the policy was changed while it was judged")
	case !x.facts.Topic.Crosses() || x.facts.Item.Upstream == nil:
		return policy.Allowed(policy.StageName)
	case x.way == toClient && !x.policy.Names(x.facts.Who):
		return policy.Denied(policy.StageAuth, ErrUnnamed.Error())
	case (x.way == toUpstream || x.anew != nil) && outdated(x.policy, x.said) != "": // what comes back was judged when it was asked for
		return policy.Denied(policy.StagePolicy, "the policy was changed, and this process of navra cannot read the new one yet")
	}
	pause, is := x.said.Paused(x.facts.Who.Name(), x.facts.Item.Upstream.Name)
	switch {
	case !is:
		return policy.Allowed(policy.StageName)
	case pause.Upstream != "":
		return policy.Denied(policy.StagePause, "an operator has this upstream paused")
	case pause.Principal != "":
		return policy.Denied(policy.StagePause, "an operator has this agent paused")
	}
	return policy.Denied(policy.StagePause, "an operator has all calls paused")
}

func revoked(said *store.Controls, who auth.Principal) bool {
	id, ok := strings.CutPrefix(who.Subject(), "token:")
	return ok && said.Revoked[id]
}

// Halts says why calls of a principal to an upstream are ended, as far as this process has heard: ErrPaused, ErrRevoked, or nil. upstream may be ""
// for what goes to none: only a revoked credential ends that.
func (p *Chokepoint) Halts(who auth.Principal, upstream string) error {
	said := p.said.Load()
	switch {
	case said == nil:
		return nil
	case revoked(said, who):
		return ErrRevoked
	}
	if _, paused := said.Paused(who.Name(), upstream); paused && upstream != "" && upstream != Self {
		return ErrPaused
	}
	return nil
}

// Behind reports whether this process has heard of a policy that it cannot read.
func (p *Chokepoint) Behind() bool {
	said := p.said.Load()
	return said != nil && outdated(p.policy.Load(), said) != ""
}

// Expelled says why streams of a principal are ended, as far as this process has heard: ErrRevoked, ErrUnnamed, or nil.
func (p *Chokepoint) Expelled(who auth.Principal) error {
	if said := p.said.Load(); said != nil && revoked(said, who) {
		return ErrRevoked
	}
	if !p.policy.Load().Names(who) {
		return ErrUnnamed
	}
	return nil
}
