package stores

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
)

// A caller is a gateway's chokepoint in a child, at which principals call until it is told to stop.
type caller struct {
	stop    atomic.Bool
	calling sync.WaitGroup
	calls   atomic.Int64
	failed  atomic.Pointer[error]
}

const policyFile = "/etc/navra.yaml"

// begin has ann and bob call two upstreams over and over. Each decides on what its process knows.
func (c *caller) begin(db database) error {
	set, err := filter.New()
	if err != nil {
		return err
	}
	pol, err := policy.New(policy.Options{
		Roles:       map[string]policy.Role{policy.LocalDefault: policy.DefaultRole()},
		OnViolation: policy.Allow, Results: policy.Record, Arguments: policy.Allow, File: policyFile, Name: "one",
	})
	if err != nil {
		return err
	}
	level := ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.Sensitive}
	book := catalogue.NewBook([]*catalogue.Upstream{{Name: "files", Label: level, Kept: "files"}, {Name: "mail", Label: level, Kept: "mail"}}, 0)
	cp := chokepoint.New(chokepoint.Options{
		Policy: pol, Filter: set, Store: db, Catalogue: book, Vault: seal.New().For("test"), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Version: "test",
	})
	for _, name := range []string{"ann", "bob"} {
		secret, tok := token.New(name, time.Now(), time.Time{})
		if err := db.AddToken(context.Background(), tok); err != nil {
			return err
		}
		a := token.Authenticator{Tokens: db, NotFound: store.ErrNotFound, Directory: auth.Directory{name: {policy.LocalDefault}}, Now: time.Now}
		who, err := a.Verify(context.Background(), secret.Reveal())
		if err != nil {
			return err
		}
		for _, upstream := range []string{"files", "mail"} {
			book.Install(name, upstream, catalogue.Listing{Tools: []jsonrpc.Raw{jsonrpc.Raw(`{"name":"use","inputSchema":{"type":"object"}}`)}})
			c.calling.Go(func() { c.call(cp, who, upstream) })
		}
	}
	return nil
}

func (c *caller) call(cp *chokepoint.Chokepoint, who auth.Principal, upstream string) {
	m, fault := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + upstream + `__use","arguments":{}}}`))
	if fault != nil {
		err := errors.New(fault.Err.Message)
		c.failed.Store(&err)
		return
	}
	from := chokepoint.Peer{Who: who, In: mcp.Inbound{Msg: m, Transport: mcp.HTTP}, Version: mcp.V20251125, Session: "s"}
	for !c.stop.Load() {
		_, _, err := cp.Admit(context.Background(), from)
		if refusal := (*chokepoint.Refusal)(nil); err != nil && !errors.As(err, &refusal) {
			c.failed.Store(&err)
			return
		}
		c.calls.Add(1)
	}
}

func (c *caller) end() (int64, error) {
	c.stop.Store(true)
	c.calling.Wait()
	if err := c.failed.Load(); err != nil {
		return 0, *err
	}
	return c.calls.Load(), nil
}

// A hold is from where to where in the chain something may not be permitted.
type hold struct {
	what     string
	from, to blackbox.Seq
	against  func(blackbox.Entry) bool
}

// TestSoakPauses: behind the entry of a pause, a revocation or a newer policy there is no permit that it forbids, whichever process commits it, and
// whatever that has judged on.
func TestSoakPauses(t *testing.T) {
	both(t, func(t *testing.T, where string, _ int) {
		races := size(50, 1000)
		a, b := start(t, where), start(t, where)
		for _, p := range []*process{a, b} {
			p.done(p.tell("calls"))
		}
		db, err := open(where)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		say := func(revoke string, apply func(*store.Controls)) blackbox.Seq {
			r, err := db.Control(t.Context(), store.Change{Revoke: revoke, Apply: func(c *store.Controls) (blackbox.Entry, error) {
				apply(c)
				return blackbox.Entry{Kind: blackbox.Event, Time: time.Now()}, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			return r.Seq
		}
		var holds []hold
		for i := range races {
			h := kindOf(i)
			h.from = say("", func(c *store.Controls) { h.set(c) })
			passed(t, db, h.from, 2) // calls go on meanwhile
			h.to = say("", func(c *store.Controls) { c.Pauses, c.Policies = nil, map[string]string{policyFile: "one"} })
			passed(t, db, h.to, 4)
			holds = append(holds, h.hold)
		}
		tokens, err := db.Tokens(t.Context())
		if err != nil || len(tokens) != 4 {
			t.Fatalf("%d tokens, %v, want those of two principals in two processes", len(tokens), err)
		}
		for _, tok := range tokens {
			from := say(tok.ID, func(*store.Controls) {})
			passed(t, db, from, 4)
			if tok.Principal == "ann" && tok.ID == lastOf(tokens, "ann") { // both of ann's are
				holds = append(holds, hold{"ann's tokens are revoked", from, 1 << 62, func(e blackbox.Entry) bool { return e.Principal == "ann" }})
			}
		}
		calls := 0
		for _, p := range []*process{a, b} {
			n, err := strconv.Atoi(p.done(p.tell("stop")))
			if err != nil {
				t.Fatal(err)
			}
			calls += n
		}
		head, err := db.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		heldBack(t, chainOf(t, db, head.Seq), holds)
		t.Logf("%d holds among %d calls", len(holds), calls)
	})
}

type setting struct {
	hold
	set func(*store.Controls)
}

// kindOf is the nth hold.
func kindOf(i int) setting {
	paused := func(p store.Pause) func(*store.Controls) {
		return func(c *store.Controls) { c.Pauses = []store.Pause{p} }
	}
	switch i % 4 {
	case 0:
		return setting{hold{what: "ann is paused", against: func(e blackbox.Entry) bool { return e.Principal == "ann" }}, paused(store.Pause{Principal: "ann"})}
	case 1:
		return setting{hold{what: "mail is paused", against: func(e blackbox.Entry) bool { return e.Upstream == "mail" }}, paused(store.Pause{Upstream: "mail"})}
	case 2:
		return setting{hold{what: "all is paused", against: func(blackbox.Entry) bool { return true }}, paused(store.Pause{})}
	}
	return setting{hold{what: "a newer policy", against: func(blackbox.Entry) bool { return true }}, func(c *store.Controls) { c.Policies[policyFile] = "two" }}
}

func lastOf(tokens []auth.Token, who string) (id string) {
	for _, tok := range tokens {
		if tok.Principal == who {
			id = tok.ID
		}
	}
	return id
}

// passed waits until so many entries more are there.
func passed(t *testing.T, db database, from blackbox.Seq, n int) {
	t.Helper()
	for {
		r, err := db.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r.Seq >= from+blackbox.Seq(n) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func chainOf(t *testing.T, db database, want blackbox.Seq) (out []blackbox.Entry) {
	t.Helper()
	if rep, err := db.Verify(t.Context()); err != nil || !rep.OK() || rep.Entries != uint64(want) {
		t.Fatalf("Verify = %+v, %v, want %d good entries", rep, err, want)
	}
	for row, err := range db.Rows(t.Context(), 1) {
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

func heldBack(t *testing.T, chain []blackbox.Entry, holds []hold) {
	t.Helper()
	permits, denials := 0, map[string]int{}
	for _, h := range holds {
		for _, e := range chain[h.from:min(h.to, blackbox.Seq(len(chain)))] {
			if e.Kind == blackbox.Request && e.Verdict == "allow" && h.against(e) {
				t.Errorf("%s with entry %d, and entry %d permits %s to call %s", h.what, h.from, e.Seq, e.Principal, e.Upstream)
			}
		}
	}
	for _, e := range chain {
		switch {
		case e.Kind == blackbox.Request && e.Verdict == "allow":
			permits++
		case e.Kind == blackbox.Request:
			denials[e.Stage]++
		}
	}
	for _, stage := range []string{"pause", "policy", "auth"} {
		if denials[stage] == 0 {
			t.Errorf("nothing was denied by stage %s: the test shows nothing of it", stage)
		}
	}
	if permits < len(holds) {
		t.Errorf("%d calls were permitted beside %d holds: the test shows nothing", permits, len(holds))
	}
	t.Log(strings.TrimSpace(fmt.Sprint(permits, " permits, denials by stage: ", denials)))
}
