package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

var update = flag.Bool("update", false, "write docs/parity.md anew")

// A row is one message, sent alike over every transport in every version that has its method.
type row struct {
	name   string
	method string
	params func(dir string) map[string]any
	// kind is the verdict that the row shows: allow, name, content, message, pause or failure.
	kind string
	// differs says why the versions answer differently; "" where they answer alike.
	differs string
	notice  bool // it is a notification
}

func params(m map[string]any) func(string) map[string]any {
	return func(string) map[string]any { return m }
}

func callOf(tool string, args map[string]any) func(string) map[string]any {
	return params(map[string]any{"name": tool, "arguments": args})
}

func completionOf(prompt string) func(string) map[string]any {
	return params(map[string]any{"ref": map[string]any{"type": "ref/prompt", "name": prompt}, "argument": map[string]any{"name": "path", "value": "pla"}})
}

const subscribed = "the label: to subscribe, in the stateful era, was to read"

const newerDefinitions = "definitions have what their version knows"

// matrix is sent in this order in one conversation: what is read taints what is sent later.
var matrix = []row{
	{"handshake", mcp.Initialize, params(nil), "allow", "it names the version", false},
	{"discovery", mcp.Discover, params(map[string]any{}), "allow", "", false},
	{"ping", mcp.Ping, params(map[string]any{}), "allow", "", false},
	{"initialized", mcp.Initialized, params(nil), "allow", "", true},
	{"unknown notification", "notifications/no-such", params(nil), "message", "", true},
	{"cancel of nothing", mcp.Cancelled, params(map[string]any{"requestId": 77}), "allow", "", true},
	{"tools", mcp.ToolsList, params(map[string]any{}), "allow", newerDefinitions, false},
	{"tools from a foreign cursor", mcp.ToolsList, params(map[string]any{"cursor": "x"}), "allow", "", false},
	{"prompts", mcp.PromptsList, params(map[string]any{}), "allow", newerDefinitions, false},
	{"resources", mcp.ResourcesList, params(map[string]any{}), "allow", newerDefinitions, false},
	{"templates", mcp.TemplatesList, params(map[string]any{}), "allow", newerDefinitions, false},
	{"log level", mcp.SetLevel, params(map[string]any{"level": "warning"}), "allow", "", false},
	{"log level that is none", mcp.SetLevel, params(map[string]any{"level": "loud"}), "message", "", false},
	{"completion for a prompt", mcp.Complete, completionOf("files__summarise"), "allow", "", false},
	{"completion for an unknown prompt", mcp.Complete, completionOf("files__no_such"), "message", "", false},
	{"completion for a forbidden prompt", mcp.Complete, completionOf("docs__summarise"), "name", "", false},
	{"completion for nothing", mcp.Complete, params(map[string]any{"ref": map[string]any{"type": "ref/tool"}}), "message", "", false},
	{"unknown method", "no/such", params(map[string]any{}), "message", "", false},
	{"call", mcp.ToolsCall, callOf("odd__echo", map[string]any{"text": "hello"}), "allow", "", false},
	{"call with progress", mcp.ToolsCall, params(map[string]any{"name": "odd__work", "arguments": map[string]any{"steps": 2, "ms": 5}, "_meta": map[string]any{"progressToken": "p"}}), "allow", "", false},
	{"call with a structure", mcp.ToolsCall, callOf("odd__typed", map[string]any{"text": "hello"}), "allow", "2025-03-26 knows neither structures nor links", false},
	{"call of an unknown tool", mcp.ToolsCall, callOf("odd__no_such", map[string]any{}), "message", "", false},
	{"call of a forbidden tool", mcp.ToolsCall, callOf("files__edit_file", map[string]any{"path": "plan.txt"}), "name", "", false},
	{"call with an array", mcp.ToolsCall, params(map[string]any{"name": "odd__echo", "arguments": []int{1}}), "message", "", false},
	{"call that the upstream fails", mcp.ToolsCall, callOf("files__read_file", map[string]any{"path": "missing.txt"}), "allow", "", false},
	{"call that is not answered", mcp.ToolsCall, callOf("mute__echo", map[string]any{}), "failure", "", false},
	{"call with a foreign secret", mcp.ToolsCall, callOf("odd__echo", map[string]any{"text": "key " + awsKey()}), "content", "", false},
	{"call whose result holds a secret", mcp.ToolsCall, callOf("files__read_file", map[string]any{"path": "config.ini"}), "allow", "", false},
	{"call against the flow", mcp.ToolsCall, callOf("mail__send_mail", map[string]any{"to": "a@b.example", "subject": "s", "body": "b"}), "content", "", false},
	{"prompt", mcp.PromptsGet, callOf("files__summarise", map[string]any{"path": "plan.txt"}), "allow", "", false},
	{"unknown prompt", mcp.PromptsGet, callOf("files__no_such", map[string]any{}), "message", "", false},
	{"forbidden prompt", mcp.PromptsGet, callOf("docs__summarise", map[string]any{"path": "plan.txt"}), "name", "", false},
	{"resource", mcp.ResourcesRead, func(dir string) map[string]any { return map[string]any{"uri": "file://" + dir + "/plan.txt"} }, "allow", "", false},
	{"resource by its template", mcp.ResourcesRead, func(dir string) map[string]any { return map[string]any{"uri": "file://" + dir + "/hidden.txt"} }, "failure", "the code of a missing resource", false},
	{"unknown resource", mcp.ResourcesRead, params(map[string]any{"uri": "file:///no/such"}), "message", "the code of a missing resource", false},
	{"subscription", mcp.Subscribe, params(map[string]any{"uri": "note://a"}), "allow", "", false},
	{"subscription to an unknown resource", mcp.Subscribe, params(map[string]any{"uri": "note://no-such"}), "message", "", false},
	{"subscription to a forbidden resource", mcp.Subscribe, params(map[string]any{"uri": "note://b"}), "name", "", false},
	{"end of a subscription", mcp.Unsubscribe, params(map[string]any{"uri": "note://a"}), "allow", "", false},
	{"end of a subscription to an unknown resource", mcp.Unsubscribe, params(map[string]any{"uri": "note://no-such"}), "message", "", false},
	{"end of a subscription to a forbidden resource", mcp.Unsubscribe, params(map[string]any{"uri": "note://b"}), "name", "", false},
	{"listen of which nothing is granted", mcp.Listen, params(map[string]any{"notifications": map[string]any{"resourceSubscriptions": []string{"note://b", "note://no-such"}}}), "allow", "", false},
	{"forbidden resource", mcp.ResourcesRead, func(dir string) map[string]any { return map[string]any{"uri": "file://" + dir + "/b.txt"} }, "name", "the code of a missing resource", false},
	{"call that may become a task", mcp.ToolsCall, taskOf(map[string]any{"name": "JOBS__slow_compute", "arguments": map[string]any{"seconds": 600}, "task": map[string]any{}}), "allow", taskForms, false},
	{"task", mcp.TasksGet, taskOf(map[string]any{"taskId": "TASK"}), "allow", taskForms, false},
	{"unknown task", mcp.TasksGet, taskOf(map[string]any{"taskId": "x"}), "message", "", false},
	{"tasks", mcp.TasksList, taskOf(map[string]any{}), "allow", taskForms, false},
	{"task that is answered", mcp.TasksUpdate, taskOf(map[string]any{"taskId": "TASK", "inputResponses": map[string]any{}}), "allow", taskForms, false},
	{"unknown task that is answered", mcp.TasksUpdate, taskOf(map[string]any{"taskId": "x", "inputResponses": map[string]any{}}), "message", "", false},
	{"cancel of a task", mcp.TasksCancel, taskOf(map[string]any{"taskId": "TASK"}), "allow", taskForms, false},
	{"cancel of an unknown task", mcp.TasksCancel, taskOf(map[string]any{"taskId": "x"}), "message", "", false},
	{"result of a cancelled task", mcp.TasksResult, taskOf(map[string]any{"taskId": "TASK"}), "allow", taskForms, false},
	{"result of an unknown task", mcp.TasksResult, taskOf(map[string]any{"taskId": "x"}), "message", "", false},
	{"call while paused", mcp.ToolsCall, callOf("odd__echo", map[string]any{"text": "hello"}), "pause", subscribed, false}, // from here on
	{"call of an unknown tool while paused", mcp.ToolsCall, callOf("odd__no_such", map[string]any{}), "message", "", false},
	{"call of a forbidden tool while paused", mcp.ToolsCall, callOf("files__edit_file", map[string]any{"path": "plan.txt"}), "name", subscribed, false},
	{"prompt while paused", mcp.PromptsGet, callOf("files__summarise", map[string]any{"path": "plan.txt"}), "pause", subscribed, false},
	{"resource while paused", mcp.ResourcesRead, func(dir string) map[string]any { return map[string]any{"uri": "file://" + dir + "/plan.txt"} }, "pause", subscribed, false},
	{"completion while paused", mcp.Complete, completionOf("files__summarise"), "pause", subscribed, false},
	{"tools while paused", mcp.ToolsList, params(map[string]any{}), "allow", newerDefinitions, false},
	{"ping while paused", mcp.Ping, params(map[string]any{}), "allow", "", false},
}

const taskForms = "tasks are the protocol's in 2025-11-25, an extension's in 2026-07-28, with upstreams of that era"

// taskOf is params of a client that knows tasks. JOBS is the upstream that has them in the client's form, TASK the last task that was made.
func taskOf(m map[string]any) func(string) map[string]any {
	m["_meta"] = declares
	return params(m)
}

// inTasks fills JOBS and TASK in.
func inTasks(p map[string]any, v mcp.Version, task string) map[string]any {
	p = maps.Clone(p)
	if name, ok := p["name"].(string); ok {
		p["name"] = strings.Replace(name, "JOBS", map[bool]string{false: "jobs", true: "later"}[v.Stateless()], 1)
	}
	if p["taskId"] == "TASK" {
		p["taskId"] = task
	}
	return p
}

var (
	taskIDs   = regexp.MustCompile(`"taskId":"([^"]{20,})"`)
	taskTimes = regexp.MustCompile(`"(createdAt|lastUpdatedAt)":"[^"]*"`)
)

// A shown is what one row came to in one cell.
type shown struct {
	answer  string // normalised
	entries string
	short   string // for the table
}

var references = regexp.MustCompile(`\b[a-z2-7]{16}\b`)

// normal is a message without what differs in each run.
func normal(m message) string {
	m.ID = nil
	b, _ := json.Marshal(map[string]any{"result": m.Result, "error": m.Error, "method": m.Method, "params": m.Params})
	return references.ReplaceAllString(string(b), "REF")
}

// across is an answer without what only the stateless era has.
func across(answer string) string {
	for _, only := range []*regexp.Regexp{
		regexp.MustCompile(`,?"resultType":"complete"`), regexp.MustCompile(`,?"ttlMs":0`), regexp.MustCompile(`,?"cacheScope":"private"`),
		regexp.MustCompile(`,?"io.modelcontextprotocol/serverInfo":\{[^}]*\}`), regexp.MustCompile(`,?"_meta":\{\}`),
	} {
		answer = only.ReplaceAllString(answer, "")
	}
	return strings.ReplaceAll(answer, "{,", "{")
}

// play sends the whole matrix in one cell.
func play(t *testing.T, dir string, transport mcp.Transport, v mcp.Version) map[string]shown {
	s := newSetup(t)
	s.Dir = dir
	config := filepath.Join(s.Home, "navra.yaml")
	write(t, config, fmt.Sprintf(`
listen: 127.0.0.1:0
auth: none
store: %[3]s
upstreams:
  files: {command: [%[1]q, files, %[2]q], cwd: %[2]q, tools: {read_file: {class: read}}}
  docs: {command: [%[1]q, files, /nonexistent]}
  mail: {command: [%[1]q, mail], tools: {send_mail: {class: egress}}}
  odd: {command: [%[1]q, odd], tools: {echo: {class: read}, work: {class: read}, typed: {class: read}}}
  notes: {command: [%[1]q, odd, -watch]}
  jobs: {command: [%[1]q, odd, -tasks], tools: {slow_compute: {class: read}}}
  later: {command: [%[1]q, odd, -tasks, -era, stateless], tools: {slow_compute: {class: read}}}
  mute: {command: [%[1]q, odd, -never], timeouts: {call: 1s}, tools: {echo: {class: read}}}
principals: {local: {roles: [tester]}}
roles:
  tester:
    rules:
      - allow: {tools: ["*"], prompts: ["*"], resources: ["*"]}
      - deny: {tools: ["files/edit_file"], prompts: ["docs/*"], resources: ["file://%[2]s/b.txt", "note://b"]}
`, fixtureBin, dir, filepath.Join(s.Home, "state", "navra", "navra.db")))
	p := peers[transport](s, config, v)
	out := map[string]shown{}
	ids := map[string]string{} // row by request id, as recorded
	task := "none"
	for i, r := range matrix {
		id := fmt.Sprint(200 + i)
		if r.name == "call while paused" {
			if text, code := s.run("pause", "--principal", "local", "--config", config); code != 0 {
				t.Fatal(text)
			}
		}
		switch {
		case r.notice:
			p.tell(r.method, r.params(dir))
		case r.method == mcp.Initialize && !v.Stateless():
			id = "1"
			out[r.name] = shown{answer: normal(p.open())}
		default:
			m, before := p.send(id, r.method, inTasks(r.params(dir), v, task))
			text := normal(m)
			if made := taskIDs.FindStringSubmatch(text); made != nil {
				task = made[1]
			}
			text = taskTimes.ReplaceAllString(strings.ReplaceAll(text, task, "TASK"), `"$1":"TIME"`)
			for _, b := range before {
				if strings.HasSuffix(b.Method, "/list_changed") { // pushed when an upstream has started; over HTTP on a stream of its own
					continue
				}
				text = normal(b) + "\n" + text
			}
			out[r.name] = shown{answer: strings.ReplaceAll(text, dir, "DIR"), short: shortly(m)}
		}
		ids[id] = r.name
	}
	notices := len(slices.DeleteFunc(slices.Clone(matrix), func(r row) bool { return !r.notice }))
	var entries []recorded
	eventually(t, "what is answered by nothing is recorded", func() bool {
		entries = s.entries()
		return len(slices.DeleteFunc(slices.Clone(entries), func(e recorded) bool {
			return e.Kind != "notification" || e.RequestID != "" || e.Principal == "navra" || !isNotice(e.Method)
		})) >= notices
	})
	for _, e := range entries {
		name, ok := ids[e.RequestID]
		if e.Kind == "notification" && e.RequestID == "" {
			i := slices.IndexFunc(matrix, func(r row) bool { return r.notice && r.method == e.Method })
			if ok = i >= 0; ok {
				name = matrix[i].name
			}
		}
		if !ok || e.Principal == "navra" {
			continue
		}
		sh := out[name]
		line := strings.Join([]string{e.Kind, e.Method, e.Upstream, e.Target, e.Verdict, e.Stage, e.Reason, e.Outcome, e.After}, " | ")
		sh.entries += strings.ReplaceAll(line, dir, "DIR") + "\n"
		if sh.short == "" || e.Verdict == "deny" {
			sh.short = strings.TrimSpace(e.Verdict + " " + e.Stage)
		}
		out[name] = sh
	}
	return out
}

// shortly is an error's code, and nothing for a result.
func shortly(m message) string {
	if m.Error != nil {
		return fmt.Sprint(m.Error.Code)
	}
	return ""
}

// TestParityMatrix shows that a message is answered, judged and recorded alike over every transport, and in every version but for what the
// versions differ in.
func TestParityMatrix(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	write(t, filepath.Join(dir, "plan.txt"), "private plan: launch on the 4th\n")
	write(t, filepath.Join(dir, "b.txt"), "second private file\n")
	write(t, filepath.Join(dir, "config.ini"), "aws_access_key_id = "+awsKey()+"\n")
	versions := mcp.Supported()
	slices.Sort(versions)
	covered(t, versions)
	got := map[mcp.Version]map[mcp.Transport]map[string]shown{}
	var mu sync.Mutex // guards got
	t.Run("play", func(t *testing.T) {
		for _, v := range versions {
			got[v] = map[mcp.Transport]map[string]shown{}
			for _, tr := range mcp.Transports() {
				t.Run(fmt.Sprint(v, " over ", tr), func(t *testing.T) {
					t.Parallel()
					cell := play(t, dir, tr, v)
					mu.Lock()
					defer mu.Unlock()
					got[v][tr] = cell
				})
			}
		}
	})
	if t.Failed() {
		return
	}
	differences := 0
	differ := func(format string, args ...any) { differences++; t.Errorf(format, args...) }
	for _, r := range matrix {
		for _, v := range versions {
			first := got[v][mcp.Stdio][r.name]
			for _, tr := range mcp.Transports() {
				x := got[v][tr][r.name]
				if x.answer != first.answer {
					differ("%s, %s: over %s\n%s\nover stdio\n%s", r.name, v, tr, x.answer, first.answer)
				}
				if x.entries != first.entries {
					differ("%s, %s: recorded over %s\n%sover stdio\n%s", r.name, v, tr, x.entries, first.entries)
				}
				shows(t, r, v, tr, x)
			}
			other := got[versions[0]][mcp.Stdio][r.name]
			if r.differs != "" || !exists(r, v) || !exists(r, versions[0]) {
				continue
			}
			if across(first.answer) != across(other.answer) {
				differ("%s: in %s\n%s\nin %s\n%s", r.name, v, across(first.answer), versions[0], across(other.answer))
			}
			if first.entries != other.entries {
				differ("%s: recorded in %s\n%sin %s\n%s", r.name, v, first.entries, versions[0], other.entries)
			}
		}
	}
	t.Logf("%d rows, %d transports, %d versions: %d differences", len(matrix), len(mcp.Transports()), len(versions), differences)
	checkTable(t, table(versions, got))
}

func isNotice(method string) bool {
	return slices.ContainsFunc(matrix, func(r row) bool { return r.notice && r.method == method })
}

func exists(r row, v mcp.Version) bool {
	return r.notice || !mcp.IsMethod(r.method) || slices.Contains(mcp.Methods(v), r.method)
}

// shows checks that a row shows the verdict that it is there for.
func shows(t *testing.T, r row, v mcp.Version, tr mcp.Transport, x shown) {
	t.Helper()
	want := map[string]string{
		"allow": "| allow |", "name": "| deny | name |", "content": "| deny |", "message": "| deny | message |", "pause": "| deny | pause |", "failure": "| allow |",
	}[r.kind]
	if !exists(r, v) {
		want = "| deny | message |"
	}
	if !strings.Contains(x.entries, want) && !strings.Contains(x.entries, strings.Replace(want, "deny", "ask", 1)) {
		t.Errorf("%s, %s over %s: recorded\n%swant %q", r.name, v, tr, x.entries, want)
	}
}

// covered fails for a method or transport that the matrix does not have.
func covered(t *testing.T, versions []mcp.Version) {
	for _, tr := range mcp.Transports() {
		if peers[tr] == nil {
			t.Fatalf("the matrix has no transport %s", tr)
		}
	}
	for _, v := range versions {
		for _, m := range mcp.Methods(v) {
			kinds := map[string]bool{}
			for _, r := range matrix {
				if r.method == m {
					kinds[r.kind] = true
				}
			}
			subject, _ := mcp.SubjectOf(parse(m), v)
			if !kinds["allow"] || subject.Topic.Crosses() && (!kinds["name"] || !kinds["message"]) {
				t.Fatalf("the matrix shows of %s only %v", m, slices.Collect(maps.Keys(kinds)))
			}
		}
	}
}

// table is docs/parity.md.
func table(versions []mcp.Version, got map[mcp.Version]map[mcp.Transport]map[string]shown) []byte {
	var b bytes.Buffer
	b.WriteString("# Parity\n\nMade by `go test ./test/e2e -run TestParityMatrix -update`; the test fails where a transport answers, judges or records anything otherwise than\nthe others do, where a version does without a reason given here, and where a method or transport is missing.\n\n")
	b.WriteString("A cell is the verdict recorded, with the stage that gave it, or the error's code.\n\n")
	for _, tr := range mcp.Transports() {
		fmt.Fprintf(&b, "## %s\n\n| message | method |", tr)
		for _, v := range versions {
			fmt.Fprintf(&b, " %s |", v)
		}
		b.WriteString(" the versions differ in |\n|---|---|" + strings.Repeat("---|", len(versions)+1) + "\n")
		for _, r := range matrix {
			fmt.Fprintf(&b, "| %s | `%s` |", r.name, r.method)
			for _, v := range versions {
				fmt.Fprintf(&b, " %s |", got[v][tr][r.name].short)
			}
			fmt.Fprintf(&b, " %s |\n", r.differs)
		}
		b.WriteString("\n")
	}
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

func checkTable(t *testing.T, want []byte) {
	const path = "../../docs/parity.md"
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if is, err := os.ReadFile(path); err != nil || !bytes.Equal(is, want) {
		t.Errorf("docs/parity.md is out of date (%v): run the test with -update and look at the change", err)
	}
}

func parse(method string) jsonrpc.Message {
	m, _ := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"name":"x","uri":"x:y"}}`))
	return m
}
