package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

const (
	dialTime = 10 * time.Second
	// maxRefusal bounds what is read of an answer that is refused with a status, in bytes.
	maxRefusal = 64 << 10
	maxSession = 1 << 10 // bytes of a session id
	resumes    = 5       // of one answer's stream, one after another that bring no event
	// A stream that the upstream pushes on is opened again after a while, longer each time until one has brought a message or has
	// lasted. What the upstream asks for counts within the limits.
	pushAgain    = time.Second
	pushAgainMin = 100 * time.Millisecond
	pushAgainMax = time.Minute
	pushLasted   = 30 * time.Second
)

var (
	errSession = errors.New("the upstream does not know the session any more; a new one is opened for the next call")
	errVersion = errors.New("the upstream no longer speaks the version that was agreed on; it is greeted anew")
	errBroken  = errors.New("the upstream's stream ended without an answer")
)

// newClient makes what the lanes of one upstream share: connections, and how they are made. Redirects are not followed: they would
// carry credentials and content to where the operator has not said.
func newClient(s Spec) *http.Client {
	t := &http.Transport{
		Proxy:                  s.Proxy,
		DialContext:            (&net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    dialTime,
		TLSClientConfig:        s.TLS,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// A web is the wire to an MCP endpoint over Streamable HTTP. MCP 2025-11-25 and 2026-07-28, basic/transports §Streamable HTTP.
type web struct {
	conn   *conn
	client *http.Client
	ctx    context.Context // ends when the wire is stopped, and with it what is in flight
	end    context.CancelFunc
	dead   chan struct{} // closed when nothing more is to be sent
	bury   func()        // closes dead, once
	ended  atomic.Bool
	used   atomic.Int64 // exchanges under way

	listening chan struct{} // closed when the stream that the upstream pushes on is open, or is not to be had
	heard     func()        // closes it, once
	deaf      atomic.Bool   // there is no such stream

	mu      sync.Mutex
	session string                   // guarded by mu
	calls   map[*exchanging]struct{} // under way; guarded by mu
}

func openHTTP(c *conn, client *http.Client) *web {
	w := &web{conn: c, client: client, listening: make(chan struct{})}
	w.heard = sync.OnceFunc(func() { close(w.listening) })
	w.ctx, w.end = context.WithCancel(context.WithoutCancel(c.pool.ctx))
	w.dead = make(chan struct{})
	w.bury = sync.OnceFunc(func() {
		close(w.dead)
		c.pool.background(w.retire)
	})
	return w
}

func (w *web) over() <-chan struct{} { return w.dead }
func (w *web) pid() int              { return 0 }
func (w *web) about() string         { return "" }
func (w *web) streams() bool         { return true }

// retire ends a wire that is of no use any more, once what is under way on it has ended.
func (w *web) retire() {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for w.used.Load() > 0 {
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			return
		}
	}
	w.stop(gently)
}

// greeted opens the stream on which an upstream of the stateful era pushes.
func (w *web) greeted(v mcp.Version) {
	if !v.Stateless() {
		w.conn.pool.work.Go(w.listen)
	}
}

func (w *web) sessionID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session
}

// request makes a request with what belongs to this hop, and nothing of the client's.
func (w *web) request(ctx context.Context, method, to string, body []byte, head http.Header) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, to, content)
	if err != nil {
		return nil, err
	}
	for name, value := range w.conn.spec.Header {
		r.Header.Set(name, value.reveal())
	}
	for name, values := range head {
		r.Header[name] = values
	}
	if v := w.conn.version(); v != "" {
		r.Header.Set(mcp.HeaderVersion, string(v))
	}
	if id := w.sessionID(); id != "" {
		r.Header.Set(mcp.HeaderSession, id)
	}
	r.Header.Set("User-Agent", "navra")
	return r, nil
}

// post sends a message. outcome says what is known of it where err is not nil.
func (w *web) post(ctx context.Context, body []byte, head http.Header) (resp *http.Response, outcome chokepoint.Outcome, err error) {
	return w.postTo(ctx, w.conn.spec.URL.String(), body, head)
}

func (w *web) postTo(ctx context.Context, to string, body []byte, head http.Header) (resp *http.Response, outcome chokepoint.Outcome, err error) {
	var left atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { left.Store(true) }})
	r, err := w.request(ctx, http.MethodPost, to, body, head)
	if err != nil {
		return nil, chokepoint.NotSent, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	resp, err = w.client.Do(r)
	if err == nil {
		return resp, "", nil
	}
	outcome = chokepoint.Unknown
	if !left.Load() {
		outcome = chokepoint.NotSent
	}
	return nil, outcome, w.failure(ctx, err)
}

// failure says why a request has no response, without the URL, which may hold a secret. An upstream that cannot be reached is
// greeted anew before the next call.
func (w *web) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err = withoutURL(err)
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" { // one answer that breaks off ends no session
		w.bury()
	}
	return fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, err)
}

func (w *web) tell(ctx context.Context, c chokepoint.Cleared) error {
	ctx, stop := w.bound(ctx)
	defer stop()
	resp, _, err := w.post(ctx, c.Bytes(w.conn.version()), c.Header(w.conn.version()))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return chokepoint.HTTPStatus(resp.StatusCode)
	}
	return nil
}

// bound ends ctx with the wire as well.
func (w *web) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(w.ctx, func() { cancel(fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errStopped)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// An exchanging is one request on its way.
type exchanging struct {
	w       *web
	m       chokepoint.ToUpstream
	id      jsonrpc.ID
	session string        // that it was sent in
	done    bool          // answered
	last    string        // id of the stream's last event
	wait    time.Duration // before the stream is resumed

	mu    sync.Mutex
	yield func(chokepoint.FromUpstream) bool // guarded by mu: one thing is yielded at a time
	left  bool                               // nothing more is to be yielded; guarded by mu
}

func (w *web) exchange(outer context.Context, m chokepoint.ToUpstream, c chokepoint.Cleared, yield func(chokepoint.FromUpstream) bool) {
	w.used.Add(1)
	defer w.used.Add(-1)
	ctx, stop := w.bound(outer)
	defer stop()
	v := w.conn.version()
	x := &exchanging{w: w, m: m, id: c.ID, session: w.sessionID(), yield: yield, wait: pushAgain}
	w.enter(x)
	resp, outcome, err := w.post(ctx, c.Bytes(v), c.Header(v))
	var f chokepoint.FromUpstream
	if err != nil {
		f = m.Failed(outcome, err)
	} else {
		f = x.read(ctx, resp)
	}
	if outer.Err() != nil && !x.done && !v.Stateless() && c.Method != mcp.Initialize {
		w.conn.cancel(outer, m) // in the stateless era the closed response is the cancellation
	}
	w.leave(x)
	yield(f)
}

// read reads what is answered.
func (x *exchanging) read(ctx context.Context, resp *http.Response) chokepoint.FromUpstream {
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return x.refused(resp)
	}
	x.opened(resp)
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch media {
	case "application/json":
		b, err := readAll(resp.Body, resp.ContentLength)
		if err != nil {
			return x.broken(ctx, err)
		}
		if f, ours := x.take(ctx, b); ours {
			return f
		}
		return x.m.Failed(chokepoint.Ran, fmt.Errorf("%w: it is no answer to the request", chokepoint.ErrBadAnswer))
	case "text/event-stream":
		return x.stream(ctx, resp.Body)
	}
	return x.m.Failed(chokepoint.Unknown, fmt.Errorf("%w: its Content-Type is %.60q", chokepoint.ErrBadAnswer, media))
}

// opened keeps the id of a session that the answer to initialize opens.
func (x *exchanging) opened(resp *http.Response) {
	id := resp.Header.Get(mcp.HeaderSession)
	if id == "" || x.w.conn.version() != "" { // not before a version is agreed on: it is no answer to initialize
		return
	}
	for _, c := range []byte(id) {
		if c < 0x21 || c > 0x7e {
			return
		}
	}
	if len(id) <= maxSession {
		x.w.mu.Lock()
		x.w.session = id
		x.w.mu.Unlock()
	}
}

// refused reads an answer with a status that is none of success: it may hold an error for the request.
func (x *exchanging) refused(resp *http.Response) chokepoint.FromUpstream {
	status := chokepoint.HTTPStatus(resp.StatusCode)
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if resp.StatusCode == http.StatusNotFound && x.session != "" {
		x.w.bury()
		return x.m.Failed(chokepoint.NotSent, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errSession))
	}
	if err == nil {
		m, repaired, fault := jsonrpc.ParseUpstream(b)
		if fault == nil && m.Error != nil && (m.ID.IsZero() || m.ID == x.id) {
			if m.ID, x.done = x.id, true; m.Error.Code == mcp.CodeUnsupportedVersion && !x.m.Own() { // it is another than the one that was greeted
				x.w.bury()
				return x.m.Failed(chokepoint.NotSent, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errVersion))
			}
			return x.m.Answer(m, repaired)
		}
	}
	return x.m.Failed(status.Outcome(), fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, status))
}

// stream reads messages until the answer comes. A stream of the stateful era that breaks off, or that the upstream ends so that its client
// polls, is resumed where the upstream numbers its events.
func (x *exchanging) stream(ctx context.Context, body io.ReadCloser) chokepoint.FromUpstream {
	defer func() { body.Close() }()
	for try := 0; ; try++ {
		before := x.last
		f, done, err := x.events(ctx, body)
		if done {
			return f
		}
		if x.last != before {
			try = 0
		}
		if size := (chokepoint.TooLarge{}); errors.As(err, &size) || err != nil && !errors.Is(err, io.EOF) && ctx.Err() != nil || try >= resumes || x.last == "" || x.w.conn.version().Stateless() {
			return x.broken(ctx, err)
		}
		body.Close()
		select {
		case <-ctx.Done():
			return x.broken(ctx, ctx.Err())
		case <-time.After(x.wait):
		}
		resp, err := x.w.get(ctx, x.last)
		if err != nil {
			return x.broken(ctx, err)
		}
		body = resp.Body
	}
}

// events reads one stream to its end or to the answer.
func (x *exchanging) events(ctx context.Context, body io.Reader) (f chokepoint.FromUpstream, done bool, err error) {
	s := newEvents(body, maxMessage)
	for {
		e, err := s.next()
		if err != nil {
			return f, false, err
		}
		if e.hasID {
			x.last = e.id
		}
		if e.retry > 0 {
			x.wait = max(min(e.retry, pushAgainMax), pushAgainMin)
		}
		if len(e.data) == 0 || e.kind != "" && e.kind != "message" {
			continue
		}
		if f, done = x.take(ctx, e.data); done {
			return f, true, nil
		}
	}
}

// take gives one message to whom it belongs; ours is true for the one that ends the exchange.
func (x *exchanging) take(ctx context.Context, b []byte) (f chokepoint.FromUpstream, ours bool) {
	m, repaired, fault := jsonrpc.ParseUpstream(b)
	switch {
	case fault != nil && fault.Batch != nil && x.w.conn.version().Batches():
		for e := range fault.Batch.Elements() {
			if g, last := x.take(ctx, e); last {
				f, ours = g, true
			}
		}
		return f, ours
	case fault != nil:
		return x.m.Failed(chokepoint.Ran, fmt.Errorf("%w: %w", chokepoint.ErrBadAnswer, fault)), true
	case m.Kind() == jsonrpc.Response && m.ID == x.id:
		x.done = true
		return x.m.Answer(m, repaired), true
	case m.Kind() == jsonrpc.Notification && m.Method == mcp.Progress:
		token, _ := m.Params.Get("progressToken")
		if id, ok := jsonrpc.IDOf(token); ok && id == x.id {
			x.give(x.m.Progress(m))
		} else {
			x.w.conn.hear(ctx, m)
		}
		return f, false
	}
	switch asks := m.Kind() == jsonrpc.Request && mcp.QuestionOf(m.Method) != mcp.NoQuestion; {
	case x.m.Own():
	case asks && !x.w.conn.version().Stateless() && !x.w.conn.pool.by.Answers(x.w.conn.lane, m.Method):
		x.give(x.m.Question(m, x.w.conn.serial))
		return f, false
	case m.Kind() == jsonrpc.Notification && m.Method == mcp.Logging:
		x.give(x.m.Note(m))
		return f, false
	}
	x.w.conn.hear(ctx, m)
	return f, false
}

// broken says why there is no answer to a request that was taken.
func (x *exchanging) broken(ctx context.Context, err error) chokepoint.FromUpstream {
	var size chokepoint.TooLarge
	switch {
	case ctx.Err() != nil:
		return x.m.Failed(chokepoint.Unknown, context.Cause(ctx))
	case errors.As(err, &size):
		return x.m.Failed(chokepoint.Ran, size)
	}
	return x.m.Failed(chokepoint.Unknown, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errBroken))
}

// stop ends the wire, and tells the upstream that the session is over.
func (w *web) stop(how ending) {
	w.bury()
	w.end()
	id := w.sessionID()
	if id == "" || w.ended.Swap(true) {
		return
	}
	g := graces[how]
	ctx, stop := context.WithTimeout(context.Background(), g.eof+g.term)
	defer stop()
	if r, err := w.request(ctx, http.MethodDelete, w.conn.spec.URL.String(), nil, nil); err == nil {
		if resp, err := w.client.Do(r); err == nil { // one that knows no DELETE ends it by itself
			resp.Body.Close()
		}
	}
}
