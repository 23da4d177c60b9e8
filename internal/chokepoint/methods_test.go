package chokepoint_test

import (
	"errors"
	"slices"
	"testing"

	"navra/internal/catalogue"
	"navra/internal/chokepoint"
	"navra/internal/ifc"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// everything has the mail upstream, whose own data is public, offer one of each kind.
func everything(o *chokepoint.Options) {
	object := jsonrpc.Raw(`{"type":"object"}`)
	o.Catalogue = catalogue.NewBook([]*catalogue.Upstream{
		{Name: "files", Label: ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.Sensitive}, Classes: map[string]ifc.Class{"read": ifc.Read}, Kept: "files"},
		{Name: "mail", Label: ifc.Level{Integrity: ifc.Untrusted, Confidentiality: ifc.Public}, Classes: map[string]ifc.Class{"send": ifc.Write}, Kept: "mail"},
	}, 0)
	read := new(jsonrpc.Object).Text("name", "read").Raw("inputSchema", object).Done()
	o.Catalogue.Install("ann", "files", catalogue.Listing{Capabilities: jsonrpc.Raw(`{"tools":{}}`), Tools: []jsonrpc.Raw{read}})
	o.Catalogue.Install("ann", "mail", catalogue.Listing{
		Version:      mcp.V20251125,
		Capabilities: jsonrpc.Raw(`{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{},"logging":{}}`),
		Tools:        []jsonrpc.Raw{new(jsonrpc.Object).Text("name", "send").Raw("inputSchema", object).Done()},
		Prompts:      []jsonrpc.Raw{new(jsonrpc.Object).Text("name", "compose").Done()},
		Resources:    []jsonrpc.Raw{new(jsonrpc.Object).Text("uri", "mail://a").Text("name", "a").Done()},
		Templates:    []jsonrpc.Raw{new(jsonrpc.Object).Text("uriTemplate", "mail://box/{text}").Text("name", "t").Done()},
	})
}

// Of the methods with which a client's text reaches an upstream: params in which TEXT stands for what the client chose. A task's methods carry its id
// and answers, which TestTasks… and TestQuestion… show to be judged.
var crossing = map[string]string{
	mcp.ToolsCall:     `{"name":"mail__send","arguments":{"a":"TEXT"}}`,
	mcp.PromptsGet:    `{"name":"mail__compose","arguments":{"a":"TEXT"}}`,
	mcp.ResourcesRead: `{"uri":"mail://box/TEXT"}`,
	mcp.Subscribe:     `{"uri":"mail://box/TEXT"}`,
	mcp.Unsubscribe:   `{"uri":"mail://box/TEXT"}`,
	mcp.Complete:      `{"ref":{"type":"ref/prompt","name":"mail__compose"},"argument":{"name":"a","value":"TEXT"}}`,
}

// navra answers these itself, or sends only what it has made of constants and ids.
var own = []string{
	mcp.Initialize, mcp.Discover, mcp.Ping, mcp.ToolsList, mcp.PromptsList, mcp.ResourcesList, mcp.TemplatesList, mcp.SetLevel, mcp.Listen,
	mcp.TasksGet, mcp.TasksResult, mcp.TasksList, mcp.TasksCancel, mcp.TasksUpdate,
}

// Each method of each version is looked through by the filter and held against the flow of what the scope has gathered, or carries nothing of a client's.
func TestEachMethodIsFilteredAndHasAClass(t *testing.T) {
	for _, v := range mcp.Supported() {
		for _, method := range mcp.Methods(v) {
			params, crosses := crossing[method]
			if !crosses {
				if !slices.Contains(own, method) {
					t.Errorf("%s %s: it is not said whether anything of a client's goes on with it", v, method)
				}
				continue
			}
			t.Run(string(v)+" "+method, func(t *testing.T) {
				secretly, tainted := permissive(), permissive()
				secretly.Arguments, tainted.OnViolation = policy.Deny, policy.Deny
				if got := stageOf(t, newBenchWith(t, secretly, nil, everything), v, method, params, aws()); got != policy.StageContent {
					t.Errorf("with a secret: decided at %q, want the filter's finding to deny it", got)
				}
				b := newBenchWith(t, tainted, nil, everything)
				from := call(t, b.ann, "files__read", "{}")
				m := b.admit(t, from)
				notes := jsonrpc.Message{ID: jsonrpc.IntID(1), Result: jsonrpc.Raw(`{"content":[{"type":"text","text":"notes"}]}`)}
				if _, err := b.Release(t.Context(), m.Answer(notes, 0), from); err != nil {
					t.Fatal(err)
				}
				if got := stageOf(t, b, v, method, params, "plain"); got != policy.StageFlow {
					t.Errorf("from a scope that has read what is sensitive elsewhere: decided at %q, want the flow to deny it", got)
				}
			})
		}
	}
}

// stageOf says which stage denies a request; "" if none does.
func stageOf(t *testing.T, b *bench, v mcp.Version, method, params, text string) policy.Stage {
	t.Helper()
	raw, err := jsonrpc.ParseValue([]byte(params))
	if err != nil {
		t.Fatal(err)
	}
	raw, err = raw.MapStrings(func(_ string, _ bool, s string) (string, bool) {
		switch {
		case s == "TEXT":
			return text, true
		case len(s) > 4 && s[len(s)-4:] == "TEXT":
			return s[:len(s)-4] + text, true
		}
		return s, false
	})
	if err != nil {
		t.Fatal(err)
	}
	from := chokepoint.Peer{Who: b.ann, In: mcp.Inbound{Msg: jsonrpc.Message{ID: jsonrpc.IntID(9), Method: method, Params: raw}, Transport: mcp.HTTP}, Version: v, Session: "s"}
	_, ask, err := b.Admit(t.Context(), from)
	if refusal := (*chokepoint.Refusal)(nil); err == nil && ask == nil || err != nil && !errors.As(err, &refusal) {
		return ""
	}
	all := b.entries(t)
	return policy.Stage(all[len(all)-1].Stage)
}
