package config

import (
	"strings"
	"testing"
)

func TestListenFaults(t *testing.T) {
	const wantURL = "listen.public_url: want a URL such as https://mcp.example or https://mcp.example/navra"
	for _, tt := range []struct{ name, text, want string }{
		{"TLS without a key", "listen: {address: a:1, tls: {cert: a.pem}}", "listen.tls: want both: {cert: chain.pem, key: key.pem}"},
		{"TLS that is empty", "listen: {address: a:1, tls: {}}", "listen.tls: want both"},
		{"TLS without a mapping", "listen: {address: a:1, tls: true}", "listen.tls: want a mapping of keys to values, not true or false"},
		{"clients' certificates", "listen: {address: a:1, tls: {cert: a, key: b, client_ca: c}}", `listen.tls: unknown key "client_ca" (known are cert, key)`},
		{"a public URL without a scheme", "listen: {address: a:1, public_url: mcp.example}", wantURL},
		{"a public URL of another scheme", "listen: {address: a:1, public_url: \"ftp://mcp.example\"}", wantURL},
		{"a public URL without a host", "listen: {address: a:1, public_url: \"https:///x\"}", wantURL},
		{"a public URL with a user", "listen: {address: a:1, public_url: \"https://a:hunter2@mcp.example\"}", wantURL + ", without user, ? and #"},
		{"a public URL with a query", "listen: {address: a:1, public_url: \"https://mcp.example?x\"}", wantURL + ", without user, ? and #"},
		{"a public URL with an empty fragment", "listen: {address: a:1, public_url: \"https://mcp.example#\"}", wantURL + ", without user, ? and #"},
		{"a public URL that climbs", "listen: {address: a:1, public_url: \"https://mcp.example/a/../b\"}", wantURL + "; its path holds //, . or .."},
		{"a public URL with an empty step", "listen: {address: a:1, public_url: \"https://mcp.example//\"}", wantURL + "; its path holds //, . or .."},
		{"a public URL with the endpoint", "listen: {address: a:1, public_url: \"https://mcp.example/mcp\"}", wantURL + "; the endpoint's own /mcp is no part of it"},
		{"a public URL with port 0", "listen: {address: a:1, public_url: \"https://mcp.example:0\"}", wantURL + "; its port is none"},
		{"a public URL with a port too high", "listen: {address: a:1, public_url: \"https://mcp.example:65536\"}", wantURL + "; its port is none"},
		{"a public URL with a wildcard", "listen: {address: a:1, public_url: \"https://*.example\"}", wantURL},
		{"an origin with a wildcard", "listen: {address: a:1, allowed_origins: [\"https://*.example\"]}", `listen.allowed_origins[0]: "https://*.example" is no origin`},
		{"the null origin", "listen: {address: a:1, allowed_origins: [\"null\"]}", `listen.allowed_origins[0]: "null" is no origin`},
		{"an origin with its scheme's port", "listen: {address: a:1, allowed_origins: [\"https://a.example:443\"]}", "browsers leave out the port 443"},
		{"a proxy by name", "listen: {address: a:1, trusted_proxies: [proxy.example]}", `listen.trusted_proxies[0]: "proxy.example" is no address and no network such as 10.0.0.0/8`},
		{"a network with more bits", "listen: {address: a:1, trusted_proxies: [10.0.0.1/8]}", "listen.trusted_proxies[0]: \"10.0.0.1/8\" has bits beyond its length; the network is 10.0.0.0/8"},
		{"everybody is a proxy", "listen: {address: a:1, trusted_proxies: [\"::/0\"]}", `"::/0" is everybody`},
		{"an address with a zone", "listen: {address: a:1, trusted_proxies: [\"fe80::1%eth0\"]}", "is no address and no network"},
		{"a mapped network", "listen: {address: a:1, trusted_proxies: [\"::ffff:10.0.0.0/104\"]}", "is no address and no network"},
		{"a long drain", "listen: {address: a:1, drain_timeout: 601s}", `listen.drain_timeout: "601s" is over 10m`},
		{"polls all the time", "listen: {address: a:1, poll_after: 500ms}", `listen.poll_after: "500ms" is under 1s`},
		{"no drain", "listen: {address: a:1, drain_timeout: 0s}", `listen.drain_timeout: "0s" is no duration`},
		{"no connections", "listen: {address: a:1, max_connections: 0}", "listen.max_connections: want a number from 1 to 1048576"},
		{"connections in words", "listen: {address: a:1, max_connections: many}", "listen.max_connections: want a number from 1 to 1048576"},
		{"an admin address without a port", "admin: localhost", `admin: "localhost" is no address such as 127.0.0.1:8421`},
		{"an admin without an address", "admin: {tls: {cert: a, key: b}}", `admin: the address is missing, such as "address: 127.0.0.1:8421"`},
		{"an admin beyond loopback", "auth: {tokens: true}\nadmin: 0.0.0.0:1", "navra.yaml:2: admin: 0.0.0.0:1 is no loopback address, and without tls operators come in over loopback alone"},
		{"an admin beyond loopback without auth", "admin:\n  address: admin.example:1\n  tls: {cert: a, key: b}\nauth: none", `navra.yaml:2: admin.address: admin.example:1 is no loopback address, and operators come in from elsewhere only with "auth: {tokens: true}"`},
		{"an admin where clients are", "admin: 127.0.0.1:1\nlisten: 127.0.0.1:1", "navra.yaml:1: admin: 127.0.0.1:1 is the address of listen too"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("navra.yaml", []byte(tt.text+"\n"))
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %v, want it to hold %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("several errors: %v", err)
			}
		})
	}
}

func TestWarning(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		warns      bool
	}{
		{"loopback", "listen: 127.0.0.1:1", false},
		{"the network", "listen: 0.0.0.0:1", true},
		{"TLS", "listen: {address: \"0.0.0.0:1\", tls: {cert: a, key: b}}", false},
		{"behind a TLS proxy", "listen: {address: \"0.0.0.0:1\", public_url: \"https://mcp.example\"}", false},
		{"behind a plain proxy", "listen: {address: \"0.0.0.0:1\", public_url: \"http://mcp.example\"}", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse("navra.yaml", []byte(tt.text+"\nauth: {tokens: true}\n"))
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Warning(); (got != "") != tt.warns {
				t.Errorf("Warning() = %q, want one: %v", got, tt.warns)
			}
		})
	}
}

func TestPublicHost(t *testing.T) {
	for url, want := range map[string]string{"": "", "https://MCP.example": "mcp.example", "http://a.example:8/x": "a.example", "https://[2001:DB8::1]:8": "[2001:db8::1]"} {
		if got := (Listen{PublicURL: url}).PublicHost(); got != want {
			t.Errorf("PublicHost of %q = %q, want %q", url, got, want)
		}
	}
}
