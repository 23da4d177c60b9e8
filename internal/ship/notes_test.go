package ship

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A shelf is where checkpoints are posted to, over TLS.
type shelf struct {
	t      *testing.T
	mu     sync.Mutex
	status int
	has    []string
	asked  int
	header http.Header
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost {
		s.t.Errorf("%s, %v", r.Method, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	s.header = r.Header.Clone()
	if s.status == 0 {
		s.has = append(s.has, string(b))
		return
	}
	w.Header().Set("Location", "http://127.0.0.1:1/")
	w.WriteHeader(s.status)
}

func (s *shelf) set(status int) { s.mu.Lock(); defer s.mu.Unlock(); s.status = status }
func (s *shelf) got() ([]string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.has), s.asked
}

func TestTheNewestCheckpointArrives(t *testing.T) {
	s := &shelf{t: t, status: 503}
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := in.Addr().String()
	srv := &httptest.Server{Listener: in, Config: &http.Server{Handler: s, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}}
	srv.StartTLS()
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	u, _ := url.Parse("https://" + addr + "/put?key=" + token)
	b := &bench{t: t}
	n := NewNotes(NotesOptions{
		To:     NewRemote(RemoteOptions{URL: u, Header: map[string]Secret{"X-Key": token}, TLS: &tls.Config{RootCAs: pool}, Timeout: 5 * time.Second, Agent: "navra/test"}),
		Logger: slog.New(slog.NewTextHandler(b, nil)), Tell: b.tell, FirstWait: time.Millisecond, TellAfter: time.Nanosecond,
	})
	n.Offer([]byte("first"))
	until(t, "it is tried again", func() bool { _, asked := s.got(); return asked > 3 })
	n.Offer([]byte("second"))
	s.set(307)
	_, before := s.got()
	until(t, "it is tried again", func() bool { _, asked := s.got(); return asked > before+2 })
	srv.CloseClientConnections()
	srv.Close()
	n.Offer([]byte("third"))
	until(t, "it is recorded", func() bool { told, _ := b.said(); return len(told) == 1 })
	s.set(0)
	again := &http.Server{Handler: s, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	if in, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	go again.Serve(tls.NewListener(in, srv.TLS))
	defer again.Close()
	until(t, "it arrives", func() bool { has, _ := s.got(); return len(has) > 0 })
	n.Offer([]byte("fourth"))
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if has, _ := s.got(); !slices.Equal(has, []string{"third", "fourth"}) {
		t.Errorf("it has %q, want the newest after it was down, and the last before the end", has)
	}
	if s.header.Get("X-Key") != token || !strings.HasPrefix(s.header.Get("Content-Type"), "text/plain") {
		t.Errorf("header: %v", s.header)
	}
	told, log := b.said()
	if len(told) != 2 || !strings.Contains(told[0], "checkpoints could not be delivered for") || strings.Contains(log+strings.Join(told, " "), token) {
		t.Errorf("told %q, logged\n%s", told, log)
	}
}

// TestNobodyWaitsForAServer offers checkpoints while the server does not answer.
func TestNobodyWaitsForAServer(t *testing.T) {
	held := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-held:
		case <-r.Context().Done():
		}
	}))
	defer srv.Close()
	defer close(held)
	u, _ := url.Parse(srv.URL)
	b := &bench{t: t}
	n := NewNotes(NotesOptions{To: NewRemote(RemoteOptions{URL: u, Timeout: time.Hour}), Logger: slog.New(slog.NewTextHandler(b, nil)), Tell: b.tell})
	for range 1000 {
		n.Offer([]byte("note"))
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestCertificateOfSomebodyElse: a server that nobody vouches for gets nothing.
func TestCertificateOfSomebodyElse(t *testing.T) {
	s := &shelf{t: t}
	srv := httptest.NewUnstartedServer(s)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.StartTLS()
	defer srv.Close()
	u, _ := url.Parse(srv.URL + "/" + token)
	r := NewRemote(RemoteOptions{URL: u, Timeout: 5 * time.Second})
	if _, err := r.post(t.Context(), "text/plain", []byte("note")); err == nil || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), token) {
		t.Errorf("post = %v", err)
	}
	if _, asked := s.got(); asked != 0 {
		t.Error("it was sent")
	}
}
