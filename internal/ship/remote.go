// Package ship sends what was recorded to servers of the operator's: entries to a collector of OpenTelemetry logs, checkpoints to whoever
// keeps them. It waits for them in goroutines of its own: no call waits for it. It knows no configuration and judges nothing.
package ship

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A Secret is the value of a header. It prints as [redacted].
type Secret string

const redacted = "[redacted]"

// Format and LogValue keep the value out of whatever prints it.
func (Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }
func (Secret) LogValue() slog.Value       { return slog.StringValue(redacted) }

// A Remote is a server that things are posted to. Its methods may be called concurrently.
type Remote struct {
	url     string
	header  map[string]Secret
	agent   string
	timeout time.Duration
	client  *http.Client
	hide    *strings.Replacer
}

// RemoteOptions say where a server is. TLS may be nil.
type RemoteOptions struct {
	URL     *url.URL
	Header  map[string]Secret
	TLS     *tls.Config
	Timeout time.Duration // of one request
	Agent   string        // User-Agent
}

// NewRemote returns a server. Nothing is sent yet. A redirect is not followed: the headers are for this server alone.
func NewRemote(o RemoteOptions) *Remote {
	secrets := []string{}
	for _, s := range []string{o.URL.RawQuery, strings.Trim(o.URL.EscapedPath(), "/")} {
		if s != "" {
			secrets = append(secrets, s, redacted)
		}
	}
	for _, v := range o.Header {
		if v != "" {
			secrets = append(secrets, string(v), redacted)
			if _, token, ok := strings.Cut(string(v), " "); ok && token != "" {
				secrets = append(secrets, token, redacted)
			}
		}
	}
	return &Remote{
		url: o.URL.String(), header: o.Header, agent: o.Agent, timeout: o.Timeout, hide: strings.NewReplacer(secrets...),
		client: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: o.TLS, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true},
		},
	}
}

const (
	maxAnswer     = 64 << 10 // bytes of an answer that are read
	maxRetryAfter = 5 * time.Minute
)

// A refusal is an answer that is no success.
type refusal struct {
	status int
	after  time.Duration // that the server asks to wait; 0: it does not say
}

func (r *refusal) Error() string { return "the server answered " + strconv.Itoa(r.status) }

// theirs reports whether the server finds fault with what it was sent: sent again, it would be refused again.
func (r *refusal) theirs() bool {
	return r.status == http.StatusBadRequest || r.status == http.StatusRequestEntityTooLarge || r.status == http.StatusUnprocessableEntity
}

// post sends a body and returns what is answered to it, if that is a success. Its errors hold neither address nor headers.
func (o *Remote) post(ctx context.Context, kind string, body []byte) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, o.timeout)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("its address cannot be used")
	}
	for name, v := range o.header {
		req.Header.Set(name, string(v))
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("User-Agent", o.agent)
	resp, err := o.client.Do(req)
	if err != nil {
		return nil, o.clean(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode/100 != 2:
		return nil, &refusal{resp.StatusCode, retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	case err != nil:
		return nil, o.clean(err)
	}
	return answer, nil
}

// clean takes the address and the headers out of an error.
func (o *Remote) clean(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", o.timeout)
	}
	return errors.New(o.hide.Replace(err.Error()))
}

// retryAfter reads the header: seconds, or a date. RFC 9110 §10.2.3.
func retryAfter(text string, now time.Time) time.Duration {
	d := time.Duration(0)
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		d = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

const (
	firstWait = time.Second
	maxWait   = time.Minute
)

// A backoff counts failures in a row.
type backoff struct {
	first time.Duration // 0: firstWait
	n     int
}

// next says how long to wait after one more: twice as long each time, less up to a half by chance, so that those who failed together do
// not come back together. A server that says how long is given that and a little more.
func (b *backoff) next(err error) time.Duration {
	first := b.first
	if first == 0 {
		first = firstWait
	}
	wait := min(first<<min(b.n, 16), maxWait)
	b.n++
	part := time.Duration(rand.Int64N(int64(wait)/2 + 1))
	if r := (*refusal)(nil); errors.As(err, &r) && r.after > 0 {
		return r.after + part
	}
	return wait - part
}

// A trouble tells the record about a server that cannot be reached for long.
type trouble struct {
	what string
	tell func(context.Context, string) error
	log  *slog.Logger
	long time.Duration // 0: tellAfter

	since time.Time
	told  bool
}

// tellAfter is how long a server may be out of reach before that is recorded.
const tellAfter = 10 * time.Minute

func (t *trouble) failed(ctx context.Context, err error, wait time.Duration) {
	if t.since.IsZero() {
		t.since = time.Now()
		t.log.Warn(t.what+" could not be delivered, and will be tried again", "err", err, "wait", wait)
	}
	long := t.long
	if long == 0 {
		long = tellAfter
	}
	if down := time.Since(t.since); !t.told && down >= long {
		t.told = true
		t.record(ctx, fmt.Sprintf("%s could not be delivered for %s: %v", t.what, down.Round(time.Second), err))
	}
}

func (t *trouble) over(ctx context.Context) {
	if t.since.IsZero() {
		return
	}
	t.log.Info(t.what+" are delivered again", "down", time.Since(t.since))
	if t.told {
		t.record(ctx, fmt.Sprintf("%s are delivered again after %s", t.what, time.Since(t.since).Round(time.Second)))
	}
	t.since, t.told = time.Time{}, false
}

func (t *trouble) record(ctx context.Context, text string) {
	if err := t.tell(ctx, text); err != nil && ctx.Err() == nil {
		t.log.Error("an event could not be recorded", "event", text, "err", err)
	}
}
