package filter

import (
	"math"
	"regexp"
	"strings"
)

// A detector finds one kind. It looks for literals first: only where one stands is more looked at, in a window of bounded length.
type detector struct {
	kind     string
	literals []string // lower case where fold is set
	fold     bool
	pattern  *regexp.Regexp // anchored at the literal; group 1, where there is one, is the secret
	window   int            // bytes from the literal on
	whole    bool           // the secret may not be part of a longer word
	assigned bool           // the pattern begins behind the literal, which is a name, with = or : soon after
	longer   bool           // the secret goes on as long as its characters do
	check    func(secret string) bool
	find     func(text string, at int) (start, end int) // in the place of pattern
	canary   string
}

// secrets returns the detectors of keys, tokens and passwords. Canaries are put together here, so that no scanner takes this file for a leak.
func secrets() []detector {
	alnum := func(prefix string, n int) string { return prefix + strings.Repeat("aB3dE5gH7jK9mN2pQ4", n/18+1)[:n] }
	upper := "Q3EGRT5LXWZ7NPKB"
	word := func(kind, pattern string, window int, canary string, literals ...string) detector {
		return detector{kind: kind, literals: literals, pattern: regexp.MustCompile("^(?:" + pattern + ")"), window: window, whole: true, canary: canary}
	}
	return []detector{
		word("aws-access-key", `(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}`, 24, "AKIA"+upper, "AKIA", "ASIA", "ABIA", "ACCA"),
		word("github-token", `gh[pousr]_[A-Za-z0-9]{36,251}|github_pat_[A-Za-z0-9_]{50,251}`, 272, alnum("ghp_", 36), "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
		word("gitlab-token", `glpat-[A-Za-z0-9_-]{20,100}`, 112, alnum("glpat-", 20), "glpat-"),
		word("slack-token", `xox[abeoprs]-[A-Za-z0-9-]{10,250}|xapp-[A-Za-z0-9-]{20,250}`, 264, alnum("xoxb-", 24), "xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-"),
		word("slack-webhook", `hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9+/]{20,100}`, 140, "hooks.slack.com/services/T0/B0/"+alnum("", 24), "hooks.slack.com/"),
		word("stripe-key", `[sr]k_(?:live|test)_[A-Za-z0-9]{16,247}`, 256, alnum("sk_live_", 24), "sk_live_", "rk_live_", "sk_test_", "rk_test_"),
		word("anthropic-key", `sk-ant-[A-Za-z0-9_-]{20,200}`, 216, alnum("sk-ant-api03-", 40), "sk-ant-"),
		word("openai-key", `sk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{32,200}`, 216, alnum("sk-proj-", 48), "sk-"),
		word("google-api-key", `AIza[A-Za-z0-9_-]{35}`, 48, alnum("AIza", 35), "AIza"),
		word("npm-token", `npm_[A-Za-z0-9]{36}`, 48, alnum("npm_", 36), "npm_"),
		word("pypi-token", `pypi-AgEI[A-Za-z0-9_-]{50,400}`, 416, alnum("pypi-AgEI", 60), "pypi-AgEI"),
		word("sendgrid-key", `SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,64}`, 104, alnum("SG.", 22)+"."+alnum("", 43), "SG."),
		word("navra-token", `nvr_[A-Za-z0-9]{40,60}`, 72, alnum("nvr_", 49), "nvr_"),
		word("jwt", `eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`, 64<<10, alnum("eyJ", 20)+"."+alnum("eyJ", 20)+"."+alnum("", 20), "eyJ"),
		{kind: "private-key", literals: []string{"-----BEGIN "}, find: privateKey, canary: "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE\n-----END RSA " + "PRIVATE KEY-----"},
		{kind: "connection-password", literals: []string{"://"}, find: connectionPassword, check: notPlaceholder, canary: "postgres://app:" + "k3y-of-Db" + "@db.example/x"},
		{
			kind: "aws-secret-key", literals: []string{"secret_access_key", "secretaccesskey", "secret access key"}, fold: true, window: 160,
			pattern: regexp.MustCompile(`^` + between + `([A-Za-z0-9/+]{40})`), assigned: true, whole: true, check: random,
			canary: "aws_secret_access_key = " + alnum("", 40),
		},
		{
			kind: "assigned-secret", literals: secretNames, fold: true, window: 400,
			pattern: regexp.MustCompile(`^[A-Za-z0-9_-]{0,20}` + between + `([A-Za-z0-9_\-+/.~!@#$%^&*]{16,200}={0,2})`), assigned: true, longer: true, check: random,
			canary: "client_secret: " + alnum("", 30),
		},
	}
}

// between is what stands between a name and its value: quotes that may be escaped, an operator, white space.
const (
	maxBetween = 32 // bytes from the name to the operator's end
	between    = `(?:\\?["'])?\s{0,4}(?:=>|:=|=|:)\s{0,4}(?:\\?["'\x60])?`
)

// secretNames are names whose value is a secret wherever it looks random. "token" alone is not among them: pages are turned with those.
var secretNames = []string{
	"password", "passwd", "passphrase", "client_secret", "clientsecret", "secret_key", "secretkey", "secret", "api_key", "apikey", "api-key",
	"access_token", "accesstoken", "auth_token", "authtoken", "refresh_token", "refreshtoken", "bearer_token", "private_key", "privatekey", "access_key", "accesskey",
}

// look returns what d finds at a literal of its, whose length is given, and from where on that literal may stand again.
func (d *detector) look(text string, at, literal int) (found Span, ok bool, next int) {
	next = at + literal
	if d.whole && !d.assigned && inWord(text, at) {
		return Span{}, false, next
	}
	start, end := d.match(text, at, literal)
	if end <= start {
		return Span{}, false, next
	}
	for d.longer && end < len(text) && valueByte(text[end]) {
		end++
	}
	if d.whole && !alone(text, start, end) {
		return Span{}, false, max(next, end) // the word goes on: nothing begins in it
	}
	if d.check != nil && !d.check(text[start:end]) {
		return Span{}, false, next
	}
	return Span{d.kind, start, end}, true, max(next, end)
}

// match returns where the secret stands whose literal is at; end ≤ start where there is none.
func (d *detector) match(text string, at, literal int) (start, end int) {
	if d.find != nil {
		return d.find(text, at)
	}
	if d.assigned {
		at += literal
		if !strings.ContainsAny(text[at:min(len(text), at+maxBetween)], "=:") {
			return 0, 0
		}
	}
	loc := d.pattern.FindStringSubmatchIndex(text[at:min(len(text), at+d.window)])
	switch {
	case loc == nil:
		return 0, 0
	case len(loc) > 2 && loc[2] >= 0:
		return at + loc[2], at + loc[3]
	}
	return at + loc[0], at + loc[1]
}

// alone reports whether text[start:end] is not part of a longer word.
func alone(text string, start, end int) bool {
	return !inWord(text, start) && (end == len(text) || !wordByte(text[end]))
}

// maxEscape bounds an escape, in bytes.
const maxEscape = 24

// escapeEnd is what ends with a letter or digit that is of no word: an escape within text that is quoted once more, a percent-encoded byte, a terminal's colour.
var escapeEnd = regexp.MustCompile(`(?:\\[abfnrtv]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|%[0-9A-Fa-f]{2}|(?:(?:\x1b|\\x1[bB]|\\u001[bB]|\\033|\\e)\[|\x{9b})[0-9;:]{0,16}[A-Za-z])$`)

// inWord reports whether what begins at a place goes on with a word that began before.
func inWord(text string, at int) bool {
	return at > 0 && wordByte(text[at-1]) && !escapeEnd.MatchString(text[max(0, at-maxEscape):at])
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// valueByte reports whether c may stand in an assigned value.
func valueByte(c byte) bool { return wordByte(c) || strings.IndexByte("-+/.~!@#$%^&*", c) >= 0 }

// privateKey finds a whole PEM block (RFC 7468); one that does not end runs to the end of the text.
func privateKey(text string, at int) (start, end int) {
	const begin, dashes = "-----BEGIN ", "-----"
	label, _, ok := strings.Cut(text[at+len(begin):min(len(text), at+80)], dashes)
	if !ok || !strings.Contains(label, "PRIVATE KEY") {
		return 0, 0
	}
	body := at + len(begin) + len(label) + len(dashes)
	i := strings.Index(text[body:], "-----END ")
	if i < 0 {
		return at, len(text)
	}
	tail := body + i + len("-----END ")
	if j := strings.Index(text[tail:min(len(text), tail+80)], dashes); j >= 0 {
		return at, tail + j + len(dashes)
	}
	return at, len(text)
}

// connectionPassword finds the password in a URL's user information: ://USER:PASSWORD@HOST. Texts are full of URLs, most of which have none: a pattern
// would cost ten times as much.
func connectionPassword(text string, at int) (start, end int) {
	const most = 512
	rest := text[at+len("://") : min(len(text), at+most)]
	user := until(rest, `:/@"'<>`, 128)
	if user == len(rest) || rest[user] != ':' {
		return 0, 0
	}
	rest = rest[user+1:]
	password := until(rest, `/@"'<>`, 256)
	if password == 0 || password+1 >= len(rest) || rest[password] != '@' {
		return 0, 0
	}
	if host := rest[password+1]; host != '[' && (!wordByte(host) || host == '_') {
		return 0, 0
	}
	start = at + len("://") + user + 1
	return start, start + password
}

// until returns how many bytes of s stand before one of others or white space, of at most so many characters.
func until(s, others string, most int) int {
	n := 0
	for i, r := range s {
		if n == most || strings.ContainsRune(" \t\n\f\r", r) || strings.ContainsRune(others, r) {
			return i
		}
		n++
	}
	return len(s)
}

// notPlaceholder tells a password from what documentation writes in its place.
func notPlaceholder(s string) bool {
	switch strings.ToLower(s) {
	case "password", "pass", "pwd", "secret", "xxx", "***", "changeme", "your_password":
		return false
	}
	return !strings.HasPrefix(s, "$") && !strings.HasPrefix(s, "%") && !strings.HasPrefix(s, "{") && !strings.HasPrefix(s, "[secret:") && strings.Trim(s, "*x.") != ""
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`)

// minEntropy is what a random value has at least, in bits a character (Shannon, over its own characters).
const minEntropy = 3.5

// minRandom is the least length, in bytes, of a value that is judged by its looks; maxSecretName the greatest of its name.
const (
	minRandom     = 16
	maxSecretName = 64
)

// random tells a random value from words, paths, identifiers and code.
func random(s string) bool {
	if len(s) < minRandom || uuid.MatchString(s) || !notPlaceholder(s) || strings.HasPrefix(s, "http") || strings.HasPrefix(s, "/") || strings.Contains(s, "..") {
		return false
	}
	var digits, letters int
	var counts [256]int
	for i := range len(s) {
		c := s[i]
		counts[c]++
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			letters++
		}
	}
	var bits float64
	for _, n := range counts {
		if n == 0 {
			continue
		}
		p := float64(n) / float64(len(s))
		bits -= p * math.Log2(p)
	}
	return digits >= 2 && letters >= 2 && bits >= minEntropy
}
