package chokepoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"navra/internal/blackbox"
	"navra/internal/catalogue"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// Bounds on what is read of an upstream's lists, and so on lists that never end.
const (
	maxPages       = 1000     // of one list
	maxListed      = 10_000   // definitions of one list
	maxListedBytes = 32 << 20 // of all lists
	maxEmpty       = 10       // pages of one list that hold nothing
	maxTold        = 20       // definitions that the log names when they are left out
)

// A Visit is one opening of a lane, or one reading of its lists: navra's own messages in their order, and what the upstream
// said of itself, gathered from released answers alone. A Visit is used by one goroutine.
type Visit struct {
	by      *Chokepoint
	lane    Lane
	listing catalogue.Listing
	todo    []string // lists still to be read
	cursor  jsonrpc.Raw
	pages   int
	empty   int // of them
	bytes   int
}

// Visit begins the opening of a lane.
func (p *Chokepoint) Visit(l Lane) *Visit { return &Visit{by: p, lane: l} }

// Again begins another reading of the lists of a lane that v opened.
func (v *Visit) Again() *Visit {
	w := &Visit{by: v.by, lane: v.lane}
	w.listing.Version, w.listing.Capabilities, w.listing.Instructions = v.listing.Version, v.listing.Capabilities, v.listing.Instructions
	w.plan()
	return w
}

// Hello admits the handshake.
func (v *Visit) Hello(ctx context.Context) (ToUpstream, error) {
	caps := v.lane.caps
	if u := v.by.book.Upstream(v.lane.upstream); u != nil && u.Root != "" { // navra answers
		caps = caps&^mcp.CanTellRoots | mcp.CanListRoots
	}
	params := new(jsonrpc.Object).Text("protocolVersion", string(mcp.Latest)).Raw("capabilities", caps.Object(mcp.Latest)).Raw("clientInfo", ServerInfo(v.by.version)).Done()
	return v.by.own(ctx, v.lane, v.nextID(), mcp.Initialize, params, v)
}

// Known is the version that the upstream spoke when it was last heard of, in this run or before; "" where it never was.
func (v *Visit) Known() mcp.Version {
	l, _ := v.by.book.For(v.lane.principal).Listing(v.lane.upstream)
	return l.Version
}

// Discover admits the probe that only an upstream of the stateless era answers.
func (v *Visit) Discover(ctx context.Context) (ToUpstream, error) {
	return v.by.own(ctx, v.lane, v.nextID(), mcp.Discover, nil, v)
}

// Version is the version that was agreed on; "" before.
func (v *Visit) Version() mcp.Version { return v.listing.Version }

// Initialized admits the notification that ends the handshake.
func (v *Visit) Initialized(ctx context.Context) (ToUpstream, error) {
	return v.by.own(ctx, v.lane, jsonrpc.ID{}, mcp.Initialized, nil, v)
}

// Next admits the request for the next page of the next list; more is false when all were read.
func (v *Visit) Next(ctx context.Context) (m ToUpstream, more bool, err error) {
	if len(v.todo) == 0 {
		return ToUpstream{}, false, nil
	}
	var params jsonrpc.Raw
	if v.cursor != nil {
		params = new(jsonrpc.Object).Raw("cursor", v.cursor).Done()
	}
	m, err = v.by.own(ctx, v.lane, v.nextID(), v.todo[0], params, v)
	return m, err == nil, err
}

func (v *Visit) nextID() jsonrpc.ID { return jsonrpc.IntID(v.by.next.Add(1)) }

// plan sets the lists to read: those that the upstream says it has.
func (v *Visit) plan() {
	v.todo = nil
	for _, l := range []struct{ capability, method string }{
		{"tools", mcp.ToolsList}, {"prompts", mcp.PromptsList}, {"resources", mcp.ResourcesList}, {"resources", mcp.TemplatesList},
	} {
		if _, has := v.listing.Capabilities.Get(l.capability); has {
			v.todo = append(v.todo, l.method)
		}
	}
}

// Learn releases an answer to one of the visit's messages to navra itself, and takes from it what it says.
func (v *Visit) Learn(ctx context.Context, in FromUpstream) error {
	c := in.cause
	if c == nil || c.by != v.by || c.visit != v || c.answered.Swap(true) {
		return ErrUncleared
	}
	x := v.by.returning(c, blackbox.OwnAnswer)
	x.trail.back(in)
	var bad error
	refused := false
	switch m := in.msg; {
	case in.kind == failure:
		bad = in.err
		if bad == nil {
			bad = ErrUnavailable
		}
		if c.method == mcp.Initialize || c.method == mcp.Discover {
			bad = greetingFailed(bad)
		}
		x.entry.Outcome = string(in.outcome)
	case m.Error != nil:
		bad = fmt.Errorf("%s: the upstream answers error %d", c.method, m.Error.Code)
		if c.method == mcp.Initialize || c.method == mcp.Discover {
			bad = greetingRefused(bad, c.method, *m.Error)
		}
		x.body, refused = errorBody(*m.Error), true
	case !m.Result.IsObject():
		bad = fmt.Errorf("%s: %w", c.method, ErrBadAnswer)
		if c.method == mcp.Discover {
			bad = fmt.Errorf("%w: %w", bad, ErrOtherEra)
		}
	default:
		x.body = m.Result
	}
	verdict := ownVerdict(bad, refused)
	x.pre = &verdict
	if err := v.by.pass(ctx, &x); err != nil {
		return fmt.Errorf("record the answer to %s: %w", c.method, err)
	}
	if bad == nil {
		bad = v.take(c.method, x.body)
	}
	if bad != nil && c.method != mcp.Initialize && c.method != mcp.Discover && in.kind == answer && len(v.todo) > 0 {
		v.todo, v.cursor, v.pages = v.todo[1:], nil, 0 // this list is not to be had; the others may be
		return nil
	}
	return bad
}

// ownVerdict is that of an answer to navra itself, of which bad says what is wrong. What an upstream refuses is an answer as others are, such as that of an
// older one to server/discover: nothing was denied.
func ownVerdict(bad error, refused bool) policy.Verdict {
	v := policy.Allowed(policy.StageName)
	switch {
	case bad == nil:
	case refused:
		v.Reason = bad.Error()
	default:
		v = policy.Denied(policy.StageMessage, bad.Error())
	}
	return v
}

// take reads what an answer says.
func (v *Visit) take(method string, result jsonrpc.Raw) error {
	switch method {
	case mcp.Initialize:
		return v.takeHello(result)
	case mcp.Discover:
		return v.takeDiscovery(result)
	case mcp.SetLevel:
		return nil
	}
	key, list := "tools", &v.listing.Tools
	switch method {
	case mcp.PromptsList:
		key, list = "prompts", &v.listing.Prompts
	case mcp.ResourcesList:
		key, list = "resources", &v.listing.Resources
	case mcp.TemplatesList:
		key, list = "resourceTemplates", &v.listing.Templates
	}
	page, _ := result.Get(key)
	if v.bytes += len(page); v.bytes > maxListedBytes {
		return fmt.Errorf("%s: the upstream's lists have more than %d bytes", method, maxListedBytes)
	}
	altered := false
	for def := range page.Elements() {
		out, ok := v.by.clean(def)
		altered = altered || !ok || string(out) != string(def)
		if ok {
			*list = append(*list, out)
		} else {
			v.by.log.Warn("definition left out: a secret stands in its name, or it could not be examined", "upstream", v.lane.upstream)
		}
	}
	v.hint(method, result, altered)
	v.cursor, _ = result.Get("nextCursor")
	if _, text := v.cursor.Text(); !text {
		v.cursor = nil
	}
	if firstOf(page) == nil {
		v.empty++
	}
	if v.pages++; v.cursor == nil || v.pages >= maxPages || v.empty > maxEmpty || len(*list) >= maxListed {
		v.todo, v.cursor, v.pages, v.empty = v.todo[1:], nil, 0, 0
	}
	return nil
}

func (v *Visit) takeHello(result jsonrpc.Raw) error {
	raw, _ := result.Get("protocolVersion")
	s, _ := raw.Text()
	if !mcp.Version(s).Stateful() {
		return fmt.Errorf("the upstream speaks protocol version %.40q, which navra does not", s)
	}
	v.learnt(mcp.Version(s), result)
	return nil
}

// takeDiscovery chooses a version that both speak, a stateless one before others. What names no versions is no answer to the question: some
// servers of the stateful era answer any method with an empty result.
func (v *Visit) takeDiscovery(result jsonrpc.Raw) error {
	list, _ := result.Get("supportedVersions")
	version, stateful := common(list)
	switch {
	case version != "":
		v.learnt(version, result)
		return nil
	case stateful, !list.IsArray():
		return fmt.Errorf("%s: %w", mcp.Discover, ErrOtherEra)
	}
	return errNoCommon
}

// ErrOtherEra says that an upstream has to be greeted in the way of the other era.
var ErrOtherEra = errors.New("the upstream does not speak this era")

// ErrOnceMore says that an upstream refused the version of a greeting, and names one that navra speaks: it is to be greeted once more.
var ErrOnceMore = errors.New("the upstream asks for a version that navra speaks")

var errNoCommon = errors.New("the upstream speaks no protocol version that navra does")

// common returns the best stateless version of a list that navra speaks, and whether it holds a stateful one.
func common(list jsonrpc.Raw) (best mcp.Version, stateful bool) {
	for e := range list.Elements() {
		s, _ := e.Text()
		switch v := mcp.Version(s); {
		case v.Stateless() && v > best:
			best = v
		case v.Stateful():
			stateful = true
		}
	}
	return best, stateful
}

// greetingRefused says what an error in answer to a greeting means. To a probe, only the codes of the stateless era say that the upstream
// is of that era; no other code proves anything. MCP 2026-07-28, basic/versioning §Detection.
func greetingRefused(bad error, method string, e jsonrpc.Error) error {
	list, _ := e.Data.Get("supported")
	best, stateful := common(list)
	switch e.Code {
	case mcp.CodeHeaderMismatch, mcp.CodeMissingCapability, mcp.CodeUnsupportedVersion:
		if method == mcp.Discover && best != "" {
			return fmt.Errorf("%w: %w", bad, ErrOnceMore)
		}
		if method == mcp.Discover && !stateful {
			return fmt.Errorf("%w: %w", bad, errNoCommon)
		}
	}
	return fmt.Errorf("%w: %w", bad, ErrOtherEra)
}

// greetingFailed says what a greeting without an answer means: an HTTP endpoint of the other era refuses with a status, or with what is no
// message. Missing credentials, a server that is too busy or broken, and silence prove nothing.
func greetingFailed(err error) error {
	status := HTTPStatus(0)
	if errors.As(err, &status) {
		switch status {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusTooManyRequests:
			return err
		}
		if status < 400 || status > 499 {
			return err
		}
	} else if !errors.Is(err, ErrBadAnswer) {
		return err
	}
	return fmt.Errorf("%w: %w", err, ErrOtherEra)
}

// learnt takes what both greetings tell.
func (v *Visit) learnt(version mcp.Version, result jsonrpc.Raw) {
	v.listing.Version = version
	if caps, ok := result.Get("capabilities"); ok {
		v.listing.Capabilities, _ = v.by.clean(caps) // it is kept
	}
	if text, ok := result.Get("instructions"); ok {
		if clean, ok := v.by.clean(new(jsonrpc.Object).Raw("instructions", text).Done()); ok {
			text, _ = clean.Get("instructions")
			v.listing.Instructions, _ = text.Text()
		}
	}
	v.plan()
}

// Install puts what the visit learnt into the catalogue and keeps it for the next start. It reports what
// changed.
func (v *Visit) Install(ctx context.Context) (Change, error) {
	if len(v.todo) > 0 {
		return Change{}, errors.New("the lists were not read to their ends")
	}
	p := v.by
	before := p.book.For(v.lane.principal).Left
	changed := Change{v.lane.principal, p.book.Install(v.lane.principal, v.lane.upstream, v.listing)}
	told := 0
	for _, left := range p.book.For(v.lane.principal).Left {
		if left.Upstream == v.lane.upstream || !slices.Contains(before, left) { // a name of its may have been another's until now
			if told++; told <= maxTold {
				p.log.Warn("definition left out", "upstream", left.Upstream, "name", left.Name, "why", left.Why)
			}
		}
	}
	if told > maxTold {
		p.log.Warn("more definitions were left out", "upstream", v.lane.upstream, "more", told-maxTold)
	}
	if err := p.store.Keep(ctx, p.keptKey(v.lane), v.listing.Encode()); err != nil {
		return changed, fmt.Errorf("keep the catalogue of %s: %w", v.lane.upstream, err)
	}
	return changed, nil
}

// Offers reports whether the upstream has a capability.
func (v *Visit) Offers(capability string) bool {
	_, has := v.listing.Capabilities.Get(capability)
	return has
}

// Lane is the lane that the visit opens.
func (v *Visit) Lane() Lane { return v.lane }
