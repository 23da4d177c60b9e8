package chokepoint_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"navra/internal/auth"
	"navra/internal/blackbox"
	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/store"
)

// say has another process say something to all.
func (b *bench) say(t testing.TB, ch store.Change, apply func(*store.Controls)) {
	t.Helper()
	ch.Apply = func(c *store.Controls) (blackbox.Entry, error) {
		if apply != nil {
			apply(c)
		}
		return blackbox.Entry{Kind: blackbox.Event}, nil
	}
	if _, err := b.db.Control(t.Context(), ch); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) pause(t testing.TB, p store.Pause) {
	t.Helper()
	b.say(t, store.Change{}, func(c *store.Controls) { c.Pauses = []store.Pause{p} })
}

// denial is what a call is answered that is not let through; "" where it is.
func (b *bench) denial(t testing.TB, from chokepoint.Peer) (text, stage string) {
	t.Helper()
	_, ask, err := b.Admit(t.Context(), from)
	if err == nil && ask == nil {
		return "", ""
	}
	refusal := (*chokepoint.Refusal)(nil)
	if !errors.As(err, &refusal) {
		t.Fatalf("Admit: %v, %+v", err, ask)
	}
	about, _ := refusal.Msg.Result.Get("_meta", "dev.navra/denied", "stage")
	if refusal.Msg.Error != nil {
		about, _ = refusal.Msg.Error.Data.Get("stage")
	}
	stage, _ = about.Text()
	return string(refusal.Msg.Append(nil)), stage
}

// TestPauseHoldsAtOnce: what another process has paused is denied by the next commit, though this one has judged on what it knew.
func TestPauseHoldsAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name           string
		pause          store.Pause
		annFiles, mail bool // ann's calls are denied, and those to mail
		bob            bool
	}{
		{"a principal", store.Pause{Principal: "ann"}, true, true, false},
		{"an upstream", store.Pause{Upstream: "mail"}, false, true, false},
		{"a principal at an upstream", store.Pause{Principal: "ann", Upstream: "files"}, true, false, false},
		{"everything", store.Pause{}, true, true, true},
		{"somebody else", store.Pause{Principal: "eve"}, false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, permissive(), nil)
			annFiles, annMail, bobFiles := call(t, b.ann, "files__read", "{}"), call(t, b.ann, "mail__send", "{}"), call(t, b.bob, "files__read", "{}")
			if text, _ := b.denial(t, annFiles); text != "" { // it has judged before
				t.Fatal(text)
			}
			b.pause(t, tt.pause)
			for name, c := range map[string]struct {
				from chokepoint.Peer
				deny bool
			}{"ann at files": {annFiles, tt.annFiles}, "ann at mail": {annMail, tt.mail}, "bob at files": {bobFiles, tt.bob}} {
				text, stage := b.denial(t, c.from)
				if c.deny != (text != "") || c.deny && (stage != "pause" || !strings.Contains(text, "denied by navra: an operator has ") || !strings.Contains(text, " paused.") || !strings.Contains(text, "not-sent")) {
					t.Errorf("%s: %q by stage %q, want it denied: %t", name, text, stage, c.deny)
				}
			}
			list := annFiles
			list.In.Msg.Method, list.In.Msg.Params = mcp.ToolsList, nil
			if text, _ := b.denial(t, list); text != "" {
				t.Errorf("a list is denied: %s", text)
			}
			b.say(t, store.Change{}, func(c *store.Controls) { c.Pauses = nil })
			if text, _ := b.denial(t, annMail); text != "" {
				t.Errorf("after resumption: %s", text)
			}
		})
	}
}

// TestPauseIsNoOracle: who may not know of a tool learns nothing of it while it is paused.
func TestPauseIsNoOracle(t *testing.T) {
	b := newBench(t, policy.Options{Roles: map[string]policy.Role{}, Principals: auth.Directory{"ann": {"none"}}}, nil)
	before, _ := b.denial(t, call(t, b.ann, "files__read", "{}"))
	b.pause(t, store.Pause{})
	if after, _ := b.denial(t, call(t, b.ann, "files__read", "{}")); after != before || before == "" {
		t.Errorf("paused %s, before %s", after, before)
	}
}

// TestRevokedTokenHoldsAtOnce: a call that was admitted with a token which is revoked before its commit is denied; another token's is not.
func TestRevokedTokenHoldsAtOnce(t *testing.T) {
	b := newBench(t, permissive(), nil)
	other := prove(t, b.db, "ann", policy.LocalDefault)
	b.admit(t, call(t, b.ann, "files__read", "{}"))
	b.say(t, store.Change{Revoke: strings.TrimPrefix(b.ann.Subject(), "token:")}, nil)
	if text, stage := b.denial(t, call(t, b.ann, "files__read", "{}")); stage != "auth" || !strings.Contains(text, "the token was revoked") {
		t.Errorf("the revoked token: %q by stage %q", text, stage)
	}
	if text, _ := b.denial(t, call(t, other, "files__read", "{}")); text != "" {
		t.Errorf("another token of the principal: %s", text)
	}
	if err := b.Halts(b.ann, "files"); !errors.Is(err, chokepoint.ErrRevoked) {
		t.Errorf("Halts: %v, want ErrRevoked", err)
	}
	if err := b.Halts(other, "files"); err != nil {
		t.Errorf("Halts of another token: %v", err)
	}
}

// TestAnswersAfterAPause: an answer that comes after the pause was heard of is not handed over; the client is told that the call ran.
func TestAnswersAfterAPause(t *testing.T) {
	b := newBench(t, permissive(), nil)
	answer := jsonrpc.Message{Result: jsonrpc.Raw(`{"content":[{"type":"text","text":"the plan"}]}`)}
	from := call(t, b.ann, "files__read", "{}")
	m, late := b.admit(t, from), b.admit(t, from)
	b.pause(t, store.Pause{Principal: "ann"})
	for _, tt := range []struct {
		name string // what this process has heard
		m    chokepoint.ToUpstream
		want []string
	}{
		{"nothing yet", late, []string{`"stage":"pause"`, `"outcome":"ran"`}}, // its commit finds out, and it has heard then
		{"of the pause", m, []string{`"code":-32001`, `"reason":"paused"`, `"outcome":"ran"`}},
	} {
		out, err := b.Release(t.Context(), tt.m.Answer(answer, 0), from)
		got := string(out.Msg.Append(nil))
		if err != nil || strings.Contains(got, "the plan") {
			t.Errorf("%s: %v, %s", tt.name, err, got)
		}
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", tt.name, got, want)
			}
		}
	}
}

// TestChangedIsHeard: who waits hears of what another process says, once this one has read it.
func TestChangedIsHeard(t *testing.T) {
	b := newBench(t, permissive(), nil)
	if err := b.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	changed := b.Changed()
	if err := b.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
		t.Error("nothing was said, and it is heard")
	default:
	}
	b.pause(t, store.Pause{Upstream: "mail"})
	if err := b.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-changed
	if err := b.Halts(b.bob, "mail"); !errors.Is(err, chokepoint.ErrPaused) {
		t.Errorf("Halts: %v, want ErrPaused", err)
	}
	if err := b.Halts(b.bob, chokepoint.Self); err != nil {
		t.Errorf("what navra answers itself is halted: %v", err)
	}
}

// TestNewestPolicyJudges: a process whose policy is older than one that another has told of takes it up before it judges, or denies.
func TestNewestPolicyJudges(t *testing.T) {
	const file = "/etc/navra.yaml"
	with := func(name string, roles ...string) policy.Options {
		o := permissive()
		o.Principals, o.File, o.Name = auth.Directory{"ann": roles}, file, name
		return o
	}
	var b *bench
	has := "" // the file
	asked := 0
	b = newBenchWith(t, with("one", policy.LocalDefault), nil, func(o *chokepoint.Options) {
		o.Renew = func(_ context.Context, name string) {
			if asked++; name != has {
				return
			}
			pol, err := policy.New(with(name)) // ann has no role any more
			if err != nil {
				t.Error(err)
			}
			b.Use(pol)
		}
	})
	from := call(t, b.ann, "files__read", "{}")
	b.admit(t, from)
	tell := func(name string) { b.say(t, store.Change{}, func(c *store.Controls) { c.Policies[file] = name }) }
	tell("one")
	b.admit(t, from)
	tell("two")
	if text, stage := b.denial(t, from); stage != "policy" || !strings.Contains(text, "the policy was changed") || asked == 0 {
		t.Errorf("a policy that the file does not hold: %q by stage %q", text, stage)
	}
	tell("one")
	b.admit(t, from)
	has = "three"
	tell("three")
	if text, stage := b.denial(t, from); stage != "" || !strings.Contains(text, "Unknown tool") {
		t.Errorf("by the new policy: %q by stage %q, want an unknown tool", text, stage)
	}
	for _, e := range b.entries(t) {
		if e.Kind == blackbox.Request && e.Verdict == "allow" && e.Seq > 7 {
			t.Errorf("entry %d permits under an older policy", e.Seq)
		}
	}
}

// TestPolicyThatChangesMeanwhile: what was looked through by the rules of one policy is looked through again by those of the next.
func TestPolicyThatChangesMeanwhile(t *testing.T) {
	strict := permissive()
	strict.Results = policy.Pseudonymise
	var b *bench
	b = newBench(t, permissive(), func(s store.Store) store.Store {
		return &meddler{Store: s, kind: blackbox.Answer, meddle: func() {
			pol, err := policy.New(strict)
			if err != nil {
				t.Error(err)
			}
			b.Use(pol)
			b.say(t, store.Change{}, nil)
		}}
	})
	from := call(t, b.ann, "files__read", "{}")
	m := b.admit(t, from)
	answer := jsonrpc.Message{Result: jsonrpc.Raw(`{"content":[{"type":"text","text":"key ` + aws() + `"}]}`)}
	out, err := b.Release(t.Context(), m.Answer(answer, 0), from)
	if got := string(out.Msg.Append(nil)); err != nil || strings.Contains(got, aws()) || !strings.Contains(got, "[secret:") {
		t.Errorf("the answer is %s, %v, want a placeholder", got, err)
	}
}

// TestPolicyThatChangesBeforeAClientIsTold: what goes to a client that asked for nothing is judged by the policy of its commit, which another process may
// have told of after it was begun.
func TestPolicyThatChangesBeforeAClientIsTold(t *testing.T) {
	const file = "/etc/navra.yaml"
	for _, tt := range []struct {
		name string
		kind blackbox.Kind
		dir  auth.Directory // of the next policy
		tell func(*testing.T, *bench) (told bool)
	}{
		{"news, the principal is named no more", blackbox.Notification, auth.Directory{"bob": {policy.LocalDefault}}, tellNews},
		{"news, the principal has no role any more", blackbox.Notification, auth.Directory{"ann": {}}, tellNews},
		{"a question", blackbox.FromUpstream, auth.Directory{"ann": {}}, pose},
		{"news, the policy cannot be read", blackbox.Notification, nil, tellNews},
		{"a question, the policy cannot be read", blackbox.FromUpstream, nil, pose},
	} {
		t.Run(tt.name, func(t *testing.T) {
			with := func(name string, dir auth.Directory) policy.Options {
				o := permissive()
				o.Principals, o.File, o.Name = dir, file, name
				return o
			}
			dir := auth.Directory{"ann": {policy.LocalDefault}}
			var b *bench
			med := &meddler{kind: tt.kind}
			b = newBenchWith(t, with("one", dir), func(s store.Store) store.Store { med.Store = s; return med }, func(o *chokepoint.Options) {
				o.Renew = func(_ context.Context, name string) {
					if tt.dir == nil || name != "two" {
						return
					}
					pol, err := policy.New(with(name, tt.dir))
					if err != nil {
						t.Error(err)
					}
					b.Use(pol)
				}
			})
			b.say(t, store.Change{}, func(c *store.Controls) { c.Policies[file] = "one" })
			if !tt.tell(t, b) {
				t.Fatal("what nothing is against is not told")
			}
			med.meddle = func() { b.say(t, store.Change{}, func(c *store.Controls) { c.Policies[file] = "two" }) }
			if tt.tell(t, b) {
				t.Error("it is told")
			}
			denied := false
			for _, e := range b.entries(t) {
				denied = denied || e.Kind == tt.kind && e.Verdict == "deny"
			}
			if med.meddle != nil || !denied {
				t.Errorf("nothing came in between, or it is not recorded: %v", denied)
			}
		})
	}
}

// TestNewsIsToldLater: what is dropped since the newest policy cannot be read may be told later; what a policy forbids may not.
func TestNewsIsToldLater(t *testing.T) {
	for _, readable := range []bool{true, false} {
		b := turn(t, "", somebody(), nobody())
		b.known = readable
		from := listener(t, b.ann)
		w := watching(t, b.bench, from)
		b.told(t)
		news, _ := b.News(b.Unsolicited(w.Lane(), jsonrpc.Message{Method: mcp.ResourceUpdated, Params: jsonrpc.Raw(`{"uri":"note://read"}`)}, 0))
		out, err := b.Tell(t.Context(), news, w, from)
		if err != nil || !out.Drop || out.Later == readable || b.Behind() == readable {
			t.Errorf("%v: told %+v, %v, behind %v", readable, out, err, b.Behind())
		}
	}
}

func tellNews(t *testing.T, b *bench) bool {
	from := listener(t, b.ann)
	w := watching(t, b, from)
	news, _ := b.News(b.Unsolicited(w.Lane(), jsonrpc.Message{Method: mcp.ResourceUpdated, Params: jsonrpc.Raw(`{"uri":"note://read"}`)}, 0))
	out, err := b.Tell(t.Context(), news, w, from)
	if err != nil {
		t.Fatal(err)
	}
	return !out.Drop
}

func pose(t *testing.T, b *bench) bool {
	from := call(t, b.ann, "files__read", "{}")
	from.Caps = mcp.CanListRoots
	asks := jsonrpc.Message{ID: jsonrpc.IntID(1), Result: jsonrpc.Raw(`{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}`)}
	out, err := b.Release(t.Context(), b.admit(t, from).Answer(asks, 0), from)
	if err != nil {
		t.Fatal(err)
	}
	return len(out.Round) == 1
}

// A meddler has something happen between the judgement of the first entry of a kind and its commit.
type meddler struct {
	store.Store
	kind   blackbox.Kind
	meddle func()
}

func (m *meddler) Commit(ctx context.Context, c store.Commit) (store.Receipt, error) {
	if c.Entry.Kind == m.kind && m.meddle != nil {
		f := m.meddle
		m.meddle = nil
		f()
	}
	return m.Store.Commit(ctx, c)
}
