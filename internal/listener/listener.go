// Package listener holds what stands between the network and the handlers of the gateway: connections and their number, certificates,
// who a client behind a proxy is, what pages of other sites may see, whether the gateway is ready, and how it stops. It knows no
// policy, and of messages only which are requests.
package listener

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Options are what an HTTP server is made of. Handler and Logger are required.
type Options struct {
	Handler        http.Handler
	Logger         *slog.Logger
	MaxHeader      int          // bytes of a request's headers
	MaxConnections int          // open at once
	Certificate    *Certificate // nil for plain HTTP
}

const (
	// headerTimeout bounds the TLS handshake and the reading of a request's headers.
	headerTimeout = 10 * time.Second
	// idleTimeout is how long a connection may stay open without a request.
	idleTimeout = 2 * time.Minute
)

// A Server serves HTTP on one listener: HTTP/1.1, and with TLS HTTP/2 too.
type Server struct {
	*http.Server
	ln     net.Listener
	secure bool
}

// NewServer returns a server that will take ln's connections. It closes ln when it ends.
func NewServer(ln net.Listener, o Options) *Server {
	s := &Server{Server: &http.Server{
		Handler: o.Handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: o.MaxHeader,
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}}
	if o.Certificate != nil {
		s.secure = true
		s.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: o.Certificate.get}
	}
	s.ln = limit(ln, o.MaxConnections, !s.secure)
	return s
}

// Run serves until the server is shut down or closed, and returns http.ErrServerClosed then.
func (s *Server) Run() error {
	if s.secure {
		return s.ServeTLS(s.ln, "", "")
	}
	return s.Serve(s.ln)
}

// retryAfter is what a client is told to wait where a status is 503.
const retryAfter = 5 * time.Second

// Log tells of refusals at debug level, with the client's address, and adds Retry-After to each 503 without one.
func Log(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&observed{ResponseWriter: w, heard: func(status int) {
			if status < http.StatusBadRequest {
				return
			}
			if status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
				w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
			}
			c := clientOf(r.Context())
			log.DebugContext(r.Context(), "request refused", slog.Int("status", status), slog.String("http_method", r.Method), slog.String("path", r.URL.Path),
				slog.String("client", c.addr.String()), slog.Bool("secure", c.secure))
		}}, r)
	})
}

// observed hears of the status before it is written.
type observed struct {
	http.ResponseWriter
	heard func(status int)
	done  bool
}

func (o *observed) WriteHeader(status int) {
	if !o.done && status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		o.done = true
		o.heard(status)
	}
	o.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach what is below.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }
