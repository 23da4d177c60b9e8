package chokepoint_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"navra/internal/auth"
	"navra/internal/blackbox"
	"navra/internal/chokepoint"
	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/store"
)

// A turning is a bench whose policy another process replaces between judgement and commit.
type turning struct {
	*bench
	med   *meddler
	known bool // the file holds the other policy
}

const turningFile = "/etc/navra.yaml"

// turn returns a bench that begins with one policy, and takes up the other when it is told of. Its upstream files has tasks in the form of v; "" for none.
func turn(t testing.TB, v mcp.Version, one, two policy.Options, more ...func(*chokepoint.Options)) *turning {
	t.Helper()
	one.File, one.Name, one.Digest = turningFile, "one", [32]byte{1}
	two.File, two.Name, two.Digest = turningFile, "two", [32]byte{2}
	b := &turning{med: &meddler{}, known: true}
	b.bench = newBenchWith(t, one, func(s store.Store) store.Store { b.med.Store = s; return b.med }, func(o *chokepoint.Options) {
		if v != "" {
			listTasks(o, v)
		}
		o.Renew = func(_ context.Context, name string) {
			if name == "two" && b.known {
				b.take(t, two)
			}
		}
		for _, f := range more {
			f(o)
		}
	})
	b.say(t, store.Change{}, func(c *store.Controls) { c.Policies[turningFile] = "one" })
	return b
}

func (b *turning) take(t testing.TB, o policy.Options) {
	pol, err := policy.New(o)
	if err != nil {
		t.Error(err)
	}
	b.Use(pol)
}

// meddle has the other policy be told of before the next entry of a kind is committed.
func (b *turning) meddle(t testing.TB, kind blackbox.Kind) {
	b.med.kind, b.med.meddle = kind, func() { b.told(t) }
}

func (b *turning) told(t testing.TB) {
	b.say(t, store.Change{}, func(c *store.Controls) { c.Policies[turningFile] = "two" })
}

// nobody is a policy that names ann and lets her do nothing.
func nobody() policy.Options {
	o := permissive()
	o.Principals = auth.Directory{"ann": {}}
	return o
}

func somebody() policy.Options {
	o := permissive()
	o.Principals = auth.Directory{"ann": {policy.LocalDefault}}
	return o
}

// TestTasksThatAreAllowedMeanwhile: a request about a task that a policy forbids and the next one allows is held against what the id says all the same.
func TestTasksThatAreAllowedMeanwhile(t *testing.T) {
	for _, v := range []mcp.Version{mcp.V20251125, mcp.V20260728} {
		b := turn(t, v, somebody(), somebody())
		id := b.task(t, b.ann, v, "up-1")
		b.take(t, func() policy.Options { o := nobody(); o.File, o.Name = turningFile, "one"; return o }())
		b.meddle(t, blackbox.Request)
		from := peerOf(t, b.ann, v, mcp.TasksGet, about(id))
		m, _, err := b.Admit(t.Context(), from)
		if b.med.meddle != nil {
			t.Fatal("nothing came in between")
		}
		if err != nil {
			continue // it may be asked for again
		}
		c, err := m.Spend(b.Chokepoint)
		if err != nil || !strings.Contains(string(c.Bytes(v)), `"taskId":"up-1"`) {
			t.Errorf("%s: the upstream is sent %s, %v", v, c.Bytes(v), err)
		}
	}
	b := turn(t, mcp.V20260728, somebody(), somebody())
	id := b.task(t, b.ann, mcp.V20260728, "up-1")
	b.take(t, func() policy.Options { o := nobody(); o.File, o.Name = turningFile, "one"; return o }())
	b.meddle(t, blackbox.Request)
	from := peerOf(t, b.ann, mcp.V20260728, mcp.Listen, `{"notifications":{}}`)
	if w, ok := b.AdmitTaskWatch(t.Context(), from, id); ok && w.URI() != "up-1" {
		t.Errorf("the watch is of %q", w.URI())
	}
}

// TestRefusalsOfTheNextPolicy: what is wrong with a call is wrong by the next policy too, which allows it while the one before did not.
func TestRefusalsOfTheNextPolicy(t *testing.T) {
	b := turn(t, mcp.V20260728, nobody(), somebody())
	b.meddle(t, blackbox.Request)
	from := peerOf(t, b.ann, mcp.V20260728, mcp.ToolsCall, `{"name":"files__read","arguments":{},"requestState":"none of navra's"}`)
	if m, _, err := b.Admit(t.Context(), from); err == nil {
		t.Errorf("a call with an unknown state is let through: %v", m)
	}
	// and the other way round: what may not be known of any more is unknown, whatever else is wrong
	b = turn(t, mcp.V20260728, somebody(), nobody())
	b.meddle(t, blackbox.Request)
	_, _, err := b.Admit(t.Context(), from)
	refusal := (*chokepoint.Refusal)(nil)
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Error(), "Unknown tool") {
		t.Errorf("what is hidden is told of: %v", err)
	}
}

// TestInputsAreJudgedWhereTheCallIs: answers that come with a call do not go on unseen because the call was paused, or forbidden, a moment ago.
func TestInputsAreJudgedWhereTheCallIs(t *testing.T) {
	strict := somebody()
	strict.Arguments = policy.Deny
	denies := nobody()
	bad := `{"name":"files__read","arguments":{},"inputResponses":{"k":{"action":"accept","content":{"key":"` + aws() + `"}}}}`
	for _, tt := range []struct {
		name     string
		one, two policy.Options
		before   func(*turning)
		kind     blackbox.Kind // before whose first entry the policy changes; "": it does not
	}{
		{"resumed, which is not heard of", strict, strict, func(b *turning) {
			b.pause(t, store.Pause{})
			if err := b.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.say(t, store.Change{}, func(c *store.Controls) { c.Pauses = nil })
		}, ""},
		{"resumed before the commit", strict, strict, func(b *turning) {
			b.pause(t, store.Pause{})
			if err := b.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.med.kind, b.med.meddle = blackbox.Request, func() { b.say(t, store.Change{}, func(c *store.Controls) { c.Pauses = nil }) }
		}, ""},
		{"allowed meanwhile", denies, strict, func(*turning) {}, blackbox.Request},
		{"stricter meanwhile", somebody(), strict, func(*turning) {}, blackbox.Request},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := turn(t, mcp.V20260728, tt.one, tt.two)
			tt.before(b)
			if tt.kind != "" {
				b.meddle(t, tt.kind)
			}
			from := peerOf(t, b.ann, mcp.V20260728, mcp.ToolsCall, bad)
			from.Caps |= mcp.CanElicit
			m, _, err := b.Admit(t.Context(), from)
			if b.med.meddle != nil {
				t.Fatal("nothing came in between")
			}
			if err == nil {
				c, _ := m.Spend(b.Chokepoint)
				t.Errorf("the upstream is sent %s", c.Bytes(mcp.V20260728))
			}
			if text, _ := b.denial(t, call(t, b.ann, "files__read", "{}")); text != "" {
				t.Errorf("the next call is denied: %s", text)
			}
		})
	}
}

// TestAnswersToARoundAreJudgedByItsPolicy: answers that were judged by an older policy do not go on by the next.
func TestAnswersToARoundAreJudgedByItsPolicy(t *testing.T) {
	two := somebody()
	two.Arguments = policy.Deny
	b := turn(t, mcp.V20251125, somebody(), two)
	from := call(t, b.ann, "files__read", "{}")
	from.Caps = mcp.CanElicit
	m := b.admit(t, from)
	asks := jsonrpc.Message{ID: jsonrpc.IntID(1), Result: jsonrpc.Raw(`{"resultType":"input_required","inputRequests":{"r":{"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{"key":{"type":"string"}}}}}}}`)}
	out, err := b.Release(t.Context(), m.Answer(asks, 0), from)
	if err != nil || len(out.Round) != 1 {
		t.Fatalf("Release = %+v, %v", out, err)
	}
	b.meddle(t, blackbox.Request)
	yes := jsonrpc.Message{Result: jsonrpc.Raw(`{"action":"accept","content":{"key":"` + aws() + `"}}`)}
	next, err := b.AdmitRound(t.Context(), from, m, map[*chokepoint.Question]chokepoint.Reply{out.Round[0]: {From: from, Msg: yes}})
	if b.med.meddle != nil {
		t.Fatal("nothing came in between")
	}
	if err == nil {
		c, _ := next.Spend(b.Chokepoint)
		t.Errorf("the upstream is sent %s", c.Bytes(mcp.V20260728))
	}
}

// TestARetryUnderAStricterPolicy: that a call was judged before counts by the same policy alone.
func TestARetryUnderAStricterPolicy(t *testing.T) {
	two := somebody()
	two.OnViolation = policy.Deny
	b := turn(t, mcp.V20260728, somebody(), two)
	from := peerOf(t, b.ann, mcp.V20260728, mcp.ToolsCall, `{"name":"files__read","arguments":{}}`)
	b.answers(t, b.admit(t, from), from, `{"content":[]}`) // what files holds is not for mail
	send := `"name":"mail__send","arguments":{}`
	from = peerOf(t, b.ann, mcp.V20260728, mcp.ToolsCall, `{`+send+`}`)
	asked := b.answers(t, b.admit(t, from), from, `{"resultType":"input_required","requestState":"s"}`)
	state, _ := asked.Result.Get("requestState")
	if state == nil {
		t.Fatalf("the client is answered %s", asked.Append(nil))
	}
	from = peerOf(t, b.ann, mcp.V20260728, mcp.ToolsCall, `{`+send+`,"requestState":`+string(state)+`}`)
	b.told(t)
	if text, stage := b.denial(t, from); stage != "flow" {
		t.Errorf("the retry is answered %q by stage %q, want it denied by flow", text, stage)
	}
}

// TestAnnouncementsOfWhoIsGone: who is named no more, or whose token was revoked, is told nothing, nor what it had asked to be told of.
func TestAnnouncementsOfWhoIsGone(t *testing.T) {
	gone := permissive()
	gone.Principals = auth.Directory{"bob": {policy.LocalDefault}}
	for _, way := range []string{"removed", "revoked"} {
		for what, tell := range map[string]func(*turning, chokepoint.Peer) (chokepoint.Released, error){
			"a list": func(b *turning, from chokepoint.Peer) (chokepoint.Released, error) {
				return b.AnnounceTo(t.Context(), from, mcp.Tool)
			},
			"an acknowledgement": func(b *turning, from chokepoint.Peer) (chokepoint.Released, error) {
				return b.Acknowledge(t.Context(), from, mcp.Wish{URIs: []string{"note://read"}})
			},
		} {
			b := turn(t, mcp.V20260728, somebody(), gone)
			from := listener(t, b.ann)
			if out, err := tell(b, from); err != nil || out.Drop || out.Msg.Method == "" {
				t.Fatalf("%s: %+v, %v", what, out, err)
			}
			b.meddle(t, blackbox.Notification)
			if way == "revoked" {
				b.med.meddle = func() { b.say(t, store.Change{Revoke: strings.TrimPrefix(b.ann.Subject(), "token:")}, nil) }
			}
			out, err := tell(b, from)
			if b.med.meddle != nil {
				t.Fatal("nothing came in between")
			}
			if err == nil && !out.Drop {
				t.Errorf("%s, %s: %s", way, what, out.Msg.Append(nil))
			}
		}
	}
}

// TestAnswersOfWhoIsGone: the answer to a call of who is named no more is withheld.
func TestAnswersOfWhoIsGone(t *testing.T) {
	gone := permissive()
	gone.Principals = auth.Directory{"bob": {policy.LocalDefault}}
	for _, meanwhile := range []bool{true, false} {
		b := turn(t, mcp.V20251125, somebody(), gone)
		from := call(t, b.ann, "files__read", "{}")
		m := b.admit(t, from)
		if b.meddle(t, blackbox.Answer); !meanwhile {
			b.med.meddle()
			b.med.meddle = nil
		}
		out, err := b.Release(t.Context(), m.Answer(jsonrpc.Message{Result: jsonrpc.Raw(`{"content":[{"type":"text","text":"the plan"}]}`)}, 0), from)
		if got := string(out.Msg.Append(nil)); err != nil || strings.Contains(got, "the plan") || !strings.Contains(got, `"outcome":"ran"`) {
			t.Errorf("%v: the answer is %s, %v", meanwhile, got, err)
		}
	}
	// who may only do less has the answer: it was judged when it was asked for
	b := turn(t, mcp.V20251125, somebody(), nobody())
	from := call(t, b.ann, "files__read", "{}")
	m := b.admit(t, from)
	b.meddle(t, blackbox.Answer)
	if got := b.answers(t, m, from, `{"content":[{"type":"text","text":"the plan"}]}`); !strings.Contains(string(got.Result), "the plan") {
		t.Errorf("the answer is %s", got.Append(nil))
	}
}

// TestResultsSettingAtTheLastTry: where the scope moves on again and again, the verdict is made inside the commit. A result that was looked through by the
// rules of an older policy does not go on then either.
func TestResultsSettingAtTheLastTry(t *testing.T) {
	one, two := somebody(), somebody()
	one.Roles = map[string]policy.Role{policy.LocalDefault: {Clearance: ifc.Secret, Allow: []policy.Patterns{{Tools: []string{"*"}}}}}
	two.Roles, two.Results = one.Roles, policy.Pseudonymise
	b := turn(t, mcp.V20251125, one, two)
	from := call(t, b.ann, "files__read", "{}")
	m := b.admit(t, from)
	n := 0
	b.med.kind = blackbox.Answer
	var again func()
	again = func() {
		if n++; n < 3 {
			b.say(t, store.Change{}, nil)
			b.med.meddle = again
			return
		}
		b.told(t)
	}
	b.med.meddle = again
	if got := b.answers(t, m, from, `{"content":[{"type":"text","text":"`+aws()+`"}]}`); strings.Contains(string(got.Result), aws()) || n != 3 {
		t.Errorf("after %d tries the answer is %s", n, got.Append(nil))
	}
}

// TestLogMessagesAreHeldAgainstWhatIsSaid: what an upstream says by itself is not recorded one by one; still a pause is heard of within a second.
func TestLogMessagesAreHeldAgainstWhatIsSaid(t *testing.T) {
	now := time.Now()
	b := turn(t, mcp.V20251125, somebody(), somebody(), func(o *chokepoint.Options) { o.Now = func() time.Time { return now } })
	from := call(t, b.ann, "files__read", "{}")
	from.Level = mcp.Level(1)
	lane := b.admit(t, from).Lane()
	note := jsonrpc.Message{Method: mcp.Logging, Params: jsonrpc.Raw(`{"level":"error","data":"hello"}`)}
	log := func() bool {
		out, err := b.ReleaseUnasked(t.Context(), b.Unsolicited(lane, note, 0), from)
		if err != nil {
			t.Fatal(err)
		}
		return !out.Drop
	}
	for range 2 {
		if !log() {
			t.Fatal("a log message is dropped")
		}
	}
	b.pause(t, store.Pause{})
	now = now.Add(1100 * time.Millisecond)
	if log() {
		t.Error("a log message crosses while everything is paused")
	}
	b.say(t, store.Change{}, func(c *store.Controls) { c.Pauses = nil })
	now = now.Add(1100 * time.Millisecond)
	if !log() {
		t.Error("a log message is dropped after resumption")
	}
}

// TestResentIsJudged: a call whose connection was lost does not leave once more behind the entry of what forbids it.
func TestResentIsJudged(t *testing.T) {
	for what, say := range map[string]func(*turning){
		"a policy": func(b *turning) { b.told(t) }, "a pause": func(b *turning) { b.pause(t, store.Pause{}) },
		"a revocation": func(b *turning) { b.say(t, store.Change{Revoke: strings.TrimPrefix(b.ann.Subject(), "token:")}, nil) },
	} {
		b := turn(t, mcp.V20251125, somebody(), nobody())
		m := b.admit(t, call(t, b.ann, "files__read", "{}"))
		if err := b.Resent(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		say(b)
		if err := b.Resent(t.Context(), m); err == nil {
			t.Errorf("%s: it is sent once more", what)
		}
	}
}

// TestUseIsHeard: a policy that this process takes up late, after it heard that there is one, is heard of by those who wait.
func TestUseIsHeard(t *testing.T) {
	b := turn(t, mcp.V20251125, somebody(), somebody())
	if err := b.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	changed := b.Changed()
	o := nobody()
	o.File, o.Name, o.Digest = turningFile, "one", [32]byte{3}
	b.take(t, o)
	select {
	case <-changed:
	default:
		t.Error("nobody hears of it")
	}
}

// TestListsAreThoseOfTheirCommit: what a client may see is made by the policy that its answer is recorded under, and so is who may keep it.
func TestListsAreThoseOfTheirCommit(t *testing.T) {
	less := somebody()
	less.Roles = map[string]policy.Role{policy.LocalDefault: {Allow: []policy.Patterns{{Tools: []string{"files/only"}}}}}
	for _, tt := range []struct {
		name     string
		one, two policy.Options
		want     string
	}{
		{"less", somebody(), less, "files__only"}, {"more", less, somebody(), "files__only files__read mail__send"}, {"nothing", somebody(), nobody(), ""},
	} {
		b := turn(t, mcp.V20260728, tt.one, tt.two)
		from := peerOf(t, b.ann, mcp.V20260728, mcp.ToolsList, "{}")
		m := b.admit(t, from)
		b.meddle(t, blackbox.Answer)
		out, err := b.Release(t.Context(), m.Says(func(v chokepoint.View) jsonrpc.Message {
			return jsonrpc.Message{Result: new(jsonrpc.Object).Raw("tools", jsonrpc.Array(v.Definitions(mcp.Tool)...)).Done()}
		}), from)
		if err != nil || b.med.meddle != nil {
			t.Fatal(err)
		}
		var names []string
		tools, _ := out.Msg.Result.Get("tools")
		for def := range tools.Elements() {
			raw, _ := def.Get("name")
			name, _ := raw.Text()
			names = append(names, name)
		}
		all := b.entries(t)
		last := all[len(all)-1]
		if got := strings.Join(names, " "); got != tt.want || !strings.HasPrefix(last.Policy, "02") || last.Payloads[0].Length != int64(len(tools)+len(`{"tools":}`)) {
			t.Errorf("%s: the list has %q, want %q; the entry is %+v", tt.name, got, tt.want, last)
		}
	}
	b := turn(t, mcp.V20260728, somebody(), somebody())
	from := call(t, b.ann, "files__read", "{}")
	if _, err := b.Release(t.Context(), b.admit(t, from).Says(func(chokepoint.View) jsonrpc.Message { return jsonrpc.Message{} }), from); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("navra answers in the place of an upstream: %v", err)
	}
}

// TestCapabilitiesOfTheNextPolicy: an upstream is told that a call's client can be asked for what the policy of the call's commit relays.
func TestCapabilitiesOfTheNextPolicy(t *testing.T) {
	two := somebody()
	two.Roles = map[string]policy.Role{policy.LocalDefault: {Clearance: ifc.PII, Allow: []policy.Patterns{{Tools: []string{"*"}}}}}
	b := turn(t, mcp.V20260728, somebody(), two)
	from := peerOf(t, b.ann, mcp.V20260728, mcp.ToolsCall, `{"name":"files__read","arguments":{}}`)
	from.Caps = mcp.CanListRoots
	b.meddle(t, blackbox.Request)
	m := b.admit(t, from)
	c, err := m.Spend(b.Chokepoint)
	if got := string(c.Bytes(mcp.V20260728)); err != nil || strings.Contains(got, "roots") || m.Asked() || m.Lane().Caps() != 0 {
		t.Errorf("the upstream is sent %s over %+v, %v", got, m.Lane(), err)
	}
}

// TestTasksWhereCapabilitiesChange: a task is asked for over the connection that it was made over, though a newer policy relays less.
func TestTasksWhereCapabilitiesChange(t *testing.T) {
	two := somebody()
	two.Roles = map[string]policy.Role{policy.LocalDefault: {Clearance: ifc.PII, Allow: []policy.Patterns{{Tools: []string{"*"}}}}}
	for _, v := range []mcp.Version{mcp.V20251125, mcp.V20260728} {
		b := turn(t, v, somebody(), two)
		from := peerOf(t, b.ann, v, mcp.ToolsCall, `{"name":"files__read","arguments":{},"task":{}}`)
		from.Caps |= mcp.CanListRoots
		made := b.admit(t, from)
		answer, at := `{"task":{"taskId":"up-1","status":"working"}}`, []string{"task", "taskId"}
		if v.Stateless() {
			answer, at = `{"resultType":"task","taskId":"up-1","status":"working"}`, at[1:]
		}
		raw, _ := b.answers(t, made, from, answer).Result.Get(at...)
		id, _ := raw.Text()
		b.told(t)
		b.admit(t, peerOf(t, b.ann, v, mcp.ToolsCall, `{"name":"files__read","arguments":{}}`))
		get := peerOf(t, b.ann, v, mcp.TasksGet, about(id))
		get.Caps = from.Caps
		if m := b.admit(t, get); m.Lane() != made.Lane() {
			t.Errorf("%s: it is asked for over %+v, and was made over %+v", v, m.Lane(), made.Lane())
		}
		if got := b.Tasks(get); !v.Stateless() && (len(got) != 1 || got[0] != id) {
			t.Errorf("%s: the list has %q", v, got)
		}
	}
}

// TestAnswersOfARoleThatIsGone: a call goes on whose role has another name in the newer policy; its answer is held against the clearance of the role that
// the principal has now.
func TestAnswersOfARoleThatIsGone(t *testing.T) {
	for clearance, passes := range map[ifc.Confidentiality]bool{ifc.PII: true, ifc.Public: false} {
		two := somebody()
		two.Principals = auth.Directory{"ann": {"renamed"}}
		two.Roles = map[string]policy.Role{"renamed": {Clearance: clearance, Allow: []policy.Patterns{{Tools: []string{"*"}}}}}
		b := turn(t, mcp.V20251125, somebody(), two)
		from := call(t, b.ann, "files__read", "{}")
		m := b.admit(t, from)
		b.meddle(t, blackbox.Answer)
		if got := string(b.answers(t, m, from, `{"content":[{"type":"text","text":"the plan"}]}`).Append(nil)); strings.Contains(got, "the plan") != passes {
			t.Errorf("clearance %s: the answer is %s", clearance, got)
		}
	}
}
