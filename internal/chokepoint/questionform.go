package chokepoint

import (
	"net"
	"net/url"
	"strings"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/schema"
)

// Bounds on what may be asked for.
const (
	maxFields = 64      // of a form
	maxURL    = 8 << 10 // bytes of a URL that is to be opened
)

// unfit says why a question may not be put to a client of version v; "" where it may. MCP 2025-11-25, client/elicitation.
func unfit(kind mcp.Question, params jsonrpc.Raw, v mcp.Version) string {
	if kind != mcp.AskElicitation {
		return ""
	}
	if mode, _ := params.Get("mode"); string(mode) == `"url"` {
		return unfitURL(params)
	}
	form := formOf(kind, params)
	if len(form) > maxForm {
		return "the form is too large"
	}
	if form != nil {
		if _, err := schema.Compile(form); err != nil {
			return "the form's schema cannot be used: " + err.Error()
		}
	}
	props, _ := form.Get("properties")
	n := 0
	for name, def := range props.Members() {
		title, _ := def.Get("title")
		label, _ := title.Text()
		if asksSecret(name) || asksSecret(label) || string(formatOf(def)) == `"password"` {
			return "a form may not ask for a secret, and the field " + name + " does"
		}
		if kind, _ := def.Get("type"); string(kind) == `"array"` && v < mcp.V20251125 {
			return "the form has a field of several choices, which the client's version does not know"
		}
		if n++; n > maxFields {
			return "the form has too many fields"
		}
	}
	return ""
}

func formatOf(def jsonrpc.Raw) jsonrpc.Raw {
	f, _ := def.Get("format")
	return f
}

// secretWords are what a field that asks for a secret is called, without what stands between the words.
var secretWords = []string{"password", "passwd", "passphrase", "secret", "apikey", "accesstoken", "authtoken", "privatekey", "credential", "cvv", "cvc", "pincode", "otp"}

// asksSecret reports whether a field of that name asks for what may not be given in a form.
func asksSecret(name string) bool {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(name))
	for _, w := range secretWords {
		if len(w) <= 3 && plain == w || len(w) > 3 && strings.Contains(plain, w) {
			return true
		}
	}
	return false
}

// unfitURL says why a person may not be asked to open a URL.
func unfitURL(params jsonrpc.Raw) string {
	raw, _ := params.Get("url")
	s, _ := raw.Text()
	u, err := url.Parse(s)
	switch {
	case err != nil || len(s) > maxURL || u.Host == "":
		return "the URL that is to be opened is none"
	case u.User != nil:
		return "the URL that is to be opened carries credentials"
	case u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())):
		return "the URL that is to be opened is not https"
	}
	return ""
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// questionFor puts a question in the form of the client's version. The person who is asked sees which upstream asks. id stands for an
// elicitation where only the stateful era has a name for it.
func questionFor(kind mcp.Question, params jsonrpc.Raw, upstream string, v mcp.Version, id jsonrpc.ID) jsonrpc.Raw {
	switch kind {
	case mcp.AskElicitation:
		text, _ := params.Get("message")
		message, _ := text.Text()
		params = params.With("message", jsonrpc.Quote("["+upstream+"] "+message))
		return elicitationFor(params, v, id)
	case mcp.AskSampling:
		params = params.Without("task").Without("includeContext") // "this server" is all that are behind navra
		if v < mcp.V20251125 {
			params = params.Without("tools").Without("toolChoice")
		}
	}
	return params
}

func elicitationFor(params jsonrpc.Raw, v mcp.Version, id jsonrpc.ID) jsonrpc.Raw {
	params = params.Without("task")
	if mode, _ := params.Get("mode"); string(mode) == `"url"` {
		_, has := params.Get("elicitationId")
		switch {
		case v.Stateless():
			params = params.Without("elicitationId")
		case !has:
			params = params.With("elicitationId", jsonrpc.Quote("navra-"+id.String()))
		}
		return params
	}
	if v >= mcp.V20251125 {
		return params
	}
	params = params.Without("mode")
	form, ok := params.Get("requestedSchema")
	if !ok {
		return params
	}
	form = form.Without("$schema")
	props, _ := form.Get("properties")
	o := new(jsonrpc.Object)
	for name, def := range props.Members() {
		o.Raw(name, olderField(def))
	}
	return params.With("requestedSchema", form.With("properties", o.Done()))
}

// olderField puts a form's field in the form of 2025-06-18: a default only of what is true or false, choices by their values and names.
func olderField(def jsonrpc.Raw) jsonrpc.Raw {
	if kind, _ := def.Get("type"); string(kind) != `"boolean"` {
		def = def.Without("default")
	}
	choices, ok := def.Get("oneOf")
	if !ok {
		return def
	}
	var values, names []jsonrpc.Raw
	for c := range choices.Elements() {
		value, _ := c.Get("const")
		name, _ := c.Get("title")
		if name == nil {
			name = value
		}
		values, names = append(values, value), append(names, name)
	}
	return def.Without("oneOf").With("enum", jsonrpc.Array(values...)).With("enumNames", jsonrpc.Array(names...))
}

// fits reports whether an answer is one to the kind of question.
func fits(kind mcp.Question, result jsonrpc.Raw) bool {
	if !result.IsObject() {
		return false
	}
	switch kind {
	case mcp.AskElicitation:
		action, _ := result.Get("action")
		content, has := result.Get("content")
		switch string(action) {
		case `"accept"`:
			return !has || content.IsObject() || content.IsNull()
		case `"decline"`, `"cancel"`:
			return true
		}
		return false
	case mcp.AskSampling:
		content, _ := result.Get("content")
		role, _ := result.Get("role")
		model, _ := result.Get("model")
		_, isRole := role.Text()
		_, isModel := model.Text()
		return isRole && isModel && (content.IsObject() || content.IsArray())
	case mcp.AskRoots:
		roots, _ := result.Get("roots")
		if !roots.IsArray() {
			return false
		}
		for r := range roots.Elements() {
			raw, _ := r.Get("uri")
			if uri, _ := raw.Text(); !strings.HasPrefix(uri, "file://") {
				return false
			}
		}
		return true
	}
	return false
}

// answerFor puts a client's answer in the form of the upstream's version.
func answerFor(kind mcp.Question, result jsonrpc.Raw, v mcp.Version) jsonrpc.Raw {
	switch kind {
	case mcp.AskSampling:
		content, _ := result.Get("content")
		if content.IsArray() && v < mcp.V20251125 { // of one block then
			if block := firstOf(content); block != nil {
				result = result.With("content", block)
			}
		}
	case mcp.AskElicitation:
		if action, _ := result.Get("action"); string(action) != `"accept"` {
			return new(jsonrpc.Object).Raw("action", action).Done()
		}
	}
	return result.Without("resultType")
}
