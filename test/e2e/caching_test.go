package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// useOf is what a result says of how long it may be used, and by whom.
func useOf(t *testing.T, m message) (ttl int, scope string) {
	t.Helper()
	var r struct {
		TTL   *int   `json:"ttlMs"`
		Scope string `json:"cacheScope"`
	}
	if err := json.Unmarshal(m.Result, &r); err != nil || r.TTL == nil {
		t.Fatalf("no ttlMs in %s: %v", m.Result, err)
	}
	return *r.TTL, r.Scope
}

// TestCacheHints tells stateless clients how long they may use what they get: as long as the upstream says, and others only where all roles
// see the same.
func TestCacheHints(t *testing.T) {
	t.Parallel()
	const all, some = `all: {clearance: secret, rules: [{allow: {tools: ["*"], resources: ["*"]}}]}`, `some: {clearance: secret, rules: [{allow: {tools: ["odd/echo"]}}]}`
	for _, tt := range []struct {
		name, roles   string
		args          []string
		method, param string
		fresh         bool
		scope         string
	}{
		{"a list", all, []string{"-era", "stateless", "-ttl", "600000"}, "tools/list", "", true, "public"},
		{"a list that other roles see otherwise", all + ", " + some, []string{"-era", "stateless", "-ttl", "600000"}, "tools/list", "", true, "private"},
		{"a list of the stateful era", all, nil, "tools/list", "", false, "private"},
		{"a resource", all, []string{"-era", "stateless", "-ttl", "600000"}, "resources/read", "note://a", true, "public"},
		{"a resource that others may not read", all + ", " + some, []string{"-era", "stateless", "-ttl", "600000"}, "resources/read", "note://a", true, "private"},
		{"a resource of the stateful era", all, nil, "resources/read", "note://a", false, "private"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			url, _ := s.endpoint("127.0.0.1:0", append([]string{"odd", "-watch"}, tt.args...)...)
			g := s.serve(s.serveConfig("navra.yaml", fmt.Sprintf("auth: none\nprincipals: {local: {roles: [all]}}\nroles: {%s}\nupstreams: {odd: {url: %q}}\n", tt.roles, url)))
			params := map[string]any{}
			if tt.param != "" {
				params["uri"] = tt.param
			}
			ttl, scope := useOf(t, (&web{t: t, addr: g.Addr, modern: true}).request(tt.method, params))
			if (ttl > 0) != tt.fresh || ttl > 600000 || scope != tt.scope {
				t.Errorf("ttlMs %d, cacheScope %s, want some: %v, %s", ttl, scope, tt.fresh, tt.scope)
			}
		})
	}
}

// TestCacheHintsAreObeyed reads a list again when its upstream said that it is out of date, and not before.
func TestCacheHintsAreObeyed(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[string]bool{"0": true, "600000": false} {
		t.Run("ttl "+ttl, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			url, end := s.endpoint("127.0.0.1:0", "odd", "-era", "stateless", "-changed", "-tell-nothing", "-ttl", ttl)
			g := s.serve(s.serveConfig("navra.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\nupstreams: {odd: {url: \""+url+"\"}}\n"))
			w := &web{t: t, addr: g.Addr, modern: true}
			has := func() bool {
				return strings.Contains(string(w.request("tools/list", map[string]any{}).Result), `"odd__grown"`)
			}
			if has() {
				t.Fatal("it is there already")
			}
			w.call("odd__grow", map[string]any{})
			if got := has(); got != want {
				t.Errorf("the list shows what is new: %v, want %v", got, want)
			}
			end()
			if got := has(); got != want {
				t.Errorf("the list shows what is new: %v after the upstream has gone, want %v", got, want)
			}
		})
	}
}
