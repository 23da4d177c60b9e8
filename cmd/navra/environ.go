package main

import (
	"runtime"
	"slices"
	"strings"
)

// baseEnv is what a child of `navra serve` and `navra stdio` gets of navra's own environment, beside what the
// configuration names: enough to find programs, files and the locale, and nothing that is likely to be a secret.
var baseEnv = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TERM",
	"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "npm_config_cache", "UV_CACHE_DIR",
	// Windows
	"APPDATA", "LOCALAPPDATA", "HOMEDRIVE", "HOMEPATH", "PATHEXT", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "COMSPEC",
}

// vendorKeys are credentials of model vendors. A host has them for itself; the servers that it starts have no use for them.
var vendorKeys = []string{
	"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_ORGANIZATION", "AZURE_OPENAI_API_KEY",
	"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "MISTRAL_API_KEY", "COHERE_API_KEY", "GROQ_API_KEY", "XAI_API_KEY", "DEEPSEEK_API_KEY",
	"OPENROUTER_API_KEY", "TOGETHER_API_KEY", "FIREWORKS_API_KEY", "PERPLEXITY_API_KEY", "CURSOR_API_KEY",
}

// childEnv is the environment of a configured upstream's child: the base of environ, and what the configuration names.
func childEnv(environ, named []string) []string {
	var out []string
	for _, kv := range environ {
		if name, _, _ := strings.Cut(kv, "="); slices.ContainsFunc(baseEnv, func(b string) bool { return sameName(b, name) }) {
			out = append(out, kv)
		}
	}
	return withLocale(append(out, named...))
}

// wrappedEnv is the environment of a wrapped server: navra stands in for a server that the host configured, so it passes on
// what it got, less its own settings and secrets and the model vendors' keys.
func wrappedEnv(environ []string) []string {
	var out []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "NAVRA_") || slices.ContainsFunc(vendorKeys, func(k string) bool { return sameName(k, name) }) {
			continue
		}
		out = append(out, kv)
	}
	return withLocale(out)
}

// withLocale gives children a UTF-8 locale where the environment names none.
func withLocale(env []string) []string {
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if name == "LC_ALL" || name == "LC_CTYPE" || name == "LANG" {
			return env
		}
	}
	if runtime.GOOS == "windows" {
		return env
	}
	return append(env, "LANG=C.UTF-8")
}

func sameName(a, b string) bool {
	if runtime.GOOS == "windows" {
		return strings.EqualFold(a, b)
	}
	return a == b
}
