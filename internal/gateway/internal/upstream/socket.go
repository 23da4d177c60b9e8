package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	ws "github.com/coder/websocket"

	"navra/internal/chokepoint"
	"navra/internal/mcp"
)

// A socket is the wire to a server over WebSocket: one message a text frame, and else the rules of stdio.
type socket struct {
	*mux
	ws   *ws.Conn
	turn chan struct{}
}

var errSocket = errors.New("the connection ended")

// pingEvery keeps a quiet connection from being taken for dead, and finds out when it is.
const pingEvery = 30 * time.Second

func openSocket(ctx context.Context, c *conn, client *http.Client) (*socket, error) {
	head := http.Header{"User-Agent": {"navra"}}
	for name, value := range c.spec.Header {
		head.Set(name, value.reveal())
	}
	conn, resp, err := ws.Dial(ctx, c.spec.URL.String(), &ws.DialOptions{
		HTTPClient: client, HTTPHeader: head, Subprotocols: []string{"mcp"}, CompressionMode: ws.CompressionDisabled,
	})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, chokepoint.HTTPStatus(resp.StatusCode))
		}
		return nil, fmt.Errorf("%w: it cannot be reached over WebSocket", chokepoint.ErrUnavailable)
	}
	conn.SetReadLimit(maxMessage)
	w := &socket{mux: newMux(c), ws: conn, turn: make(chan struct{}, 1)}
	w.mux.write, w.mux.kill = w.send, func(string) { _ = conn.CloseNow() }
	c.pool.work.Go(func() {
		w.read()
		w.mux.end()
		_ = conn.CloseNow()
	})
	c.pool.work.Go(w.ping)
	return w, nil
}

func (w *socket) read() {
	for {
		kind, b, err := w.ws.Read(context.Background())
		if err != nil {
			return
		}
		if kind == ws.MessageText && len(b) > 0 {
			w.take(b, int64(len(b)))
		}
	}
}

func (w *socket) ping() {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.gone:
			return
		case <-tick.C:
		}
		ctx, stop := context.WithTimeout(context.Background(), pingEvery)
		err := w.ws.Ping(ctx)
		stop()
		if err != nil {
			_ = w.ws.CloseNow()
			return
		}
	}
}

func (w *socket) send(ctx context.Context, c chokepoint.Cleared) (sent bool, err error) {
	body := c.Bytes(w.conn.version())
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-w.gone:
		return false, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errSocket)
	}
	writing, stop := context.WithTimeout(context.WithoutCancel(ctx), writeLimit) // half a message would end the connection for all
	defer stop()
	if err := w.ws.Write(writing, ws.MessageText, body); err != nil {
		return true, fmt.Errorf("%w: %w", chokepoint.ErrUnavailable, errSocket)
	}
	return true, nil
}

func (w *socket) greeted(mcp.Version) {}
func (w *socket) about() string       { return "" }
func (w *socket) pid() int            { return 0 }

func (w *socket) stop(how ending) {
	if how == gently {
		_ = w.ws.Close(ws.StatusNormalClosure, "")
	}
	_ = w.ws.CloseNow()
}
