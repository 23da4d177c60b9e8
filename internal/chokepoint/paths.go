package chokepoint

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"navra/internal/catalogue"
	"navra/internal/jsonrpc"
)

// pathEndings are the ends of argument names whose strings are paths, wherever they stand in a call's arguments, in any case:
// "path" covers file_path and outputPath too. More is better: a path too many refuses, one too few lets a secret go astray.
var pathEndings = []string{
	"path", "paths", "file", "files", "filename", "filenames", "dir", "directory", "folder", "cwd", "root", "source", "src",
	"destination", "dest", "dst", "target", "output", "outfile", "location", "uri",
}

// Bounds on the paths that one call names.
const (
	maxPath  = 4096 // bytes
	maxPaths = 256
)

var errPath = errors.New("a path that the call names cannot be resolved to one place")

// namedPaths returns the canonical paths that a call's params name: made absolute against the folder that the upstream
// counts from, symbolic links resolved as far as the path exists. A string that could be read in two ways counts as both.
func namedPaths(params jsonrpc.Raw, u *catalogue.Upstream) ([]string, error) {
	n := naming{folder: u.Folder, seen: map[string]bool{}}
	args, _ := params.Get("arguments")
	n.walk("", args)
	uri, _ := params.Get("uri")
	n.walk("", uri)
	return n.out, n.err
}

type naming struct {
	folder string
	out    []string
	seen   map[string]bool
	err    error
}

func (n *naming) walk(name string, v jsonrpc.Raw) {
	if s, ok := v.Text(); ok {
		uri := fileURL(s)
		named := isPathName(name)
		if uri {
			n.add(s, true)
		}
		if named {
			n.add(s, false)
		}
		return
	}
	for e := range v.Elements() {
		n.walk(name, e)
	}
	for k, e := range v.Members() {
		n.walk(k, e)
	}
}

func isPathName(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(pathEndings, func(end string) bool { return strings.HasSuffix(name, end) })
}

// fileURL reports whether s is a file: URI, and not a text that begins like one.
func fileURL(s string) bool {
	return len(s) > 6 && len(s) <= maxPath && strings.EqualFold(s[:6], "file:/") && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 })
}

func (n *naming) add(s string, uri bool) {
	path, err := "", errPath
	if len(s) <= maxPath && len(n.out) < maxPaths {
		path, err = canonicalPath(s, uri, n.folder)
	}
	switch {
	case err != nil:
		n.err = err
	case !n.seen[path]:
		n.seen[path] = true
		n.out = append(n.out, path)
	}
}

func canonicalPath(s string, uri bool, folder string) (string, error) {
	if uri {
		u, err := url.Parse(s)
		if err != nil || (u.Host != "" && u.Host != "localhost") {
			return "", errPath
		}
		s = filepath.FromSlash(u.Path)
	}
	if strings.ContainsRune(s, 0) || strings.HasPrefix(s, "~") { // each server reads ~ in its own way
		return "", errPath
	}
	if !filepath.IsAbs(s) {
		s = folder + string(filepath.Separator) + s
	}
	physical, err := resolve(s)
	if err != nil {
		return "", err
	}
	// A server may clean the path before the system sees it. Where ".." behind a link makes that another place, it names none.
	lexical, err := resolve(filepath.Clean(s))
	if err != nil || lexical != physical {
		return "", errPath
	}
	return physical, nil
}

// resolve walks an absolute path element by element, as the system does: links are followed where they stand, and what does not exist is taken as it is.
func resolve(path string) (string, error) {
	volume := filepath.VolumeName(path)
	at := volume + string(filepath.Separator)
	for _, elem := range strings.Split(filepath.ToSlash(path[len(volume):]), "/") {
		switch elem {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, elem)
		info, err := os.Lstat(next)
		if err == nil && info.Mode()&os.ModeSymlink != 0 {
			if next, err = filepath.EvalSymlinks(next); err != nil { // it leads nowhere: where it will lead is not known
				return "", errPath
			}
		}
		at = next
	}
	return at, nil
}
