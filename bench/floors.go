package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// floorTransport reaches the echo server with connections enough for all clients.
func floorTransport() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 1024, DisableCompression: true, IdleConnTimeout: time.Hour,
	}
}

// copyBuffers is what a ReverseProxy copies bodies with.
type copyBuffers struct{ sync.Pool }

func (p *copyBuffers) Get() []byte  { return *p.Pool.Get().(*[]byte) }
func (p *copyBuffers) Put(b []byte) { p.Pool.Put(&b) }

// newReverseProxy hands HTTP on and looks into nothing: the floor of what any HTTP gateway in Go costs.
func newReverseProxy(to *url.URL) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: to.Scheme, Host: to.Host}) },
		Transport: floorTransport(),
		BufferPool: &copyBuffers{sync.Pool{New: func() any {
			b := make([]byte, 32<<10)
			return &b
		}}},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Else the server closes the request's body when the answer begins, and where that is before the transport has read
		// the body's end, the transport drops the connection in the middle of the answer.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// A relay reads each body whole, parses it as JSON, encodes it anew and sends that on, in both directions: the least that
// a gateway does which sends what it has understood. It judges and records nothing.
type relay struct {
	to     string
	client *http.Client
}

func newRelay(to *url.URL) *relay {
	return &relay{to: to.String(), client: &http.Client{Transport: floorTransport()}}
}

func (p *relay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := recode(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req, err := http.NewRequestWithContext(r.Context(), r.Method, p.to, bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	for _, k := range []string{"Content-Type", "Accept", "Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name"} {
		if v := r.Header[k]; v != nil {
			req.Header[k] = v
		}
	}
	resp, err := p.client.Do(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	for _, k := range []string{"Content-Type", "Mcp-Session-Id"} {
		if v := resp.Header[k]; v != nil {
			w.Header()[k] = v
		}
	}
	if resp.Header.Get("Content-Type") != "application/json" { // an error's text, or nothing
		w.WriteHeader(resp.StatusCode)
		io.Copy(w, resp.Body)
		return
	}
	if body, err = recode(resp.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(resp.StatusCode)
	w.Write(body)
}

// recode parses a body and encodes what was parsed.
func recode(r io.Reader) ([]byte, error) {
	b, err := readAll(nil, r, -1)
	if err != nil || len(b) == 0 {
		return b, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err = e.Encode(v)
	return out.Bytes(), err
}
