package listener

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// A client is who sent a request, as far as the network and trusted proxies tell.
type client struct {
	addr   netip.Addr
	secure bool // over TLS
}

type clientKey struct{}

func clientOf(ctx context.Context) client {
	c, _ := ctx.Value(clientKey{}).(client)
	return c
}

// ClientAddr returns the address of the client whose request ctx belongs to; the zero address where none is known.
func ClientAddr(ctx context.Context) netip.Addr { return clientOf(ctx).addr }

// Clients puts each client's address into its request's context. X-Forwarded-For, X-Forwarded-Proto and Forwarded count only where the
// peer is one of proxies; the client is then the last address that is no proxy's. Anybody else may write what they like there.
func Clients(proxies []netip.Prefix, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := findClient(proxies, r.RemoteAddr, r.TLS != nil, r.Header)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), clientKey{}, c)))
	})
}

// A hop is one step of a request as a proxy tells it. The zero address is one that is not told.
type hop struct {
	addr  netip.Addr
	proto string
}

// findClient walks from the peer towards the client. Where X-Forwarded-For and Forwarded name different clients, the proxy passes one of
// them on as it came, and neither is believed.
func findClient(proxies []netip.Prefix, peer string, secure bool, h http.Header) client {
	here := client{parseAddr(peer), secure}
	if !trusted(proxies, here.addr) {
		return here
	}
	xff, forwarded := xForwarded(h), parseForwarded(h)
	switch {
	case len(forwarded) == 0:
		return walk(proxies, here, xff)
	case len(xff) == 0:
		return walk(proxies, here, forwarded)
	}
	a, b := walk(proxies, here, xff), walk(proxies, here, forwarded)
	if a.addr != b.addr {
		return here
	}
	a.secure = a.secure && b.secure
	return a
}

// walk takes hops from the last, as long as the one that told of them is trusted and names an address.
func walk(proxies []netip.Prefix, at client, hops []hop) client {
	for _, h := range slices.Backward(hops) {
		if !trusted(proxies, at.addr) || !h.addr.IsValid() {
			break
		}
		at.addr = h.addr
		if h.proto != "" {
			at.secure = h.proto == "https"
		}
	}
	return at
}

func trusted(proxies []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// xForwarded reads X-Forwarded-For and -Proto. The latter says how the client reached the first proxy, so it belongs to every hop.
func xForwarded(h http.Header) (out []hop) {
	proto := lastOf(h["X-Forwarded-Proto"])
	for _, line := range h["X-Forwarded-For"] {
		for part := range strings.SplitSeq(line, ",") {
			out = append(out, hop{parseAddr(strings.TrimSpace(part)), proto})
		}
	}
	return out
}

func lastOf(lines []string) string {
	all := strings.Join(lines, ",")
	return strings.ToLower(strings.TrimSpace(all[strings.LastIndexByte(all, ',')+1:]))
}

// parseForwarded reads Forwarded. RFC 7239 §4. An element without a readable address is a hop that is not told.
func parseForwarded(h http.Header) (out []hop) {
	for element := range split(strings.Join(h["Forwarded"], ","), ',') {
		if strings.TrimSpace(element) == "" {
			continue
		}
		var one hop
		for pair := range split(element, ';') {
			name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
			value = unquote(value)
			switch strings.ToLower(name) {
			case "for":
				one.addr = parseAddr(value)
			case "proto":
				one.proto = strings.ToLower(value)
			}
		}
		out = append(out, one)
	}
	return out
}

// split yields the parts of s between separators that stand outside quotes.
func split(s string, sep byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		start, quoted := 0, false
		for i := 0; i < len(s); i++ {
			switch {
			case quoted && s[i] == '\\':
				i++
			case s[i] == '"':
				quoted = !quoted
			case s[i] == sep && !quoted:
				if !yield(s[start:i]) {
					return
				}
				start = i + 1
			}
		}
		yield(s[start:])
	}
}

// unquote takes the quotes from a value. What is escaped in it is none of an address or scheme, and stays.
func unquote(s string) string {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

// parseAddr reads an address with or without brackets and port; the zero address for anything else.
func parseAddr(s string) netip.Addr {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone("")
	}
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		s = s[1 : len(s)-1]
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap().WithZone("")
}
