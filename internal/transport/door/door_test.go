package door

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestPanicsAreLoggedWithoutContent(t *testing.T) {
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for _, f := range []func(){func() { panic("secret") }, func() { panic([]string(nil)[len(log.String())]) }} {
		err := func() (err error) {
			defer Recovered(context.Background(), logger, "handle", &err)
			f()
			return nil
		}()
		if text := log.String(); !errors.Is(err, ErrPanic) || !strings.Contains(text, "handler panicked") || strings.Contains(text, "secret") {
			t.Errorf("%v, log %q: want the panic without what it carries", err, text)
		}
	}
}

func TestOwnOriginOverTLS(t *testing.T) {
	d := New(Options{Loopback: true})
	for _, tt := range []struct {
		origin string
		secure bool
		want   bool
	}{
		{"https://localhost:1", true, true},
		{"http://localhost:1", true, false},
		{"https://localhost:1", false, false},
	} {
		if got := d.knownOrigin(tt.origin, "localhost:1", tt.secure); got != tt.want {
			t.Errorf("knownOrigin(%s, TLS %v) = %v, want %v", tt.origin, tt.secure, got, tt.want)
		}
	}
}
