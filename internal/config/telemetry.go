package config

import (
	"net/url"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Telemetry says what leaves about calls, and where to.
type Telemetry struct {
	OTLP        string     // the whole URL that spans are sent to; "" for nowhere
	OTLPHeaders []Variable // sent along: see OTLPHeader
	Baggage     bool       // a client's baggage goes on to upstreams
}

func (r *reader) telemetry(n *yaml.Node, at string, f *File) {
	r.fields(n, at, fields{
		"otlp": func(n *yaml.Node, at string) {
			r.fields(n, at, fields{
				"endpoint": func(n *yaml.Node, at string) {
					if s, ok := r.text(n, at); ok {
						if f.Telemetry.OTLP, ok = TracesURL(s); !ok {
							r.fault(n, at, badOTLP)
						}
					}
				},
				"headers": func(n *yaml.Node, at string) { f.Telemetry.OTLPHeaders = r.headers(n, at) },
			})
			if n.Kind == yaml.MappingNode && !hasKey(n, "endpoint") {
				r.fault(n, at, `the endpoint is missing, such as "endpoint: http://127.0.0.1:4318"`)
			}
		},
		"baggage": func(n *yaml.Node, at string) { f.Telemetry.Baggage = r.word(n, at, "pass", "drop") == "pass" },
	})
}

func hasKey(n *yaml.Node, key string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return true
		}
	}
	return false
}

const (
	tracesPath = "/v1/traces"
	badOTLP    = "want the address of a collector, such as http://127.0.0.1:4318; what proves who you are goes into headers"
)

// TracesURL returns where the collector at an OTLP endpoint takes spans; ok is false for what is no endpoint.
// OTLP 1.x, §OTLP/HTTP Request.
func TracesURL(endpoint string) (traces string, ok bool) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", false
	}
	if !strings.HasSuffix(u.Path, tracesPath) {
		u = u.JoinPath(tracesPath)
	}
	return u.String(), true
}

// OTLPHeader returns the headers that go with spans, by name, with references replaced as Environ does.
func (f *File) OTLPHeader(lookup func(string) (string, bool), read func(string) ([]byte, error)) (map[string]string, error) {
	return headerOf(f.Telemetry.OTLPHeaders, filepath.Dir(f.Path), lookup, read)
}
