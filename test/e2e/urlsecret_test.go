package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSecretOfAURLIsNowhere: a key in an upstream's address is in no log and no entry, however the upstream fails.
func TestSecretOfAURLIsNowhere(t *testing.T) {
	t.Parallel()
	const key = "k3y-of-the-address"
	hangUp := func(w http.ResponseWriter) {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			c.Close()
		}
	}
	for name, h := range map[string]http.HandlerFunc{
		"hangs up on everything": func(w http.ResponseWriter, _ *http.Request) { hangUp(w) },
		"hangs up on the stream": func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				hangUp(w)
				return
			}
			w.WriteHeader(http.StatusNotFound)
		},
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere?"+r.URL.RawQuery, http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			srv := httptest.NewServer(h)
			defer srv.Close()
			for _, scheme := range []string{"http", "ws"} {
				url := strings.Replace(srv.URL, "http", scheme, 1) + "/mcp?key=" + key
				g := s.serve(s.serveConfig(scheme+".yaml", fmt.Sprintf("auth: none\nprincipals: {local: {roles: [local-default]}}\nupstreams: {up: {url: %q}}\n", url)))
				w := (&web{t: t, addr: g.Addr}).open()
				w.request("tools/list", map[string]any{})
				eventually(t, "the failure is logged", func() bool { return strings.Contains(g.stderr.String(), "upstream did not start") })
				if strings.Contains(g.stderr.String(), key) {
					t.Errorf("over %s the key stands in the log:\n%s", scheme, g.stderr)
				}
			}
			if list, _ := s.run("blackbox", "list", "--json", "-n", "0"); strings.Contains(list, key) {
				t.Error("the key stands in an entry")
			}
		})
	}
}
