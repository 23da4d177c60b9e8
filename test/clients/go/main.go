// Command client drives navra before two upstreams, old and new, with the official Go SDK, for navra's end-to-end tests.
//
//	client legacy|modern|resume|legacy-asked|modern-asked (URL TOKEN | -- COMMAND ARG...)
//
// resume makes a long call over connections that break off.
//
// The asked ones are asked by upstreams. // It prints a line for each check, and ends with 'N passed, N failed'. The module is its own so that navra's does not need the SDK.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// counts is how often each progress token was named.
type counts struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counts) add(token any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[fmt.Sprint(token)]++
}

func (c *counts) of(token string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[token]
}

var passed, failed int

func check(name string, f func() error) {
	if err := f(); err != nil {
		failed++
		fmt.Printf("FAIL %s: %v\n", name, err)
		return
	}
	passed++
	fmt.Println("ok   " + name)
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "client legacy|modern|resume (URL TOKEN | -- COMMAND ARG...)")
		os.Exit(2)
	}
	if era, asked := strings.CutSuffix(os.Args[1], "-asked"); asked {
		runAsked(era, os.Args[2:])
	} else {
		run(era, os.Args[2:])
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

func run(era string, target []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	version := versionOf(era)
	progress, updates := &counts{n: map[string]int{}}, &counts{n: map[string]int{}}
	c := mcp.NewClient(&mcp.Implementation{Name: "navra-test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			progress.add(r.Params.ProgressToken)
		},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { updates.add(r.Params.URI) },
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {}, // has the SDK listen for it
	})
	transport := transportTo(target)
	var s *mcp.ClientSession
	check("connect", func() (err error) {
		s, err = c.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
		return err
	})
	if s == nil {
		return
	}
	if era == "resume" {
		resume(ctx, s, progress)
		return
	}
	check("version", func() error { return has(s.InitializeResult().ProtocolVersion, version) })
	check("list", func() error {
		var names []string
		for t, err := range s.Tools(ctx, nil) {
			if err != nil {
				return err
			}
			names = append(names, t.Name)
		}
		return all(names, "old__echo", "old__get-sum", "new__test_simple_text")
	})
	call := func(name string, args map[string]any, want string) func() error {
		return func() error {
			r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
			if err != nil {
				return err
			}
			text, ok := r.Content[0].(*mcp.TextContent)
			if !ok || r.IsError {
				return fmt.Errorf("got %+v", r)
			}
			return has(text.Text, want)
		}
	}
	check("call old", call("old__echo", map[string]any{"message": "hé \"x\"\n"}, "hé \"x\"\n"))
	check("call new", call("new__test_simple_text", map[string]any{}, "simple text response"))
	check("resources", func() error {
		var uris []string
		for r, err := range s.Resources(ctx, nil) {
			if err != nil {
				return err
			}
			uris = append(uris, r.URI)
		}
		first := slices.IndexFunc(uris, func(u string) bool { return strings.HasPrefix(u, "demo://") })
		if first < 0 {
			return fmt.Errorf("none of old in %q", uris)
		}
		for _, uri := range []string{uris[first], "test://static-text"} {
			r, err := s.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
			if err != nil {
				return err
			}
			if r.Contents[0].URI != uri || r.Contents[0].Text == "" {
				return fmt.Errorf("%s: got %+v", uri, r.Contents[0])
			}
		}
		return all(uris, "test://static-text")
	})
	check("prompts", func() error {
		var names []string
		for p, err := range s.Prompts(ctx, nil) {
			if err != nil {
				return err
			}
			names = append(names, p.Name)
		}
		for _, name := range []string{"old__simple-prompt", "new__test_simple_prompt"} {
			r, err := s.GetPrompt(ctx, &mcp.GetPromptParams{Name: name})
			if err != nil {
				return err
			}
			text, ok := r.Messages[0].Content.(*mcp.TextContent)
			if !ok || !strings.Contains(text.Text, "simple prompt") {
				return fmt.Errorf("%s: got %+v", name, r.Messages[0])
			}
		}
		return all(names, "old__simple-prompt", "new__test_simple_prompt")
	})
	check("progress", func() error {
		for name, args := range map[string]map[string]any{
			"old__trigger-long-running-operation": {"duration": 1, "steps": 4},
			"new__test_tool_with_progress":        {},
		} {
			p := &mcp.CallToolParams{Name: name, Arguments: args}
			p.SetProgressToken("of " + name)
			if _, err := s.CallTool(ctx, p); err != nil {
				return err
			}
			if n := progress.of("of " + name); n < 2 {
				return fmt.Errorf("%s: %d notifications", name, n)
			}
		}
		return nil
	})
	check("unknown", func() error {
		for _, name := range []string{"old__no-such-tool", "new__no-such-tool", "no-such-tool"} {
			r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name})
			var wire *jsonrpc.Error
			if !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams {
				return fmt.Errorf("%s: got %+v, %v", name, r, err)
			}
		}
		return nil
	})
	check("subscription", func() error {
		var uri string
		for r, err := range s.Resources(ctx, nil) {
			if err == nil && strings.HasPrefix(r.URI, "demo://") {
				uri = r.URI
			}
		}
		for _, u := range []string{uri, "test://static-text"} {
			if err := s.Subscribe(ctx, &mcp.SubscribeParams{URI: u}); err != nil {
				return fmt.Errorf("%s: %w", u, err)
			}
		}
		for range 8 { // others toggle it too
			if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "old__toggle-subscriber-updates"}); err != nil {
				return err
			}
			for range 20 {
				if updates.of(uri) > 0 {
					return errors.Join(s.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri}), s.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: "test://static-text"}))
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		return fmt.Errorf("no news of %s", uri)
	})
	check("close", s.Close)
}

func resume(ctx context.Context, s *mcp.ClientSession, progress *counts) {
	check("resume", func() error {
		p := &mcp.CallToolParams{Name: "odd__work", Arguments: map[string]any{"steps": 40, "ms": 100}}
		p.SetProgressToken("work")
		r, err := s.CallTool(ctx, p)
		if err != nil {
			return err
		}
		for progress.of("work") < 40 { // the client hands out answers before notifications that came earlier
			select {
			case <-ctx.Done():
				return fmt.Errorf("%d notifications, want 40", progress.of("work"))
			case <-time.After(10 * time.Millisecond):
			}
		}
		if n := progress.of("work"); n != 40 {
			return fmt.Errorf("%d notifications, want 40", n)
		}
		return has(r.Content[0].(*mcp.TextContent).Text, "done")
	})
	check("close", s.Close)
}

func versionOf(era string) string {
	if era == "modern" {
		return "2026-07-28"
	}
	return "2025-11-25"
}

func transportTo(target []string) mcp.Transport {
	if target[0] == "--" {
		cmd := exec.Command(target[1], target[2:]...)
		cmd.Stderr = os.Stderr
		return &mcp.CommandTransport{Command: cmd}
	}
	return &mcp.StreamableClientTransport{Endpoint: target[0], HTTPClient: &http.Client{Transport: bearer(target[1])}}
}

func has(got, want string) error {
	if !strings.Contains(got, want) {
		return fmt.Errorf("got %q, want %q", got, want)
	}
	return nil
}

func all(got []string, want ...string) error {
	for _, w := range want {
		if !slices.Contains(got, w) {
			return fmt.Errorf("no %s in %q", w, got)
		}
	}
	return nil
}
