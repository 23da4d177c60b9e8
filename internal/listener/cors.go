package listener

import (
	"net/http"
	"net/textproto"
	"strings"
)

// What pages of other sites may send and see. WHATWG Fetch §3.3.
const (
	corsMethods = "GET, POST, DELETE"
	corsHeaders = "Authorization, Content-Type, Accept, Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Last-Event-ID, traceparent, tracestate, baggage"
	corsExposed = "Mcp-Session-Id, WWW-Authenticate"
	corsMaxAge  = "600" // seconds
	// corsParam begins the headers that mirror arguments: those a page asks for are allowed. MCP 2026-07-28, basic/transports §Custom Headers.
	corsParam = "Mcp-Param-"
	// maxCORSParams is how many of them one preflight may ask for.
	maxCORSParams = 100
)

// CORS lets pages of origins (scheme, host and port) read next's answers, refusals too, and answers their preflights itself; those of
// other origins get 403. No other request is changed: whether it may be sent at all is for next to tell. There is neither a wildcard
// nor a leave for cookies.
func CORS(origins []string, next http.Handler) http.Handler {
	if len(origins) == 0 {
		return next
	}
	known := map[string]bool{}
	for _, o := range origins {
		known[strings.ToLower(o)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := r.Header["Origin"]
		allowed := len(sent) == 1 && known[strings.ToLower(sent[0])]
		preflight := r.Method == http.MethodOptions && len(sent) > 0 && r.Header.Get("Access-Control-Request-Method") != ""
		if allowed {
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", sent[0])
			h.Add("Vary", "Origin")
			if !preflight {
				h.Set("Access-Control-Expose-Headers", corsExposed)
			}
		}
		switch {
		case !preflight:
			next.ServeHTTP(w, r)
		case allowed:
			h := w.Header()
			h.Set("Access-Control-Allow-Methods", corsMethods)
			h.Set("Access-Control-Allow-Headers", corsHeaders+params(r.Header["Access-Control-Request-Headers"]))
			h.Set("Access-Control-Max-Age", corsMaxAge)
			w.WriteHeader(http.StatusNoContent)
		default:
			http.Error(w, "requests from this Origin are not allowed", http.StatusForbidden)
		}
	})
}

// params lists the requested headers that mirror arguments, each after a comma.
func params(lines []string) string {
	var b strings.Builder
	n := 0
	for part := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		name := textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(part)) // unchanged where it is no header's name
		if strings.HasPrefix(name, corsParam) && len(name) > len(corsParam) && isToken(name) && n < maxCORSParams {
			b.WriteString(", " + name)
			n++
		}
	}
	return b.String()
}

// isToken reports whether s can be a header's name. RFC 9110 §5.6.2.
func isToken(s string) bool {
	return strings.Trim(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
