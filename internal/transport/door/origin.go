package door

import (
	"net"
	"net/http"
	"strings"
)

// outsider says why a request comes from where none may come from, "" if it may. Host and Origin are set by a browser and not by the page
// in it, so they tell a web page from a program. MCP 2025-11-25, basic/transports §Security Warning.
func (d *Door) outsider(r *http.Request) string {
	host := strings.ToLower(r.Host)
	if !d.knownHost(host) {
		return "the Host header names another server"
	}
	origins := r.Header["Origin"]
	switch {
	case len(origins) == 0:
		return ""
	case len(origins) == 1 && d.knownOrigin(strings.ToLower(origins[0]), host, r.TLS != nil):
		return ""
	}
	return "requests from this Origin are not allowed"
}

func (d *Door) knownHost(host string) bool {
	if !d.o.Loopback && len(d.hosts) == 0 {
		return true
	}
	return d.o.Loopback && isLoopback(host) || d.hosts[host] || d.hosts[hostname(host)]
}

func (d *Door) knownOrigin(origin, host string, secure bool) bool {
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	switch {
	case origin == "null":
		return false
	case d.origins[origin]:
		return true
	}
	return d.o.Loopback && isLoopback(host) && origin == scheme+host
}

func isLoopback(host string) bool {
	switch hostname(host) {
	case "localhost", "127.0.0.1", "[::1]":
		return true
	}
	return false
}

// hostname is host without its port; an IPv6 address keeps its brackets.
func hostname(host string) string {
	name, port, err := net.SplitHostPort(host)
	if err != nil || strings.Trim(port, "0123456789") != "" {
		return host
	}
	if strings.Contains(name, ":") {
		return "[" + name + "]"
	}
	return name
}
