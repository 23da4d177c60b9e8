package chokepoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"navra/internal/filter"
	"navra/internal/ifc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/scope"
)

// A secret is one that was found in a crossing. Its value stays in here.
type secret struct {
	filter.Finding
	from []string // upstreams that the scope knows it from; on the way to an upstream
}

// maxPlaceholders bounds the secrets of one kind in one scope: an upstream chooses how many it shows.
const maxPlaceholders = 10_000

// maxNewPlaceholders bounds those of one message.
const maxNewPlaceholders = 1000

var errTooMany = errors.New("more secrets in one conversation than are told apart")

// placeholderMark is how every placeholder begins.
var placeholderMark = []byte("[secret:")

// recollect reads what the scope knows as secrets, so that they are found by their values alone. A value that does not open (the
// key beside the database was replaced) is found by its pattern only.
func (p *Chokepoint) recollect(ctx context.Context, x *Crossing) error {
	table, err := p.store.Placeholders(ctx, x.open.ID)
	if err != nil {
		return err
	}
	var known []filter.Finding
	for _, h := range table {
		if b, err := p.vault.Open(string(h.Box), vaultContext(x.open.ID, h.Kind)); err == nil {
			known = append(known, filter.Finding{Kind: h.Kind, Value: string(b)})
		}
	}
	x.table, x.set = table, p.filter.Knowing(known)
	return nil
}

// putBack replaces placeholders in arguments by the values they stand for, where that undoes nothing: in a call of the
// same principal that writes, to the very object that the value was read from. Any other placeholder is never sent.
func (p *Chokepoint) putBack(x *Crossing) policy.Verdict {
	ok := policy.Allowed(policy.StageResolve)
	if !bytes.Contains(x.body, placeholderMark) {
		return ok
	}
	paths, err := namedPaths(x.body, x.facts.Item.Upstream)
	if err != nil {
		return policy.Denied(policy.StageResolve, err.Error())
	}
	var values []string
	body, err := x.body.MapStrings(func(path string, name bool, s string) (string, bool) {
		refs := filter.FindPlaceholders(s)
		for i := len(refs) - 1; i >= 0; i-- {
			value, why := p.reveal(x, refs[i], paths, name || !strings.HasPrefix(path, "arguments/"))
			if why != "" {
				ok = ok.And(policy.Denied(policy.StageResolve, why))
				return s, false
			}
			s = s[:refs[i].Start] + value + s[refs[i].End:]
			values = append(values, value)
		}
		for _, value := range values[len(values)-len(refs):] {
			if !p.recognised(s, value) {
				ok = ok.And(policy.Denied(policy.StageResolve, "a placeholder stands where its secret would not be recognised again; keep the text around it as it was read"))
				return s, false
			}
		}
		return s, len(refs) > 0
	})
	if err != nil {
		return ok.And(policy.Denied(policy.StageResolve, "a placeholder could not be put back"))
	}
	if ok.Permits() {
		x.final = body
	}
	return ok
}

// recognised reports whether the filter finds a value in text: else it would be shown the next time the text is read.
func (p *Chokepoint) recognised(text, value string) bool {
	return slices.ContainsFunc(p.filter.Scan(text), func(sp filter.Span) bool { return strings.Contains(text[sp.Start:sp.End], value) })
}

// reveal returns the value that a placeholder stands for, or why it may not be sent.
func (p *Chokepoint) reveal(x *Crossing, ref filter.Ref, paths []string, misplaced bool) (value, why string) {
	name := filter.Placeholder(ref.Kind, ref.N)
	i := slices.IndexFunc(x.table, func(h scope.Placeholder) bool { return h.Kind == ref.Kind && h.N == ref.N })
	item := x.facts.Item
	switch {
	case i < 0 || x.table[i].Principal != x.facts.Who.Name():
		return "", fmt.Sprintf("%s stands for no secret of this conversation; read the object that holds it again", name)
	case misplaced || x.asked != mcp.NoQuestion || x.facts.Topic != mcp.Tool:
		return "", fmt.Sprintf("%s stands in a place where it cannot be replaced", name)
	case item.Class != ifc.Write && item.Class != ifc.Unclassified:
		return "", fmt.Sprintf("%s is put back only in calls that write to where it was read, and %s is a %s call", name, item.Canonical(), item.Class)
	case len(paths) == 0 || !heldBy(x.table[i], item.Upstream.Name, paths):
		return "", fmt.Sprintf("%s is put back only into the object that it was read from, alone, and this call names another", name)
	}
	b, err := p.vault.Open(string(x.table[i].Box), vaultContext(x.open.ID, ref.Kind))
	if err != nil {
		return "", fmt.Sprintf("%s could not be opened", name)
	}
	return string(b), ""
}

// heldBy reports whether each of paths is one that h was read from.
func heldBy(h scope.Placeholder, upstream string, paths []string) bool {
	for _, path := range paths {
		if !slices.Contains(h.Objects, scope.Object{Upstream: upstream, Path: path}) {
			return false
		}
	}
	return true
}

// vaultContext binds a sealed value to its scope and kind.
func vaultContext(id scope.ID, kind string) []byte {
	return []byte("placeholder\x00" + string(id) + "\x00" + kind)
}

// examine finds the secrets in what goes to an upstream, and where the scope knows them from.
func (p *Chokepoint) examine(x *Crossing) error {
	_, found, err := x.set.Apply(x.final, nil)
	if err != nil || len(found) == 0 {
		x.clean = err == nil && bytes.Equal(x.final, x.body)
		return err
	}
	from := make(map[[32]byte][]string, len(x.table))
	for _, h := range x.table {
		for _, o := range h.Objects {
			from[h.Tag] = append(from[h.Tag], o.Upstream)
		}
	}
	for _, f := range found {
		x.found = append(x.found, secret{f, from[p.vault.Tag([]byte(f.Value))]})
	}
	return nil
}

// conceal finds the secrets in what comes from an upstream and, as policy says, puts placeholders in their place. A secret
// left standing raises the label to secret; one that was replaced raises nothing.
func (p *Chokepoint) conceal(ctx context.Context, x *Crossing) error {
	_, found, err := x.set.Apply(x.body, nil)
	if err != nil || len(found) == 0 {
		x.clean = err == nil
		return err
	}
	for _, f := range found {
		x.found = append(x.found, secret{Finding: f})
	}
	if x.policy.Results() == policy.DenyResult {
		return nil
	}
	names, err := p.remember(ctx, x, found)
	if err != nil {
		return err
	}
	if x.policy.Results() == policy.Record {
		x.label = x.label.Join(ifc.Of(x.facts.Item.Upstream.Name, ifc.Level{Integrity: ifc.Trusted, Confidentiality: ifc.Secret}))
		return nil
	}
	x.final, _, err = x.set.Apply(x.body, func(f filter.Finding) (string, bool) { return names[f], true })
	return err
}

// remember gives each secret its placeholder in the scope, with where it was read. A value that is found where several
// objects were read together belongs to none of them: it cannot be told which holds it.
func (p *Chokepoint) remember(ctx context.Context, x *Crossing, found []filter.Finding) (map[filter.Finding]string, error) {
	upstream := x.facts.Item.Upstream.Name
	object := scope.Object{Upstream: upstream}
	if x.paths != nil {
		if paths := x.paths(); len(paths) == 1 {
			object.Path = paths[0]
		}
	}
	var unique []filter.Finding
	var rows []scope.Placeholder
	seen := map[filter.Finding]bool{}
	for _, f := range found {
		if seen[f] {
			continue
		}
		if seen[f] = true; len(seen) > maxNewPlaceholders {
			return nil, errTooMany
		}
		box := p.vault.Seal([]byte(f.Value), vaultContext(x.open.ID, f.Kind))
		unique = append(unique, f)
		rows = append(rows, scope.Placeholder{
			Kind: f.Kind, Principal: x.facts.Who.Name(), Tag: p.vault.Tag([]byte(f.Value)), Box: []byte(box), Objects: []scope.Object{object},
		})
	}
	rows, err := p.store.AddPlaceholders(ctx, x.open.ID, rows)
	if err != nil {
		return nil, err
	}
	names := make(map[filter.Finding]string, len(rows))
	for i, f := range unique {
		if rows[i].N > maxPlaceholders {
			return nil, errTooMany
		}
		names[f] = filter.Placeholder(f.Kind, rows[i].N)
	}
	return names, nil
}
