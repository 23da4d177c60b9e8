package token

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"navra/internal/auth"
)

var errNone = errors.New("none")

type tokens map[[32]byte]auth.Token

func (m tokens) TokenByHash(_ context.Context, h [32]byte) (auth.Token, error) {
	if t, ok := m[h]; ok {
		return t, nil
	}
	return auth.Token{}, errNone
}

type broken struct{}

func (broken) TokenByHash(context.Context, [32]byte) (auth.Token, error) {
	return auth.Token{}, errors.New("disk gone")
}

func TestAuthenticate(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	store := tokens{}
	make := func(principal string, expires, revoked time.Time) string {
		s, tok := New(principal, now, expires)
		tok.Revoked = revoked
		store[tok.Hash] = tok
		return s.Reveal()
	}
	good := make("ann", time.Time{}, time.Time{})
	a := Authenticator{Tokens: store, NotFound: errNone, Directory: auth.Directory{"ann": {"dev"}}, Now: func() time.Time { return now }}
	unknown, _ := New("ann", now, time.Time{})
	flip := good[:10] + string(digits[(strings.IndexByte(digits, good[10])+1)%62]) + good[11:]
	for name, tt := range map[string]struct {
		headers []string
		want    error
	}{
		"good":                    {[]string{"Bearer " + good}, nil},
		"scheme in another case":  {[]string{"bEARER " + good}, nil},
		"soon expired":            {[]string{"Bearer " + make("ann", now.Add(time.Second), time.Time{})}, nil},
		"none":                    {nil, auth.ErrNoCredential},
		"another scheme":          {[]string{"Basic " + good}, auth.ErrBadCredential},
		"two headers":             {[]string{"Bearer " + good, "Bearer " + good}, auth.ErrBadCredential},
		"empty":                   {[]string{"Bearer "}, auth.ErrBadCredential},
		"unknown":                 {[]string{"Bearer " + unknown.Reveal()}, auth.ErrBadCredential},
		"mistyped":                {[]string{"Bearer " + flip}, auth.ErrBadCredential},
		"cut":                     {[]string{"Bearer " + good[:20]}, auth.ErrBadCredential},
		"expired":                 {[]string{"Bearer " + make("ann", now, time.Time{})}, auth.ErrBadCredential},
		"revoked":                 {[]string{"Bearer " + make("ann", time.Time{}, now)}, auth.ErrBadCredential},
		"principal no longer set": {[]string{"Bearer " + make("bob", time.Time{}, time.Time{})}, auth.ErrBadCredential},
	} {
		r, _ := http.NewRequest("POST", "http://x/mcp?access_token="+good, nil)
		r.Header["Authorization"] = tt.headers
		who, err := a.Authenticate(r)
		if !errors.Is(err, tt.want) || (err == nil) != (who.Name() == "ann") {
			t.Errorf("%s: Authenticate = %q, %v, want %v", name, who.Name(), err, tt.want)
		}
	}
	a.Tokens = broken{}
	if who, err := a.Verify(t.Context(), good); err == nil || errors.Is(err, auth.ErrBadCredential) || !who.IsZero() {
		t.Errorf("a store that does not answer: %q, %v, want another error", who.Name(), err)
	}
}

func TestSecretIsNotPrinted(t *testing.T) {
	s, _ := New("ann", time.Now(), time.Time{})
	js, _ := json.Marshal(map[string]any{"s": s})
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "s", s)
	for _, got := range []string{fmt.Sprintf("%v %+v %#v %s %q %x", s, s, s, s, s, s), string(js), log.String()} {
		if strings.Contains(got, s.Reveal()) || strings.Contains(got, "nvr_") {
			t.Errorf("printed: %s", got)
		}
	}
	if len(s.Reveal()) != len(prefix)+bodyLen+checkLen || !wellFormed(s.Reveal()) {
		t.Errorf("form of %d characters", len(s.Reveal()))
	}
}
