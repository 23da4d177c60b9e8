package listener

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
)

func TestFindClient(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	const xff, xfp, fwd = "X-Forwarded-For", "X-Forwarded-Proto", "Forwarded"
	for _, tt := range []struct {
		name, peer string
		h          http.Header
		want       string
		secure     bool
	}{
		{"nobody between", "192.0.2.1:5", nil, "192.0.2.1", false},
		{"a proxy that says nothing", "10.0.0.1:5", nil, "10.0.0.1", false},
		{"claims of a stranger", "192.0.2.1:5", http.Header{xff: {"198.51.100.1"}, xfp: {"https"}, fwd: {"for=198.51.100.1;proto=https"}}, "192.0.2.1", false},
		{"one proxy", "10.0.0.1:5", http.Header{xff: {"192.0.2.1"}, xfp: {"https"}}, "192.0.2.1", true},
		{"a proxy with a mapped address", "[::ffff:10.0.0.1]:5", http.Header{xff: {"192.0.2.1"}}, "192.0.2.1", false},
		{"a claim before the proxy's word", "10.0.0.1:5", http.Header{xff: {"198.51.100.1, 192.0.2.1"}}, "192.0.2.1", false},
		{"a claim in a line of its own", "10.0.0.1:5", http.Header{xff: {"198.51.100.1", "192.0.2.1"}}, "192.0.2.1", false},
		{"two proxies", "10.0.0.1:5", http.Header{xff: {"198.51.100.1, 192.0.2.1, 10.9.9.9"}}, "192.0.2.1", false},
		{"proxies alone", "10.0.0.1:5", http.Header{xff: {"10.1.1.1, 10.9.9.9"}}, "10.1.1.1", false},
		{"a name", "10.0.0.1:5", http.Header{xff: {"192.0.2.1, host.example"}}, "10.0.0.1", false},
		{"a name behind a proxy", "10.0.0.1:5", http.Header{xff: {"192.0.2.1, host.example, 10.2.2.2"}}, "10.2.2.2", false},
		{"nothing between commas", "10.0.0.1:5", http.Header{xff: {"192.0.2.1,"}}, "10.0.0.1", false},
		{"an address with a port", "10.0.0.1:5", http.Header{xff: {"192.0.2.1:80"}}, "192.0.2.1", false},
		{"IPv6", "[2001:db8::1]:5", http.Header{xff: {"2001:db9::1"}}, "2001:db9::1", false},
		{"IPv6 with a port", "[2001:db8::1]:5", http.Header{xff: {"[2001:db9::1]:80"}}, "2001:db9::1", false},
		{"the last proto", "10.0.0.1:5", http.Header{xff: {"192.0.2.1"}, xfp: {"https, http"}}, "192.0.2.1", false},
		{"Forwarded", "10.0.0.1:5", http.Header{fwd: {"for=192.0.2.1;proto=https;by=10.0.0.1"}}, "192.0.2.1", true},
		{"Forwarded, quoted", "10.0.0.1:5", http.Header{fwd: {`For="[2001:db9::1]:4711";host="a,b;c\"";Proto=HTTPS`}}, "2001:db9::1", true},
		{"Forwarded, a claim before", "10.0.0.1:5", http.Header{fwd: {"for=198.51.100.1;proto=https, for=192.0.2.1;proto=http"}}, "192.0.2.1", false},
		{"Forwarded, hidden", "10.0.0.1:5", http.Header{fwd: {"for=192.0.2.1, for=_hidden"}}, "10.0.0.1", false},
		{"Forwarded without for", "10.0.0.1:5", http.Header{fwd: {"proto=https"}}, "10.0.0.1", false},
		{"Forwarded, an open quote", "10.0.0.1:5", http.Header{fwd: {`for="192.0.2.1, for=198.51.100.1`}}, "10.0.0.1", false},
		{"both agree", "10.0.0.1:5", http.Header{xff: {"192.0.2.1"}, xfp: {"https"}, fwd: {"for=192.0.2.1;proto=https"}}, "192.0.2.1", true},
		{"both differ", "10.0.0.1:5", http.Header{xff: {"192.0.2.1"}, xfp: {"https"}, fwd: {"for=198.51.100.1"}}, "10.0.0.1", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := findClient(proxies, tt.peer, false, tt.h)
			if got.addr.String() != tt.want || got.secure != tt.secure {
				t.Errorf("findClient = %v, secure %v, want %s, %v", got.addr, got.secure, tt.want, tt.secure)
			}
		})
	}
}

func TestClientAddr(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	if got := ClientAddr(r.Context()); got.IsValid() {
		t.Errorf("ClientAddr of a context without one = %v", got)
	}
	var got netip.Addr
	Clients(nil, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = ClientAddr(r.Context()) })).ServeHTTP(nil, r)
	if got.String() != "192.0.2.1" {
		t.Errorf("ClientAddr = %v, want 192.0.2.1", got)
	}
}

func FuzzForwarded(f *testing.F) {
	f.Add("for=192.0.2.1;proto=https, for=\"[::1]:80\"", "192.0.2.1, 10.0.0.1")
	f.Add(`for="\"`, ",,")
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, forwarded, xff string) {
		for _, h := range []http.Header{{"Forwarded": {forwarded}}, {"X-Forwarded-For": {xff}}, {"Forwarded": {forwarded}, "X-Forwarded-For": {xff}}} {
			if got := findClient(proxies, "10.0.0.1:1", false, h); !got.addr.IsValid() {
				t.Errorf("no address from %q", h)
			}
			if got := findClient(proxies, "192.0.2.9:1", false, h); got.addr.String() != "192.0.2.9" || got.secure {
				t.Errorf("a stranger was believed: %v from %q", got, h)
			}
		}
	})
}
