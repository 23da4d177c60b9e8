// Package config is the schema of navra.yaml: what may stand in it, what is assumed where nothing stands, and errors that
// name file, line and key. It knows none of navra's other packages: cmd maps it to what they take.
package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Defaults where the file says nothing.
const (
	DefaultConnect         = 30 * time.Second
	DefaultCall            = 5 * time.Minute
	DefaultCallMax         = time.Hour
	defaultIntegrity       = "untrusted"
	defaultConfidentiality = "sensitive"
	defaultClearance       = "pii"
)

// LocalDefault is the built-in role of a developer's own machine.
const LocalDefault = "local-default"

const maxFile = 1 << 20 // bytes

// levels are the words for confidentiality, lowest first.
var levels = []string{"public", "sensitive", "pii", "secret"}

// A File is a configuration that was read and found valid in itself. Paths in it are absolute. It is not changed after Parse, and so
// safe for concurrent use.
type File struct {
	Path       string
	Listen     Listen
	Admin      Admin
	AuthTokens bool
	AuthNone   bool
	Store      string   // a file; "" for the default
	Database   Variable // a URL in the place of Store: see DatabaseURL
	Key        string   // the file of the key that seals; "" for the default
	Upstreams  []Upstream
	Blackbox   Blackbox
	Telemetry  Telemetry
	NamesMax   int                 // length of a public name with its prefix; 0 for the default
	Principals map[string][]string // roles by principal
	Roles      map[string]Role
	Violation  string // deny, ask, observe
	Results    string // of secrets: record, pseudonymise, deny
	Arguments  string // of secrets: record, ask, deny
}

// A Blackbox says how the record is kept.
type Blackbox struct {
	Fsync        bool          // each group of entries is on the disk before anybody is answered
	Keep         time.Duration // how long payloads stay; 0: for ever
	MaxBytes     int64         // that the database may take up; 0: as many as the disk has
	CheckpointTo string        // a file that the newest checkpoint is written to; "" for none
	Checkpoints  Remote        // a server in the place of CheckpointTo
	Ship         Remote        // an OTLP endpoint that entries are sent to
	ShipPayloads bool          // with what is kept of arguments and results
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
	CallMax         time.Duration // however much progress a call makes

	URL     string // in the place of Command
	Headers []Variable
	CA      string // a file of certificates that are trusted, besides the system's none; "" for the system's
	Proxy   string // "" for what the environment says; "none"

	Shared                bool
	Children, OwnChildren int // 0 for the defaults
}

// A Role is a set of rules.
type Role struct {
	Clearance        string
	Allow, Ask, Deny []Patterns
}

// Patterns are globs of tools, prompts and resources; Client names what an upstream may ask of the client.
type Patterns struct{ Tools, Prompts, Resources, Client []string }

// A Variable is one of a child's environment, a header, or another text that may be a secret. Its value may refer to ${env:NAME} and ${file:PATH}.
type Variable struct {
	Name  string
	value string
	where string
}

// Format keeps the value out of whatever prints it.
func (v Variable) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "%s=[redacted]", v.Name) }

// LogValue keeps the value out of logs.
func (v Variable) LogValue() slog.Value { return slog.StringValue(v.Name + "=[redacted]") }

// Load reads the file at path. Its errors are those of reading, and of Parse.
func Load(path string) (*File, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	in, err := os.Open(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("configuration: %w; --config names another file", err)
	}
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return Parse(abs, b)
}

// Parse reads a configuration; name is its path, from whose folder relative paths in it count. The error names each fault, at most
// ten, with file, line and key, one a line.
func Parse(name string, b []byte) (*File, error) {
	if len(b) > maxFile {
		return nil, fmt.Errorf("%s: it has more than %d bytes", name, maxFile)
	}
	dir, err := filepath.Abs(filepath.Dir(name))
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", name, err)
	}
	r := &reader{name: name, dir: dir}
	f := r.file(b)
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	f.Path = name
	return f, nil
}

// CheckServe returns what `navra serve` lacks or refuses in f; other commands need none of it.
func (f *File) CheckServe() error {
	switch {
	case f.Listen.Address == "":
		return fmt.Errorf(`%s: navra serve needs an address: add "listen: 127.0.0.1:8420"`, f.Path)
	case !f.AuthNone && !f.AuthTokens:
		return fmt.Errorf(`%s: nothing says who may come in: add "auth: {tokens: true}" and make a token with navra token create; on loopback "auth: none" works too`, f.Path)
	case f.AuthNone && !loopback(f.Listen.Address):
		return fmt.Errorf("%s: auth: none works only on a loopback address, and listen is %s", f.Path, f.Listen.Address)
	case f.AuthNone && f.Listen.PublicURL != "" && !loopback(net.JoinHostPort(strings.Trim(f.Listen.PublicHost(), "[]"), "0")):
		return fmt.Errorf("%s: auth: none would let everybody in through listen.public_url %s", f.Path, f.Listen.PublicURL)
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

// Digest identifies what decides: principals, roles, flow, filters, labels and classes. The order of upstreams and of keys, and what
// a child is started with, do not count.
func (f *File) Digest() [32]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q %q\n", f.Principals, f.Roles, f.Violation, f.Results, f.Arguments)
	for _, u := range slices.SortedFunc(slices.Values(f.Upstreams), func(a, b Upstream) int { return strings.Compare(a.Name, b.Name) }) {
		fmt.Fprintf(h, "%q %q %q %q %q %v\n", u.Name, u.Integrity, u.Confidentiality, u.Classes, u.Root, u.Bare)
	}
	return [32]byte(h.Sum(nil))
}

// ID tells one command of an upstream from another: 16 hex digits over program, arguments and working directory.
func (u Upstream) ID() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q", u.Command, u.Cwd)
	if u.URL != "" {
		fmt.Fprintf(h, " %q", u.URL)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
