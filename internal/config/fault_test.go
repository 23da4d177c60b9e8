package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFaults has a row for each thing that may not stand in the file. The errors are complete: place and way out are part of them.
func TestFaults(t *testing.T) {
	up := func(s string) string { return "upstreams:\n  files:\n    command: x\n    " + s + "\n" }
	for _, tt := range []struct{ name, text, want string }{
		{"an unknown key that is near", "upstreams:\n  files:\n    comand: x\n    command: x\n", `navra.yaml:3: upstreams.files: unknown key "comand" (did you mean "command"?)`},
		{"an unknown key that is not", "colour: red\n", `navra.yaml:1: unknown key "colour" (known are admin, auth, blackbox, filters, ifc, key, listen, names, principals, roles, store, telemetry, upstreams)`},
		{"a key of no release yet", "approvals: {wait: 30s}\n", `navra.yaml:1: unknown key "approvals" (known are admin, auth, blackbox, filters, ifc, key, listen, names, principals, roles, store, telemetry, upstreams)`},
		{"a time that is too short", "blackbox: {keep: 5m}\n", `navra.yaml:1: blackbox.keep: "5m" is no time such as 90d or 36h (at least 1h)`},
		{"bytes that are too few", "blackbox:\n  max_bytes: 1MiB\n", `navra.yaml:2: blackbox.max_bytes: "1MiB" is no number of bytes such as 1073741824 or 1GiB (at least 16MiB)`},
		{"bytes below none", "blackbox: {max_bytes: -1}\n", `navra.yaml:1: blackbox.max_bytes: "-1" is no number of bytes such as 1073741824 or 1GiB (at least 16MiB)`},
		{"bytes in another unit", "blackbox: {max_bytes: 10 GB}\n", `navra.yaml:1: blackbox.max_bytes: "10 GB" is no number of bytes such as 1073741824 or 1GiB (at least 16MiB)`},
		{"more bytes than there are", "blackbox: {max_bytes: 99999999TiB}\n", `navra.yaml:1: blackbox.max_bytes: "99999999TiB" is no number of bytes such as 1073741824 or 1GiB (at least 16MiB)`},
		{"bytes that are a list", "blackbox: {max_bytes: [1]}\n", "navra.yaml:1: blackbox.max_bytes: want text, not a list"},
		{"bytes of nothing", "blackbox: {max_bytes: }\n", "navra.yaml:1: blackbox.max_bytes: want text, not nothing"},
		{"too many days", "blackbox: {keep: 99999d}\n", `navra.yaml:1: blackbox.keep: "99999d" is no time such as 90d or 36h (at least 1h)`},
		{"a collector without an address", "blackbox: {ship: {otlp: {payloads: true}}}\n", `navra.yaml:1: blackbox.ship.otlp: endpoint is missing, such as https://collector.example`},
		{"no collector", "blackbox: {ship: {}}\n", `navra.yaml:1: blackbox.ship: it says nothing; it needs otlp`},
		{"a collector over another protocol", "blackbox: {ship: {otlp: {endpoint: \"grpc://hunter2\"}}}\n", `navra.yaml:1: blackbox.ship.otlp.endpoint: want an address such as https://collector.example`},
		{"a password in its address", "blackbox: {checkpoint_to: \"https://u:hunter2@h/\"}\n", `navra.yaml:1: blackbox.checkpoint_to: a user and password in the address are not taken; use headers, such as Authorization: "Bearer ${env:TOKEN}"`},
		{"a request that may take for ever", "blackbox: {checkpoint_to: {url: \"https://h/\", timeout: 2m}}\n", `navra.yaml:1: blackbox.checkpoint_to.timeout: want 1m0s at most`},
		{"a time in no unit", "blackbox: {keep: 90}\n", `navra.yaml:1: blackbox.keep: "90" is no time such as 90d or 36h (at least 1h)`},
		{"a doubled key", "store: a\nstore: b\n", `navra.yaml:2: key "store" is given twice`},
		{"a doubled upstream", "upstreams:\n  a: {command: x}\n  a: {command: y}\n", `navra.yaml:3: upstreams: key "a" is given twice`},
		{"a key that is a list", "[a]: b\n", "navra.yaml:1: a key must be plain text"},
		{"a key that breaks lines", "upstreams: {a: {command: x, tools: {\"a\\nb\": {class: x}}}}", `navra.yaml:1: upstreams.a.tools."a\nb".class: "x" is none of read, write, egress`},

		{"nothing", "", `navra.yaml:1: the file is empty; it needs at least "upstreams:"`},
		{"only a comment", "# nothing\n", `navra.yaml:1: the file is empty; it needs at least "upstreams:"`},
		{"an empty document", "~\n", `navra.yaml:1: the file is empty; it needs at least "upstreams:"`},
		{"a list", "- a\n", "navra.yaml:1: want a mapping of keys to values, not a list"},
		{"two documents", "store: a\n---\nstore: b\n", "navra.yaml:2: a second document starts here; want one document"},
		{"a second document that is broken", "store: a\n---\n{\n", "navra.yaml:4: did not find expected node content"},
		{"bad grammar", "store: a\nlisten: [\n", "navra.yaml:3: did not find expected node content"},
		{"a key that is indented too little", "store: a\nupstreams:\n    a: {command: x}\n  b: {command: y}\n", "navra.yaml:4: did not find expected key"},
		{"a quote that does not end", "store: a\nlisten: \"b\n", "navra.yaml:2: found unexpected end of stream"},
		{"text after a list", "store: a\nlisten: [a] b\nauth: none\n", "navra.yaml:2: did not find expected key"},
		{"a colon in text", "store: a\nlisten: b: c\n", "navra.yaml:2: mapping values are not allowed in this context"},
		{"a tab", "upstreams:\n\ta: b\n", "navra.yaml:2: found character that cannot start any token; text that begins with @, % or ` goes in quotes, and lines are indented with spaces, not tabs"},
		{"an at sign", "listen: @a\n", "navra.yaml:1: found character that cannot start any token; text that begins with @, % or ` goes in quotes, and lines are indented with spaces, not tabs"},

		{"an anchor", "store: &a x\n", "navra.yaml:1: store: " + noAnchors},
		{"an alias", "store: &a x\nlisten: *a\n", "navra.yaml:1: store: " + noAnchors + "\nnavra.yaml:2: listen: " + noAnchors},
		{"an anchor on a mapping", "ifc: &a {on_violation: ask}\n", "navra.yaml:1: ifc: " + noAnchors},
		{"a glob that wants quotes", "store: a\nroles: {r: {rules: [{allow: {tools: [*]}}]}}\n", "navra.yaml:2: " + noAnchors},
		{"a secret that wants quotes", up("env:\n      PASSWORD: *hunter2"), "navra.yaml:5: " + noAnchors},
		{"a merge key", "roles:\n  <<: {a: {}}\n", "navra.yaml:2: roles: the merge key << is not taken"},
		{"a type of one's own", "store: !path x\n", `navra.yaml:1: store: the type "!path" is not taken`},
		{"a binary value", up("env: {A: !!binary aHVudGVyMg==}"), `navra.yaml:4: upstreams.files.env.A: the type "!!binary" is not taken`},

		{"listen without a port", "listen: localhost\n", `navra.yaml:1: listen: "localhost" is no address such as 127.0.0.1:8420`},
		{"listen without a host", "listen: \":8420\"\n", `navra.yaml:1: listen: ":8420" is no address such as 127.0.0.1:8420`},
		{"listen with a port alone", "listen: 8420\n", "navra.yaml:1: listen: want text, not a number or date; text goes in quotes"},
		{"a port that is too high", "listen: localhost:65536\n", `navra.yaml:1: listen: "localhost:65536" is no address such as 127.0.0.1:8420`},
		{"a port that is a word", "listen: localhost:http\n", `navra.yaml:1: listen: "localhost:http" is no address such as 127.0.0.1:8420`},
		{"a port with a sign", "listen: localhost:+80\n", `navra.yaml:1: listen: "localhost:+80" is no address such as 127.0.0.1:8420`},
		{"listen without an address", "listen: {allowed_origins: []}\n", `navra.yaml:1: listen: the address is missing, such as "address: 127.0.0.1:8420"`},
		{"an origin with a path", "listen: {address: a:1, allowed_origins: [\"https://a.example/\"]}\n", `navra.yaml:1: listen.allowed_origins[0]: "https://a.example/" is no origin such as https://app.example`},
		{"an origin without a scheme", "listen:\n  address: a:1\n  allowed_origins:\n  - https://a.example\n  - b.example\n", `navra.yaml:5: listen.allowed_origins[1]: "b.example" is no origin such as https://app.example`},
		{"every origin", "listen: {address: a:1, allowed_origins: [\"*\"]}\n", `navra.yaml:1: listen.allowed_origins[0]: "*" is no origin such as https://app.example`},
		{"auth of another word", "auth: tokens\n", "navra.yaml:1: auth: want {tokens: true}, or the word none"},
		{"auth of nothing", "auth:\n", "navra.yaml:1: auth: want {tokens: true}, or the word none"},
		{"tokens of another type", "auth: {tokens: \"true\"}\n", "navra.yaml:1: auth.tokens: want true or false, not text"},
		{"auth of another key", "auth: {token: true}\n", `navra.yaml:1: auth: unknown key "token" (did you mean "tokens"?)`},

		{"a store of another type", "store: [a]\n", "navra.yaml:1: store: want text, not a list"},
		{"an empty store", "store: \"\"\n", "navra.yaml:1: store: the path is empty"},
		{"a store at home", "store: ~/navra.db\n", "navra.yaml:1: store: ~ is not known here; write the whole path"},
		{"a store that is another URL", "store: mysql://u:hunter2@h/d\n", "navra.yaml:1: store: want the path of a file or a URL that starts with postgres://"},
		{"a store with an unknown reference", "store: 'postgres://u:hunter2${vault:x}@h/d'\n", "navra.yaml:1: store: ${…} must be ${env:NAME} or ${file:PATH}"},
		{"a store with a NUL", "store: \"postgres://u:hunter2\\0@h/d\"\n", "navra.yaml:1: store: it holds a NUL character"},
		{"an empty key", "key: \"\"\n", "navra.yaml:1: key: the path is empty"},
		{"a reference where no secret belongs", "store: ${env:STORE}\n", "navra.yaml:1: store: ${…} may stand only in env, in headers and in a store that is a URL"},
		{"a NUL", "store: \"a\\0\"\n", "navra.yaml:1: store: it holds a NUL character"},

		{"an upstream's name in capitals", "upstreams: {Files: {command: x}}\n", "navra.yaml:1: upstreams.Files: " + badName},
		{"an upstream's name with __", "upstreams: {a__b: {command: x}}\n", "navra.yaml:1: upstreams.a__b: " + badName},
		{"an upstream named navra", "upstreams: {navra: {command: x}}\n", "navra.yaml:1: upstreams.navra: " + badName},
		{"an upstream named self", "upstreams: {self: {command: x}}\n", "navra.yaml:1: upstreams.self: " + badName},
		{"an upstream's name that is too long", "upstreams: {" + strings.Repeat("a", 33) + ": {command: x}}\n", "navra.yaml:1: upstreams." + strings.Repeat("a", 33) + ": " + badName},
		{"an upstream of nothing", "upstreams:\n  a:\n", "navra.yaml:2: upstreams.a: want a mapping of keys to values, not nothing"},
		{"no command", "upstreams:\n  a: {cwd: .}\n", `navra.yaml:2: upstreams.a: the command is missing, such as "command: [npx, -y, some-server]", or the url, such as "url: https://mcp.example/mcp"`},
		{"an empty command", "upstreams: {a: {command: []}}\n", "navra.yaml:1: upstreams.a.command: the command is empty"},
		{"an empty program", "upstreams: {a: {command: [\"\", x]}}\n", "navra.yaml:1: upstreams.a.command: the command is empty"},
		{"a command line", "upstreams: {a: {command: npx -y server}}\n", "navra.yaml:1: upstreams.a.command: a program with arguments is a list, such as [npx, -y, some-server]"},
		{"a command of mappings", "upstreams: {a: {command: [x, {a: b}]}}\n", "navra.yaml:1: upstreams.a.command: want text, not a mapping"},
		{"a command that is a mapping", "upstreams: {a: {command: {a: b}}}\n", "navra.yaml:1: upstreams.a.command: want text, not a mapping"},
		{"a reference in the command", "upstreams: {a: {command: [x, \"${env:T}\"]}}\n", "navra.yaml:1: upstreams.a.command: ${…} may stand only in env, in headers and in a store that is a URL"},
		{"env that is a list", up("env: [A=hunter2]"), "navra.yaml:4: upstreams.files.env: want a mapping of keys to values, not a list"},
		{"env that is text", up("env: A=hunter2"), "navra.yaml:4: upstreams.files.env: want a mapping of keys to values, not text"},
		{"env with = in a name", up("env: {A=hunter2}"), "navra.yaml:4: upstreams.files.env: a variable's name is empty or holds = or NUL; want NAME: value"},
		{"env of a list", up("env: {A: [hunter2]}"), "navra.yaml:4: upstreams.files.env.A: want text, not a list"},
		{"env of nothing", up("env: {A: }"), "navra.yaml:4: upstreams.files.env.A: want text, not nothing"},
		{"env with a NUL", up(`env: {A: "hunter2\0"}`), "navra.yaml:4: upstreams.files.env.A: it holds a NUL character"},
		{"env with an unknown reference", up("env: {A: 'hunter2${vault:x}'}"), "navra.yaml:4: upstreams.files.env.A: ${…} must be ${env:NAME} or ${file:PATH}"},
		{"env with a shell's reference", up("env: {A: '${HOME}'}"), "navra.yaml:4: upstreams.files.env.A: ${…} must be ${env:NAME} or ${file:PATH}"},
		{"env with a reference to nothing", up("env: {A: '${env:}'}"), "navra.yaml:4: upstreams.files.env.A: ${…} must be ${env:NAME} or ${file:PATH}"},
		{"env with a reference that does not end", up("env: {A: '${env:X'}"), "navra.yaml:4: upstreams.files.env.A: ${…} must be ${env:NAME} or ${file:PATH}"},
		{"env with a reference in one", up("env: {A: '${env:${env:X}}'}"), "navra.yaml:4: upstreams.files.env.A: ${…} must be ${env:NAME} or ${file:PATH}"},
		{"another prefix", up("prefix: files_"), `navra.yaml:4: upstreams.files.prefix: "files_" is not taken; want none, or leave it out`},
		{"another integrity", up("label: {integrity: high}"), `navra.yaml:4: upstreams.files.label.integrity: "high" is none of trusted, untrusted, suspect`},
		{"another confidentiality", up("label: {confidentiality: private}"), `navra.yaml:4: upstreams.files.label.confidentiality: "private" is none of public, sensitive, pii, secret`},
		{"another class", up("tools: {get: {class: network}}"), `navra.yaml:4: upstreams.files.tools.get.class: "network" is none of read, write, egress`},
		{"a tool of nothing", up("tools: {get: {}}"), "navra.yaml:4: upstreams.files.tools.get: it says nothing of the tool; it needs class"},
		{"a time-out without a unit", up("timeouts: {call: 30}"), `navra.yaml:4: upstreams.files.timeouts.call: "30" is no duration such as 30s or 5m (at most 24h)`},
		{"no time-out", up("timeouts: {call: 0s}"), `navra.yaml:4: upstreams.files.timeouts.call: "0s" is no duration such as 30s or 5m (at most 24h)`},
		{"a time-out below none", up("timeouts: {call: -1s}"), `navra.yaml:4: upstreams.files.timeouts.call: "-1s" is no duration such as 30s or 5m (at most 24h)`},
		{"too long a time-out", up("timeouts: {connect: 25h}"), `navra.yaml:4: upstreams.files.timeouts.connect: "25h" is no duration such as 30s or 5m (at most 24h)`},

		{"an unknown role", "principals:\n  ann:\n    roles:\n    - reader\n    - writer\nroles: {reader: {}}\n", `navra.yaml:5: principals.ann.roles: role "writer" is not defined under roles`},
		{"roles that are a word", "principals: {ann: {roles: reader}}\n", "navra.yaml:1: principals.ann.roles: want a list, not text"},
		{"a principal named navra", "principals: {navra: {roles: []}}\n", `navra.yaml:1: principals: "navra" can be no principal's name`},
		{"a built-in role", "roles: {local-default: {}}\n", `navra.yaml:1: roles: the role "local-default" is built in; give yours another name`},
		{"a role without a name", "roles: {\"\": {}}\n", "navra.yaml:1: roles: a role's name is empty"},
		{"another clearance", "roles: {r: {clearance: top}}\n", `navra.yaml:1: roles.r.clearance: "top" is none of public, sensitive, pii, secret`},
		{"rules that are a mapping", "roles: {r: {rules: {allow: {}}}}\n", "navra.yaml:1: roles.r.rules: want a list, not a mapping"},
		{"another effect", "roles: {r: {rules: [{permit: {}}]}}\n", `navra.yaml:1: roles.r.rules[0]: unknown key "permit" (known are allow, ask, deny)`},
		{"an empty rule", "roles: {r: {rules: [{}]}}\n", "navra.yaml:1: roles.r.rules[0]: the rule is empty; it needs allow, ask or deny"},
		{"a rule that names nothing", "roles: {r: {rules: [{deny: {}}]}}\n", "navra.yaml:1: roles.r.rules[0].deny: it names nothing; it needs tools, prompts, resources or client"},
		{"a pattern without an upstream", "roles: {r: {rules: [{allow: {tools: [get]}}]}}\n", `navra.yaml:1: roles.r.rules[0].allow.tools[0]: pattern "get": ` + badPattern},
		{"a pattern with half an upstream", "roles: {r: {rules: [{allow: {prompts: [a/b, \"f*/get\"]}}]}}\n", `navra.yaml:1: roles.r.rules[0].allow.prompts[1]: pattern "f*/get": ` + badPattern},
		{"a pattern with two stars", "roles: {r: {rules: [{allow: {tools: [\"**\"]}}]}}\n", `navra.yaml:1: roles.r.rules[0].allow.tools[0]: pattern "**": ` + badPattern},
		{"a pattern of no name", "roles: {r: {rules: [{allow: {tools: [\"a/\"]}}]}}\n", `navra.yaml:1: roles.r.rules[0].allow.tools[0]: pattern "a/": ` + badPattern},
		{"an empty URI", "roles: {r: {rules: [{deny: {resources: [\"\"]}}]}}\n", `navra.yaml:1: roles.r.rules[0].deny.resources[0]: the pattern is empty; want a URI such as "file:///repo/**", or * alone`},

		{"another answer to a violation", "ifc: {on_violation: log}\n", `navra.yaml:1: ifc.on_violation: "log" is none of deny, ask, observe`},
		{"no answer to a violation", "ifc: {on_violation: }\n", "navra.yaml:1: ifc.on_violation: want text, not nothing"},
		{"another action on results", "filters: {secrets: {results: ask}}\n", `navra.yaml:1: filters.secrets.results: "ask" is none of record, pseudonymise, deny`},
		{"another action on arguments", "filters: {secrets: {arguments: true}}\n", "navra.yaml:1: filters.secrets.arguments: want text, not true or false; text goes in quotes"},
		{"another filter", "filters: {pii: {}}\n", `navra.yaml:1: filters: unknown key "pii" (known are secrets)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse("navra.yaml", []byte(tt.text))
			if err == nil {
				t.Fatalf("taken: %+v", f)
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Error(diff)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Error("the error shows a secret")
			}
		})
	}
}

const (
	badName    = "an upstream's name is of a-z, 0-9, - and _, begins with a letter or digit, has at most 32 of them and no __, and is not navra or self"
	badPattern = "want UPSTREAM/NAME, where UPSTREAM is a name or *, or * alone"
)

func TestFaultsAreGathered(t *testing.T) {
	_, err := Parse("navra.yaml", []byte(strings.Repeat("x: 1\n", 30)))
	if err == nil {
		t.Fatal("taken")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != maxErrors || !strings.HasPrefix(lines[maxErrors-1], "navra.yaml:10: ") {
		t.Errorf("%d errors, want the first %d:\n%v", len(lines), maxErrors, err)
	}
}

func TestParseSize(t *testing.T) {
	if _, err := Parse("navra.yaml", []byte("#"+strings.Repeat("x", maxFile))); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("Parse = %v", err)
	}
}

func TestAliasesAreNotExpanded(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'z'; c++ {
		bomb += string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 9), ",") + "]\n"
	}
	if _, err := Parse("navra.yaml", []byte(bomb)); err == nil || !strings.Contains(err.Error(), noAnchors) {
		t.Errorf("Parse = %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{whole, "", "---\n", "a: *b\n", "store: &a x\n", "store: a\n---\nb\n", "upstreams: {a: {command: [x], env: {A: '${file:b}'}}}", "? [a]\n: b\n", "\xff\xfea\x00", "auth: none\n...\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Parse("navra.yaml", b)
		if (file == nil) == (err == nil) {
			t.Fatalf("Parse = %v, %v", file, err)
		}
		if err != nil {
			if n := strings.Count(err.Error(), "\nnavra.yaml:"); n >= maxErrors {
				t.Errorf("%d errors", n+1)
			}
			return
		}
		again, err := Parse("navra.yaml", b)
		if err != nil || again.Digest() != file.Digest() {
			t.Errorf("a second reading differs: %v", err)
		}
		for _, u := range file.Upstreams {
			if len(u.Command) == 0 || u.Connect <= 0 || u.Call <= 0 {
				t.Errorf("upstream %+v", u)
			}
		}
	})
}
