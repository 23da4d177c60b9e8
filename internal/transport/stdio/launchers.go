package stdio

// launchers are programs that start another one and hold no conversation themselves: a host is looked for above them. One
// that is missing here makes a scope too narrow, one too many makes it wider; in doubt a program belongs here.
var launchers = set(
	"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "nu", "pwsh", "powershell", "cmd", // shells
	"env", "timeout", "nice", "nohup", "setsid", "xargs", "stdbuf", "ionice",
	"npx", "npm", "pnpm", "pnpx", "yarn", "yarnpkg", "corepack", "bun", "bunx", "uv", "uvx", "pipx",
	"direnv", "mise", "asdf", "volta", "volta-shim",
	"sudo", "doas", "su", "bwrap", "firejail", "docker", "podman", "tini", "dumb-init",
)

// supervisor is the first argument of the process that a navra starts its upstreams under: where one is a navra too, its host is the
// navra above that.
const supervisor = "__shim"

// manyNamed are programs that are what they are called as: by argv[0], or by their first argument.
var manyNamed = set("busybox", "toybox", "coreutils")

// interpreters are launchers where the script they run is one of scripts, and hosts otherwise.
var (
	interpreters = set("node", "nodejs", "python", "pypy")
	scripts      = set(
		"npx", "npx-cli", "npm", "npm-cli", "pnpm", "pnpx", "yarn", "yarnpkg", "corepack",
		"uv", "uvx", "pipx",
	)
)

// conversations are the environment variables in which hosts name their conversation, each with the host's own name.
var conversations = []struct{ variable, host string }{
	{"CLAUDE_CODE_SESSION_ID", "claude-code"},
}

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}
