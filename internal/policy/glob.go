package policy

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// A glob matches names or URIs; compiled to RE2, so that it takes linear time.
type glob struct {
	re     *regexp.Regexp
	begins string // of a URI's: what is literal at its beginning
	all    bool   // of a URI's: nothing but ** follows that
}

func (g glob) match(s string) bool { return g.re.MatchString(s) }

// nameGlob compiles a glob on canonical names: the upstream part is literal or *, after it * matches any text, / included;
// * alone is all.
func nameGlob(pattern string) (glob, error) {
	if pattern == "*" {
		return compile(".*")
	}
	upstream, rest, ok := strings.Cut(pattern, "/")
	if !ok || upstream == "" || rest == "" {
		return glob{}, fmt.Errorf("pattern %q: want UPSTREAM/NAME, where UPSTREAM is a name or *", pattern)
	}
	if upstream != "*" && strings.Contains(upstream, "*") {
		return glob{}, fmt.Errorf("pattern %q: the upstream part is a name or * alone", pattern)
	}
	re := regexp.QuoteMeta(upstream)
	if upstream == "*" {
		re = "[^/]+"
	}
	return compile(re + "/" + strings.ReplaceAll(regexp.QuoteMeta(rest), `\*`, ".*"))
}

// uriGlob compiles a glob on normalised URIs: * stops at /, ** does not; * alone is all.
func uriGlob(pattern string) (glob, error) {
	if pattern == "" {
		return glob{}, fmt.Errorf("pattern %q is empty", pattern)
	}
	if pattern == "*" {
		pattern = "**"
	}
	re := regexp.QuoteMeta(pattern)
	re = strings.ReplaceAll(re, `\*\*`, "\x00")
	re = strings.ReplaceAll(re, `\*`, "[^/]*")
	g, err := compile(strings.ReplaceAll(re, "\x00", ".*"))
	literal, _, _ := strings.Cut(pattern, "*")
	g.begins, g.all = literal, pattern == literal+"**"
	return g, err
}

func compile(re string) (glob, error) {
	r, err := regexp.Compile("^(?s:" + re + ")$")
	return glob{re: r}, err
}

// normalURI returns the form of a URI that rules are compared with: scheme and host in lower case, unreserved characters
// unescaped, dot segments resolved. A URI that does not parse, or whose path climbs by escapes, gives ok false: no rule allows it.
func normalURI(s string) (string, bool) {
	u, err := url.Parse(s)
	if err != nil {
		return "", false
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if u.Opaque != "" {
		return u.String(), true
	}
	if strings.Contains(strings.ToLower(u.EscapedPath()), "%2f") || strings.Contains(u.Path, "\x00") || strings.Contains(u.Path, `\`) {
		return "", false
	}
	if u.Path != "" {
		dir := strings.HasSuffix(u.Path, "/")
		u.Path = path.Clean(u.Path)
		if dir && u.Path != "/" {
			u.Path += "/"
		}
		u.RawPath = ""
	}
	out, err := url.PathUnescape(u.String())
	return out, err == nil
}
