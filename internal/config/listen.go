package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Defaults and bounds of the listener.
const (
	DefaultDrain       = 5 * time.Second
	maxDrain           = 10 * time.Minute
	minPoll            = time.Second
	DefaultConnections = 4096
	maxConnections     = 1 << 20
)

// A Listen says where clients come in, and from where they may.
type Listen struct {
	Address        string // "" where the file has no listener
	TLS            TLS
	PublicURL      string // what clients call this gateway, without a "/" at its end; "" where nothing says
	Origins        []string
	Proxies        []netip.Prefix // whose word on the client's address counts
	Drain          time.Duration  // how long calls under way may take when the gateway stops
	MaxConnections int
	Poll           time.Duration // how long the event stream of one request stays open; 0: until its answer
}

// An Admin says where operators come in.
type Admin struct {
	Address string // "" for none
	TLS     TLS
}

// TLS is a certificate with its key, as paths of PEM files. The zero value is no TLS.
type TLS struct{ Cert, Key string }

// On reports whether there is TLS.
func (t TLS) On() bool { return t != TLS{} }

// PublicHost is the host of PublicURL in lower case, without a port and, for an IPv6 address, with brackets; "" where there is no URL.
func (l Listen) PublicHost() string {
	u, err := url.Parse(l.PublicURL)
	if err != nil {
		return ""
	}
	name := strings.ToLower(u.Hostname())
	if strings.Contains(name, ":") {
		return "[" + name + "]"
	}
	return name
}

// Warning is what an operator should know of the listener, "" for nothing.
func (f *File) Warning() string {
	if f.AuthTokens && !f.Listen.TLS.On() && !loopback(f.Listen.Address) && !strings.HasPrefix(f.Listen.PublicURL, "https:") {
		return "tokens and all content cross the network in clear text: set listen.tls, or listen.public_url to the https URL of the proxy before this gateway"
	}
	return ""
}

func (r *reader) listen(n *yaml.Node, at string, f *File) {
	f.Listen.Drain, f.Listen.MaxConnections = DefaultDrain, DefaultConnections
	if n.Kind != yaml.MappingNode {
		f.Listen.Address = r.address(n, at, "127.0.0.1:8420")
		return
	}
	given := false
	r.fields(n, at, fields{
		"address":         func(n *yaml.Node, at string) { given = true; f.Listen.Address = r.address(n, at, "127.0.0.1:8420") },
		"tls":             func(n *yaml.Node, at string) { f.Listen.TLS = r.tls(n, at) },
		"public_url":      func(n *yaml.Node, at string) { f.Listen.PublicURL = r.publicURL(n, at) },
		"allowed_origins": func(n *yaml.Node, at string) { f.Listen.Origins = r.texts(n, at, origin) },
		"trusted_proxies": func(n *yaml.Node, at string) { f.Listen.Proxies = r.proxies(n, at) },
		"drain_timeout": func(n *yaml.Node, at string) {
			before := len(r.errs)
			if f.Listen.Drain = r.duration(n, at); f.Listen.Drain > maxDrain && len(r.errs) == before {
				r.fault(n, at, "%q is over 10m", n.Value)
			}
		},
		"poll_after": func(n *yaml.Node, at string) {
			before := len(r.errs)
			if f.Listen.Poll = r.duration(n, at); f.Listen.Poll < minPoll && len(r.errs) == before {
				r.fault(n, at, "%q is under 1s", n.Value)
			}
		},
		"max_connections": func(n *yaml.Node, at string) { f.Listen.MaxConnections = r.count(n, at, maxConnections) },
	})
	if !given {
		r.fault(n, at, `the address is missing, such as "address: 127.0.0.1:8420"`)
	}
}

// admin reads the operators' address. What it needs of other keys is checked later.
func (r *reader) admin(n *yaml.Node, at string, f *File) (later func()) {
	const example = "127.0.0.1:8421"
	address, place := n, at
	if n.Kind == yaml.MappingNode {
		address = nil
		r.fields(n, at, fields{
			"address": func(n *yaml.Node, at string) { address, place = n, at },
			"tls":     func(n *yaml.Node, at string) { f.Admin.TLS = r.tls(n, at) },
		})
	}
	if address == nil {
		r.fault(n, at, `the address is missing, such as "address: %s"`, example)
		return func() {}
	}
	before := len(r.errs)
	f.Admin.Address = r.address(address, place, example)
	return func() {
		_, port, _ := net.SplitHostPort(f.Admin.Address)
		switch {
		case len(r.errs) > before:
		case f.Admin.Address == f.Listen.Address && port != "0":
			r.fault(address, place, "%s is the address of listen too", f.Admin.Address)
		case loopback(f.Admin.Address):
		case !f.Admin.TLS.On():
			r.fault(address, place, "%s is no loopback address, and without tls operators come in over loopback alone", f.Admin.Address)
		case !f.AuthTokens:
			r.fault(address, place, `%s is no loopback address, and operators come in from elsewhere only with "auth: {tokens: true}"`, f.Admin.Address)
		}
	}
}

func (r *reader) address(n *yaml.Node, at, example string) string {
	s, ok := r.text(n, at)
	host, port, err := net.SplitHostPort(s)
	if p, perr := strconv.ParseUint(port, 10, 16); ok && (err != nil || perr != nil || host == "" || strconv.FormatUint(p, 10) != port) {
		r.fault(n, at, "%q is no address such as %s", s, example)
	}
	return s
}

func (r *reader) tls(n *yaml.Node, at string) (t TLS) {
	before := len(r.errs)
	r.fields(n, at, fields{
		"cert": func(n *yaml.Node, at string) { t.Cert = r.path(n, at) },
		"key":  func(n *yaml.Node, at string) { t.Key = r.path(n, at) },
	})
	if len(r.errs) == before && (t.Cert == "" || t.Key == "") {
		r.fault(n, at, "want both: {cert: chain.pem, key: key.pem}")
	}
	return t
}

// publicURL reads what clients call the gateway. A wrong one is not shown: it may hold a password.
func (r *reader) publicURL(n *yaml.Node, at string) string {
	s, ok := r.text(n, at)
	if wrong := badURL(s); ok && wrong != "" {
		r.fault(n, at, "%s", wrong)
	}
	return strings.TrimSuffix(s, "/")
}

// badURL says what is wrong with a public URL, "" for nothing.
func badURL(s string) string {
	const want = "want a URL such as https://mcp.example or https://mcp.example/navra"
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || strings.Contains(u.Host, "*") {
		return want
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
			return want + "; its port is none"
		}
	}
	prefix := strings.TrimSuffix(u.Path, "/")
	switch {
	case u.User != nil, u.RawQuery != "", u.ForceQuery, strings.Contains(s, "#"):
		return want + ", without user, ? and #"
	case prefix == "/", prefix != "" && path.Clean(prefix) != prefix:
		return want + "; its path holds //, . or .."
	case strings.HasSuffix(prefix, "/mcp"):
		return want + "; the endpoint's own /mcp is no part of it"
	}
	return ""
}

// proxies reads networks and single addresses.
func (r *reader) proxies(n *yaml.Node, at string) (out []netip.Prefix) {
	r.texts(n, at, func(s string) error {
		p, err := netip.ParsePrefix(s)
		if a, aerr := netip.ParseAddr(s); aerr == nil && a.Zone() == "" {
			a = a.Unmap()
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		switch {
		case err != nil, p.Addr().Is4In6():
			return fmt.Errorf("%q is no address and no network such as 10.0.0.0/8", s)
		case p != p.Masked():
			return fmt.Errorf("%q has bits beyond its length; the network is %s", s, p.Masked())
		case p.Bits() == 0:
			return fmt.Errorf("%q is everybody: then everybody could claim any address", s)
		}
		out = append(out, p)
		return nil
	})
	return out
}

// count reads a number from 1 to most.
func (r *reader) count(n *yaml.Node, at string, most int) int {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || v < 1 || v > most {
		r.fault(n, at, "want a number from 1 to %d", most)
	}
	return v
}

// origin says what is wrong with a browser's origin. RFC 6454 §6.2.
func origin(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != s || strings.Contains(u.Host, "*") {
		return fmt.Errorf("%q is no origin such as https://app.example", s)
	}
	if p := u.Port(); u.Scheme == "https" && p == "443" || u.Scheme == "http" && p == "80" {
		return fmt.Errorf("%q never comes: browsers leave out the port %s", s, p)
	}
	return nil
}
