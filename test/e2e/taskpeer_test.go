package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"navra/internal/mcp"
)

// A taskPeer is a client of one version over one transport. It keeps all that it was told.
type taskPeer struct {
	t     *testing.T
	v     mcp.Version
	ask   func(method string, p map[string]any) message
	heard *[]string
}

// taskPeers connects a client over each transport.
func (s *setup) taskPeers(t *testing.T, config string, v mcp.Version) map[mcp.Transport]taskPeer {
	g := s.serve(config)
	stdio := s.startAs(navraBin, "stdio", "--config", config)
	sock := dial(t, g.Addr, "")
	w := &web{t: t, addr: g.Addr, modern: v.Stateless(), version: string(v)}
	if !v.Stateless() {
		if m := stdio.request("initialize", greeting(v)); m.Error != nil {
			t.Fatal(m.Error)
		}
		stdio.notify("notifications/initialized", map[string]any{})
		sock.open(string(v))
		w.open()
	}
	out := map[mcp.Transport]taskPeer{}
	for tr, ask := range map[mcp.Transport]func(string, map[string]any) message{
		mcp.Stdio:     func(m string, p map[string]any) message { return stdio.request(m, modernParams(v, p)) },
		mcp.HTTP:      w.request,
		mcp.WebSocket: func(m string, p map[string]any) message { return sock.request(m, modernParams(v, p)) },
	} {
		out[tr] = taskPeer{t: t, v: v, ask: ask, heard: new([]string)}
	}
	return out
}

var declares = map[string]any{"io.modelcontextprotocol/clientCapabilities": map[string]any{"elicitation": map[string]any{}, "extensions": map[string]any{mcp.TaskExtension: map[string]any{}}}}

// request sends a request; in the stateless era it declares that it knows tasks.
func (p taskPeer) request(method string, params map[string]any) message {
	p.t.Helper()
	if p.v.Stateless() && params["_meta"] == nil {
		params["_meta"] = declares
	}
	m := p.ask(method, params)
	*p.heard = append(*p.heard, normal(m))
	return m
}

// A taskSaid is what is said of a task.
type taskSaid struct {
	TaskID, Status, ResultType string
	Task                       *taskSaid
	Result                     json.RawMessage
	InputRequests              map[string]json.RawMessage
	Content                    []any
	Meta                       map[string]json.RawMessage `json:"_meta"`
}

func (p taskPeer) said(m message) (out taskSaid) {
	p.t.Helper()
	if m.Error != nil {
		p.t.Fatalf("error %d %s", m.Error.Code, m.Error.Message)
	}
	if err := json.Unmarshal(m.Result, &out); err != nil {
		p.t.Fatal(err)
	}
	if out.Task != nil {
		return *out.Task
	}
	return out
}

// begin calls a tool so that it becomes a task, and returns the task's id.
func (p taskPeer) begin(tool string, args map[string]any) string {
	p.t.Helper()
	call := map[string]any{"name": "odd__" + tool, "arguments": args}
	if !p.v.Stateless() {
		call["task"] = map[string]any{"ttl": 60000}
	}
	id := p.said(p.request("tools/call", call)).TaskID
	if id == "" || strings.HasPrefix(id, "upstream-job-") {
		p.t.Fatalf("%s: the task's id is %q", tool, id)
	}
	return id
}

func (p taskPeer) about(method, id string) message {
	p.t.Helper()
	return p.request(method, map[string]any{"taskId": id})
}

// until waits for a task to have a status.
func (p taskPeer) until(id, status string) (last taskSaid) {
	p.t.Helper()
	eventually(p.t, "the task is "+status, func() bool {
		last = p.said(p.about("tasks/get", id))
		return last.Status == status
	})
	if last.TaskID != id {
		p.t.Errorf("tasks/get answers of %q, asked about %q", last.TaskID, id)
	}
	return last
}

// refuses checks that a request is answered by an error.
func (p taskPeer) refuses(what string, m message, code int, text string) {
	p.t.Helper()
	if m.Error == nil || m.Error.Code != code || !strings.Contains(m.Error.Message, text) {
		p.t.Errorf("%s: got %s %+v, want %d %q", what, m.Result, m.Error, code, text)
	}
}

// foreign checks that an id that is not the client's is unknown, whatever is asked.
func (p taskPeer) foreign(what, id string, methods ...string) {
	p.t.Helper()
	for _, m := range methods {
		p.refuses(what+", "+m, p.request(m, map[string]any{"taskId": id, "inputResponses": map[string]any{}}), -32602, "unknown task")
	}
}

// leaks fails where the client was told an upstream's id or a secret.
func (p taskPeer) leaks() {
	p.t.Helper()
	for _, text := range *p.heard {
		if strings.Contains(text, "upstream-job-") || strings.Contains(text, awsKey()) {
			p.t.Errorf("the client was told %s", text)
		}
	}
}

// altered is a string with one byte in its middle changed.
func altered(id string) string {
	b := []byte(id)
	if b[len(b)/2]++; b[len(b)/2] > 'y' || b[len(b)/2] < 'a' {
		b[len(b)/2] = 'b'
	}
	return string(b)
}

// taskConfig is a configuration with one upstream that has jobs.
func (s *setup) taskConfig(era string) string {
	return s.serveConfig("navra.yaml", fmt.Sprintf("auth: none\nprincipals: {local: {roles: [tester]}}\nifc: {on_violation: observe}\nroles: {tester: {rules: [{allow: {tools: [\"*\"], client: [elicitation]}}]}}\n"+
		"upstreams:\n  odd: {command: [%q, odd, -tasks, -era, %s, -task-secret, %q, -log, %q]}\n", fixtureBin, era, "aws_access_key_id = "+awsKey(), s.log()))
}
