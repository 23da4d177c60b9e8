package chokepoint

import (
	"testing"
	"time"

	"navra/internal/jsonrpc"
)

// MCP, server/resources §Subscriptions: what is told of may be a sub-resource of what was subscribed to.
func TestNewsUnderAWatch(t *testing.T) {
	p := &Chokepoint{}
	lane := Lane{upstream: "u", principal: "ann"}
	for _, tt := range []struct {
		watch, news string
		want        bool
	}{
		{"note://a", "note://a", true},
		{"note://a", "note://a/b", true},
		{"note://a", "note://a?x=1", true},
		{"note://a", "note://a#part", true},
		{"note://a/", "note://a/b", true},
		{"note://a", "note://ab", false},
		{"note://a", "note://", false},
		{"note://a/b", "note://a", false},
		{"note://a", "NOTE://a", false},
	} {
		if got := (News{p, lane, tt.news, false}).Under(Watch{p, lane, tt.watch, ""}); got != tt.want {
			t.Errorf("%s under %s = %v, want %v", tt.news, tt.watch, got, tt.want)
		}
	}
	n := News{p, lane, "note://a", false}
	for name, w := range map[string]Watch{
		"another lane": {p, Lane{upstream: "u", principal: "bob"}, "note://a", ""}, "another chokepoint": {&Chokepoint{}, lane, "note://a", ""},
		"a task of that name": {p, lane, "note://a", "sealed"},
	} {
		if n.Under(w) {
			t.Errorf("news is told over %s", name)
		}
	}
	task := News{p, lane, "up", true}
	for w, want := range map[Watch]bool{{p, lane, "up", "sealed"}: true, {p, lane, "u", "sealed"}: false, {p, lane, "up", ""}: false} {
		if task.Under(w) != want {
			t.Errorf("news of a task under %+v = %v", w, !want)
		}
	}
}

func TestTTL(t *testing.T) {
	for _, tt := range []struct {
		result string
		ttl    time.Duration
		public bool
	}{
		{`{"ttlMs":1500,"cacheScope":"public"}`, 1500 * time.Millisecond, true},
		{`{"ttlMs":1500}`, 1500 * time.Millisecond, false},
		{`{"ttlMs":-1,"cacheScope":"public"}`, 0, true},
		{`{"ttlMs":1.5,"cacheScope":"Public"}`, 0, false},
		{`{"ttlMs":"9"}`, 0, false},
		{`{"ttlMs":9223372036854775807}`, maxTTL, false},
		{`{}`, 0, false},
	} {
		v, err := jsonrpc.ParseValue([]byte(tt.result))
		if err != nil {
			t.Fatal(err)
		}
		if ttl, public := ttlOf(v); ttl != tt.ttl || public != tt.public {
			t.Errorf("ttlOf(%s) = %s %v, want %s %v", tt.result, ttl, public, tt.ttl, tt.public)
		}
	}
}
