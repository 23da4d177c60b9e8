package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
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
	"navra/internal/gateway"
	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
	"navra/internal/seal"
	"navra/internal/store"
	"navra/internal/store/sqlite"
)

// A setting is what a desk is set up with; its zero value lets upstreams ask for everything.
type setting struct {
	client   []string // what upstreams may ask for; nil: all
	askLimit time.Duration
	parkLife time.Duration
	call     time.Duration
	shared   bool
	strict   bool       // flows and secrets in what a client sends are denied
	db       *sqlite.DB // of an earlier desk, with its seal
	seal     *seal.Sealer
	spans    func(chokepoint.Span)
	refuses  func(blackbox.Entry) bool // entries that the store cannot write
	dirty    bool                      // the same upstream is there a second time, as dirty, with a label of secret
}

// A desk is a gateway before a scripted upstream, up.
type desk struct {
	*gateway.Gateway
	t    *testing.T
	db   *sqlite.DB
	seal seal.Sealer
	who  map[string]auth.Principal
	next atomic.Int64
}

func newDesk(t *testing.T, at string, o setting) *desk {
	t.Helper()
	if o.client == nil {
		o.client = []string{"sampling", "elicitation", "roots"}
	}
	if o.call == 0 {
		o.call = time.Minute
	}
	effect := policy.Allow
	if o.strict {
		effect = policy.Deny
	}
	d := &desk{t: t, db: o.db, who: map[string]auth.Principal{}}
	if d.db == nil {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "navra.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		d.db = db
	}
	d.seal = seal.New().For("test")
	if o.seal != nil {
		d.seal = *o.seal
	}
	f, err := filter.New()
	if err != nil {
		t.Fatal(err)
	}
	role := policy.Role{Clearance: ifc.Secret, Allow: []policy.Patterns{{Tools: []string{"*"}, Client: o.client}}}
	pol, err := policy.New(policy.Options{Roles: map[string]policy.Role{"user": role}, OnViolation: effect, Results: policy.Record, Arguments: effect})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	ups := []*catalogue.Upstream{{Name: "up", Shared: o.shared, Label: ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.Sensitive}, Folder: t.TempDir(), Kept: "up"}}
	if o.dirty {
		ups = append(ups, &catalogue.Upstream{Name: "dirty", Classes: map[string]ifc.Class{"ask": ifc.Read}, Label: ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.Secret}, Folder: t.TempDir(), Kept: "dirty"})
	}
	book := catalogue.NewBook(ups, 0)
	cp := chokepoint.New(chokepoint.Options{Policy: pol, Filter: f, Store: refusing{d.db, o.refuses}, Catalogue: book, Vault: d.seal, Logger: log, Version: "test", Spans: o.spans})
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	specs := []gateway.Spec{{Name: "up", URL: u, Connect: 5 * time.Second, Call: o.call, CallMax: time.Minute}}
	if o.dirty {
		specs = append(specs, gateway.Spec{Name: "dirty", URL: u, Connect: 5 * time.Second, Call: o.call, CallMax: time.Minute})
	}
	d.Gateway = gateway.New(gateway.Options{
		Chokepoint: cp, Sessions: d.db, Seal: d.seal, Logger: log, Version: "test", AskLimit: o.askLimit, ParkLife: o.parkLife,
		Upstreams: specs,
	})
	t.Cleanup(d.Stop)
	for _, name := range []string{"ann", "bob"} {
		secret, tok := token.New(name, time.Now(), time.Now().Add(time.Hour))
		if err := d.db.AddToken(t.Context(), tok); err != nil {
			t.Fatal(err)
		}
		a := token.Authenticator{Tokens: d.db, NotFound: store.ErrNotFound, Directory: auth.Directory{"ann": {"user"}, "bob": {"user"}}, Now: time.Now}
		if d.who[name], err = a.Verify(t.Context(), secret.Reveal()); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// A refusing store cannot write some entries.
type refusing struct {
	store.Store
	entry func(blackbox.Entry) bool
}

func (r refusing) Commit(ctx context.Context, c store.Commit) (store.Receipt, error) {
	if r.entry != nil && r.entry(c.Entry) {
		return store.Receipt{}, store.ErrFull
	}
	return r.Store.Commit(ctx, c)
}

// entries returns what was recorded.
func (d *desk) entries() (out []blackbox.Entry) {
	d.t.Helper()
	for row, err := range d.db.Rows(context.Background(), 1) {
		if err != nil {
			d.t.Fatal(err)
		}
		e, err := blackbox.Decode(row.Encoded)
		if err != nil {
			d.t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// find returns the entries of a kind and method.
func (d *desk) find(k blackbox.Kind, method string) (out []blackbox.Entry) {
	for _, e := range d.entries() {
		if e.Kind == k && e.Method == method {
			out = append(out, e)
		}
	}
	return out
}

// settled fails the test unless each call that was permitted has an outcome. A parked call that ended by itself has one more.
func (d *desk) settled(more int) {
	d.t.Helper()
	answers, extra := map[blackbox.Seq]int{}, 0
	for _, e := range d.find(blackbox.Answer, mcp.ToolsCall) {
		if answers[e.Cause]++; answers[e.Cause] > 1 {
			extra++
		}
	}
	for _, e := range d.find(blackbox.Request, mcp.ToolsCall) {
		if e.Verdict == "allow" && answers[e.Seq] == 0 {
			d.t.Errorf("the call of entry %d was permitted and has no outcome", e.Seq)
		}
	}
	if extra != more {
		d.t.Errorf("%d calls have more than one outcome, want %d", extra, more)
	}
}

// A client is what a host is like: stateful or stateless, over a connection or HTTP.
type client struct {
	who       string
	stateless bool
	http      bool
	caps      string
	version   string // of the stateful era; "" for 2025-11-25
	// on answers what is asked; ok false: nothing is answered.
	on func(method string, params json.RawMessage) (result, failure string, ok bool)
}

// A host is a client of one principal.
type host struct {
	*desk
	client
	conn    string
	session string

	mu     sync.Mutex
	heard  []jsonrpc.Message // requests and notifications
	status int               // of the last refusal
	quit   context.CancelFunc
}

const allCaps = `{"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}`

var hosts atomic.Int64

// host makes a client and, in the stateful era, opens its session. It listens where listen says so.
func (d *desk) host(c client, listen bool) *host {
	d.t.Helper()
	p := &host{desk: d, client: c}
	if p.client.who == "" {
		p.client.who = "ann"
	}
	if p.caps == "" {
		p.caps = allCaps
	}
	if p.version == "" {
		p.version = "2025-11-25"
	}
	if !p.http {
		p.conn = fmt.Sprint("c", hosts.Add(1))
	}
	if listen && !p.http {
		p.listen()
	}
	if !p.stateless {
		m := p.request("initialize", fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s}`, p.version, p.caps))
		if m.Error != nil {
			d.t.Fatalf("initialize: %+v", m.Error)
		}
		p.notify(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	if listen && p.http && !p.stateless {
		p.listen()
	}
	return p
}

func (p *host) inbound() mcp.Inbound {
	in := mcp.Inbound{Transport: mcp.WebSocket, Conn: p.conn, Session: p.session}
	if p.http {
		in.Transport, in.Header = mcp.HTTP, http.Header{}
		if p.session != "" {
			in.Header.Set(mcp.HeaderVersion, p.version)
		}
	}
	return in
}

func (p *host) listen() {
	ctx, quit := context.WithCancel(context.Background())
	p.quit = quit
	in, done := p.inbound(), make(chan struct{})
	registered := make(chan struct{})
	in.Registered = sync.OnceFunc(func() { close(registered) })
	go func() {
		defer close(done)
		_ = p.Listen(ctx, p.desk.who[p.client.who], in, &post{host: p})
	}()
	<-registered
	p.t.Cleanup(func() { quit(); <-done })
}

// handle carries raw across.
func (p *host) handle(ctx context.Context, raw string, out mcp.Sink) {
	m, fault := jsonrpc.Parse([]byte(raw))
	if fault != nil {
		p.t.Errorf("%s: %v", raw, fault)
		return
	}
	in := p.inbound()
	in.Msg = m
	if p.stateless && p.http {
		in.Header.Set(mcp.HeaderVersion, "2026-07-28")
		in.Header.Set(mcp.HeaderMethod, m.Method)
		if name, ok := mcp.MirroredName(m); ok {
			in.Header.Set(mcp.HeaderName, name)
		}
	}
	if err := p.Handle(ctx, p.desk.who[p.client.who], in, out); err != nil && ctx.Err() == nil {
		p.t.Logf("handle: %v", err)
	}
}

func (p *host) notify(raw string) { p.handle(context.Background(), raw, &post{host: p}) }

// A post takes what comes back for one message, and has what is asked answered.
type post struct {
	host *host
	deaf bool // takes answers alone: nothing can be asked over it

	mu       sync.Mutex
	answer   *jsonrpc.Message
	together []jsonrpc.Message
}

func (s *post) Open(session string) { s.host.session = session }
func (s *post) Together(answers []jsonrpc.Message) error {
	s.together = answers
	return nil
}
func (s *post) Refuse(status int, m jsonrpc.Message) error {
	s.host.mu.Lock()
	s.host.status = status
	s.host.mu.Unlock()
	return s.Send(m)
}

func (s *post) Send(m jsonrpc.Message) error {
	if m.Method == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.answer != nil {
			s.host.t.Errorf("answered twice: %s", m.Append(nil))
		}
		s.answer = &m
		return nil
	}
	if s.deaf && !m.ID.IsZero() {
		return fmt.Errorf("no stream")
	}
	s.host.mu.Lock()
	s.host.heard = append(s.host.heard, m)
	s.host.mu.Unlock()
	if !m.ID.IsZero() && s.host.on != nil {
		if result, failure, ok := s.host.on(m.Method, json.RawMessage(m.Params)); ok {
			go s.host.reply(m.ID, result, failure)
		}
	}
	return nil
}

// reply answers what was asked.
func (p *host) reply(id jsonrpc.ID, result, failure string) {
	if failure != "" {
		p.notify(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, id, failure))
		return
	}
	p.notify(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result))
}

// saw returns what the client got of a method.
func (p *host) saw(method string) (out []jsonrpc.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.heard {
		if m.Method == method {
			out = append(out, m)
		}
	}
	return out
}

// request sends one request and returns its answer.
func (p *host) request(method, params string) jsonrpc.Message {
	return p.requestIn(context.Background(), &post{host: p}, method, params)
}

func (p *host) requestIn(ctx context.Context, out *post, method, params string) jsonrpc.Message {
	raw := jsonrpc.Raw(params)
	if p.stateless {
		meta, _ := raw.Get("_meta")
		if meta == nil {
			meta = jsonrpc.Raw("{}")
		}
		meta = meta.With(mcp.Meta+"protocolVersion", jsonrpc.Quote("2026-07-28")).With(mcp.Meta+"clientCapabilities", jsonrpc.Raw(p.caps))
		raw = raw.With("_meta", meta)
	}
	p.handle(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, p.next.Add(1), method, raw), out)
	out.mu.Lock()
	defer out.mu.Unlock()
	if out.answer == nil {
		return jsonrpc.Message{}
	}
	return *out.answer
}

const askCall = `{"name":"up__ask","arguments":{}}`

// call calls the tool with arguments and answers what is asked, in both eras, to the end.
func (p *host) call(args string) jsonrpc.Message {
	params := jsonrpc.Raw(askCall).With("arguments", jsonrpc.Raw(args))
	m := p.request(mcp.ToolsCall, string(params))
	for range 20 {
		kind, _ := m.Result.Get("resultType")
		if string(kind) != `"input_required"` {
			return m
		}
		m = p.request(mcp.ToolsCall, string(p.retry(params, m)))
	}
	p.t.Error("20 rounds")
	return m
}

// retry makes the params that go on with a call that asked.
func (p *host) retry(params jsonrpc.Raw, m jsonrpc.Message) jsonrpc.Raw {
	asks, _ := m.Result.Get("inputRequests")
	state, _ := m.Result.Get("requestState")
	answers := new(jsonrpc.Object)
	for key, q := range asks.Members() {
		raw, _ := q.Get("method")
		method, _ := raw.Text()
		inner, _ := q.Get("params")
		p.mu.Lock()
		p.heard = append(p.heard, jsonrpc.Message{Method: method, Params: inner})
		p.mu.Unlock()
		if result, failure, ok := p.on(method, json.RawMessage(inner)); ok && failure == "" {
			answers.Raw(key, jsonrpc.Raw(result))
		}
	}
	return params.With("inputResponses", answers.Done()).With("requestState", state)
}

// text is the text of a tool's result.
func text(m jsonrpc.Message) string {
	if m.Error != nil {
		return fmt.Sprintf("error %d %s %s", m.Error.Code, m.Error.Message, m.Error.Data)
	}
	var r struct{ Content []struct{ Text string } }
	_ = json.Unmarshal(m.Result, &r)
	if len(r.Content) == 0 {
		return string(m.Result)
	}
	return r.Content[0].Text
}
