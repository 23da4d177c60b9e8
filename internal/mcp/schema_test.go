package mcp_test

import (
	"slices"
	"strings"
	"testing"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// What the schema of each version has: ClientRequest, and ServerRequest or InputRequest.
var schema = map[mcp.Version]struct{ client, server string }{
	mcp.V20250326: {stateful, "ping sampling/createMessage roots/list"},
	mcp.V20250618: {stateful, "ping sampling/createMessage roots/list elicitation/create"},
	mcp.V20251125: {stateful + " tasks/get tasks/result tasks/cancel tasks/list", "ping tasks/get tasks/result tasks/cancel tasks/list sampling/createMessage roots/list elicitation/create"},
	mcp.V20260728: {
		"server/discover resources/list resources/templates/list resources/read subscriptions/listen prompts/list prompts/get tools/list tools/call completion/complete " +
			"tasks/get tasks/update tasks/cancel", // of the extension io.modelcontextprotocol/tasks
		"sampling/createMessage roots/list elicitation/create",
	},
}

const stateful = "initialize ping resources/list resources/templates/list resources/read resources/subscribe resources/unsubscribe prompts/list prompts/get tools/list tools/call logging/setLevel completion/complete"

// absent are requests of upstreams that a client is never told of: about tasks that it would hold itself.
var absent = []string{"tasks/get", "tasks/result", "tasks/cancel", "tasks/list"}

// Each method of a schema is one that policy has a subject for, or is refused as unknown; and navra knows no other.
func TestEachMethodHasASubject(t *testing.T) {
	for _, v := range mcp.Supported() {
		inSchema := strings.Fields(schema[v].client)
		for _, method := range inSchema {
			s, bad := mcp.SubjectOf(jsonrpc.Message{ID: jsonrpc.IntID(1), Method: method, Params: jsonrpc.Raw(`{}`)}, v)
			unknown := bad != nil && bad.Code == jsonrpc.CodeMethodNotFound
			switch {
			case unknown:
				t.Errorf("%s %s is not known", v, method)
			case !unknown && bad == nil && s.Topic == mcp.Unknown:
				t.Errorf("%s %s has no topic", v, method)
			}
		}
		for _, method := range mcp.Methods(v) {
			if !slices.Contains(inSchema, method) {
				t.Errorf("%s has no method %s", v, method)
			}
		}
		for _, method := range strings.Fields(schema[v].server) {
			q := mcp.QuestionOf(method)
			if q == mcp.NoQuestion && method != mcp.Ping && !slices.Contains(absent, method) {
				t.Errorf("%s %s: no rule can let an upstream ask for it", v, method)
			}
			if q != mcp.NoQuestion && (q.Capabilities() == 0 || q.Needs(nil) == 0 || q.Needs(nil)&^q.Capabilities() != 0) {
				t.Errorf("%s %s needs %s of %s", v, method, q.Needs(nil), q.Capabilities())
			}
		}
	}
}
