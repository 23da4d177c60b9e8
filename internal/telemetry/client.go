package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A client posts spans to a collector. OTLP 1.x, §OTLP/HTTP. The library's own would bring gRPC with it, some 8 MB, and read
// the environment.
type client struct {
	endpoint string
	header   map[string]Secret
	http     *http.Client
}

const (
	again     = 500 * time.Millisecond // before the second and last try
	maxAnswer = 64 << 10               // bytes of an answer that are read, so that its connection can be used again
)

func newClient(o Options) *client {
	return &client{endpoint: o.Endpoint, header: o.Header, http: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: exportTime,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // it would carry the headers elsewhere
	}}
}

func (c *client) Start(context.Context) error { return nil }

func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces posts once, and once more where that may help.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	plain, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}) // on the wire what ExportTraceServiceRequest is
	if err != nil {
		return err
	}
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	if _, err := z.Write(plain); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	status, err := c.post(ctx, body.Bytes())
	if err != nil || passing(status) {
		select {
		case <-time.After(again):
			status, err = c.post(ctx, body.Bytes())
		case <-ctx.Done():
		}
	}
	switch {
	case err != nil:
		return err
	case status/100 != 2:
		return fmt.Errorf("the collector answers HTTP status %d", status)
	}
	return nil
}

// passing reports whether a status says that a later try may do better.
func passing(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// post returns the status. Its error does not name the address, which may hold a secret.
func (c *client) post(ctx context.Context, body []byte) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the endpoint is not valid")
	}
	for name, value := range c.header {
		r.Header.Set(name, string(value))
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("Content-Encoding", "gzip")
	r.Header.Set("User-Agent", "navra")
	resp, err := c.http.Do(r)
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return 0, u.Err
	}
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // what a collector says beside is nothing to act on
	return resp.StatusCode, nil
}
