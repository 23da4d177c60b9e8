// Package config is the schema of navra.yaml: what may stand in it, what is assumed where nothing stands, and errors that
// name file, line and key. It knows none of navra's other packages: cmd maps it to what they take.
package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Defaults where the file says nothing.
const (
	DefaultConnect = 30 * time.Second
	DefaultCall    = 5 * time.Minute
	// LocalDefault is the built-in role of a developer's own machine.
	LocalDefault = "local-default"
	maxFile      = 1 << 20 // bytes
)

// A File is a configuration that was read and found valid in itself. Paths in it are absolute.
type File struct {
	Path       string
	Listen     string // "" where the file has no listener
	Origins    []string
	AuthTokens bool
	AuthNone   bool
	Store      string // "" for the default
	Upstreams  []Upstream
	Principals map[string][]string // roles by principal
	Roles      map[string]Role
	Violation  string // deny, ask, observe
	Results    string // of secrets: record, pseudonymise, deny
	Arguments  string // of secrets: record, ask, deny
}

// An Upstream is one MCP server.
type Upstream struct {
	Name            string
	Command         []string
	Env             []Variable
	Cwd             string // "" for navra's own folder
	Root            string
	Bare            bool // prefix: none
	Integrity       string
	Confidentiality string
	Classes         map[string]string
	Connect, Call   time.Duration
}

// A Role is a set of rules.
type Role struct {
	Clearance   string
	Allow, Deny []Patterns
}

// Patterns are globs of tools, prompts and resources.
type Patterns struct{ Tools, Prompts, Resources []string }

// A Variable is one of a child's environment. Its value may refer to ${env:NAME} and ${file:PATH}.
type Variable struct {
	Name  string
	value string
	where string
}

// Format and LogValue keep the value out of whatever prints it.
func (v Variable) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "%s=[redacted]", v.Name) }
func (v Variable) LogValue() slog.Value       { return slog.StringValue(v.Name + "=[redacted]") }

// Load reads the file at path.
func Load(path string) (*File, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("configuration %s: it has %d bytes, more than %d", path, info.Size(), maxFile)
	}
	b, err := os.ReadFile(abs)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return Parse(abs, b)
}

// Parse reads a configuration; name is its path, from which relative paths in it count. The error names each fault with file, line and key.
func Parse(name string, b []byte) (*File, error) {
	if len(b) > maxFile {
		return nil, fmt.Errorf("%s: it has more than %d bytes", name, maxFile)
	}
	r := &reader{name: name, dir: filepath.Dir(name)}
	f := r.file(b)
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	f.Path = name
	return f, nil
}

// CheckServe returns what `navra serve` lacks or refuses.
func (f *File) CheckServe() error {
	switch {
	case f.Listen == "":
		return fmt.Errorf(`%s: navra serve needs an address: add "listen: 127.0.0.1:8420"`, f.Path)
	case !f.AuthNone && !f.AuthTokens:
		return fmt.Errorf(`%s: nothing says who may come in: add "auth: {tokens: true}" and make a token with navra token create; on loopback "auth: none" works too`, f.Path)
	case f.AuthNone && !loopback(f.Listen):
		return fmt.Errorf("%s: auth: none works only on a loopback address, and listen is %s", f.Path, f.Listen)
	case len(f.Upstreams) == 0:
		return fmt.Errorf("%s: there are no upstreams", f.Path)
	}
	return nil
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Digest identifies what decides: principals, roles, flow, filters, labels and classes.
func (f *File) Digest() [32]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q %q\n", f.Principals, f.Roles, f.Violation, f.Results, f.Arguments)
	for _, u := range f.Upstreams {
		fmt.Fprintf(h, "%q %q %q %q %q %v\n", u.Name, u.Integrity, u.Confidentiality, u.Classes, u.Root, u.Bare)
	}
	return [32]byte(h.Sum(nil))
}

// ID tells one command of an upstream from another.
func (u Upstream) ID() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q", u.Command, u.Cwd)
	return hex.EncodeToString(h.Sum(nil)[:8])
}
