package listener

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Operators guards the operators' address against pages in a browser: where it is reachable from this machine alone, Host must be one of
// its names, so that no page whose name was rebound to this machine gets in; and a request with an Origin must come from this very address.
func Operators(loopback bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := strings.ToLower(r.Host)
		scheme := "http://"
		if r.TLS != nil {
			scheme = "https://"
		}
		switch origins := r.Header["Origin"]; {
		case loopback && !isLoopback(host):
			http.Error(w, "the Host header names another server", http.StatusForbidden)
		case len(origins) > 1, len(origins) == 1 && strings.ToLower(origins[0]) != scheme+host:
			http.Error(w, "requests from this Origin are not allowed", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isLoopback reports whether a Host header names this machine.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && a.IsLoopback()
}
