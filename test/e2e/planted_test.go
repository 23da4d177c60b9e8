package e2e

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navra/test/collector"
	"navra/test/postgres"
)

// kindsOfSecrets make a secret of each kind that the filter knows, and a text that it stands in. They are put together here, so that no scanner takes this file for a leak.
var kindsOfSecrets = map[string]func() (secret, text string){
	"aws-access-key": func() (string, string) { s := "AKIA" + rand.Text()[:16]; return s, s },
	"github-token":   func() (string, string) { s := "ghp_" + random(36); return s, s },
	"gitlab-token":   func() (string, string) { s := "glpat-" + random(20); return s, s },
	"slack-token":    func() (string, string) { s := "xoxb-" + random(24); return s, s },
	"slack-webhook":  func() (string, string) { s := "hooks.slack.com/services/T0A/B0B/" + random(24); return s, s },
	"stripe-key":     func() (string, string) { s := "sk_live_" + random(24); return s, s },
	"anthropic-key":  func() (string, string) { s := "sk-ant-api03-" + random(60); return s, s },
	"openai-key":     func() (string, string) { s := "sk-proj-" + random(48); return s, s },
	"google-api-key": func() (string, string) { s := "AIza" + random(35); return s, s },
	"npm-token":      func() (string, string) { s := "npm_" + random(36); return s, s },
	"pypi-token":     func() (string, string) { s := "pypi-AgEI" + random(60); return s, s },
	"sendgrid-key":   func() (string, string) { s := "SG." + random(22) + "." + random(43); return s, s },
	"navra-token":    func() (string, string) { s := "nvr_" + random(49); return s, s },
	"jwt":            func() (string, string) { s := "eyJ" + random(20) + ".eyJ" + random(30) + "." + random(43); return s, s },
	"private-key": func() (string, string) {
		s := random(64)
		return s, "-----BEGIN EC " + "PRIVATE KEY-----\n" + s + "\n-----END EC " + "PRIVATE KEY-----"
	},
	"connection-password": func() (string, string) { s := random(20); return s, "postgres://app:" + s + "@db.example/x" },
	"aws-secret-key":      func() (string, string) { s := random(40); return s, "aws_secret_access_key = " + s },
	"assigned-secret":     func() (string, string) { s := random(30); return s, "client_secret: " + s },
}

// random is n letters and digits, of each some. None comes twice before all have come: what repeats itself may by chance look too plain for a secret.
func random(n int) string {
	const all = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	s := "a2B3"
	for len(s) < n {
		for _, i := range mathrand.Perm(len(all)) {
			s += all[i : i+1]
		}
	}
	return s[:n]
}

// planting makes a text with a secret of each kind, for a place.
func planting(place string) (all string, each map[string]string) {
	each = map[string]string{}
	for kind, f := range kindsOfSecrets {
		secret, text := f()
		plant(place+": "+kind, secret)
		each[kind] = text
		all += text + "\n"
	}
	return all, each
}

// TestSecretsAreNowhere sends secrets of each kind through every door in every place, and leaves it to the end of the run to search for them.
func TestSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, office := office(t)
			to := collector.New(t)
			s.Env = append(s.Env, "PLANTED_ENV="+plant(kind+" environment", random(30)), "PLANTED_HEADER="+plant(kind+" configured header", random(30)))
			config := filepath.Join(s.Dir, "serve.yaml")
			text := read(t, office)
			if kind == "postgres" {
				u := postgres.New(t).URL()
				text = strings.Replace(text, "store: "+filepath.Join(s.Home, "state", "navra", "navra.db"), "store: \""+u+"\"\nkey: "+filepath.Join(s.Home, "pg.key"), 1)
				parsed, err := url.Parse(u)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { searchServer(t, parsed.Query().Get("host")) })
			}
			text = strings.Replace(text, "[\""+fixtureBin+"\", mail,", "["+fixtureBin+", mail,", 1)
			text = strings.Replace(text, "  mail:\n", "  mail:\n    env: {SECRET: \"${env:PLANTED_ENV}\"}\n", 1)
			text += "  away:\n    url: http://127.0.0.1:1/mcp\n    headers: {Authorization: \"Bearer ${env:PLANTED_HEADER}\"}\n"
			text += fmt.Sprintf("blackbox: {checkpoint_to: %s, ship: {otlp: {endpoint: %q, headers: {Authorization: \"Bearer ${env:PLANTED_HEADER}\"}, payloads: true}}}\n", filepath.Join(s.Home, "checkpoint"), to.URL())
			write(t, config, text+"listen: 127.0.0.1:0\nauth: {tokens: true}\nprincipals: {ann: {roles: [local-default]}}\n")
			write(t, office, text)
			g := s.serve(config)
			token, code := s.runOut("token", "create", "ann", "--config", config)
			if token = strings.TrimSpace(token); code != 0 {
				t.Fatal("no token")
			}
			plant(kind+" navra's own token", token)
			plant(kind+" the key that seals", strings.TrimSpace(read(t, map[string]string{"sqlite": filepath.Join(s.Home, "state", "navra", "navra.db.key"), "postgres": filepath.Join(s.Home, "pg.key")}[kind])))
			ws := dial(t, g.Addr, token).open("2025-11-25")
			for name, send := range map[string]func(string, map[string]any) message{
				"stdio": s.startAs(navraBin, "stdio", "--config", office).open().requestMap,
				"http":  (&web{t: t, addr: g.Addr, token: token}).open().request,
				"ws":    func(m string, p map[string]any) message { return ws.request(m, p) },
			} {
				sendPlanted(t, s, kind+" "+name, send)
			}
			for _, h := range []string{"Authorization", "Mcp-Session-Id", "X-Other", "Cookie"} {
				_, each := planting(kind + " header " + h)
				for _, text := range each {
					if !strings.Contains(text, "\n") {
						(&web{t: t, addr: g.Addr}).post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, http.Header{h: {"Bearer " + text}})
					}
				}
			}
			g.stop()
			for format := range map[string]bool{"jsonl": true, "csv": true, "ocsf": true} {
				if out, code := s.run("blackbox", "export", "--config", config, "--format", format, "-o", filepath.Join(s.Home, "export."+format)); code != 0 {
					t.Error(out)
				}
			}
			shown, _ := s.run("blackbox", "list", "--config", config, "-n", "0")
			capture(shown)
			for _, r := range to.Took() {
				capture(r.String())
			}
		})
	}
}

func (c *client) requestMap(method string, params map[string]any) message {
	return c.request(method, params)
}

// sendPlanted puts secrets into all that a client and a server may choose.
func sendPlanted(t *testing.T, s *setup, place string, send func(string, map[string]any) message) {
	t.Helper()
	all, each := planting(place + " result")
	file := strings.ReplaceAll(place, " ", "-") + ".txt"
	write(t, filepath.Join(s.Dir, file), all)
	m := send("tools/call", map[string]any{"name": "files__read_file", "arguments": map[string]any{"path": file}})
	if a := result(t, m); a.IsError || !strings.Contains(a.text(), "[secret:") {
		t.Errorf("%s: the result is not pseudonymised: %s", place, a.text())
	}
	for kind, text := range each {
		if strings.Contains(string(m.Result), text) {
			t.Errorf("%s: the client sees the %s", place, kind)
		}
	}
	for _, to := range []string{"argument", "path of an error", "key of an argument", "tool", "prompt", "uri", "method", "token", "meta"} {
		_, each := planting(place + " " + to)
		for _, text := range each {
			switch to {
			case "argument":
				send("tools/call", map[string]any{"name": "mail__send_mail", "arguments": map[string]any{"to": "a@b.example", "body": text}})
			case "path of an error":
				send("tools/call", map[string]any{"name": "files__read_file", "arguments": map[string]any{"path": "none/" + text}})
			case "key of an argument":
				send("tools/call", map[string]any{"name": "files__read_file", "arguments": map[string]any{"path": "plan.txt", text: true}})
			case "tool":
				send("tools/call", map[string]any{"name": text, "arguments": map[string]any{}})
			case "prompt":
				send("prompts/get", map[string]any{"name": text})
			case "uri":
				send("resources/read", map[string]any{"uri": "file:///" + text})
			case "method":
				send(text, map[string]any{})
			case "token":
				send("tools/call", map[string]any{"name": "files__read_file", "arguments": map[string]any{"path": "plan.txt"}, "_meta": map[string]any{"progressToken": text}})
			case "meta":
				send("tools/call", map[string]any{"name": "files__read_file", "arguments": map[string]any{"path": "plan.txt"}, "_meta": map[string]any{"x.example/" + to: text}})
			}
		}
	}
}

// searchServer searches the files of a database server.
func searchServer(t *testing.T, dir string) {
	found, files, err := leaks(dir, func(path string) bool { return strings.Contains(path, ".s.PGSQL") })
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	for _, f := range found {
		t.Error(f)
	}
	t.Logf("%d files of the server searched", files)
	if files == 0 {
		t.Error("no files of the server")
	}
}
