package filter

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"navra/internal/jsonrpc"
)

func set(t testing.TB) *Set {
	t.Helper()
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func kinds(spans []Span) (out []string) {
	for _, sp := range spans {
		out = append(out, sp.Kind)
	}
	return out
}

// mix is n characters that look random; the tests put secrets together at run time.
func mix(n int) string { return strings.Repeat("aB3dE5gH7jK9mN2pQ4", n/18+1)[:n] }

func TestFindsSecrets(t *testing.T) {
	s := set(t)
	aws := "AKIA" + "Q3EGRT5LXWZ7NPKB"
	pem := "-----BEGIN EC " + "PRIVATE KEY-----\nMHcCAQEE\nabc=\n-----END EC " + "PRIVATE KEY-----"
	jwt := "eyJ" + mix(20) + ".eyJ" + mix(30) + "." + mix(43)
	for _, tt := range []struct{ kind, secret string }{
		{"aws-access-key", aws}, {"aws-access-key", "ASIA" + "Q3EGRT5LXWZ7NPKB"},
		{"github-token", "ghp_" + mix(36)}, {"github-token", "gho_" + mix(36)}, {"github-token", "ghs_" + mix(40)}, {"github-token", "github_pat_" + mix(82)},
		{"gitlab-token", "glpat-" + mix(20)}, {"slack-token", "xoxb-" + "123456789012-" + mix(24)}, {"slack-token", "xapp-1-" + mix(40)},
		{"stripe-key", "sk_live_" + mix(24)}, {"stripe-key", "rk_live_" + mix(24)}, {"anthropic-key", "sk-ant-api03-" + mix(90)},
		{"openai-key", "sk-" + mix(48)}, {"openai-key", "sk-proj-" + mix(120)}, {"google-api-key", "AIza" + mix(35)}, {"npm-token", "npm_" + mix(36)},
		{"pypi-token", "pypi-AgEI" + mix(120)}, {"sendgrid-key", "SG." + mix(22) + "." + mix(43)}, {"navra-token", "nvr_" + mix(49)}, {"jwt", jwt},
		{"private-key", pem}, {"slack-webhook", "hooks.slack.com/services/T0A/B0B/" + mix(24)},
	} {
		for _, around := range []string{"%s", "key=%s", "key: %s,", `"%s"`, "<%s>", "see %s.", "\n%s\n", "(%s)", "`%s`", "日本%s語", "%[1]s %[1]s",
			"\x1b[31m%s\x1b[0m", "\u009b1;31m%s", `\u001b[32m%s\u001b[0m`, `\x1b[0m%s`, `a line\n%s\n`, `\t%s`, `\u000a%s`, "q%%3D%s"} {
			text := fmt.Sprintf(around, tt.secret)
			spans := s.Scan(text)
			if len(spans) == 0 || spans[0].Kind != tt.kind || text[spans[0].Start:spans[0].End] != tt.secret {
				t.Errorf("%s in %q: found %v", tt.kind, around, spans)
			}
		}
	}
	for text, want := range map[string]string{
		"postgres://app:" + "k3yDb" + "@db.example/x":                                          "k3yDb",
		"mongodb+srv://u:" + "p-9_!x" + "@cluster.example":                                     "p-9_!x",
		"https://bob:" + "hunter22" + "@git.example/repo.git":                                  "hunter22",
		"redis://:" + "s3cr3tpw" + "@cache.example:6379":                                       "s3cr3tpw",
		"aws_secret_access_key = " + mix(40):                                                   mix(40),
		`{"SecretAccessKey": "` + mix(40) + `"}`:                                               mix(40),
		"client_secret: " + mix(30):                                                            mix(30),
		`API_KEY="` + mix(32) + `"`:                                                            mix(32),
		`db.password=` + mix(20):                                                               mix(20),
		`\"refresh_token\": \"` + mix(40) + `\"`:                                               mix(40),
		"-----BEGIN " + "PRIVATE KEY-----\nMIIE unfinished":                                    "-----BEGIN " + "PRIVATE KEY-----\nMIIE unfinished",
		`-----BEGIN OPENSSH ` + `PRIVATE KEY-----\nb3\n-----END OPENSSH ` + `PRIVATE KEY-----`: `-----BEGIN OPENSSH ` + `PRIVATE KEY-----\nb3\n-----END OPENSSH ` + `PRIVATE KEY-----`,
	} {
		spans := s.Scan(text)
		if len(spans) != 1 || text[spans[0].Start:spans[0].End] != want {
			t.Errorf("Scan(%q) = %v, want the span of %q", text, spans, want)
		}
	}
}

func TestLeavesAlone(t *testing.T) {
	s := set(t)
	for _, text := range []string{
		"", "hello world", "550e8400-e29b-41d4-a716-446655440000", "trace 4bf92f3577b34da6a3ce929d0e0e4736", "commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
		"sha512-" + base64.StdEncoding.EncodeToString(make([]byte, 64)), "AKIA is a prefix", "AKIAshort", "XAKIA" + "Q3EGRT5LXWZ7NPKB", "AKIA" + "Q3EGRT5LXWZ7NPKB" + "X",
		"the password is secret", "password: changeme", "password = os.Getenv(\"DB_PASSWORD\")", "passwordHash := bcrypt.GenerateFromPassword(pw, cost)",
		"api_key: your-api-key-goes-here", "api_key = ${API_KEY}", "secret: [secret:jwt:1]", "client_secret=<client-secret-here-please>", "nextPageToken: CAUQAA9xk22bB1aZ8q",
		"postgres://user:password@localhost/db", "postgres://user:$PW@host/db", "https://example.com:8080/path@x", "http://[::1]:80/", "ssh://git@github.com/x/y", "see https://a.example/b:c@d",
		"sk-learn", "sk-short", "ask-me-anything-about-this-very-long-kebab-cased-name", "eyJ is how a JWT begins", "npm_config_cache=/tmp", "xoxo, gossip", "task_live_in_the_moment_of_this",
		"-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----", "ghp_short", "glpat-", "SG.", "secret_santa_2024_list_of_names_here",
		"accessKey: user.accessKeyId ?? defaults.accessKeyId", "password=/etc/ssl/private/database/password", "refresh_token_url=https://auth.example/v1/token123",
		"passphrase: correct horse battery staple", "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ", "0123456789abcdef0123456789abcdef", "AIza short",
	} {
		if spans := s.Scan(text); len(spans) > 0 {
			t.Errorf("Scan(%q) = %v, want nothing", text, kinds(spans))
		}
	}
}

func TestApply(t *testing.T) {
	s := set(t)
	aws := "AKIA" + "Q3EGRT5LXWZ7NPKB"
	image := base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n" + aws)) // would be found if it were decoded
	latin := base64.StdEncoding.EncodeToString([]byte("\xe9 " + aws))
	plain := base64.StdEncoding.EncodeToString([]byte("\xe9 X"))
	blob := base64.StdEncoding.EncodeToString([]byte("key " + aws))
	binary := base64.StdEncoding.EncodeToString([]byte{0xff, 0xfe, 0})
	replaced := base64.StdEncoding.EncodeToString([]byte("key X"))
	for _, tt := range []struct {
		name, in, want string
		found          int
	}{
		{"text", `{"content":[{"type":"text","text":"` + aws + `"}]}`, `{"content":[{"type":"text","text":"X"}]}`, 1},
		{"structured twin", `{"a":"` + aws + `","structuredContent":{"k":["` + aws + `",1.50]}}`, `{"a":"X","structuredContent":{"k":["X",1.50]}}`, 2},
		{"a name", `{"` + aws + `":1}`, `{"X":1}`, 1},
		{"numbers and order stay", `{"z":12345678901234567890,"a":"` + aws + `","m":1e400}`, `{"z":12345678901234567890,"a":"X","m":1e400}`, 1},
		{"an image passes", `{"type":"image","data":"` + image + `"}`, `{"type":"image","data":"` + image + `"}`, 0},
		{"text that says it is an image does not", `{"type":"image","data":"` + aws + `"}`, `{"type":"image","data":"X"}`, 1},
		{"a tree that says it is an image does not", `{"type":"audio","data":{"k":"` + aws + `"}}`, `{"type":"audio","data":{"k":"X"}}`, 1},
		{"a blob in another encoding", `{"uri":"x://y","blob":"` + latin + `"}`, `{"uri":"x://y","blob":"` + plain + `"}`, 1},
		{"data that is no image does not", `{"type":"text","data":"` + aws + `"}`, `{"type":"text","data":"X"}`, 1},
		{"a blob that is text", `{"uri":"x://y","blob":"` + blob + `"}`, `{"uri":"x://y","blob":"` + replaced + `"}`, 1},
		{"a blob that is not", `{"uri":"x://y","blob":"` + binary + `"}`, `{"uri":"x://y","blob":"` + binary + `"}`, 0},
		{"by the member's name", `{"password":"` + mix(24) + `"}`, `{"password":"X"}`, 1},
		{"not by another name", `{"cursor":"` + mix(24) + `"}`, `{"cursor":"` + mix(24) + `"}`, 0},
	} {
		in, err := jsonrpc.ParseValue([]byte(tt.in))
		if err != nil {
			t.Fatal(err)
		}
		got, found, err := s.Apply(in, func(Finding) (string, bool) { return "X", true })
		if err != nil || string(got) != tt.want || len(found) != tt.found {
			t.Errorf("%s: Apply = %s, %d found, %v, want %s, %d", tt.name, got, len(found), err, tt.want, tt.found)
		}
		if same, again, err := s.Apply(in, nil); err != nil || string(same) != string(in) || len(again) != tt.found {
			t.Errorf("%s: only looking gives %s, %d found, %v", tt.name, same, len(again), err)
		}
	}
	two, _ := jsonrpc.ParseValue([]byte(`{"` + aws + `":1,"ASIA` + "Q3EGRT5LXWZ7NPKB" + `":2}`))
	if _, _, err := s.Apply(two, func(Finding) (string, bool) { return "X", true }); err == nil {
		t.Error("two names became one without an error")
	}
	huge := jsonrpc.Array(slices.Repeat([]jsonrpc.Raw{jsonrpc.Quote(strings.Repeat("x", 1<<20))}, 17)...)
	if _, _, err := s.Apply(huge, nil); err == nil {
		t.Error("more text than the budget was passed")
	}
}

// The cost of hostile text grows with its bytes. The bound is far above what it takes, and far below what a quadratic scan would.
func TestHostileTextIsCheap(t *testing.T) {
	s := set(t)
	for name, text := range map[string]string{
		"jwt beginnings":    strings.Repeat("eyJ", 100_000),
		"slack beginnings":  strings.Repeat("xoxb-", 60_000),
		"names":             strings.Repeat("password=", 30_000),
		"names and colons":  strings.Repeat("secret:", 40_000),
		"addresses":         strings.Repeat("://a:", 60_000),
		"keys that open":    strings.Repeat("-----BEGIN ", 30_000),
		"private keys open": strings.Repeat("-----BEGIN PRIVATE KEY-----", 10_000),
		"sk":                strings.Repeat("sk-", 100_000),
	} {
		done := make(chan struct{})
		go func() { s.Scan(text); close(done) }()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Errorf("%s: not done after 20 s", name)
		}
	}
	wide := jsonrpc.Raw(`{"` + strings.Repeat("A", 40_000) + `":[` + strings.Repeat(`"",`, 4000) + `""]}`)
	if _, _, err := s.Apply(wide, nil); err != nil {
		t.Error(err)
	}
}

func TestKnownValuesAreFoundAnywhere(t *testing.T) {
	s := set(t)
	a, b, short := mix(24), "pa$$w0rd!", "k3yDb"
	k := s.Knowing([]Finding{{"assigned-secret", a}, {"connection-password", b}, {"connection-password", short}, {"assigned-secret", a[:12]}})
	for text, want := range map[string][]string{
		"x" + a + "x":               {"assigned-secret"},
		a + a:                       {"assigned-secret", "assigned-secret"},
		"é" + b + "é":               {"connection-password"},
		"client_secret: " + a:       {"assigned-secret"},
		a[:23]:                      {"assigned-secret"}, // the other, which begins alike
		a[:11]:                      nil,
		"the " + short + " of text": nil, // too short to be looked for
	} {
		if got := kinds(k.Scan(text)); !slices.Equal(got, want) {
			t.Errorf("Scan(%q) = %v, want %v", text, got, want)
		}
	}
	if spans := s.Scan("x" + a + "x"); len(spans) > 0 {
		t.Errorf("the set itself knows them: %v", spans)
	}
}

func TestLongSecretsAreFoundWhole(t *testing.T) {
	text := "password: " + mix(500) + " end"
	spans := set(t).Scan(text)
	if len(spans) != 1 || text[spans[0].Start:spans[0].End] != mix(500) {
		t.Errorf("Scan = %v", spans)
	}
}

func TestPlaceholders(t *testing.T) {
	text := "a [secret:jwt:1] b[secret:aws-access-key:12][secret:x:0][secret:X:1][secret:jwt:]"
	refs := FindPlaceholders(text)
	if len(refs) != 2 || text[refs[0].Start:refs[0].End] != Placeholder("jwt", 1) || refs[1].Kind != "aws-access-key" || refs[1].N != 12 {
		t.Errorf("FindPlaceholders = %+v", refs)
	}
}

func TestNewRefusesABlindDetector(t *testing.T) {
	for _, d := range secrets() {
		d.literals = []string{"\x00never"}
		if spans := newIndex([]detector{d}).scan("x = "+d.canary+" y", nil); len(spans) > 0 {
			t.Errorf("%s finds its canary without its literals: the canary proves nothing", d.kind)
		}
	}
}

// oneByOne is what detectors find in a text, each looking through it for each of its literals.
func oneByOne(detectors []detector, text string) (out []Span) {
	small := strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, text)
	for _, d := range detectors {
		hay := text
		if d.fold {
			hay = small
		}
		for _, literal := range d.literals {
			for from := 0; ; {
				i := strings.Index(hay[from:], literal)
				if i < 0 {
					break
				}
				span, ok, next := d.look(text, from+i, len(literal))
				if from = next; ok {
					out = append(out, span)
				}
			}
		}
	}
	return out
}

// FuzzIndex: all literals looked for in one pass find what each finds by itself, in the same order.
func FuzzIndex(f *testing.F) {
	s := set(f)
	for _, d := range secrets() {
		f.Add(d.canary+" and "+d.canary, d.canary)
		for _, literal := range d.literals {
			f.Add(literal+literal+" "+mix(40), strings.ToUpper(literal)+`" = "`+mix(40))
		}
	}
	f.Add("secret_key: "+mix(30)+"secret_key: "+mix(20), "\xffpassword=\xff")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, text := range []string{a, b, a + b, b + "=" + a} {
			if !utf8.ValidString(text) {
				text = strings.ToValidUTF8(text, "?") // else oneByOne's small letters stand elsewhere
			}
			if got, want := s.index.scan(text, nil), oneByOne(s.detectors, text); !slices.Equal(got, want) {
				t.Fatalf("in %q: %v, one by one %v", text, got, want)
			}
		}
	})
}

// FuzzConnectionPassword: it is what this pattern finds.
func FuzzConnectionPassword(f *testing.F) {
	pattern := regexp.MustCompile(`^://[^\s:/@"'<>]{0,128}:([^\s@/"'<>]{1,256})@[A-Za-z0-9\[]`)
	for _, text := range []string{"u:p@h", ":p@h", "u:p@", "u:@h", "u:p:q@[::1]", "u:p@_h", "host/path:1@x", "é:ü@h", "u\v:p@h", strings.Repeat("é", 128) + ":" + strings.Repeat("x", 200) + "@h", strings.Repeat("x", 129) + ":y@h", strings.Repeat("x", 600) + ":y@h", "u:" + strings.Repeat("p", 257) + "@h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = "://" + text
		start, end := connectionPassword(text, 0)
		want := pattern.FindStringSubmatchIndex(text[:min(len(text), 512)])
		if want == nil {
			want = make([]int, 4)
		}
		if start != want[2] || end != want[3] {
			t.Errorf("in %q: %d to %d, want %v", text, start, end, want[2:])
		}
	})
}

func FuzzScan(f *testing.F) {
	s := set(f)
	for _, d := range secrets() {
		f.Add(d.canary)
	}
	f.Add("password=é\xff" + mix(20))
	f.Fuzz(func(t *testing.T, text string) {
		last := 0
		for _, sp := range s.Scan(text) {
			if sp.Start < last || sp.End <= sp.Start || sp.End > len(text) {
				t.Fatalf("spans overlap or leave the text: %+v", sp)
			}
			if utf8.ValidString(text) && (!utf8.ValidString(text[sp.Start:sp.End]) || !utf8.ValidString(text[:sp.Start])) {
				t.Fatalf("span %+v cuts a character", sp)
			}
			last = sp.End
		}
	})
}

func FuzzApply(f *testing.F) {
	s := set(f)
	f.Add([]byte(`{"content":[{"type":"text","text":"AKIA` + "Q3EGRT5LXWZ7NPKB" + `"}],"blob":"eA==","uri":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := jsonrpc.ParseValue(b)
		if err != nil {
			return
		}
		out, _, err := s.Apply(v, func(Finding) (string, bool) { return "[x]", true })
		if err != nil {
			return
		}
		if again, err := jsonrpc.ParseValue(out); err != nil || string(again) != string(out) {
			t.Fatalf("Apply(%s) = %s: %v", v, out, err)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	s := set(b)
	prose := strings.Repeat("The quick brown fox asks for the password of the lazy dog, and gets none. ", 900)
	for _, n := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("prose/%dKB", n>>10), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				s.Scan(prose[:n])
			}
		})
	}
}
