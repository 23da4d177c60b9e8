package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const full = `
listen: {address: "127.0.0.1:8420", allowed_origins: ["https://app.example"]}
auth: {tokens: true}
store: state/navra.db
upstreams:
  files:
    command: [npx, -y, server]
    env: {LOG: info, TOKEN: "${env:TOKEN}"}
    cwd: work
    root: /repo
    prefix: none
    label: {integrity: trusted, confidentiality: pii}
    tools: {write_file: {class: write}}
    timeouts: {connect: 5s, call: 2m}
  web: {command: fetcher}
principals:
  ann: {roles: [dev, local-default]}
roles:
  dev:
    clearance: secret
    rules:
      - allow: {tools: ["files/*", "*"], prompts: ["*/x"], resources: ["file:///**"]}
      - deny: {tools: ["files/rm"]}
ifc: {on_violation: deny}
filters: {secrets: {results: record, arguments: deny}}
`

func TestParse(t *testing.T) {
	f, err := Parse("/etc/navra.yaml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := &File{
		Path: "/etc/navra.yaml", Listen: "127.0.0.1:8420", Origins: []string{"https://app.example"}, AuthTokens: true, Store: "/etc/state/navra.db",
		Upstreams: []Upstream{
			{
				Name: "files", Command: []string{"npx", "-y", "server"}, Cwd: "/etc/work", Root: "/repo", Bare: true, Integrity: "trusted", Confidentiality: "pii",
				Env:     []Variable{{"LOG", "info", "/etc/navra.yaml:8: upstreams.files.env.LOG"}, {"TOKEN", "${env:TOKEN}", "/etc/navra.yaml:8: upstreams.files.env.TOKEN"}},
				Classes: map[string]string{"write_file": "write"}, Connect: 5 * time.Second, Call: 2 * time.Minute,
			},
			{Name: "web", Command: []string{"fetcher"}, Integrity: "untrusted", Confidentiality: "sensitive", Classes: map[string]string{}, Connect: 30 * time.Second, Call: 5 * time.Minute},
		},
		Principals: map[string][]string{"ann": {"dev", "local-default"}},
		Roles: map[string]Role{"dev": {
			Clearance: "secret", Allow: []Patterns{{Tools: []string{"files/*", "*"}, Prompts: []string{"*/x"}, Resources: []string{"file:///**"}}}, Deny: []Patterns{{Tools: []string{"files/rm"}}},
		}},
		Violation: "deny", Results: "record", Arguments: "deny",
	}
	if diff := cmp.Diff(want, f, cmp.AllowUnexported(Variable{})); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}
	if err := f.CheckServe(); err != nil {
		t.Errorf("CheckServe: %v", err)
	}
}

func TestFaults(t *testing.T) {
	up := "upstreams: {a: {command: [x]}}\n"
	for _, tt := range []struct{ name, text, want string }{
		{"unknown key", "\nlissten: x\n" + up, `navra.yaml:2: unknown key "lissten" (did you mean "listen"?)`},
		{"unknown key, nothing near", "frobnicate: x\n" + up, "known are auth, filters"},
		{"unknown key below", "upstreams:\n  a:\n    command: [x]\n    url: y\n", `navra.yaml:4: upstreams.a: unknown key "url"`},
		{"a key of later", "blackbox: {keep: 90d}\n" + up, `unknown key "blackbox"`},
		{"doubled key", "store: a\nstore: b\n", `navra.yaml:2: key "store" is given twice`},
		{"not a mapping", "[1, 2]", "want a mapping"},
		{"empty", "", "the file is empty"},
		{"two documents", up + "---\n" + up, "want one document"},
		{"no YAML", "a: [", "navra.yaml"},
		{"an alias", "store: &x a\nlisten: *x\n", "anchor"},
		{"an alias as a mapping", "upstreams: &u {a: {command: [x]}}\nroles: *u\n", "anchors and aliases are not taken"},
		{"a merge", "upstreams:\n  a: {<<: {command: [x]}}\n", "plain text"},
		{"no command", "upstreams: {a: {cwd: x}}", "the command is missing"},
		{"empty command", "upstreams: {a: {command: []}}", "the command is empty"},
		{"a number in a list is text", "upstreams: {a: {command: [x, 1]}}", ""},
		{"a list in a list", "upstreams: {a: {command: [x, [y]]}}", "want text, not a list"},
		{"bad name", "upstreams: {A: {command: [x]}}", "an upstream's name"},
		{"reserved name", "upstreams: {navra: {command: [x]}}", "an upstream's name"},
		{"a name with the separator", "upstreams: {a__b: {command: [x]}}", "an upstream's name"},
		{"bad address", "listen: nowhere\n" + up, "is no address"},
		{"no address", "listen: {allowed_origins: []}\n" + up, "the address is missing"},
		{"bad origin", "listen: {address: \"127.0.0.1:1\", allowed_origins: [example.com]}", "is no origin"},
		{"bad auth", "auth: all\n", "none of none"},
		{"bad class", "upstreams: {a: {command: [x], tools: {t: {class: safe}}}}", `"safe" is none of read, write, egress`},
		{"bad level", "upstreams: {a: {command: [x], label: {confidentiality: low}}}", "none of public"},
		{"bad duration", "upstreams: {a: {command: [x], timeouts: {call: forever}}}", "is no duration"},
		{"negative duration", "upstreams: {a: {command: [x], timeouts: {call: -1s}}}", "is no duration"},
		{"unknown role", "principals: {ann: {roles: [dev]}}", `role "dev" is not defined`},
		{"the built-in role", "roles: {local-default: {}}", "built in"},
		{"bad pattern", "roles: {r: {rules: [{allow: {tools: [read_file]}}]}}", "want UPSTREAM/NAME"},
		{"ask rules are not there yet", "roles: {r: {rules: [{ask: {tools: [\"*\"]}}]}}", `unknown key "ask"`},
		{"reference where none may stand", "store: ${env:X}", "only in env"},
		{"bad reference", "upstreams: {a: {command: [x], env: {T: \"${X}\"}}}", "${env:NAME}"},
		{"navra is nobody's name", "principals: {navra: {}}", "no principal's name"},
		{"bad on_violation", "ifc: {on_violation: allow}", "none of deny, ask, observe"},
		{"bad filter action", "filters: {secrets: {results: ask}}", "none of record"},
	} {
		_, err := Parse("navra.yaml", []byte(tt.text))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	_, err := Parse("navra.yaml", []byte(strings.Repeat("x", maxFile+1)))
	if err == nil {
		t.Error("a huge file was read")
	}
	_, err = Parse("navra.yaml", []byte("a: 1\nb: 2\nc: 3\n"))
	if n := strings.Count(fmt.Sprint(err), "unknown key"); n != 3 {
		t.Errorf("%d faults named, want all three: %v", n, err)
	}
}

func TestCheckServe(t *testing.T) {
	up := "upstreams: {a: {command: [x]}}\n"
	for text, want := range map[string]string{
		up:                                             "needs an address",
		up + "listen: 127.0.0.1:1":                     "who may come in",
		up + "listen: 0.0.0.0:1\nauth: none":           "only on a loopback",
		up + "listen: 10.0.0.1:1\nauth: none":          "only on a loopback",
		"listen: 127.0.0.1:1\nauth: none":              "no upstreams",
		up + "listen: \"[::1]:1\"\nauth: none":         "",
		up + "listen: localhost:1\nauth: none":         "",
		up + "listen: 0.0.0.0:1\nauth: {tokens: true}": "",
	} {
		f, err := Parse("navra.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.CheckServe(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestEnviron(t *testing.T) {
	f, err := Parse("/etc/navra.yaml", []byte(`upstreams: {a: {command: [x], env: {A: "x${env:V}y", B: "${file:tok}", C: "${file:/abs}", D: plain}}}`))
	if err != nil {
		t.Fatal(err)
	}
	lookup := func(name string) (string, bool) { return "value", name == "V" }
	read := func(path string) ([]byte, error) {
		if path == "/gone" {
			return nil, os.ErrNotExist
		}
		return []byte(filepath.Base(path) + "\n"), nil
	}
	got, err := f.Upstreams[0].Environ("/etc", lookup, read)
	if diff := cmp.Diff([]string{"A=xvaluey", "B=tok", "C=abs", "D=plain"}, got); err != nil || diff != "" {
		t.Errorf("Environ: %v\n%s", err, diff)
	}
	if s := fmt.Sprintf("%v %+v %#v", f.Upstreams[0].Env, f.Upstreams[0].Env, f.Upstreams[0].Env); strings.Contains(s, "plain") {
		t.Errorf("a value is printed: %s", s)
	}
	f, _ = Parse("/etc/navra.yaml", []byte(`upstreams: {a: {command: [x], env: {A: "${env:NONE}", B: "${file:/gone}"}}}`))
	_, err = f.Upstreams[0].Environ("/etc", lookup, read)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "NONE is not set") || !strings.Contains(err.Error(), "upstreams.a.env.A") {
		t.Errorf("Environ: %v", err)
	}
}

func TestDigest(t *testing.T) {
	a, _ := Parse("navra.yaml", []byte(full))
	b, _ := Parse("elsewhere/navra.yaml", []byte(strings.ReplaceAll(full, "info", "debug")))
	c, _ := Parse("navra.yaml", []byte(strings.ReplaceAll(full, "files/rm", "files/mv")))
	if a.Digest() == c.Digest() {
		t.Error("another rule, the same digest")
	}
	if a.Digest() != b.Digest() {
		t.Error("what decides nothing changes the digest")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte("a: &x [*x]"))
	f.Add([]byte("upstreams: {a: {command: [x], <<: *y}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if file, err := Parse("navra.yaml", b); (err == nil) == (file == nil) {
			t.Fatalf("Parse = %v, %v", file, err)
		}
	})
}
