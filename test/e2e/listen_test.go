package e2e

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

// listenConfig writes a configuration with a whole listen section, one upstream, and everybody's role.
func (s *setup) listenConfig(name, listen, auth, more string) string {
	config := filepath.Join(s.Dir, name)
	write(s.t, config, fmt.Sprintf("listen: %s\nauth: %s\nstore: %s\nprincipals: {local: {roles: [local-default]}}\nupstreams: {odd: {command: [%q, odd, -log, %q]}}\n%s",
		listen, auth, s.db(), fixtureBin, s.log(), more))
	return config
}

func (s *setup) db() string { return filepath.Join(s.Home, "state", "navra", "navra.db") }

// ask sends a request without a body and returns the answer with its body.
func ask(t testing.TB, c *http.Client, method, url string, head http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range head {
		req.Header[k] = v
	}
	if h := head.Get("Host"); h != "" {
		req.Host = h
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// An authority signs certificates for 127.0.0.1.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, pool: x509.NewCertPool()}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var der []byte
	a.key, der = a.sign(about, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) sign(about, parent *x509.Certificate) (*ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	by := a.key
	if parent == nil {
		parent, by = about, key
	}
	der, err := x509.CreateCertificate(rand.Reader, about, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, der
}

// issue puts a new pair in place by renaming, as what renews certificates does.
func (a *authority) issue(serial int64, cert, key string) {
	a.t.Helper()
	k, der := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert)
	pkcs, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	replace(a.t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	replace(a.t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs}))
}

func replace(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// serial connects anew and returns the serial number of the certificate that is shown.
func (a *authority) serial(addr string) int64 {
	a.t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: a.pool})
	if err != nil {
		a.t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s, ca := newSetup(t), newAuthority(t)
	cert, key := filepath.Join(s.Dir, "cert.pem"), filepath.Join(s.Dir, "key.pem")
	ca.issue(10, cert, key)
	g := s.serve(s.listenConfig("navra.yaml", "{address: 127.0.0.1:0, tls: {cert: cert.pem, key: key.pem}}", "none", ""), "-v")
	if !strings.Contains(g.stderr.String(), "listens on https://") {
		t.Errorf("the start says %q", g.stderr)
	}
	url := "https://" + g.Addr
	alive := dialTLS(t, g.Addr, ca)
	if serial := alive.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); serial != 10 {
		t.Fatalf("serial %d, want 10", serial)
	}
	read := bufio.NewReader(alive)
	healthy := func() {
		t.Helper()
		fmt.Fprintf(alive, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", g.Addr)
		resp, err := http.ReadResponse(read, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || string(b) != "ok\n" {
			t.Errorf("a connection that stays open: %d %q, %v", resp.StatusCode, b, err)
		}
	}
	healthy()

	two := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.pool}, ForceAttemptHTTP2: true}}
	defer two.CloseIdleConnections()
	w := &web{t: t, addr: g.Addr, base: url, http: two}
	if a := w.open().call("odd__echo", map[string]any{"text": "over TLS"}); a.text() != "over TLS" {
		t.Errorf("a call over TLS: %+v", a)
	}
	if resp, _ := ask(t, two, "GET", url+"/healthz", nil); resp.ProtoMajor != 2 {
		t.Errorf("protocol %s, want HTTP/2", resp.Proto)
	}
	if _, err := tls.Dial("tcp", g.Addr, &tls.Config{RootCAs: ca.pool, MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 was taken")
	}

	replace(t, cert, []byte("not a certificate"))
	waitFor(t, "the broken certificate to be noticed", func() bool {
		if got := ca.serial(g.Addr); got != 10 {
			t.Fatalf("serial %d while the files are broken, want 10", got)
		}
		return strings.Contains(g.stderr.String(), "certificate not reloaded")
	})
	ca.issue(20, cert, key)
	waitFor(t, "the new certificate", func() bool { return ca.serial(g.Addr) == 20 })
	healthy()
	w.call("odd__echo", map[string]any{"text": "afterwards"})
	g.stop()
}

func dialTLS(t *testing.T, addr string, ca *authority) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.pool, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// A certificate that cannot be read is told of before anything starts.
func TestTLSWithoutFiles(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	config := s.listenConfig("navra.yaml", "{address: 127.0.0.1:0, tls: {cert: cert.pem, key: key.pem}}", "none", "")
	for _, command := range []string{"serve", "check"} {
		if out, code := s.run(command, "--config", config); code != 1 || !strings.Contains(out, "listen.tls: certificate") {
			t.Errorf("navra %s: exit %d, %s", command, code, out)
		}
	}
}

func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	g := s.serve(s.listenConfig("navra.yaml", `{address: 127.0.0.1:0, allowed_origins: ["https://app.example"]}`, "{tokens: true}", ""))
	url := "http://" + g.Addr + "/mcp"
	preflight := func(origin string) http.Header {
		return http.Header{"Origin": {origin}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"authorization,content-type,mcp-param-region"}}
	}
	resp, _ := ask(t, http.DefaultClient, "OPTIONS", url, preflight("https://app.example"))
	h := resp.Header
	if resp.StatusCode != 204 || h.Get("Access-Control-Allow-Origin") != "https://app.example" || h.Get("Vary") != "Origin" || h.Get("Access-Control-Allow-Methods") != "GET, POST, DELETE" ||
		!strings.HasSuffix(h.Get("Access-Control-Allow-Headers"), ", Last-Event-ID, traceparent, tracestate, baggage, Mcp-Param-Region") || h.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("preflight: %d %v", resp.StatusCode, h)
	}
	resp, _ = ask(t, http.DefaultClient, "POST", url, http.Header{"Origin": {"https://app.example"}})
	if h := resp.Header; resp.StatusCode != 401 || h.Get("Access-Control-Allow-Origin") != "https://app.example" || !strings.Contains(h.Get("Access-Control-Expose-Headers"), "WWW-Authenticate") {
		t.Errorf("a refusal that the page has to read: %d %v", resp.StatusCode, h)
	}
	for _, method := range []string{"OPTIONS", "POST"} {
		resp, _ := ask(t, http.DefaultClient, method, url, preflight("https://evil.example"))
		if resp.StatusCode != 403 || resp.Header.Get("Access-Control-Allow-Origin") != "" || resp.Header.Get("Vary") != "" {
			t.Errorf("%s of another page: %d %v", method, resp.StatusCode, resp.Header)
		}
	}
}

func TestProxies(t *testing.T) {
	t.Parallel()
	for trusted, want := range map[string]string{"[127.0.0.1, 10.0.0.0/8]": "client=192.0.2.7 secure=true", "[10.0.0.0/8]": "client=127.0.0.1 secure=false"} {
		s := newSetup(t)
		g := s.serve(s.listenConfig("navra.yaml", "{address: 127.0.0.1:0, trusted_proxies: "+trusted+"}", "{tokens: true}", ""), "-v")
		ask(t, http.DefaultClient, "POST", "http://"+g.Addr+"/mcp", http.Header{"X-Forwarded-For": {"198.51.100.1, 192.0.2.7, 10.0.0.3"}, "X-Forwarded-Proto": {"https"}})
		waitFor(t, want, func() bool { return strings.Contains(g.stderr.String(), "status=401 http_method=POST path=/mcp "+want) })
	}
}

func TestPublicURL(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	g := s.serve(s.listenConfig("navra.yaml", `{address: 127.0.0.1:0, public_url: "https://mcp.example/navra"}`, "{tokens: true}", ""))
	for host, want := range map[string]int{"mcp.example": 401, "MCP.example:443": 401, g.Addr: 401, "localhost": 401, "evil.example": 403, "x.mcp.example": 403} {
		if resp, _ := ask(t, http.DefaultClient, "POST", "http://"+g.Addr+"/mcp", http.Header{"Host": {host}}); resp.StatusCode != want {
			t.Errorf("Host %s: %d, want %d", host, resp.StatusCode, want)
		}
	}
	waitFor(t, "the URL", func() bool { return strings.Contains(g.stderr.String(), "https://mcp.example/navra/mcp") })
}

func TestClearTextWarning(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	g := s.serve(s.listenConfig("navra.yaml", "0.0.0.0:0", "{tokens: true}", ""))
	waitFor(t, "the warning", func() bool {
		return strings.Contains(g.stderr.String(), "warning: tokens and all content cross the network in clear text")
	})
}

func TestReady(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	g := s.serve(s.listenConfig("navra.yaml", "127.0.0.1:0", "{tokens: true}", "admin: 127.0.0.1:0\n"))
	var admin string
	waitFor(t, "the operators' address", func() bool {
		m := regexp.MustCompile(`operators find it at (\S+)`).FindStringSubmatch(g.stderr.String())
		if m != nil {
			admin = m[1]
		}
		return m != nil
	})
	for url, upstream := range map[string]string{"http://" + g.Addr: "upstreams", admin: "upstream odd"} {
		want := `{"status":"ready","checks":[{"name":"draining","ok":true},{"name":"store","ok":true},{"name":"space","ok":true},{"name":"configuration","ok":true},{"name":"` + upstream + `","ok":true}]}` + "\n"
		waitFor(t, "readiness, as "+want, func() bool {
			resp, body := ask(t, http.DefaultClient, "GET", url+"/readyz", nil)
			return resp.StatusCode == 200 && body == want
		})
		if resp, body := ask(t, http.DefaultClient, "HEAD", url+"/healthz", nil); resp.StatusCode != 200 || body != "" {
			t.Errorf("HEAD %s: %d %q", url, resp.StatusCode, body)
		}
	}
	if resp, _ := ask(t, http.DefaultClient, "GET", admin+"/mcp", nil); resp.StatusCode != 404 {
		t.Errorf("/mcp at the operators' address: %d", resp.StatusCode)
	}
	if resp, _ := ask(t, http.DefaultClient, "GET", admin+"/readyz", http.Header{"Host": {"evil.example"}}); resp.StatusCode != 403 {
		t.Errorf("a rebound name at the operators' address: %d", resp.StatusCode)
	}

	db, err := sql.Open("sqlite", "file:"+s.db()+"?_txlock=immediate&_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin() // nobody else writes now
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the store to be missed", func() bool {
		resp, body := ask(t, http.DefaultClient, "GET", "http://"+g.Addr+"/readyz", nil)
		return resp.StatusCode == 503 && resp.Header.Get("Retry-After") != "" && strings.Contains(body, `"status":"not ready"`) && strings.Contains(body, `{"name":"store","ok":false,"why":"the store cannot be written: `)
	})
	tx.Rollback()
	waitFor(t, "the store again", func() bool {
		resp, _ := ask(t, http.DefaultClient, "GET", "http://"+g.Addr+"/readyz", nil)
		return resp.StatusCode == 200
	})
}

// While a call is under way after SIGTERM, /readyz tells, nobody new comes in, and the call is answered.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	release := filepath.Join(s.Dir, "release")
	config := s.listenConfig("navra.yaml", "{address: 127.0.0.1:0, drain_timeout: 10m}", "none", "")
	write(t, config, strings.Replace(read(t, config), "odd, -log", fmt.Sprintf("odd, -release, %q, -log", release), 1))
	g := s.serve(config)
	w := (&web{t: t, addr: g.Addr}).open()
	done := make(chan answer, 1)
	go func() { done <- w.call("odd__work", map[string]any{"steps": 100_000, "ms": 10}) }()
	req, _ := http.NewRequest("GET", "http://"+g.Addr+"/mcp", nil)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", w.session)
	req.Header.Set("MCP-Protocol-Version", "2025-11-25")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("the stream: %+v, %v", resp, err)
	}
	stream := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		stream <- err
	}()
	waitFor(t, "the call to reach the server", func() bool { return s.everReached("work") })
	g.cmd.Process.Signal(syscall.SIGTERM)
	waitFor(t, "readyz to tell", func() bool {
		resp, body := ask(t, http.DefaultClient, "GET", "http://"+g.Addr+"/readyz", nil)
		return resp.StatusCode == 503 && strings.Contains(body, `"status":"draining"`)
	})
	if resp, _ := ask(t, http.DefaultClient, "GET", "http://"+g.Addr+"/healthz", nil); resp.StatusCode != 200 {
		t.Errorf("healthz: %d", resp.StatusCode)
	}
	for name, one := range map[string]*web{"a new session": {t: t, addr: g.Addr}, "a new call": {t: t, addr: g.Addr, session: w.session}} {
		body := request(1, "initialize", hello)
		if one.session != "" {
			body = request(7, "tools/call", map[string]any{"name": "odd__echo", "arguments": map[string]any{"text": "late"}})
		}
		status, head, got := one.post(body, nil)
		if status != 503 || head.Get("Retry-After") == "" || len(got) != 1 || got[0].Error == nil || !strings.Contains(string(got[0].Error.Data), `"outcome":"not-sent"`) {
			t.Errorf("%s: %d %v %+v", name, status, head, got)
		}
	}
	select {
	case a := <-done:
		t.Errorf("the call ended before it was over: %+v", a)
	default:
	}
	write(t, release, "")
	if a := <-done; a.text() != "done" {
		t.Errorf("the call that was under way: %+v", a)
	}
	if err := <-stream; err != nil {
		t.Errorf("the stream did not end in order: %v", err)
	}
	if err := g.wait(); err != nil {
		t.Errorf("navra serve: %v", err)
	}
	s.verify(config)
}

// A second signal does not wait for anybody.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	config := s.listenConfig("navra.yaml", "{address: 127.0.0.1:0, drain_timeout: 10m}", "none", "")
	g := s.serve(config)
	w := (&web{t: t, addr: g.Addr}).open()
	ended := make(chan message, 1)
	go func() {
		ended <- w.request("tools/call", map[string]any{"name": "odd__work", "arguments": map[string]any{"steps": 6000, "ms": 100}})
	}()
	waitFor(t, "the call to reach the server", func() bool { return s.everReached("work") })
	g.cmd.Process.Signal(syscall.SIGTERM)
	waitFor(t, "the drain", func() bool { return strings.Contains(g.stderr.String(), "a second signal ends them at once") })
	began := time.Now()
	g.cmd.Process.Signal(syscall.SIGTERM)
	if err := g.wait(); err != nil {
		t.Errorf("navra serve: %v", err)
	}
	if took := time.Since(began); took > patience { // the call would take ten minutes
		t.Errorf("it took %v", took)
	}
	if m := <-ended; m.Error == nil && !strings.Contains(string(m.Result), "isError") {
		t.Errorf("the call that was cut: %+v", m)
	}
	s.verify(config)
}

func TestMaxConnections(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	g := s.serve(s.listenConfig("navra.yaml", "{address: 127.0.0.1:0, max_connections: 2}", "{tokens: true}", ""))
	get := "GET /healthz HTTP/1.1\r\nHost: " + g.Addr + "\r\n\r\n"
	open := func() (net.Conn, int) {
		t.Helper()
		c, err := net.Dial("tcp", g.Addr)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, get)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return c, resp.StatusCode
	}
	a, one := open()
	b, two := open()
	defer b.Close()
	over, three := open()
	over.Close()
	if one != 200 || two != 200 || three != 503 {
		t.Errorf("three connections: %d %d %d, want 200 200 503", one, two, three)
	}
	a.Close()
	waitFor(t, "a place", func() bool {
		c, status := open()
		c.Close()
		return status == 200
	})
}

// TestUnprovenRefusalsAreSummed: a flood of requests that nobody is proven to send makes an entry a second, not one each.
func TestUnprovenRefusalsAreSummed(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	g := s.serve(s.listenConfig("navra.yaml", "127.0.0.1:0", "{tokens: true}", ""))
	w, began := &web{t: t, addr: g.Addr}, time.Now()
	for range 500 {
		if status, _, _ := w.post(request(1, "ping", map[string]any{}), nil); status != 401 {
			t.Fatalf("status %d, want 401", status)
		}
	}
	n := 0
	eventually(t, "the refusals are recorded", func() bool {
		n = 0
		for _, e := range s.entries() {
			if e.Reason == "refused before authentication" && e.Verdict == "deny" {
				n++
			}
		}
		return n > 0
	})
	if took := time.Since(began); n > int(took/time.Second)+2 {
		t.Errorf("%d entries for 500 refusals in %s", n, took)
	}
}
