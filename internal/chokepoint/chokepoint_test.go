package chokepoint_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"navra/internal/auth"
	"navra/internal/auth/token"
	"navra/internal/blackbox"
	"navra/internal/catalogue"
	"navra/internal/chokepoint"
	"navra/internal/filter"
	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/seal"
	"navra/internal/store"
	"navra/internal/store/sqlite"
)

// A bench is a real chokepoint on a real store, with upstreams files and mail that ann has been told of.
type bench struct {
	*chokepoint.Chokepoint
	db  *sqlite.DB
	ann auth.Principal
	bob auth.Principal
}

var allRoles = map[string]policy.Role{policy.LocalDefault: policy.DefaultRole(), "low": {Clearance: ifc.Public, Allow: []policy.Patterns{{Tools: []string{"*"}}}}}

func permissive() policy.Options {
	return policy.Options{Roles: allRoles, OnViolation: policy.Allow, Results: policy.Record, Arguments: policy.Allow}
}

// broken is a store that cannot write.
type broken struct {
	store.Store
	err error
}

func (b broken) Commit(context.Context, store.Commit) (store.Receipt, error) {
	return store.Receipt{}, b.err
}

func newBench(t testing.TB, o policy.Options, wrap func(store.Store) store.Store) *bench {
	t.Helper()
	return newBenchWith(t, o, wrap, func(*chokepoint.Options) {})
}

// newBenchWith is newBench with options of its own.
func newBenchWith(t testing.TB, o policy.Options, wrap func(store.Store) store.Store, more func(*chokepoint.Options)) *bench {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "navra.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	f, err := filter.New()
	if err != nil {
		t.Fatal(err)
	}
	pol, err := policy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	level := ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.Sensitive}
	book := catalogue.NewBook([]*catalogue.Upstream{
		{Name: "files", Label: level, Classes: map[string]ifc.Class{"read": ifc.Read, "write": ifc.Write}, Folder: t.TempDir(), Kept: "files"},
		{Name: "mail", Label: level, Classes: map[string]ifc.Class{"send": ifc.Egress}, Folder: t.TempDir(), Kept: "mail"},
	}, 0)
	listing := func(names ...string) (l catalogue.Listing) {
		for _, n := range names {
			l.Tools = append(l.Tools, new(jsonrpc.Object).Text("name", n).Raw("inputSchema", jsonrpc.Raw(`{"type":"object"}`)).Done())
		}
		l.Capabilities = jsonrpc.Raw(`{"tools":{},"resources":{"subscribe":true}}`)
		l.Resources = []jsonrpc.Raw{new(jsonrpc.Object).Text("uri", "note://"+names[0]).Text("name", names[0]).Done()}
		return l
	}
	for _, who := range []string{"ann", "bob", "low"} {
		book.Install(who, "files", listing("read", "write"))
		book.Install(who, "mail", listing("send"))
	}
	var st store.Store = db
	if wrap != nil {
		st = wrap(db)
	}
	co := chokepoint.Options{
		Policy: pol, Filter: f, Store: st, Catalogue: book, Vault: seal.New().For("test"), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Version: "test",
	}
	more(&co)
	return &bench{chokepoint.New(co), db, prove(t, db, "ann", policy.LocalDefault), prove(t, db, "bob", policy.LocalDefault)}
}

// prove gets a principal the way everybody does: from an authenticator.
func prove(t testing.TB, db *sqlite.DB, name string, roles ...string) auth.Principal {
	t.Helper()
	secret, tok := token.New(name, time.Now(), time.Now().Add(1e12))
	if err := db.AddToken(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	a := token.Authenticator{Tokens: db, NotFound: store.ErrNotFound, Directory: auth.Directory{name: roles}, Now: time.Now}
	who, err := a.Verify(t.Context(), secret.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	return who
}

func call(t testing.TB, who auth.Principal, tool, args string) chokepoint.Peer {
	t.Helper()
	m, fault := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + args + `}}`))
	if fault != nil {
		t.Fatal(fault)
	}
	return chokepoint.Peer{Who: who, In: mcp.Inbound{Msg: m, Transport: mcp.HTTP}, Version: mcp.V20251125, Session: "s"}
}

func aws() string { return "AKIA" + "Q3EGRT5LXWZ7NPKB" }

func (b *bench) entries(t testing.TB) (out []blackbox.Entry) {
	t.Helper()
	for row, err := range b.db.Rows(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := blackbox.Decode(row.Encoded)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// admit admits what must be admitted.
func (b *bench) admit(t testing.TB, from chokepoint.Peer) chokepoint.ToUpstream {
	t.Helper()
	m, ask, err := b.Admit(t.Context(), from)
	if err != nil || ask != nil {
		t.Fatalf("Admit: %v, %+v", err, ask)
	}
	return m
}

// The second lock: what was not minted here, or was sent before, is not sent.
func TestSpendRefusesUncleared(t *testing.T) {
	here, there := newBench(t, permissive(), nil), newBench(t, permissive(), nil)
	spent := here.admit(t, call(t, here.ann, "files__read", "{}"))
	if _, err := spent.Spend(here.Chokepoint); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]chokepoint.ToUpstream{
		"zero value": {}, "another chokepoint's": there.admit(t, call(t, there.ann, "files__read", "{}")), "sent before": spent,
	} {
		if c, err := m.Spend(here.Chokepoint); !errors.Is(err, chokepoint.ErrUncleared) || c.Bytes("") != nil {
			t.Errorf("%s: Spend = %s, %v, want ErrUncleared", name, c.Bytes(""), err)
		}
	}
	if _, err := here.admit(t, call(t, here.ann, "files__read", "{}")).Spend(nil); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("no chokepoint: %v, want ErrUncleared", err)
	}
}

func TestReleaseRefusesWhatIsNotItsOwn(t *testing.T) {
	here, there := newBench(t, permissive(), nil), newBench(t, permissive(), nil)
	from := call(t, here.ann, "files__read", "{}")
	m := here.admit(t, from)
	ok := jsonrpc.Message{ID: jsonrpc.IntID(1), Result: jsonrpc.Raw(`{"content":[]}`)}
	foreign := there.admit(t, call(t, there.ann, "files__read", "{}"))
	for name, tt := range map[string]struct {
		in chokepoint.FromUpstream
		to chokepoint.Peer
	}{
		"zero value":           {chokepoint.FromUpstream{}, from},
		"another chokepoint's": {foreign.Answer(ok, 0), from},
		"another principal":    {m.Answer(ok, 0), call(t, here.bob, "files__read", "{}")},
		"nobody":               {m.Answer(ok, 0), chokepoint.Peer{}},
		"unsolicited":          {here.Unsolicited(chokepoint.Lane{}, ok, 0), from},
	} {
		if out, err := here.Release(t.Context(), tt.in, tt.to); !errors.Is(err, chokepoint.ErrUncleared) || out.Msg.Result != nil {
			t.Errorf("%s: Release = %s, %v, want ErrUncleared", name, out.Msg.Result, err)
		}
	}
	if _, err := here.Release(t.Context(), m.Answer(ok, 0), from); err != nil {
		t.Errorf("its own: %v", err)
	}
	if _, err := here.Release(t.Context(), m.Answer(ok, 0), from); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("a second answer: %v, want ErrUncleared", err)
	}
}

// The fourth lock: each step of the pipeline denies alone, everything else being permissive; and the denial is recorded.
func TestEachStepDeniesAlone(t *testing.T) {
	strictFlow, strictArgs := permissive(), permissive()
	strictFlow.OnViolation, strictArgs.Arguments = policy.Deny, policy.Deny
	taint := func(t *testing.T, b *bench) {
		from := call(t, b.ann, "files__read", "{}")
		m := b.admit(t, from)
		if _, err := b.Release(t.Context(), m.Answer(jsonrpc.Message{ID: jsonrpc.IntID(1), Result: jsonrpc.Raw(`{"content":[]}`)}, 0), from); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		step   policy.Stage
		opt    policy.Options
		before func(*testing.T, *bench)
		who    string
		tool   string
		args   string
	}{
		{policy.StageMessage, permissive(), nil, "ann", "files__none", "{}"},
		{policy.StageName, permissive(), nil, "norole", "files__read", "{}"},
		{policy.StageResolve, permissive(), nil, "ann", "files__write", `{"path":"x","content":"[secret:jwt:1]"}`},
		{policy.StageFilter, permissive(), nil, "ann", "files__write", `{"a":"` + strings.Repeat("x", 17<<20) + `"}`},
		{policy.StageContent, strictArgs, nil, "ann", "files__write", `{"content":"` + aws() + `"}`},
		{policy.StageFlow, strictFlow, taint, "ann", "mail__send", "{}"},
		{policy.StageFlow, permissive(), nil, "low", "files__read", "{}"},
	} {
		t.Run(string(tt.step)+" "+tt.who, func(t *testing.T) {
			b := newBench(t, tt.opt, nil)
			who := b.ann
			switch tt.who {
			case "norole":
				who = prove(t, b.db, "bob")
			case "low":
				who = prove(t, b.db, "low", "low")
			}
			if tt.before != nil {
				tt.before(t, b)
			}
			m, ask, err := b.Admit(t.Context(), call(t, who, tt.tool, tt.args))
			var refusal *chokepoint.Refusal
			if !errors.As(err, &refusal) || ask != nil || m.Upstream() != "" {
				t.Fatalf("Admit = %v, %+v, %v, want a refusal", m, ask, err)
			}
			es := b.entries(t)
			last := es[len(es)-1]
			if last.Verdict != "deny" || last.Stage != string(tt.step) || last.Outcome != "not-sent" {
				t.Errorf("recorded %s by %s, %s; want a denial by %s", last.Verdict, last.Stage, last.Outcome, tt.step)
			}
			if _, err := m.Spend(b.Chokepoint); !errors.Is(err, chokepoint.ErrUncleared) {
				t.Errorf("what came with the refusal can be sent: %v", err)
			}
		})
	}
	t.Run("record", func(t *testing.T) {
		full := errors.New("disk full")
		b := newBench(t, permissive(), func(s store.Store) store.Store { return broken{s, full} })
		m, _, err := b.Admit(t.Context(), call(t, b.ann, "files__read", "{}"))
		if err == nil || m.Upstream() != "" {
			t.Errorf("an unrecorded call was admitted: %v", err)
		}
	})
	t.Run("nobody", func(t *testing.T) {
		b := newBench(t, permissive(), nil)
		if _, _, err := b.Admit(t.Context(), call(t, auth.Principal{}, "files__read", "{}")); err == nil {
			t.Error("the zero principal was admitted")
		}
	})
	t.Run("zero policy", func(t *testing.T) {
		b := newBench(t, policy.Options{}, nil)
		if _, _, err := b.Admit(t.Context(), call(t, b.ann, "files__read", "{}")); err == nil {
			t.Error("the zero policy admitted")
		}
	})
}

// A result that cannot be recorded is not released, and taint comes before the answer.
func TestAnswersAreRecordedAndTaintFirst(t *testing.T) {
	b := newBench(t, policy.Options{Roles: allRoles, OnViolation: policy.Ask, Results: policy.Pseudonymise, Arguments: policy.Ask}, nil)
	from := call(t, b.ann, "files__read", `{"path":"x"}`)
	m := b.admit(t, from)
	out, err := b.Release(t.Context(), m.Answer(jsonrpc.Message{ID: jsonrpc.IntID(1), Result: jsonrpc.Raw(`{"content":[{"type":"text","text":"k ` + aws() + `"}]}`)}, 0), from)
	if err != nil || !strings.Contains(string(out.Msg.Result), "[secret:aws-access-key:1]") || strings.Contains(string(out.Msg.Result), aws()) {
		t.Errorf("Release = %s, %v", out.Msg.Result, err)
	}
	_, ask, err := b.Admit(t.Context(), call(t, b.ann, "mail__send", `{"body":"x"}`))
	if ask == nil || err != nil {
		t.Fatalf("Admit after taint = %v, %v, want an ask", ask, err)
	}
	es := b.entries(t)
	if e := es[1]; e.After != "untrusted, files:sensitive" || e.Before != "trusted, public" || e.Cause != es[0].Seq || e.Outcome != "ran" {
		t.Errorf("answer's entry: %+v", e)
	}
	if e := es[2]; e.Verdict != "ask" || e.Stage != "flow" || e.Outcome != "not-sent" {
		t.Errorf("ask's entry: %+v", e)
	}
	rep, err := b.db.Verify(t.Context())
	if err != nil || !rep.OK() {
		t.Errorf("Verify = %+v, %v", rep, err)
	}
}

// Each of navra's own messages is one of a fixed set, and carries nothing of a client's.
func TestCancelCarriesNothingOfTheClient(t *testing.T) {
	b := newBench(t, permissive(), nil)
	from := call(t, b.ann, "files__read", `{"x":"clientword"}`)
	m := b.admit(t, from)
	if _, err := b.AdmitCancel(t.Context(), m); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("a message that was not sent is cancelled: %v", err)
	}
	c, err := m.Spend(b.Chokepoint)
	if err != nil {
		t.Fatal(err)
	}
	note, err := b.AdmitCancel(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := note.Spend(b.Chokepoint)
	want := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + c.ID.String() + `}}`
	if err != nil || string(got.Bytes("")) != want || got.Lane != c.Lane {
		t.Errorf("cancel = %s, %v, want %s", got.Bytes(""), err, want)
	}
	v := b.Visit(c.Lane)
	hello, err := v.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sent, err := hello.Spend(b.Chokepoint)
	if err != nil || strings.Contains(string(sent.Bytes("")), "ann") || !strings.Contains(string(sent.Bytes("")), `"clientInfo":{"name":"navra"`) {
		t.Errorf("hello = %s, %v", sent.Bytes(""), err)
	}
	if err := v.Learn(t.Context(), m.Answer(jsonrpc.Message{Result: jsonrpc.Raw(`{}`)}, 0)); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("a client's answer was learnt: %v", err)
	}
}

// Many calls in one scope at once: no call to mail is permitted after a read's answer was released.
func TestRaceBetweenTaintAndPermit(t *testing.T) {
	b := newBench(t, policy.Options{Roles: allRoles, OnViolation: policy.Deny, Results: policy.Record, Arguments: policy.Allow}, nil)
	var mu sync.Mutex
	released := false
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if i%8 == 7 {
				from := call(t, b.ann, "files__read", "{}")
				m, _, err := b.Admit(t.Context(), from)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := b.Release(t.Context(), m.Answer(jsonrpc.Message{ID: jsonrpc.IntID(1), Result: jsonrpc.Raw(`{}`)}, 0), from); err != nil {
					t.Error(err)
				}
				mu.Lock()
				released = true
				mu.Unlock()
				return
			}
			mu.Lock()
			after := released
			mu.Unlock()
			if _, _, err := b.Admit(t.Context(), call(t, b.ann, "mail__send", "{}")); after && err == nil {
				t.Error("mail was permitted after private data was released")
			}
		})
	}
	wg.Wait()
	tainted := false
	for _, e := range b.entries(t) { // and in the order of the chain
		if e.Kind == blackbox.Answer && e.Upstream == "files" {
			tainted = true
		}
		if tainted && e.Upstream == "mail" && e.Verdict == "allow" {
			t.Errorf("entry %d permits mail after the taint", e.Seq)
		}
	}
}

// What an upstream asks is answered from a fixed set.
func TestRepliesToUpstreams(t *testing.T) {
	b := newBench(t, permissive(), nil)
	lane := b.Lanes(call(t, b.ann, "files__read", "{}"))[0]
	for method, want := range map[string]string{
		"ping":                   `{"jsonrpc":"2.0","id":"q","result":{}}`,
		"roots/list":             `{"jsonrpc":"2.0","id":"q","error":{"code":-32601,"message":"Method not found"}}`,
		"sampling/createMessage": `{"jsonrpc":"2.0","id":"q","error":{"code":-32601,"message":"Method not found"}}`,
		"x/y":                    `{"jsonrpc":"2.0","id":"q","error":{"code":-32601,"message":"Method not found"}}`,
	} {
		id, _ := jsonrpc.IDOf(jsonrpc.Quote("q"))
		m, err := b.AdmitReply(t.Context(), b.Unsolicited(lane, jsonrpc.Message{ID: id, Method: method}, 0))
		if err != nil {
			t.Fatal(err)
		}
		if c, err := m.Spend(b.Chokepoint); err != nil || string(c.Bytes("")) != want || c.Lane != lane || !c.ID.IsZero() {
			t.Errorf("%s: %s, %v, want %s", method, c.Bytes(""), err, want)
		}
	}
	if _, err := b.AdmitReply(t.Context(), chokepoint.FromUpstream{}); !errors.Is(err, chokepoint.ErrUncleared) {
		t.Errorf("the zero value: %v", err)
	}
	n := 0
	for _, e := range b.entries(t) {
		if e.Kind == blackbox.FromUpstream {
			n++
		}
	}
	if n != 4 {
		t.Errorf("%d requests of the upstream recorded, want 4", n)
	}
}

// An answer that asks the client for something smuggles a request past the pipeline: it is none.
func TestAnswersThatAskAreRefused(t *testing.T) {
	b := newBench(t, permissive(), nil)
	from := call(t, b.ann, "files__read", "{}")
	from.Version = mcp.V20260728
	for _, result := range []string{`{"resultType":"input_required","inputRequests":{"a":{"method":"sampling/createMessage"}}}`, `{"resultType":"task","taskId":"1"}`, `{"resultType":7}`, `[]`} {
		m := b.admit(t, from)
		out, err := b.Release(t.Context(), m.Answer(jsonrpc.Message{ID: jsonrpc.IntID(1), Result: jsonrpc.Raw(result)}, 0), from)
		if err != nil || out.Msg.Error == nil || out.Msg.Result != nil {
			t.Errorf("%s: Release = %s, %v, want an error", result, out.Msg.Result, err)
		}
	}
}

// A result that does not say that it asks asks nothing: some clients would answer all the same.
func TestQuestionsOutsideARoundAreTakenOut(t *testing.T) {
	b := newBench(t, permissive(), nil)
	for _, v := range []mcp.Version{mcp.V20250326, mcp.V20251125, mcp.V20260728} {
		for _, kind := range []string{"", `"resultType":"complete",`} {
			from := call(t, b.ann, "files__read", "{}")
			from.Version = v
			result := `{"content":[],` + kind + `"inputRequests":{"a":{"method":"sampling/createMessage"}},"x":1,"requestState":"theirs"}`
			out, err := b.Release(t.Context(), b.admit(t, from).Answer(jsonrpc.Message{ID: jsonrpc.IntID(1), Result: jsonrpc.Raw(result)}, 0), from)
			if err != nil {
				t.Fatal(err)
			}
			_, asks := out.Msg.Result.Get("inputRequests")
			_, state := out.Msg.Result.Get("requestState")
			if x, _ := out.Msg.Result.Get("x"); asks || state || string(x) != "1" {
				t.Errorf("%s: Release = %s, want it without inputRequests and requestState", v, out.Msg.Result)
			}
		}
	}
}

// A flood of notifications does not fill the blackbox: they are counted.
func TestDroppedNotificationsAreSummed(t *testing.T) {
	b := newBench(t, permissive(), nil)
	from := call(t, b.ann, "files__read", "{}")
	from.In.Msg = jsonrpc.Message{Method: "notifications/no-such"}
	for range 1000 {
		if b.Notify(t.Context(), from) {
			t.Fatal("navra acts on what it does not know")
		}
	}
	es := b.entries(t)
	if len(es) != 4 || es[3].Notes[0].N != 1000 {
		t.Errorf("%d entries, want 4: at 1, 10, 100 and 1000", len(es))
	}
	from.In.Msg = jsonrpc.Message{Method: mcp.Initialized}
	if !b.Notify(t.Context(), from) || len(b.entries(t)) != 5 {
		t.Error("initialized is not taken or not recorded")
	}
}

// TestKeptCatalogueHoldsNoSecret: what an upstream says that it can do is kept for the next start.
func TestKeptCatalogueHoldsNoSecret(t *testing.T) {
	b := newBench(t, permissive(), nil)
	v := b.Visit(b.admit(t, call(t, b.ann, "files__read", "{}")).Lane())
	hello, err := v.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hello.Spend(b.Chokepoint); err != nil {
		t.Fatal(err)
	}
	said := `{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"x/` + aws() + `":{}},"serverInfo":{"name":"` + aws() + `","version":"1"},"instructions":"` + aws() + `"}`
	if err := v.Learn(t.Context(), hello.Answer(jsonrpc.Message{Result: jsonrpc.Raw(said)}, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept, err := b.db.Kept(t.Context(), "catalogue/files/ann")
	if err != nil || strings.Contains(string(kept), aws()) || !v.Offers("logging") {
		t.Errorf("kept: %s, %v", kept, err)
	}
}

func TestEntriesHoldNoSecretInNames(t *testing.T) {
	b := newBench(t, permissive(), nil)
	if _, _, err := b.Admit(t.Context(), call(t, b.ann, "x "+aws(), "{}")); err == nil {
		t.Fatal("admitted")
	}
	from := call(t, b.ann, "files__read", "{}")
	from.In.Msg = jsonrpc.Message{Method: "notifications/" + aws()}
	if b.Notify(t.Context(), from) {
		t.Fatal("navra acts on what it does not know")
	}
	for _, e := range b.entries(t) {
		if strings.Contains(string(e.Encode()), aws()) {
			t.Errorf("entry: %s", e.Encode())
		}
	}
}

func TestNewPanicsWithoutAPart(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a chokepoint without parts was made")
		}
	}()
	chokepoint.New(chokepoint.Options{})
}
