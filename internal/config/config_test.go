package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const whole = `
listen:
  address: 127.0.0.1:8420
  tls: {cert: tls/chain.pem, key: /etc/key.pem}
  public_url: https://mcp.example:8443/navra/
  allowed_origins: ["https://app.example", "http://localhost:3000"]
  trusted_proxies: [10.0.0.0/8, 192.0.2.1, "2001:db8::/32", "::1", "::ffff:192.0.2.2"]
  drain_timeout: 10m
  poll_after: 50s
  max_connections: 10
admin: {address: "0.0.0.0:8421", tls: {cert: a.pem, key: b.pem}}
auth: {tokens: true}
store: state/navra.db
key: state/key
upstreams:
  zeta:
    command: [npx, -y, server, 8080, true]
    env: {LOG: info, PORT: 8080, TOKEN: "Bearer ${env:T}"}
    cwd: work
    root: .
    prefix: none
    label: {integrity: trusted, confidentiality: public}
    tools: {create.issue: {class: egress}, get: {class: read}}
    timeouts: {connect: 1s, call: 1h30m}
  alpha: {command: server}
principals:
  claude: {roles: [developer, local-default]}
  nobody: {}
roles:
  developer:
    clearance: secret
    rules:
      - allow: {tools: ["zeta/*", "*/get", "*"], prompts: ["*"], resources: ["file:///repo/**"]}
      - deny: {tools: ["zeta/move_file"]}
  reader: {}
ifc: {on_violation: observe}
filters: {secrets: {results: record, arguments: deny}}
`

func TestParse(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	path := at("navra.yaml")
	for _, tt := range []struct {
		name, text string
		want       *File
	}{
		{"every key", whole, &File{
			Path: path, AuthTokens: true, Store: at("state/navra.db"), Key: at("state/key"),
			Listen: Listen{
				Address: "127.0.0.1:8420", TLS: TLS{at("tls/chain.pem"), "/etc/key.pem"}, PublicURL: "https://mcp.example:8443/navra",
				Origins: []string{"https://app.example", "http://localhost:3000"}, Drain: 10 * time.Minute, MaxConnections: 10, Poll: 50 * time.Second,
				Proxies: []netip.Prefix{
					netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/32"),
					netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("192.0.2.2/32"),
				},
			},
			Admin: Admin{Address: "0.0.0.0:8421", TLS: TLS{at("a.pem"), at("b.pem")}},
			Upstreams: []Upstream{
				{
					Name: "zeta", Command: []string{"npx", "-y", "server", "8080", "true"}, Cwd: at("work"), Root: dir, Bare: true, Integrity: "trusted", Confidentiality: "public",
					Env: []Variable{{Name: "LOG", value: "info"}, {Name: "PORT", value: "8080"}, {Name: "TOKEN", value: "Bearer ${env:T}"}},

					Classes: map[string]string{"create.issue": "egress", "get": "read"}, Connect: time.Second, Call: 90 * time.Minute, CallMax: DefaultCallMax,
				},
				{Name: "alpha", Command: []string{"server"}, Integrity: "untrusted", Confidentiality: "sensitive", Classes: map[string]string{}, Connect: 30 * time.Second, Call: 5 * time.Minute, CallMax: DefaultCallMax},
			},
			Principals: map[string][]string{"claude": {"developer", "local-default"}, "nobody": nil},
			Roles: map[string]Role{
				"developer": {
					Clearance: "secret",
					Allow:     []Patterns{{Tools: []string{"zeta/*", "*/get", "*"}, Prompts: []string{"*"}, Resources: []string{"file:///repo/**"}}},
					Deny:      []Patterns{{Tools: []string{"zeta/move_file"}}},
				},
				"reader": {Clearance: "pii"},
			},
			Violation: "observe", Results: "record", Arguments: "deny",
		}},
		{"defaults", "listen: localhost:0\nauth: none\n", &File{
			Path: path, Listen: Listen{Address: "localhost:0", Drain: 5 * time.Second, MaxConnections: 4096}, AuthNone: true, Principals: map[string][]string{}, Roles: map[string]Role{}, Violation: "ask", Results: "pseudonymise", Arguments: "ask",
		}},
		{"absolute paths stay", "store: /var/lib/navra.db\n", &File{
			Path: path, Store: "/var/lib/navra.db", Principals: map[string][]string{}, Roles: map[string]Role{}, Violation: "ask", Results: "pseudonymise", Arguments: "ask",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(path, []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(Variable{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.IgnoreFields(Variable{}, "where")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParsePathsAreAbsolute(t *testing.T) {
	f, err := Parse("navra.yaml", []byte("store: navra.db\n"))
	if err != nil || !filepath.IsAbs(f.Store) {
		t.Errorf("store %v, %v, want it absolute", f, err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	f, err := Load(file("good.yaml", "store: navra.db\n"))
	if err != nil || f.Store != filepath.Join(dir, "navra.db") {
		t.Errorf("Load = %+v, %v", f, err)
	}
	limit := "#" + strings.Repeat("x", maxFile-len("#\nauth: none\n")) + "\nauth: none\n"
	if _, err := Load(file("full.yaml", limit)); err != nil {
		t.Errorf("a file of %d bytes: %v", len(limit), err)
	}
	if _, err := Load(file("over.yaml", "#"+limit)); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("a file of %d bytes: %v", len(limit)+1, err)
	}
	if _, err := Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := Load(dir); err == nil {
		t.Error("a folder is taken")
	}
}

func TestCheckServe(t *testing.T) {
	const up = "upstreams: {a: {command: x}}\n"
	for _, tt := range []struct{ name, text, want string }{
		{"tokens anywhere", "listen: 0.0.0.0:1\nauth: {tokens: true}\n" + up, ""},
		{"none on loopback", "listen: 127.0.0.1:1\nauth: none\n" + up, ""},
		{"none on another loopback", "listen: \"[::1]:1\"\nauth: none\n" + up, ""},
		{"none on localhost", "listen: localhost:1\nauth: none\n" + up, ""},
		{"none on every address", "listen: 0.0.0.0:1\nauth: none\n" + up, "auth: none works only on a loopback address"},
		{"none on a name", "listen: gateway.example:1\nauth: none\n" + up, "auth: none works only on a loopback address"},
		{"none behind a public URL", "listen: {address: \"127.0.0.1:1\", public_url: \"https://mcp.example\"}\nauth: none\n" + up, "auth: none would let everybody in through listen.public_url https://mcp.example"},
		{"none with a URL on loopback", "listen: {address: \"127.0.0.1:1\", public_url: \"http://[::1]:8/navra\"}\nauth: none\n" + up, ""},
		{"no address", "auth: none\n" + up, `add "listen: 127.0.0.1:8420"`},
		{"no auth", "listen: 127.0.0.1:1\n" + up, `add "auth: {tokens: true}"`},
		{"auth that lets nobody in", "listen: 127.0.0.1:1\nauth: {tokens: false}\n" + up, `add "auth: {tokens: true}"`},
		{"no upstreams", "listen: 127.0.0.1:1\nauth: none\n", "there are no upstreams"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse("navra.yaml", []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			switch err := f.CheckServe(); {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("CheckServe = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestDigest(t *testing.T) {
	digest := func(text string) [32]byte {
		t.Helper()
		f, err := Parse("navra.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return f.Digest()
	}
	base := digest(whole)
	for _, tt := range []struct {
		name, from, to string
		same           bool
	}{
		{"a secret", "${env:T}", "${env:U}", true},
		{"a time-out", "connect: 1s", "connect: 2s", true},
		{"the address", "127.0.0.1:8420", "127.0.0.1:8421", true},
		{"a comment", "ifc:", "# a word\nifc:", true},
		{"the order of keys", "create.issue: {class: egress}, get: {class: read}", "get: {class: read}, create.issue: {class: egress}", true},
		{"a principal's roles", "[developer, local-default]", "[developer]", false},
		{"a principal", "nobody:", "somebody:", false},
		{"clearance", "clearance: secret", "clearance: pii", false},
		{"a pattern", "zeta/move_file", "zeta/move_files", false},
		{"a rule's effect", "deny: {tools", "allow: {tools", false},
		{"flow", "on_violation: observe", "on_violation: deny", false},
		{"results", "results: record", "results: deny", false},
		{"arguments", "arguments: deny", "arguments: ask", false},
		{"integrity", "integrity: trusted", "integrity: untrusted", false},
		{"confidentiality", "confidentiality: public", "confidentiality: sensitive", false},
		{"a class", "get: {class: read}", "get: {class: write}", false},
		{"an upstream's name", "alpha:", "beta:", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changed := strings.Replace(whole, tt.from, tt.to, 1)
			if changed == whole {
				t.Fatalf("%q does not occur", tt.from)
			}
			if same := digest(changed) == base; same != tt.same {
				t.Errorf("the digest stays the same: %t, want %t", same, tt.same)
			}
		})
	}
	if digest("upstreams: {a: {command: x}, b: {command: y}}") != digest("upstreams: {b: {command: y}, a: {command: x}}") {
		t.Error("the order of upstreams counts")
	}
}

// TestWithPolicyOf: the policy is taken over, and of what else differs the sections are named; where something stands in the file is no difference.
func TestWithPolicyOf(t *testing.T) {
	parse := func(text string) *File {
		t.Helper()
		f, err := Parse("navra.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	base := parse(whole)
	for _, tt := range []struct {
		name, from, to string
		policy         bool // is another
		others         string
	}{
		{"a line more", "listen:", "# a word\n\nlisten:", false, ""},
		{"a principal's roles", "[developer, local-default]", "[developer]", true, ""},
		{"a pattern", "zeta/move_file", "zeta/move_files", true, ""},
		{"a role", "reader: {}", "writer: {}", true, ""},
		{"flow", "on_violation: observe", "on_violation: deny", true, ""},
		{"filters", "results: record", "results: deny", true, ""},
		{"the address", "127.0.0.1:8420", "127.0.0.1:8421", false, "listen"},
		{"a proxy", "10.0.0.0/8", "10.0.0.0/9", false, "listen"},
		{"the address of operators", "0.0.0.0:8421", "0.0.0.0:8422", false, "admin"},
		{"the store", "state/navra.db", "state/other.db", false, "store"},
		{"a class", "get: {class: read}", "get: {class: write}", false, "upstreams"},
		{"a variable's value", "${env:T}", "${env:U}", false, "upstreams"},
		{"an upstream more", "alpha: {command: server}", "alpha: {command: server}\n  beta: {command: x}", false, "upstreams"},
	} {
		text := strings.Replace(whole, tt.from, tt.to, 1)
		if text == whole {
			t.Fatalf("%s: %q does not occur", tt.name, tt.from)
		}
		now := parse(text)
		merged, others := base.WithPolicyOf(now)
		if (now.PolicyName() != base.PolicyName()) != tt.policy || merged.PolicyName() != now.PolicyName() {
			t.Errorf("%s: the policy is another: %t, want %t", tt.name, now.PolicyName() != base.PolicyName(), tt.policy)
		}
		if got := strings.Join(others, " "); got != tt.others {
			t.Errorf("%s: %q need a restart, want %q", tt.name, got, tt.others)
		}
		if diff := cmp.Diff(base.Upstreams, merged.Upstreams, cmp.AllowUnexported(Variable{})); diff != "" {
			t.Errorf("%s: what needs a restart was taken over:\n%s", tt.name, diff)
		}
	}
}

func TestID(t *testing.T) {
	u := Upstream{Command: []string{"a", "b"}, Cwd: "/x"}
	if id := u.ID(); len(id) != 16 || id != (Upstream{Name: "n", Command: []string{"a", "b"}, Cwd: "/x"}).ID() {
		t.Errorf("ID = %q, want 16 digits that depend on the command alone", id)
	}
	for _, other := range []Upstream{{Command: []string{"a b"}, Cwd: "/x"}, {Command: []string{"a", "b"}, Cwd: "/y"}, {Command: []string{"a"}, Cwd: "b /x"}} {
		if other.ID() == u.ID() {
			t.Errorf("%+v has the ID of %+v", other, u)
		}
	}
}

func TestEnviron(t *testing.T) {
	f, err := Parse("/etc/navra/navra.yaml", []byte(`upstreams: {a: {command: x, env: {
  PLAIN: 'a $HOME {b}',
  TWICE: '${env:A}:${env:A}',
  NESTED: '${env:REF}',
  REL: '${file:key}',
  ABS: '${file:/run/key}',
  EMPTY: '${env:EMPTY}'}}}`))
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"A": "1", "REF": "${env:A}", "EMPTY": ""}
	lookup := func(name string) (string, bool) { s, ok := env[name]; return s, ok }
	read := func(path string) ([]byte, error) { return []byte("of " + path + "\r\n"), nil }
	got, err := f.Upstreams[0].Environ("/etc/navra", lookup, read)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"PLAIN=a $HOME {b}", "TWICE=1:1", "NESTED=${env:A}", "REL=of /etc/navra/key", "ABS=of /run/key", "EMPTY="}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEnvironMissing(t *testing.T) {
	f, err := Parse("navra.yaml", []byte("upstreams:\n  a:\n    command: x\n    env:\n      A: hunter2-${env:GONE}\n      B: ${file:/no/such}\n      C: ${file:/nul}\n"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) ([]byte, error) {
		if path == "/nul" {
			return []byte("hunter2\x00"), nil
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	got, err := f.Upstreams[0].Environ("/", func(string) (string, bool) { return "", false }, read)
	if got != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Environ = %v, %v", got, err)
	}
	want := "navra.yaml:5: upstreams.a.env.A: the variable GONE is not set\n" +
		"navra.yaml:6: upstreams.a.env.B: open /no/such: file does not exist\n" +
		"navra.yaml:7: upstreams.a.env.C: the file /nul holds a NUL character"
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
}

func TestDatabaseURL(t *testing.T) {
	env := map[string]string{"PASSWORD": "a b+c@/:%?&"}
	lookup := func(name string) (string, bool) { s, ok := env[name]; return s, ok }
	read := func(path string) ([]byte, error) {
		if path == "/nul" {
			return []byte("hunter2\x00"), nil
		}
		return []byte("of " + path + "\n"), nil
	}
	for _, tt := range []struct{ store, want, bad string }{
		{"navra.db", "", ""},
		{"postgres://u@h:5433,i/d?sslmode=verify-full", "postgres://u@h:5433,i/d?sslmode=verify-full", ""},
		{"postgresql://u:hunter2@h/d", "postgresql://u:hunter2@h/d", ""},
		{"postgres://u:${env:PASSWORD}@h/d", "postgres://u:a%20b%2Bc%40%2F%3A%25%3F%26@h/d", ""},
		{"postgres://u:${file:pw}@h/d", "postgres://u:of%20%2Fetc%2Fpw@h/d", ""},
		{"postgres://u:hunter2${env:GONE}@h/d", "", "/etc/navra.yaml:1: store: the variable GONE is not set"},
		{"postgres://u:hunter2${file:/nul}@h/d", "", "/etc/navra.yaml:1: store: the file /nul holds a NUL character"},
	} {
		f, err := Parse("/etc/navra.yaml", []byte("store: '"+tt.store+"'\n"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.DatabaseURL(lookup, read)
		if got != tt.want || (err == nil) != (tt.bad == "") || err != nil && err.Error() != tt.bad {
			t.Errorf("DatabaseURL of %s = %q, %v, want %q, %s", tt.store, got, err, tt.want, tt.bad)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	f, err := Parse("navra.yaml", []byte("store: postgres://u:hunter2@h/d\nupstreams: {a: {command: x, env: {A: hunter2}}}"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		fmt.Fprintf(&out, verb+"\n", f)
		fmt.Fprintf(&out, verb+"\n", f.Upstreams[0].Env[0])
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(b)
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("x", "file", f, "upstream", f.Upstreams[0], "variable", f.Upstreams[0].Env[0])
	}
	if strings.Contains(out.String(), "hunter2") || strings.Contains(out.String(), "68756e74657232") || !strings.Contains(out.String(), "A=[redacted]") {
		t.Errorf("printed: %s", out.String())
	}
}
