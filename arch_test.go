package navra_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// imports is the whole dependency graph of navra's own packages: what each may import of them. A package that is missing
// here fails the test. A nil row may import what Go lets it.
var imports = map[string][]string{
	"internal/jsonrpc":              {},
	"internal/ifc":                  {},
	"internal/seal":                 {},
	"internal/blackbox":             {},
	"internal/blackbox/view":        {"internal/blackbox"},
	"internal/config":               {},
	"internal/shim":                 {},
	"internal/telemetry":            {},
	"internal/auth":                 {},
	"internal/auth/local":           {"internal/auth"},
	"internal/auth/token":           {"internal/auth"},
	"internal/filter":               {"internal/ifc", "internal/jsonrpc"},
	"internal/mcp":                  {"internal/jsonrpc"},
	"internal/schema":               {"internal/jsonrpc"},
	"internal/catalogue":            {"internal/ifc", "internal/jsonrpc", "internal/mcp", "internal/schema"},
	"internal/scope":                {"internal/ifc", "internal/seal"},
	"internal/policy":               {"internal/auth", "internal/catalogue", "internal/filter", "internal/ifc", "internal/jsonrpc", "internal/mcp"},
	"internal/store":                {"internal/auth", "internal/blackbox", "internal/catalogue", "internal/ifc", "internal/scope"},
	"internal/store/sqlite":         {"internal/auth", "internal/blackbox", "internal/catalogue", "internal/ifc", "internal/scope", "internal/store"},
	"internal/store/postgres":       {"internal/auth", "internal/blackbox", "internal/catalogue", "internal/ifc", "internal/scope", "internal/store"},
	"internal/store/storetest":      {"internal/auth", "internal/blackbox", "internal/catalogue", "internal/ifc", "internal/scope", "internal/store"},
	"internal/heads":                {"internal/blackbox"},
	"internal/ship":                 {"internal/blackbox", "internal/store"},
	"internal/witness":              {"internal/blackbox", "internal/heads", "internal/store"},
	"internal/listener":             {"internal/auth", "internal/jsonrpc", "internal/mcp"},
	"internal/transport/door":       {"internal/auth"},
	"internal/transport/duplex":     {"internal/auth", "internal/jsonrpc", "internal/mcp"},
	"internal/transport/stdio":      {"internal/auth", "internal/jsonrpc", "internal/mcp", "internal/transport/duplex"},
	"internal/transport/streamable": {"internal/auth", "internal/jsonrpc", "internal/mcp", "internal/transport/door"},
	"internal/transport/websocket":  {"internal/auth", "internal/jsonrpc", "internal/mcp", "internal/transport/door", "internal/transport/duplex"},
	"internal/demo":                 {"internal/jsonrpc"},
	"internal/chokepoint": {
		"internal/auth", "internal/blackbox", "internal/catalogue", "internal/filter", "internal/ifc", "internal/jsonrpc",
		"internal/mcp", "internal/policy", "internal/schema", "internal/scope", "internal/seal", "internal/store",
	},
	"internal/gateway/internal/upstream": {"internal/auth", "internal/catalogue", "internal/chokepoint", "internal/jsonrpc", "internal/mcp", "internal/shim"},
	"internal/gateway": {
		"internal/auth", "internal/catalogue", "internal/chokepoint", "internal/gateway/internal/upstream", "internal/jsonrpc",
		"internal/mcp", "internal/seal",
	},
	"cmd/navra":      nil,
	"contrib":        {}, // only tests
	"test/fixture":   {},
	"test/postgres":  {},
	"test/collector": {},
	"test/powercut":  {},
	"test/stores":    {}, // only tests
	"test/e2e":       {}, // drives the binary from outside
}

const (
	upstreamPkg  = "internal/gateway/internal/upstream"
	shimPkg      = "internal/shim"
	demoPkg      = "internal/demo"
	telemetryPkg = "internal/telemetry"
)

// homes names the few packages that may use a means of reaching the outside, of proving a principal, or of stepping around
// the compiler: an import path, or one exported name of it. Test programs are no part of navra.
var homes = map[string][]string{
	"os/exec":                               {upstreamPkg, shimPkg, demoPkg},
	"os.StartProcess":                       {},
	"net.Dial":                              {},
	"net.DialTimeout":                       {},
	"net.DialTCP":                           {},
	"net.DialUDP":                           {},
	"net.DialUnix":                          {},
	"net.DialIP":                            {},
	"net.Dialer":                            {upstreamPkg},
	"net/rpc":                               {},
	"net/smtp":                              {},
	"crypto/tls.Dial":                       {},
	"crypto/tls.Dialer":                     {},
	"net/http.Client":                       {demoPkg, upstreamPkg, telemetryPkg, "internal/ship"},
	"net/http.DefaultClient":                {},
	"net/http.DefaultTransport":             {},
	"net/http.Transport":                    {demoPkg, upstreamPkg, telemetryPkg, "internal/ship"},
	"net/http.Get":                          {},
	"net/http.Head":                         {},
	"net/http.Post":                         {},
	"net/http.PostForm":                     {},
	"net/http/httputil":                     {},
	"plugin":                                {},
	"unsafe":                                {},
	"syscall":                               {upstreamPkg, shimPkg, "cmd/navra", "internal/heads", "internal/store/sqlite"},
	"golang.org/x/sys/unix":                 {},
	"golang.org/x/sys/windows":              {"internal/store/sqlite"},
	"encoding/json":                         {"internal/schema", "internal/ifc", "internal/store", "internal/store/sqlite", "internal/store/postgres", "internal/blackbox/view", "cmd/navra", demoPkg},
	"navra/internal/auth.Self":              {"internal/chokepoint"},
	"github.com/ncruces/go-sqlite3":         {"internal/store/sqlite"},
	"modernc.org/sqlite":                    {"internal/store/sqlite"},
	"database/sql":                          {"internal/store/sqlite"},
	"github.com/jackc/pgx/v5":               {"internal/store/postgres"},
	"navra/internal/store/postgres":         {"cmd/navra"},
	"go.yaml.in/yaml/v3":                    {"internal/config"},
	"github.com/transparency-dev/merkle":    {"internal/blackbox"},
	"golang.org/x/mod":                      {"internal/blackbox"},
	"github.com/yosida95/uritemplate/v3":    {"internal/catalogue"},
	"github.com/santhosh-tekuri/jsonschema": {"internal/schema"},
	"github.com/spf13/cobra":                {"cmd/navra"},
	"golang.org/x/term":                     {"cmd/navra"},
	"navra/internal/store/sqlite":           {"cmd/navra"},
	"navra/internal/chokepoint.New":         {"cmd/navra"},
	"navra/internal/shim.Start":             {upstreamPkg},
	"github.com/go-json-experiment/json":    {},
	"navra/internal/listener":               {"cmd/navra"},
	"navra/internal/transport/streamable":   {"cmd/navra"},
	"navra/internal/transport/stdio":        {"cmd/navra"},
	"navra/internal/transport/websocket":    {"cmd/navra"},
	"go.opentelemetry.io":                   {telemetryPkg, "internal/ship"},
	"google.golang.org/protobuf":            {telemetryPkg, "internal/ship"},
	"google.golang.org/grpc":                {},
	"navra/internal/telemetry":              {"cmd/navra"},
	"github.com/coder/websocket":            {"internal/transport/websocket", upstreamPkg},
	"github.com/coder/websocket.Dial":       {upstreamPkg},
}

// methods names the methods that only some packages may call; they are found by name alone.
var methods = map[string][]string{
	"Prove": {"internal/auth/local", "internal/auth/token"},
}

type pkg struct {
	Dir, ImportPath string
	Imports         []string
	GoFiles         []string
	IgnoredGoFiles  []string
}

func list(t *testing.T) (pkgs []pkg) {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=Dir,ImportPath,Imports,GoFiles,IgnoredGoFiles", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// TestImports holds the third lock (means) and the dependency table.
func TestImports(t *testing.T) {
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, "navra/")
		if name == "navra" {
			continue // holds only tests like this one
		}
		allowed, ok := imports[name]
		if !ok {
			t.Errorf("%s is not in the table", name)
		}
		for _, f := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) { // the other systems' files too
			if !strings.HasSuffix(f, "_test.go") {
				for _, complaint := range checkFile(t, name, allowed, filepath.Join(p.Dir, f), nil) {
					t.Error(complaint)
				}
			}
		}
	}
}

// checkFile returns what a source file of package name does that it may not.
func checkFile(t *testing.T, name string, allowed []string, file string, src any) (bad []string) {
	t.Helper()
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	program := strings.HasPrefix(name, "test/")
	local := map[string]string{} // name in this file => import path
	for _, s := range tree.Imports {
		imp, _ := strconv.Unquote(s.Path.Value)
		local[path.Base(imp)] = imp
		if s.Name != nil {
			local[s.Name.Name] = imp
			if s.Name.Name == "." {
				bad = append(bad, name+" must not import "+imp+" into its own names")
			}
		}
		if own, ok := strings.CutPrefix(imp, "navra/"); ok && name != "cmd/navra" && !slices.Contains(allowed, own) {
			bad = append(bad, name+" must not import "+own)
		}
		for home, where := range homes {
			if (imp == home || strings.HasPrefix(imp, home+"/")) && !slices.Contains(where, name) && !program {
				bad = append(bad, name+" must not import "+imp)
			}
		}
	}
	for _, group := range tree.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:linkname") {
				bad = append(bad, name+" must not use go:linkname")
			}
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || program {
			return true
		}
		if where, ok := methods[sel.Sel.Name]; ok && !slices.Contains(where, name) {
			bad = append(bad, fset.Position(n.Pos()).String()+": "+name+" must not call "+sel.Sel.Name)
		}
		if x, ok := sel.X.(*ast.Ident); ok {
			use := local[x.Name] + "." + sel.Sel.Name
			if where, ok := homes[use]; ok && !slices.Contains(where, name) {
				bad = append(bad, fset.Position(n.Pos()).String()+": "+name+" must not use "+use)
			}
		}
		return true
	})
	return bad
}

// TestMeansAreGuarded shows that the check above finds each kind of hostile file.
func TestMeansAreGuarded(t *testing.T) {
	for _, tt := range []struct{ name, pkg, src string }{
		{"gateway starts a program", "internal/gateway", `import "os/exec"; var _ = exec.Command`},
		{"transport dials", "internal/transport/streamable", `import "net"; var _ = net.Dial`},
		{"transport dials under another name", "internal/transport/streamable", `import n "net"; var d n.Dialer`},
		{"transport uses a client", "internal/transport/streamable", `import "net/http"; var c http.Client`},
		{"transport dials over WebSocket", "internal/transport/websocket", `import ws "github.com/coder/websocket"; var _ = ws.Dial`},
		{"main starts a program", "cmd/navra", `import "os/exec"`},
		{"main starts a program under a supervisor", "cmd/navra", `import "navra/internal/shim"; var c = shim.Start`},
		{"main dials", "cmd/navra", `import "net/http"; var c = http.DefaultClient`},
		{"gateway proxies", "internal/gateway", `import "net/http/httputil"`},
		{"policy steps around types", "internal/policy", `import "unsafe"`},
		{"gateway proves a principal", "internal/gateway", `import "navra/internal/auth"; var p = auth.Directory{}.Prove("x", "", "")`},
		{"gateway speaks as navra", "internal/gateway", `import "navra/internal/auth"; var p = auth.Self()`},
		{"gateway makes its own chokepoint", "internal/gateway", `import "navra/internal/chokepoint"; var p = chokepoint.New(chokepoint.Options{})`},
		{"wire parsed by encoding/json", "internal/gateway", `import "encoding/json"`},
		{"gateway asks a database by itself", "internal/gateway", `import "github.com/jackc/pgx/v5/pgxpool"`},
		{"chokepoint opens its own database", "internal/chokepoint", `import "navra/internal/store/postgres"`},
		{"chokepoint exports spans", "internal/chokepoint", `import "go.opentelemetry.io/otel/trace"`},
		{"policy reads the store", "internal/policy", `import "navra/internal/store"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pre, rest, _ := strings.Cut(tt.src, ";")
			src := "package x\n" + pre + "\n" + rest
			if bad := checkFile(t, tt.pkg, imports[tt.pkg], "x.go", src); len(bad) == 0 {
				t.Errorf("nothing was found against:\n%s", src)
			}
		})
	}
}
