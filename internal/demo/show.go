package demo

import (
	"context"
	"fmt"

	"navra/internal/jsonrpc"
)

// Show prints what a server offers, as a client of navra's sees it. The error says what did not go as it must.
func Show(ctx context.Context, s Stage, who string) error {
	s.principals = map[string]conn{}
	c, err := s.connect(ctx, who, "http")
	if err != nil {
		return err
	}
	defer c.close() //nolint:errcheck // all was read
	for i, list := range []struct{ method, key, name string }{
		{"tools/list", "tools", "name"}, {"prompts/list", "prompts", "name"}, {"resources/list", "resources", "uri"}, {"resources/templates/list", "resourceTemplates", "uriTemplate"},
	} {
		got, err := c.ask(ctx, jsonrpc.Message{ID: jsonrpc.IntID(int64(i + 1)), Method: list.method})
		if err != nil {
			return err
		}
		if got.Error != nil {
			return fmt.Errorf("%s: %w", list.method, got.Error)
		}
		n := 0
		items, _ := got.Result.Get(list.key)
		for item := range items.Elements() {
			if n++; n == 1 {
				fmt.Fprintf(s.Out, "\n%s:\n", list.key)
			}
			fmt.Fprintf(s.Out, "  %-28s %s\n", text(item, list.name), short(oneLine(text(item, "description"))))
		}
		if n == 0 && list.key == "tools" {
			return fmt.Errorf("the server offers no tools, or has not started yet: what it printed is above; where that is nothing, it may still be fetched (npx, uvx): try again")
		}
	}
	return nil
}

func text(v jsonrpc.Raw, name string) string {
	raw, _ := v.Get(name)
	s, _ := raw.Text()
	return s
}

// short keeps a description to its line on a terminal.
func short(s string) string {
	if r := []rune(s); len(r) > 90 {
		return string(r[:90]) + "…"
	}
	return s
}
