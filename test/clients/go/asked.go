//lint:file-ignore SA1019 sampling and roots are deprecated as of 2026-07-28, and still there

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// runAsked calls what asks back, of each upstream, and checks that it was asked and that the call ended well.
func runAsked(era string, target []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	var asked []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, what)
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "navra-test", Version: "1"}, &mcp.ClientOptions{
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			note("sampling")
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: &mcp.TextContent{Text: "Paris"}}, nil
		},
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			note("elicitation")
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Änn"}}, nil
		},
	})
	c.AddRoots(&mcp.Root{URI: "file:///project", Name: "project"})
	var s *mcp.ClientSession
	check("connect", func() (err error) {
		s, err = c.Connect(ctx, transportTo(target), &mcp.ClientSessionOptions{ProtocolVersion: versionOf(era)})
		return err
	})
	if s == nil {
		return
	}
	for _, upstream := range []string{"old", "new", "pipe"} {
		for tool, want := range map[string]string{"elicitation": "Änn", "sampling": "Paris", "list_roots": "file:///project"} {
			check(upstream+" "+tool, func() error {
				mu.Lock()
				asked = nil
				mu.Unlock()
				r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: upstream + "__test_input_required_result_" + tool})
				if err != nil {
					return err
				}
				text, ok := r.Content[0].(*mcp.TextContent)
				if !ok || r.IsError {
					return fmt.Errorf("got %+v", r)
				}
				mu.Lock()
				defer mu.Unlock()
				if tool != "list_roots" && !slices.Contains(asked, tool) {
					return fmt.Errorf("asked for %q", asked)
				}
				return has(text.Text, want)
			})
		}
	}
	check("close", s.Close)
}
