// Package collector is a collector of OpenTelemetry logs for tests: an OTLP/HTTP server that decodes what it is sent, and answers as it is told.
package collector

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A Record is a log record with its attributes by name.
type Record struct {
	*logs.LogRecord
	Seq  int64
	Text map[string]string
}

// A Reply is what a request is answered with; the zero Reply takes it.
type Reply struct {
	Status     int
	RetryAfter string
	Rejected   int64 // a partial success
	Message    string
}

// A Server is a collector that may be stopped and started again at the same address. Its methods may be called concurrently.
type Server struct {
	t    testing.TB
	addr string

	mu     sync.Mutex
	srv    *http.Server
	reply  func(request int, batch []Record) Reply
	asked  int
	sizes  []int // records of each request
	took   []Record
	header http.Header
	bad    error
	change chan struct{} // closed at each request
}

// New starts a collector that takes everything.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, addr: "127.0.0.1:0", change: make(chan struct{})}
	s.Start()
	t.Cleanup(func() {
		s.Stop()
		if s.bad != nil {
			t.Error(s.bad)
		}
	})
	return s
}

// URL is its address, without a path.
func (s *Server) URL() string { return "http://" + s.addr }

// Start starts it where it is stopped.
func (s *Server) Start() {
	s.t.Helper()
	in, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr, s.srv = in.Addr().String(), &http.Server{Handler: s}
	go s.srv.Serve(in)
}

// Stop cuts all connections.
func (s *Server) Stop() {
	s.mu.Lock()
	srv := s.srv
	s.mu.Unlock()
	srv.Close()
}

// Reply sets what is answered to the requests from now on.
func (s *Server) Reply(f func(request int, batch []Record) Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply, s.asked = f, 0
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	batch, err := decode(r)
	s.mu.Lock()
	s.asked++
	n, f := s.asked, s.reply
	s.header = r.Header.Clone()
	s.sizes = append(s.sizes, len(batch))
	s.bad = errors.Join(s.bad, err)
	s.mu.Unlock()
	var a Reply
	if f != nil {
		a = f(n, batch)
	}
	s.mu.Lock()
	if a.Status == 0 {
		s.took = append(s.took, batch...)
	}
	close(s.change)
	s.change = make(chan struct{})
	s.mu.Unlock()
	if a.RetryAfter != "" {
		w.Header().Set("Retry-After", a.RetryAfter)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	if a.Status != 0 {
		w.WriteHeader(a.Status)
		return
	}
	var success, answer []byte
	if a.Rejected != 0 || a.Message != "" {
		success = protowire.AppendVarint(protowire.AppendTag(success, 1, protowire.VarintType), uint64(a.Rejected))
		success = protowire.AppendString(protowire.AppendTag(success, 2, protowire.BytesType), a.Message)
		answer = protowire.AppendBytes(protowire.AppendTag(answer, 1, protowire.BytesType), success)
	}
	w.Write(answer)
}

func decode(r *http.Request) (batch []Record, err error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil // the client was killed
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/v1/logs") || r.Header.Get("Content-Type") != "application/x-protobuf" {
		return nil, fmt.Errorf("%s %s of %s", r.Method, r.URL.Path, r.Header.Get("Content-Type"))
	}
	var all logs.LogsData
	if err := proto.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	for _, res := range all.ResourceLogs {
		if text(res.Resource.Attributes)["service.name"] != "navra" {
			err = errors.New("the resource has another service.name")
		}
		for _, scope := range res.ScopeLogs {
			for _, l := range scope.LogRecords {
				rec := Record{LogRecord: l, Text: text(l.Attributes)}
				for _, a := range l.Attributes {
					if a.Key == "navra.seq" {
						rec.Seq = a.Value.GetIntValue()
					}
				}
				batch = append(batch, rec)
			}
		}
	}
	return batch, err
}

func text(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		out[a.Key] = a.Value.GetStringValue()
	}
	return out
}

// Took returns what it has taken so far.
func (s *Server) Took() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.took[:len(s.took):len(s.took)]
}

// Sizes returns how many records each request had.
func (s *Server) Sizes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sizes[:len(s.sizes):len(s.sizes)]
}

// Header returns that of the last request.
func (s *Server) Header() http.Header { s.mu.Lock(); defer s.mu.Unlock(); return s.header }

// Until waits until ok says so, which is asked after each request.
func (s *Server) Until(what string, ok func() bool) {
	s.t.Helper()
	for end := time.After(2 * time.Minute); ; {
		s.mu.Lock()
		change := s.change
		s.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-change:
		case <-end:
			s.t.Fatalf("%s: not after %d requests of %v records", what, len(s.Sizes()), s.Sizes())
		}
	}
}

// UntilSeq waits until an entry has come.
func (s *Server) UntilSeq(seq int64) {
	s.t.Helper()
	s.Until(fmt.Sprint("entry ", seq), func() bool {
		for _, r := range s.Took() {
			if r.Seq == seq {
				return true
			}
		}
		return false
	})
}
