package chokepoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navra/internal/catalogue"
	"navra/internal/jsonrpc"
)

func TestNamedPaths(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"w", "pub/sub"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"w/link": "../pub/sub", "w/broken": "nowhere/x", "w/same": "."} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	w := filepath.Join(dir, "w")
	u := &catalogue.Upstream{Folder: w}
	for _, tt := range []struct {
		rule, args string
		want       []string // nil: refused
	}{
		{"a relative path counts from the folder", `{"path":"a.txt"}`, []string{w + "/a.txt"}},
		{"an absolute one is itself", `{"path":"` + w + `//./b/../a.txt"}`, []string{w + "/a.txt"}},
		{"links are followed", `{"path":"link/x"}`, []string{dir + "/pub/sub/x"}},
		{"a link to here", `{"path":"same/x"}`, []string{w + "/x"}},
		{".. behind a link is two places", `{"path":"link/../x"}`, nil},
		{"a broken link leads nowhere known", `{"path":"broken"}`, nil},
		{"~ is read by each server in its own way", `{"path":"~/x"}`, nil},
		{"names in any case, with any beginning", `{"Path":"a","outputFile":"b","dest_dir":"c"}`, []string{w + "/a", w + "/b", w + "/c"}},
		{"lists and depth", `{"x":[{"paths":["a","b"]}]}`, []string{w + "/a", w + "/b"}},
		{"a file URI under any name", `{"x":"file://` + w + `/a%20b"}`, []string{w + "/a b"}},
		{"a file URI under a path's name is both", `{"path":"file://` + w + `/a"}`, []string{w + "/a", w + "/file:" + w + "/a"}},
		{"text that begins like one is none", `{"content":"file: a.txt\nkey: x"}`, []string{}},
		{"a URI of another host", `{"x":"file://evil.example/a"}`, nil},
		{"too long", `{"path":"` + strings.Repeat("a/", 3000) + `"}`, nil},
	} {
		args, err := jsonrpc.ParseValue([]byte(`{"arguments":` + tt.args + `}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := namedPaths(args, u)
		if (err != nil) != (tt.want == nil) {
			t.Errorf("%s: namedPaths = %v, %v", tt.rule, got, err)
		} else if diff := cmp.Diff(tt.want, append([]string{}, got...)); err == nil && diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.rule, diff)
		}
		if err != nil && strings.Contains(fmt.Sprint(err), "/x") {
			t.Errorf("%s: the error quotes the path: %v", tt.rule, err)
		}
	}
	many := make([]jsonrpc.Raw, 300)
	for i := range many {
		many[i] = jsonrpc.Quote(fmt.Sprint("p", i))
	}
	args := new(jsonrpc.Object).Raw("paths", jsonrpc.Array(many...)).Done()
	if _, err := namedPaths(new(jsonrpc.Object).Raw("arguments", args).Done(), u); err == nil {
		t.Error("300 paths were taken")
	}
}
