package policy_test

import (
	"strings"
	"testing"

	"navra/internal/auth"
	"navra/internal/catalogue"
	"navra/internal/ifc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

var sensitive = ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.Sensitive}

func item(topic mcp.Topic, upstream, name string) catalogue.Item {
	return catalogue.Item{Topic: topic, Upstream: &catalogue.Upstream{Name: upstream, Label: sensitive}, Name: name, Public: name}
}

func allow(p policy.Patterns) policy.Role {
	return policy.Role{Clearance: ifc.PII, Allow: []policy.Patterns{p}}
}

func must(t *testing.T, o policy.Options) *policy.Policy {
	t.Helper()
	p, err := policy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestName(t *testing.T) {
	dev := allow(policy.Patterns{Tools: []string{"files/*", "*/search_*"}, Resources: []string{"file:///repo/**", "note://x/*"}, Prompts: []string{"*"}})
	dev.Deny = []policy.Patterns{{Tools: []string{"files/move_file"}}}
	p := must(t, policy.Options{Roles: map[string]policy.Role{
		"dev": dev, "low": {Clearance: ifc.Public, Allow: []policy.Patterns{{Tools: []string{"files/*"}}}},
		"nomail": {Clearance: ifc.PII, Deny: []policy.Patterns{{Tools: []string{"mail/*"}}}},
		"all":    policy.DefaultRole(), "empty": {},
	}})
	dir := auth.Directory{
		"ann": {"dev"}, "bob": {}, "cat": {"low", "dev"}, "dan": {"all", "nomail"}, "eve": {"dev", "gone"}, "fay": {"empty"}, "gus": {"all"},
	}
	for _, tt := range []struct {
		rule, who string
		topic     mcp.Topic
		item      catalogue.Item
		want      policy.Effect
		role      string
	}{
		{"a glob allows", "ann", mcp.Tool, item(mcp.Tool, "files", "read_file"), policy.Allow, "dev"},
		{"* crosses / in names", "ann", mcp.Tool, item(mcp.Tool, "files", "a/b"), policy.Allow, "dev"},
		{"* as the upstream is one upstream", "ann", mcp.Tool, item(mcp.Tool, "github", "search_code"), policy.Allow, "dev"},
		{"deny beats allow", "ann", mcp.Tool, item(mcp.Tool, "files", "move_file"), policy.Deny, ""},
		{"nothing said is denied", "ann", mcp.Tool, item(mcp.Tool, "mail", "send"), policy.Deny, ""},
		{"an upstream is matched whole", "ann", mcp.Tool, item(mcp.Tool, "files2", "read_file"), policy.Deny, ""},
		{"names are case-sensitive", "ann", mcp.Tool, item(mcp.Tool, "Files", "read_file"), policy.Deny, ""},
		{"a name with a line feed is matched whole", "ann", mcp.Tool, item(mcp.Tool, "x\nfiles", "read_file"), policy.Deny, ""},
		{"no role permits nothing", "bob", mcp.Tool, item(mcp.Tool, "files", "read_file"), policy.Deny, ""},
		{"an empty role permits nothing", "fay", mcp.Tool, item(mcp.Tool, "files", "read_file"), policy.Deny, ""},
		{"an unknown principal permits nothing", "zoe", mcp.Tool, item(mcp.Tool, "files", "read_file"), policy.Deny, ""},
		{"a role that does not exist denies", "eve", mcp.Tool, item(mcp.Tool, "files", "read_file"), policy.Deny, ""},
		{"of two roles the higher clearance counts", "cat", mcp.Tool, item(mcp.Tool, "files", "read_file"), policy.Allow, "dev"},
		{"a deny in any role wins", "dan", mcp.Tool, item(mcp.Tool, "mail", "send"), policy.Deny, ""},
		{"the default role allows all", "gus", mcp.Tool, item(mcp.Tool, "any", "thing"), policy.Allow, "all"},
		{"prompts by *", "ann", mcp.Prompt, item(mcp.Prompt, "files", "p"), policy.Allow, "dev"},
		{"** crosses / in URIs", "ann", mcp.Resource, item(mcp.Resource, "files", "file:///repo/a/b.txt"), policy.Allow, "dev"},
		{"* stops at / in URIs", "ann", mcp.Resource, item(mcp.Resource, "files", "note://x/a/b"), policy.Deny, ""},
		{"dot segments are resolved", "ann", mcp.Resource, item(mcp.Resource, "files", "file:///repo/../etc/passwd"), policy.Deny, ""},
		{"escaped dot segments are resolved", "ann", mcp.Resource, item(mcp.Resource, "files", "file:///repo/%2e%2e/etc/passwd"), policy.Deny, ""},
		{"escaped slashes are refused", "ann", mcp.Resource, item(mcp.Resource, "files", "file:///repo/..%2f..%2fetc/passwd"), policy.Deny, ""},
		{"the scheme's case does not matter", "ann", mcp.Resource, item(mcp.Resource, "files", "FILE:///repo/a"), policy.Allow, "dev"},
		{"navra's own answers are for all", "bob", mcp.List, catalogue.Item{}, policy.Allow, ""},
		{"an unknown topic is denied", "gus", mcp.Unknown, catalogue.Item{}, policy.Deny, ""},
		{"a tool without an upstream is denied", "gus", mcp.Tool, catalogue.Item{}, policy.Deny, ""},
	} {
		who := dir.Prove(tt.who, "test", "test")
		got := p.Name(policy.Facts{Who: who, Topic: tt.topic, Item: tt.item})
		if got.Effect != tt.want || got.Role != tt.role {
			t.Errorf("%s: Name(%s, %v %s) = %v %q (%s), want %v %q", tt.rule, tt.who, tt.topic, tt.item.Name, got.Effect, got.Role, got.Reason, tt.want, tt.role)
		}
	}
	if got := p.Name(policy.Facts{Topic: mcp.List}); !got.Denies() {
		t.Errorf("nobody: Name = %v, want deny", got)
	}
	if got := new(policy.Policy).Name(policy.Facts{Who: dir.Prove("gus", "", ""), Topic: mcp.Tool, Item: item(mcp.Tool, "a", "b")}); !got.Denies() {
		t.Errorf("zero policy: Name = %v, want deny", got)
	}
}

func TestBadPatterns(t *testing.T) {
	for _, bad := range []string{"read_file", "fi*/x", "/x", "x/", ""} {
		_, err := policy.New(policy.Options{Roles: map[string]policy.Role{"r": allow(policy.Patterns{Tools: []string{bad}})}})
		if err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("pattern %q: error %v, want one that names it", bad, err)
		}
	}
}

func TestFlowAndClearance(t *testing.T) {
	roles := map[string]policy.Role{"dev": policy.DefaultRole(), "low": {Clearance: ifc.Public}}
	private := ifc.Of("files", sensitive)
	mail := item(mcp.Tool, "mail", "send")
	mail.Class = ifc.Egress
	for _, tt := range []struct {
		rule  string
		mode  policy.Effect
		role  string
		scope ifc.Label
		want  policy.Effect
	}{
		{"clean", policy.Ask, "dev", ifc.Bottom(), policy.Allow},
		{"a violation asks", policy.Ask, "dev", private, policy.Ask},
		{"a violation is denied", policy.Deny, "dev", private, policy.Deny},
		{"observing lets it pass", policy.Allow, "dev", private, policy.Allow},
		{"no read up, before it runs", policy.Allow, "low", ifc.Bottom(), policy.Deny},
		{"no role, no result", policy.Allow, "", ifc.Bottom(), policy.Deny},
	} {
		p := must(t, policy.Options{Roles: roles, OnViolation: tt.mode})
		got := p.Flow(policy.Facts{Topic: mcp.Tool, Item: mail, Label: tt.scope}, tt.role)
		if got.Effect != tt.want {
			t.Errorf("%s: Flow = %v (%s), want %v", tt.rule, got.Effect, got.Reason, tt.want)
		}
		if tt.scope.Equal(private) && !strings.Contains(got.Reason, "files") {
			t.Errorf("%s: reason %q does not name the source", tt.rule, got.Reason)
		}
	}
}

func TestContent(t *testing.T) {
	files := item(mcp.Tool, "files", "write_file")
	files.Class = ifc.Write
	mail := item(mcp.Tool, "mail", "send")
	mail.Class = ifc.Egress
	for _, tt := range []struct {
		rule string
		mode policy.Effect
		item catalogue.Item
		from []string
		want policy.Effect
	}{
		{"a secret goes back to where it came from", policy.Ask, files, []string{"files"}, policy.Allow},
		{"not to another upstream", policy.Ask, files, []string{"vault"}, policy.Ask},
		{"an unknown secret asks", policy.Ask, files, nil, policy.Ask},
		{"never by egress, even to its own upstream", policy.Ask, mail, []string{"mail"}, policy.Ask},
		{"deny denies all", policy.Deny, files, []string{"files"}, policy.Deny},
		{"record lets it pass", policy.Allow, mail, nil, policy.Allow},
	} {
		p := must(t, policy.Options{Arguments: tt.mode})
		got := p.Content(policy.Facts{Topic: mcp.Tool, Item: tt.item}, []policy.Known{{Kind: "github-token", From: tt.from}})
		if got.Effect != tt.want {
			t.Errorf("%s: Content = %v (%s), want %v", tt.rule, got.Effect, got.Reason, tt.want)
		}
	}
}

func TestAnd(t *testing.T) {
	effects := []policy.Effect{policy.Deny, policy.Ask, policy.Allow}
	for _, a := range effects {
		for _, b := range effects {
			if got := (policy.Verdict{Effect: a}).And(policy.Verdict{Effect: b}).Effect; got != min(a, b) {
				t.Errorf("%v.And(%v) = %v, want the stricter", a, b, got)
			}
		}
	}
	if !(policy.Verdict{}).Denies() {
		t.Error("the zero verdict does not deny")
	}
}

// What all roles see alike may be kept for everybody.
func TestOpen(t *testing.T) {
	all := policy.Role{Allow: []policy.Patterns{{Tools: []string{"*"}, Resources: []string{"*"}}}}
	u := &catalogue.Upstream{Name: "files"}
	tool := catalogue.Item{Topic: mcp.Tool, Upstream: u, Name: "read"}
	note := catalogue.Item{Topic: mcp.Resource, Upstream: u, Name: "note://a"}
	family := catalogue.Item{Topic: mcp.Template, Upstream: u, Name: "note://{id}"}
	for _, tt := range []struct {
		name               string
		other              policy.Role
		tool, note, family bool
	}{
		{"another that sees all", all, true, true, true},
		{"another that sees nothing", policy.Role{}, false, false, false},
		{"another that is denied the tool", policy.Role{Allow: all.Allow, Deny: []policy.Patterns{{Tools: []string{"files/read"}}}}, false, true, true},
		{"another that is asked for the tool", policy.Role{Allow: all.Allow, Ask: []policy.Patterns{{Tools: []string{"files/*"}}}}, false, true, true},
		{"another that is denied some resource", policy.Role{Allow: all.Allow, Deny: []policy.Patterns{{Resources: []string{"note://b"}}}}, true, true, false},
		{"another that may read one resource", policy.Role{Allow: []policy.Patterns{{Tools: []string{"*"}, Resources: []string{"note://a"}}}}, true, true, false},
	} {
		p, err := policy.New(policy.Options{Roles: map[string]policy.Role{"all": all, "other": tt.other}})
		if err != nil {
			t.Fatal(err)
		}
		for it, want := range map[*catalogue.Item]bool{&tool: tt.tool, &note: tt.note, &family: tt.family} {
			if got := p.Open(it.Topic, *it); got != want {
				t.Errorf("%s: Open(%s) = %v, want %v", tt.name, it.Name, got, want)
			}
		}
	}
}
