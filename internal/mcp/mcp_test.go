package mcp_test

import (
	"fmt"
	"net/http"
	"testing"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

func message(t *testing.T, text string) jsonrpc.Message {
	t.Helper()
	m, fault := jsonrpc.Parse([]byte(text))
	if fault != nil {
		t.Fatalf("%s: %v", text, fault)
	}
	return m
}

func call(version, caps string) string {
	meta := ""
	if version != "" {
		meta = fmt.Sprintf(`"io.modelcontextprotocol/protocolVersion":%q`, version)
	}
	if caps != "" {
		meta += `,"io.modelcontextprotocol/clientCapabilities":` + caps
	}
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{` + meta + `}}}`
}

func TestEraOverHTTP(t *testing.T) {
	modern, legacy, unknown := "2026-07-28", "2025-11-25", "v999.0.0"
	for _, tt := range []struct {
		rule, head, body string
		method, name     string // mirrored headers; "-" for none
		stateless        bool
		code             int
	}{
		{"both modern", modern, call(modern, "{}"), "tools/call", "x", true, 0},
		{"modern header, no meta", modern, call("", ""), "tools/call", "x", true, -32602},
		{"modern header, no capabilities", modern, call(modern, ""), "tools/call", "x", true, -32602},
		{"header and meta differ", modern, call(unknown, "{}"), "tools/call", "x", true, -32020},
		{"unknown in both", unknown, call(unknown, "{}"), "tools/call", "x", true, -32022},
		{"unknown header alone", unknown, call("", ""), "tools/call", "x", true, -32022},
		{"legacy header, modern meta", legacy, call(modern, "{}"), "tools/call", "x", true, -32020},
		{"no header, modern meta", "", call(modern, "{}"), "tools/call", "x", true, -32020},
		{"legacy", legacy, call("", ""), "-", "-", false, 0},
		{"neither", "", call("", ""), "-", "-", false, 0},
		{"no Mcp-Method", modern, call(modern, "{}"), "-", "x", true, -32020},
		{"other Mcp-Method", modern, call(modern, "{}"), "tools/list", "x", true, -32020},
		{"Mcp-Method in another case", modern, call(modern, "{}"), "Tools/Call", "x", true, -32020},
		{"white space is trimmed", modern, call(modern, "{}"), " tools/call ", " x\t", true, 0},
		{"other Mcp-Name", modern, call(modern, "{}"), "tools/call", "y", true, -32020},
		{"no Mcp-Name", modern, call(modern, "{}"), "tools/call", "-", true, -32020},
		{"Mcp-Name in base64", modern, call(modern, "{}"), "tools/call", "=?base64?eA==?=", true, 0},
		{"Mcp-Name in bad base64", modern, call(modern, "{}"), "tools/call", "=?base64?eA?=", true, -32020},
		{"mirrors before meta", modern, call("", ""), "tools/list", "x", true, -32020},
	} {
		h := http.Header{}
		for k, v := range map[string]string{mcp.HeaderVersion: tt.head, mcp.HeaderMethod: tt.method, mcp.HeaderName: tt.name} {
			if v != "" && v != "-" {
				h.Set(k, v)
			}
		}
		stateless, v, refused := mcp.EraOf(mcp.Inbound{Msg: message(t, tt.body), Transport: mcp.HTTP, Header: h})
		code := 0
		if refused != nil {
			code = refused.Err.Code
			if refused.Status != http.StatusBadRequest {
				t.Errorf("%s: status %d, want 400", tt.rule, refused.Status)
			}
		}
		if stateless != tt.stateless || code != tt.code || code == 0 && stateless && v != mcp.V20260728 {
			t.Errorf("%s: EraOf = %v, %q, code %d, want %v, code %d", tt.rule, stateless, v, code, tt.stateless, tt.code)
		}
	}
}

func TestEraOverStdio(t *testing.T) {
	for _, tt := range []struct {
		rule, body string
		stateless  bool
		code       int
	}{
		{"modern by meta", call("2026-07-28", "{}"), true, 0},
		{"legacy without meta", call("", ""), false, 0},
		{"legacy version in meta", call("2025-11-25", "{}"), false, 0},
		{"unknown version in meta", call("1900-01-01", "{}"), true, -32022},
		{"no capabilities", call("2026-07-28", ""), true, -32602},
	} {
		stateless, _, refused := mcp.EraOf(mcp.Inbound{Msg: message(t, tt.body), Transport: mcp.Stdio})
		code := 0
		if refused != nil {
			code = refused.Err.Code
		}
		if stateless != tt.stateless || code != tt.code {
			t.Errorf("%s: EraOf = %v, code %d, want %v, code %d", tt.rule, stateless, code, tt.stateless, tt.code)
		}
	}
}

func TestSubject(t *testing.T) {
	for _, tt := range []struct {
		method, params string
		v              mcp.Version
		topic          mcp.Topic
		code           int
	}{
		{"ping", `{}`, mcp.V20251125, mcp.Lifecycle, 0},
		{"ping", `{}`, mcp.V20260728, 0, -32601},
		{"initialize", `{}`, mcp.V20260728, 0, -32601},
		{"server/discover", `{}`, mcp.V20251125, 0, -32601},
		{"server/discover", `{}`, mcp.V20260728, mcp.Lifecycle, 0},
		{"tools/call", `{"name":"x"}`, mcp.V20251125, mcp.Tool, 0},
		{"tools/call", `{"name":"x","arguments":null}`, mcp.V20251125, mcp.Tool, 0},
		{"tools/call", `{"name":"x","arguments":[]}`, mcp.V20251125, 0, -32602},
		{"tools/call", `{"name":1}`, mcp.V20251125, 0, -32602},
		{"tools/call", `{}`, mcp.V20251125, 0, -32602},
		{"Tools/call", `{"name":"x"}`, mcp.V20251125, 0, -32601},
		{"resources/read", `{"uri":"x://y"}`, mcp.V20260728, mcp.Resource, 0},
		{"resources/subscribe", `{"uri":"x://y"}`, mcp.V20251125, mcp.Resource, 0},
		{"resources/subscribe", `{"uri":1}`, mcp.V20251125, 0, -32602},
		{"resources/subscribe", `{"uri":"x://y"}`, mcp.V20260728, 0, -32601},
		{"resources/unsubscribe", `{"uri":"x://y"}`, mcp.V20250326, mcp.Resource, 0},
		{"subscriptions/listen", `{"notifications":{}}`, mcp.V20260728, mcp.Subscription, 0},
		{"subscriptions/listen", `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x://y","x://y"]}}`, mcp.V20260728, mcp.Subscription, 0},
		{"subscriptions/listen", `{}`, mcp.V20260728, 0, -32602},
		{"subscriptions/listen", `{"notifications":{"toolsListChanged":1}}`, mcp.V20260728, 0, -32602},
		{"subscriptions/listen", `{"notifications":{"resourceSubscriptions":[1]}}`, mcp.V20260728, 0, -32602},
		{"subscriptions/listen", `{"notifications":{}}`, mcp.V20251125, 0, -32601},
		{"completion/complete", `{}`, mcp.V20251125, 0, -32602},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}}`, mcp.V20260728, mcp.Prompt, 0},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"x://{y}"},"argument":{"name":"y","value":"z"}}`, mcp.V20250326, mcp.Template, 0},
		{"completion/complete", `{"ref":{"type":"ref/tool","name":"p"},"argument":{"name":"a","value":""}}`, mcp.V20251125, 0, -32602},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a"}}`, mcp.V20251125, 0, -32602},
		{"logging/setLevel", `{"level":"loud"}`, mcp.V20251125, 0, -32602},
		{"logging/setLevel", `{"level":"notice"}`, mcp.V20251125, mcp.Lifecycle, 0},
		{"logging/setLevel", `{"level":"notice"}`, mcp.V20260728, 0, -32601},
	} {
		m := message(t, `{"jsonrpc":"2.0","id":1,"method":"`+tt.method+`","params":`+tt.params+`}`)
		s, bad := mcp.SubjectOf(m, tt.v)
		code := 0
		if bad != nil {
			code = bad.Code
		}
		if code != tt.code || code == 0 && s.Topic != tt.topic {
			t.Errorf("SubjectOf(%s %s, %s) = %v, code %d, want %v, code %d", tt.method, tt.params, tt.v, s.Topic, code, tt.topic, tt.code)
		}
	}
}
