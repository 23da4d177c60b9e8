package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/mcp"
)

// A feed is the wire to a server of the HTTP+SSE transport: it is sent messages by POST, and all it says comes over one stream. MCP
// 2024-11-05, basic/transports §HTTP with SSE.
type feed struct {
	*mux
	web    *web // for requests; its own ways of exchanging are not used
	stream *http.Response
	events *events
	post   url.URL // where messages go
}

var errEndpoint = errors.New("the upstream's stream does not begin with an endpoint of its own origin")

// openFeed opens the stream and waits for the endpoint that messages are to be sent to.
func openFeed(ctx context.Context, c *conn, client *http.Client) (*feed, error) {
	w := &feed{mux: newMux(c), web: openHTTP(c, client)}
	w.mux.write, w.mux.kill = w.send, func(string) { w.web.end() }
	var err error
	if w.stream, err = w.open(ctx); err != nil {
		w.web.end()
		return nil, err
	}
	c.pool.work.Go(func() {
		w.read()
		w.mux.end()
		w.web.end()
		w.stream.Body.Close()
	})
	return w, nil
}

// open reads up to the endpoint. The stream lives as long as the wire; ctx bounds the opening.
func (w *feed) open(ctx context.Context) (*http.Response, error) {
	opened := context.AfterFunc(ctx, w.web.end)
	defer opened()
	resp, err := w.web.get(w.web.ctx, "")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, err)
	}
	w.events = newEvents(resp.Body, maxMessage)
	for {
		e, err := w.events.next()
		if err != nil || e.kind != "endpoint" && len(e.data) > 0 {
			resp.Body.Close()
			return nil, fmt.Errorf("%w: %w", chokepoint.ErrBadAnswer, errEndpoint)
		}
		if e.kind != "endpoint" {
			continue
		}
		to, err := w.conn.spec.URL.Parse(string(e.data))
		if err != nil || to.Scheme != w.conn.spec.URL.Scheme || to.Host != w.conn.spec.URL.Host || to.User != nil { // else credentials would go elsewhere
			resp.Body.Close()
			return nil, fmt.Errorf("%w: %w", chokepoint.ErrBadAnswer, errEndpoint)
		}
		w.post = *to
		return resp, nil
	}
}

// read takes messages from the stream until it ends.
func (w *feed) read() {
	for {
		e, err := w.events.next()
		if err != nil {
			return
		}
		if len(e.data) > 0 && (e.kind == "" || e.kind == "message") {
			w.take(e.data, int64(len(e.data)))
		}
	}
}

// send posts one message.
func (w *feed) send(ctx context.Context, c chokepoint.Cleared) (sent bool, err error) {
	select {
	case <-w.gone:
		return false, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errBroken)
	default:
	}
	ctx, stop := context.WithTimeout(ctx, writeLimit)
	defer stop()
	resp, outcome, err := w.web.postTo(ctx, w.post.String(), c.Bytes(w.conn.version()), c.Header(w.conn.version()))
	if err != nil {
		return outcome != chokepoint.NotSent, err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		status := chokepoint.HTTPStatus(resp.StatusCode)
		return status.Outcome() != chokepoint.NotSent, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, status)
	}
	return true, nil
}

func (w *feed) greeted(mcp.Version) {}
func (w *feed) about() string       { return "" }
func (w *feed) pid() int            { return 0 }

// stop ends the stream, and with it the session.
func (w *feed) stop(ending) {
	w.web.end()
	select {
	case <-w.gone:
	case <-time.After(time.Second):
	}
}

// isFeed reports whether an endpoint that refused both greetings may be one of HTTP+SSE.
func isFeed(err error) bool {
	status := chokepoint.HTTPStatus(0)
	return errors.As(err, &status) && (status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusMethodNotAllowed)
}
