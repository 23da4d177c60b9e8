package witness

import (
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// described are the phrases of docs/auditing.md, in which N and M stand for numbers and … for anything.
var described = sync.OnceValues(func() (out []*regexp.Regexp, err error) {
	b, err := os.ReadFile("../../docs/auditing.md")
	if err != nil {
		return nil, err
	}
	_, says, _ := strings.Cut(string(b), "## What `verify` says")
	number := regexp.MustCompile(`\b[NM]\b`)
	for _, m := range regexp.MustCompile("`([^`\n]{12,})`").FindAllStringSubmatch(says, -1) {
		text := number.ReplaceAllString(regexp.QuoteMeta(m[1]), `-?\d+`)
		out = append(out, regexp.MustCompile(strings.ReplaceAll(text, "…", ".*")))
	}
	return out, nil
})

// checkDescribed wants docs/auditing.md to say what to do about a problem.
func checkDescribed(t *testing.T, problem string) {
	t.Helper()
	list, err := described()
	if err != nil {
		t.Fatal(err)
	}
	for _, phrase := range list {
		if phrase.MatchString(problem) {
			return
		}
	}
	t.Errorf("docs/auditing.md says nothing of %q", problem)
}
