// Package door is what a request over HTTP must pass before anything of it is read: its Host and Origin, then the proof of who
// sent it. It knows no messages, and leaves the writing of a refusal to the transport.
package door

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"

	"navra/internal/auth"
)

// Options are the parts of a door. Auth and Logger are required.
type Options struct {
	Auth   auth.Authenticator
	Logger *slog.Logger

	// Loopback says that the listener is reachable from this machine alone. Then Host must be localhost, 127.0.0.1 or [::1],
	// with any port, or one of AllowedHosts: a web page that had its name rebound to this machine is refused.
	Loopback bool
	// AllowedHosts are names of this server, as "host" (any port) or "host:port". Where there are none and Loopback is not
	// set, any Host is taken.
	AllowedHosts []string
	// AllowedOrigins are web pages that may send requests: scheme, host and port, compared exactly. On loopback the page of
	// the very same host and port may too; "null" never.
	AllowedOrigins []string

	Challenge string // of WWW-Authenticate with 401; "" means "Bearer"
}

// A Door lets requests in. It may be used concurrently.
type Door struct {
	o              Options
	hosts, origins map[string]bool
}

// New returns a door.
func New(o Options) *Door {
	if o.Challenge == "" {
		o.Challenge = "Bearer"
	}
	return &Door{o: o, hosts: lowered(o.AllowedHosts), origins: lowered(o.AllowedOrigins)}
}

func lowered(list []string) map[string]bool {
	m := make(map[string]bool, len(list))
	for _, s := range list {
		m[strings.ToLower(s)] = true
	}
	return m
}

// A Refusal is why a request is not let in. Text is safe to show.
type Refusal struct {
	Status    int // 401, 403 or 503
	Text      string
	Challenge string // of WWW-Authenticate; "" but for 401
}

// Enter tells who sent r, or why r is refused: Host and Origin (403), then authentication (401; 503 where it cannot be told).
func (d *Door) Enter(r *http.Request) (auth.Principal, *Refusal) {
	if text := d.outsider(r); text != "" {
		return auth.Principal{}, &Refusal{Status: http.StatusForbidden, Text: text}
	}
	who, err := d.Authenticate(r)
	switch {
	case err == nil:
		return who, nil
	case Unproven(err):
		return auth.Principal{}, &Refusal{http.StatusUnauthorized, "authentication required", d.o.Challenge}
	}
	return auth.Principal{}, &Refusal{Status: http.StatusServiceUnavailable, Text: "the credential cannot be checked now; try again later"}
}

// Authenticate proves who sent r, and looks at nothing else. It logs where that cannot be told. Nobody is proven where the
// authenticator panics or proves the zero principal.
func (d *Door) Authenticate(r *http.Request) (auth.Principal, error) {
	who, err := d.authenticate(r)
	if err != nil && !Unproven(err) && !errors.Is(err, ErrPanic) && r.Context().Err() == nil {
		d.o.Logger.ErrorContext(r.Context(), "caller could not be authenticated", slog.Any("err", err))
	}
	return who, err
}

func (d *Door) authenticate(r *http.Request) (who auth.Principal, err error) {
	defer Recovered(r.Context(), d.o.Logger, "authenticate", &err)
	who, err = d.o.Auth.Authenticate(r)
	if err == nil && who.IsZero() {
		err = auth.ErrBadCredential
	}
	return who, err
}

// Unproven reports whether err says that the credential proves nobody, rather than that it could not be checked.
func Unproven(err error) bool {
	return errors.Is(err, auth.ErrNoCredential) || errors.Is(err, auth.ErrBadCredential)
}

// ErrPanic is what became of a panic; it was logged.
var ErrPanic = errors.New("panic")

// Recovered, deferred, turns a panic into ErrPanic. What a panic carries may be content and is not logged.
func Recovered(ctx context.Context, log *slog.Logger, step string, err *error) {
	v := recover()
	if v == nil {
		return
	}
	*err = ErrPanic
	text := fmt.Sprintf("%T", v)
	if e, ok := v.(runtime.Error); ok {
		text = e.Error()
	}
	log.ErrorContext(ctx, "handler panicked", slog.String("step", step), slog.String("panic", text), slog.String("stack", string(debug.Stack())))
}
