package duplex

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"navra/internal/auth"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// A handler handles each message, and nothing else.
type handler func(ctx context.Context, in mcp.Inbound, out mcp.Sink) error

func (h handler) Handle(ctx context.Context, _ auth.Principal, in mcp.Inbound, out mcp.Sink) error {
	return h(ctx, in, out)
}

func (handler) Listen(ctx context.Context, _ auth.Principal, _ mcp.Inbound, _ mcp.Sink) error {
	<-ctx.Done()
	return nil
}

func (handler) Close(context.Context, auth.Principal, mcp.Inbound) error { return nil }

// What is in flight may wait for the client's answers: they are taken while a request waits for room, and what else came stays in order.
func TestResponsesPassWhatWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := make(chan struct{})
		var order []string
		var mu sync.Mutex
		f := handler(func(ctx context.Context, in mcp.Inbound, out mcp.Sink) error {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case in.Msg.Kind() == jsonrpc.Response:
				close(answered)
				return nil
			case in.Msg.Kind() == jsonrpc.Notification:
				order = append(order, in.Msg.Method)
				return nil
			case in.Msg.Method == "after":
				order = append(order, in.Msg.Method)
			}
			in.Registered()
			mu.Unlock()
			defer mu.Lock()
			select {
			case <-answered:
			case <-ctx.Done():
				return ctx.Err()
			}
			return out.Send(jsonrpc.Message{ID: in.Msg.ID, Result: jsonrpc.Raw("{}")})
		})
		var messages []string
		for i := range MaxConcurrent {
			messages = append(messages, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"wait"}`, i))
		}
		messages = append(messages, `{"jsonrpc":"2.0","id":"x","method":"after"}`, `{"jsonrpc":"2.0","method":"notifications/x"}`, `{"jsonrpc":"2.0","id":9000,"result":{}}`)
		var out []string
		o := options(nil, &out, messages...)
		o.Handler = f
		if err := New(o).Serve(t.Context()); err != nil {
			t.Error(err)
		}
		if len(out) != MaxConcurrent+1 {
			t.Errorf("%d of %d requests were answered", len(out), MaxConcurrent+1)
		}
		if len(order) != 2 || order[0] != "after" || order[1] != "notifications/x" {
			t.Errorf("handled in the order %v", order)
		}
	})
}
