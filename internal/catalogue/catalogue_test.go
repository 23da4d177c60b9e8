package catalogue

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

func tool(name string) jsonrpc.Raw {
	return new(jsonrpc.Object).Text("name", name).Raw("inputSchema", jsonrpc.Raw(`{"type":"object"}`)).Done()
}

func tools(names ...string) (l Listing) {
	for _, n := range names {
		l.Tools = append(l.Tools, tool(n))
	}
	return l
}

func TestPublicNames(t *testing.T) {
	legal := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	names := []string{"echo", "coding.start", "coding_start", "a/b", "a b", "a_b", "a-b", "名", "字", "navra_x", strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("x", 300), strings.Repeat("x", 299) + "y"}
	for _, u := range []*Upstream{{Name: "files", Bare: true}, {Name: "customer_internal_jira_onprem"}} {
		seen := map[string]string{}
		for _, n := range names {
			got := publicName(u, n, DefaultMaxName)
			if !legal.MatchString(got) || !u.Bare && len(got) > DefaultMaxName || strings.HasPrefix(got, reserved) {
				t.Errorf("publicName(%s, %.20q) = %q, not legal", u.Name, n, got)
			}
			if other, twice := seen[got]; twice {
				t.Errorf("publicName maps both %.20q and %.20q to %q", n, other, got)
			}
			seen[got] = n
			if again := publicName(u, n, DefaultMaxName); again != got {
				t.Errorf("publicName(%.20q) = %q, then %q", n, got, again)
			}
		}
	}
	if got := publicName(&Upstream{Name: "files"}, "read_file", DefaultMaxName); got != "files__read_file" {
		t.Errorf("publicName = %q, want files__read_file", got)
	}
}

func TestBookLeavesOutSingly(t *testing.T) {
	files := &Upstream{Name: "files"}
	l := tools("ok", "ok", "")
	l.Tools = append(l.Tools, jsonrpc.Raw(`{"name":"noschema"}`), jsonrpc.Raw(`{"name":"badschema","inputSchema":{"type":"string"}}`), tool("last"))
	b := NewBook([]*Upstream{files}, 0)
	if changed := b.Install("ann", "files", l); len(changed) != 1 || len(changed[mcp.Tool]) == 0 {
		t.Errorf("Install = %v, want tools", changed)
	}
	var got []string
	for _, it := range b.For("ann").Items(mcp.Tool) {
		got = append(got, it.Public)
	}
	if diff := cmp.Diff([]string{"files__last", "files__ok"}, got); diff != "" {
		t.Errorf("public tools (-want +got):\n%s", diff)
	}
	if n := len(b.For("ann").Left); n != 4 {
		t.Errorf("%d left out, want 4: %v", n, b.For("ann").Left)
	}
	if again := b.Install("ann", "files", l); len(again) != 0 {
		t.Errorf("the same listing changed %v", again)
	}
}

func TestBookKeepsPrincipalsApart(t *testing.T) {
	b := NewBook([]*Upstream{{Name: "files"}}, 0)
	b.Install("ann", "files", tools("hers"))
	if _, ok := b.For("bob").Find(mcp.Tool, "files__hers"); ok {
		t.Error("bob finds what was listed for ann")
	}
}

func TestCollisionsHoldTheNewcomerBack(t *testing.T) {
	b := NewBook([]*Upstream{{Name: "a", Bare: true}, {Name: "b", Bare: true}}, 0)
	b.Install("ann", "b", tools("execute_sql", "other"))
	b.Install("ann", "a", tools("execute_sql"))
	it, ok := b.For("ann").Find(mcp.Tool, "execute_sql")
	if !ok || it.Upstream.Name != "a" {
		t.Errorf("execute_sql belongs to %v, want a: the one that stands first", it.Upstream)
	}
	if n := len(b.For("ann").Items(mcp.Tool)); n != 2 {
		t.Errorf("%d tools, want 2", n)
	}
}

func TestClasses(t *testing.T) {
	u := &Upstream{Name: "u", Classes: map[string]ifc.Class{"send": ifc.Egress}}
	asks := func(arg string) jsonrpc.Raw {
		return new(jsonrpc.Object).Text("name", "p").Raw("arguments", jsonrpc.Array(new(jsonrpc.Object).Text("name", arg).Done())).Done()
	}
	for _, tt := range []struct {
		topic mcp.Topic
		name  string
		def   jsonrpc.Raw
		want  ifc.Class
	}{
		{mcp.Tool, "send", tool("send"), ifc.Egress},
		{mcp.Tool, "else", jsonrpc.Raw(`{"annotations":{"readOnlyHint":true}}`), ifc.Unclassified}, // a hint of the upstream's sets nothing
		{mcp.Prompt, "p", asks("topic"), ifc.Read},
		{mcp.Prompt, "p", asks("repoUrl"), ifc.Egress},
		{mcp.Prompt, "p", asks("hostname"), ifc.Egress},
		{mcp.Resource, "file:///x", nil, ifc.Read},
	} {
		if got := classOf(u, tt.topic, tt.name, tt.def); got != tt.want {
			t.Errorf("classOf(%v, %s, %s) = %v, want %v", tt.topic, tt.name, tt.def, got, tt.want)
		}
	}
}

func TestListingRoundTrip(t *testing.T) {
	l := tools("a", "b")
	l.Version, l.Capabilities, l.Instructions = mcp.V20251125, jsonrpc.Raw(`{"tools":{}}`), "be kind"
	l.Resources = []jsonrpc.Raw{jsonrpc.Raw(`{"uri":"x://y"}`)}
	got, err := Decode(l.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(l, got); diff != "" {
		t.Errorf("Decode(Encode) (-want +got):\n%s", diff)
	}
	if _, err := Decode([]byte("{")); err == nil {
		t.Error("a damaged listing is read")
	}
}

// TestTemplatesAreBounded has an upstream list templates whose expressions would take gigabytes.
func TestTemplatesAreBounded(t *testing.T) {
	b, l := NewBook([]*Upstream{{Name: "files"}}, 0), Listing{}
	for i := range 10_000 {
		l.Templates = append(l.Templates, new(jsonrpc.Object).Text("uriTemplate", fmt.Sprintf("x%d%s", i, strings.Repeat("{?a*}", 150))).Done())
	}
	began := time.Now()
	b.Install("ann", "files", l)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Install took %s", took)
	}
	sum := 0
	for _, it := range b.For("ann").Items(mcp.Template) {
		sum += len(it.Name)
	}
	if sum == 0 || sum > maxTemplates {
		t.Errorf("templates of %d bytes are kept, want at most %d", sum, maxTemplates)
	}
	if left := len(b.For("ann").Left); left < 9000 {
		t.Errorf("%d were left out", left)
	}
	if _, ok := b.For("ann").Find(mcp.Resource, "x1"+strings.Repeat("a", maxMatched)); ok {
		t.Error("a URI longer than those that are matched has an upstream")
	}
}

func TestTemplatesBelongToTheFirst(t *testing.T) {
	b := NewBook([]*Upstream{{Name: "first"}, {Name: "second"}}, 0)
	template := func(s string) jsonrpc.Raw { return new(jsonrpc.Object).Text("uriTemplate", s).Done() }
	b.Install("ann", "second", Listing{Templates: []jsonrpc.Raw{template("{+all}")}, Resources: []jsonrpc.Raw{new(jsonrpc.Object).Text("uri", "note://listed").Done()}})
	b.Install("ann", "first", Listing{Templates: []jsonrpc.Raw{template("note://{id}"), template("note://{host}")}})
	for uri, want := range map[string]string{"note://a": "first", "other://a": "second", "note://listed": "second"} {
		it, ok := b.For("ann").Find(mcp.Resource, uri)
		if !ok || it.Upstream.Name != want {
			t.Errorf("%s belongs to %+v, want %s", uri, it.Upstream, want)
		}
	}
	if it, _ := b.For("ann").Find(mcp.Resource, "note://a"); it.Class != ifc.Egress {
		t.Errorf("class %v, want egress: one of the templates that match names a host", it.Class)
	}
}

// Tools whose schemas take much memory when they are compiled are left out when there is no room for more, and only they.
func TestSchemasHaveRoom(t *testing.T) {
	l := tools("first")
	for i := range 300 {
		text := fmt.Sprintf(`{"type":"object","allOf":[{"pattern":"(a?){750}%d"},{"pattern":"(b?){750}%d"},{"pattern":"(c?){750}%d"},{"pattern":"(d?){750}%d"},{"pattern":"(e?){750}%d"}]}`, i, i, i, i, i)
		l.Tools = append(l.Tools, new(jsonrpc.Object).Text("name", fmt.Sprintf("big%03d", i)).Raw("inputSchema", jsonrpc.Raw(text)).Done())
	}
	b := NewBook([]*Upstream{{Name: "files"}, {Name: "notes"}}, 0)
	b.Install("ann", "notes", tools("write"))
	b.Install("ann", "files", l)
	s := b.For("ann")
	for _, name := range []string{"files__first", "notes__write"} {
		if _, ok := s.Find(mcp.Tool, name); !ok {
			t.Errorf("%s is not offered", name)
		}
	}
	if n := len(s.Items(mcp.Tool)); n < 100 || n > 290 || len(s.Left) != 303-1-n {
		t.Errorf("%d tools are offered, %d left out", n, len(s.Left))
	}
	if len(s.Left) > 0 && s.Left[0].Why != "its inputSchema: those of the tools before it take more than 256 MiB" {
		t.Errorf("left out because: %s", s.Left[0].Why)
	}
}
