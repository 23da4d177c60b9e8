package listener

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCORS(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	const page = "https://App.example"
	seen := map[string]string{"Access-Control-Allow-Origin": page, "Vary": "Origin", "Access-Control-Expose-Headers": "Mcp-Session-Id, WWW-Authenticate"}
	asked := func(extra string) map[string]string {
		return map[string]string{
			"Access-Control-Allow-Origin": page, "Vary": "Origin", "Access-Control-Max-Age": "600", "Access-Control-Allow-Methods": "GET, POST, DELETE",
			"Access-Control-Allow-Headers": "Authorization, Content-Type, Accept, Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Last-Event-ID, traceparent, tracestate, baggage" + extra,
		}
	}
	for _, tt := range []struct {
		name, method string
		head         http.Header
		status       int
		want         map[string]string
	}{
		{"no page", "POST", nil, 401, map[string]string{}},
		{"an allowed page, refused", "POST", http.Header{"Origin": {page}}, 401, seen},
		{"another page", "POST", http.Header{"Origin": {"https://evil.example"}}, 401, map[string]string{}},
		{"the null origin", "POST", http.Header{"Origin": {"null"}}, 401, map[string]string{}},
		{"two origins", "POST", http.Header{"Origin": {page, page}}, 401, map[string]string{}},
		{"a subdomain", "POST", http.Header{"Origin": {"https://x.app.example"}}, 401, map[string]string{}},
		{"a preflight", "OPTIONS", http.Header{"Origin": {page}, "Access-Control-Request-Method": {"POST"}}, 204, asked("")},
		{
			"a preflight with parameters", "OPTIONS",
			http.Header{"Origin": {page}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"content-type,mcp-param-region, x-other", "mcp-param-, mcp-param-a b"}},
			204, asked(", Mcp-Param-Region"),
		},
		{"another page's preflight", "OPTIONS", http.Header{"Origin": {"https://evil.example"}, "Access-Control-Request-Method": {"POST"}}, 403, map[string]string{}},
		{"OPTIONS that is no preflight", "OPTIONS", http.Header{"Origin": {page}}, 401, seen},
		{"OPTIONS without a page", "OPTIONS", http.Header{"Access-Control-Request-Method": {"POST"}}, 401, map[string]string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(tt.method, "/mcp", nil)
			r.Header = tt.head
			w := httptest.NewRecorder()
			CORS([]string{"https://app.example"}, next).ServeHTTP(w, r)
			got := map[string]string{}
			for k, v := range w.Header() {
				if strings.HasPrefix(k, "Access-Control-") || k == "Vary" {
					got[k] = strings.Join(v, "|")
				}
			}
			if diff := cmp.Diff(tt.want, got); w.Code != tt.status || diff != "" {
				t.Errorf("status %d, want %d\n%s", w.Code, tt.status, diff)
			}
		})
	}
}
