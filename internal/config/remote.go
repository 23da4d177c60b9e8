package config

import (
	"net/url"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// DefaultRemote is how long one request to a Remote may take.
const DefaultRemote = 10 * time.Second

// maxRemote bounds it: as long as one process waits, the others do.
const maxRemote = time.Minute

// A Remote is a server that navra sends what it recorded to. The zero Remote is none.
type Remote struct {
	URL     string
	Headers []Variable
	CA      string // a file of certificates that are trusted in place of the system's; "" for the system's
	Timeout time.Duration
}

// Header returns the headers by name, with references replaced as Environ does. The values are secrets.
func (o Remote) Header(dir string, lookup func(string) (string, bool), read func(string) ([]byte, error)) (map[string]string, error) {
	return headerOf(o.Headers, dir, lookup, read)
}

// remote reads the mapping of a server: its address is under the key named by address. more are further keys.
func (r *reader) remote(n *yaml.Node, at, address string, more fields) (o Remote) {
	o.Timeout = DefaultRemote
	keys := fields{
		address:   func(n *yaml.Node, at string) { o.URL = r.remoteURL(n, at) },
		"headers": func(n *yaml.Node, at string) { o.Headers = r.headers(n, at) },
		"ca":      func(n *yaml.Node, at string) { o.CA = r.path(n, at) },
		"timeout": func(n *yaml.Node, at string) {
			if o.Timeout = r.duration(n, at); o.Timeout > maxRemote {
				r.fault(n, at, "want %s at most", maxRemote)
			}
		},
	}
	for key, read := range more {
		keys[key] = read
	}
	faults := len(r.errs)
	if r.fields(n, at, keys); o.URL == "" && len(r.errs) == faults {
		r.fault(n, at, "%s is missing, such as https://collector.example", address)
	}
	return o
}

// remoteURL reads an address. It is not shown: it may hold a secret.
func (r *reader) remoteURL(n *yaml.Node, at string) string {
	s, ok := r.text(n, at)
	u, err := url.Parse(s)
	switch {
	case !ok:
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		r.fault(n, at, "want an address such as https://collector.example")
	case u.User != nil:
		r.fault(n, at, "a user and password in the address are not taken; use headers, such as Authorization: \"Bearer ${env:TOKEN}\"")
	case u.Fragment != "":
		r.fault(n, at, "an address has no # part")
	}
	return s
}

// checkpointTo reads a path, an address, or an address with headers.
func (r *reader) checkpointTo(n *yaml.Node, at string, f *File) {
	switch {
	case n.Kind == yaml.MappingNode:
		f.Blackbox.Checkpoints = r.remote(n, at, "url", nil)
	case n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "://"):
		f.Blackbox.Checkpoints = Remote{URL: r.remoteURL(n, at), Timeout: DefaultRemote}
	default:
		f.Blackbox.CheckpointTo = r.path(n, at)
	}
}

func (r *reader) ship(n *yaml.Node, at string, f *File) {
	r.fields(n, at, fields{"otlp": func(n *yaml.Node, at string) {
		f.Blackbox.Ship = r.remote(n, at, "endpoint", fields{
			"payloads": func(n *yaml.Node, at string) { f.Blackbox.ShipPayloads = r.truth(n, at) },
		})
	}})
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		r.fault(n, at, "it says nothing; it needs otlp")
	}
}
