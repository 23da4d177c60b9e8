package chokepoint

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"navra/internal/catalogue"
	"navra/internal/jsonrpc"
)

// pathArguments are the argument names whose strings are paths, wherever they stand in a call's arguments.
var pathArguments = []string{
	"path", "paths", "file", "files", "filename", "filenames", "filepath", "file_path", "file_paths", "filePath",
	"dir", "directory", "folder", "cwd", "root", "source", "src", "destination", "dest", "dst", "target",
	"old_path", "new_path", "oldPath", "newPath", "repo_path",
}

// namedPaths returns the canonical paths that a call's params name: made absolute against the folder that the upstream
// counts from, cleaned, symbolic links resolved as far as the path exists. A path that cannot be resolved is an error.
func namedPaths(params jsonrpc.Raw, u *catalogue.Upstream) ([]string, error) {
	var out []string
	var bad error
	add := func(s string, uri bool) {
		p, err := canonicalPath(s, uri, u.Folder)
		if err != nil && bad == nil {
			bad = err
		} else if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	var walk func(name string, v jsonrpc.Raw)
	walk = func(name string, v jsonrpc.Raw) {
		if s, ok := v.Text(); ok {
			if uri := strings.HasPrefix(strings.ToLower(s), "file:"); uri || slices.Contains(pathArguments, name) {
				add(s, uri)
			}
			return
		}
		for e := range v.Elements() {
			walk(name, e)
		}
		for k, e := range v.Members() {
			walk(k, e)
		}
	}
	args, _ := params.Get("arguments")
	walk("", args)
	uri, _ := params.Get("uri")
	walk("", uri)
	return out, bad
}

func canonicalPath(s string, uri bool, folder string) (string, error) {
	if uri {
		u, err := url.Parse(s)
		if err != nil || (u.Host != "" && u.Host != "localhost") {
			return "", fmt.Errorf("the file URI %q cannot be resolved", s)
		}
		s = filepath.FromSlash(u.Path)
	}
	if strings.ContainsRune(s, 0) {
		return "", fmt.Errorf("a path holds a NUL character")
	}
	if strings.HasPrefix(s, "~") {
		return "", fmt.Errorf("the path %q begins with ~, which each server reads in its own way; name it in full", s)
	}
	if !filepath.IsAbs(s) {
		s = filepath.Join(folder, s)
	}
	return resolveLinks(filepath.Clean(s))
}

// resolveLinks resolves the symbolic links of the longest part of path that exists, and appends the rest.
func resolveLinks(path string) (string, error) {
	rest := ""
	for p := path; ; {
		real, err := filepath.EvalSymlinks(p)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		parent := filepath.Dir(p)
		if parent == p {
			return "", fmt.Errorf("the path %q cannot be resolved", path)
		}
		if isLink(p) { // a link that leads nowhere: what it will lead to is not known
			return "", fmt.Errorf("the path %q ends in a broken link", path)
		}
		rest = filepath.Join(filepath.Base(p), rest)
		p = parent
	}
}
