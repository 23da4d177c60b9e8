// Package view says how entries are chosen and shown: filters, tables, details, exports and counts. It takes values and returns
// values; it does not know where entries are stored, nor what they are written to.
package view

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"navra/internal/blackbox"
)

// A Filter chooses entries: all of what is set must hold. The zero Filter chooses every entry.
type Filter struct {
	Since, Until                                            time.Time // from Since on, before Until
	Tool                                                    string    // a glob: see Glob. Without a slash it is also tried on what follows the target's first slash
	Kind                                                    blackbox.Kind
	Principal, Upstream, Verdict, Stage, Scope, Ref, Method string
}

// Empty reports whether f chooses every entry.
func (f Filter) Empty() bool { return f == Filter{} }

// Match reports whether f chooses e.
func (f Filter) Match(e blackbox.Entry) bool {
	for _, c := range [...]struct{ want, is string }{
		{string(f.Kind), string(e.Kind)},
		{f.Principal, e.Principal},
		{f.Upstream, e.Upstream},
		{f.Verdict, e.Verdict},
		{f.Stage, e.Stage},
		{f.Scope, e.Scope},
		{f.Ref, e.Ref},
		{f.Method, e.Method},
	} {
		if c.want != "" && c.want != c.is {
			return false
		}
	}
	return (f.Since.IsZero() || !e.Time.Before(f.Since)) && (f.Until.IsZero() || e.Time.Before(f.Until)) && (f.Tool == "" || f.tool(e.Target))
}

func (f Filter) tool(target string) bool {
	if target == "" {
		return false
	}
	_, name, ok := strings.Cut(target, "/")
	return Glob(f.Tool, target) || ok && !strings.Contains(f.Tool, "/") && Glob(f.Tool, name)
}

// Glob reports whether text is as pattern says: * stands for any characters, slashes too, and ? for one.
func Glob(pattern, text string) bool {
	p, t := []rune(pattern), []rune(text)
	i, j, star, from := 0, 0, -1, 0 // star: the last * that was met; from: where what follows it is being tried
	for j < len(t) {
		switch {
		case i < len(p) && p[i] == '*':
			star, from = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == t[j]):
			i++
			j++
		case star >= 0:
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

var errTime = errors.New("is no time such as 2026-07-28T15:04:05Z, 2026-07-28 15:04 or 2026-07-28, and no duration before now such as 2h or 7d")

const maxDays = 36500

// ParseTime reads a moment: RFC 3339, a date with or without a time of day where now is, or how long before now it was, such as "2h", "7d" or "90m ago".
func ParseTime(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	back := strings.TrimSpace(strings.TrimSuffix(text, "ago"))
	if days, ok := strings.CutSuffix(back, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > maxDays {
			return time.Time{}, errTime
		}
		return now.Add(-time.Duration(n) * 24 * time.Hour), nil
	}
	d, err := time.ParseDuration(back)
	if err != nil || d < 0 {
		return time.Time{}, errTime
	}
	return now.Add(-d), nil
}
