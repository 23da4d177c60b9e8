package mcp

import (
	"encoding/base64"
	"net/http"
	"strings"

	"navra/internal/jsonrpc"
)

// Codes that MCP 2026-07-28 defines.
const (
	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021
	CodeUnsupportedVersion = -32022
)

// The headers of MCP over HTTP, in Go's canonical spelling.
const (
	HeaderVersion = "Mcp-Protocol-Version"
	HeaderMethod  = "Mcp-Method"
	HeaderName    = "Mcp-Name"
	HeaderSession = "Mcp-Session-Id"
)

// A Refused is why a message does not even say validly what it is: the error and the HTTP status the specification asks for.
type Refused struct {
	Status int
	Err    jsonrpc.Error
}

// EraOf tells which era a message belongs to and, in the stateless one, its version and whether it is well formed. A
// stateless message is told by its own _meta (and over HTTP by the header that must equal it), never by earlier
// messages. MCP 2026-07-28, basic/versioning; the order of checks is that of the conformance suite.
func EraOf(in Inbound) (stateless bool, v Version, refused *Refused) {
	head, headers := "", in.Header[HeaderVersion]
	if len(headers) > 0 {
		head = headers[0]
	}
	meta, said := in.Msg.Params.Get("_meta", Meta+"protocolVersion")
	asked, _ := meta.Text()
	overHTTP := in.Header != nil
	switch {
	case !said && !(overHTTP && head != "" && !Version(head).Stateful()):
		return false, "", nil // nothing modern about it: the stateful era judges it
	case said && Version(asked).Stateful() && !overHTTP:
		return false, "", nil
	}
	if overHTTP {
		if len(headers) > 1 {
			return true, "", mismatch("MCP-Protocol-Version is given twice")
		}
		if r := checkMirrors(in); r != nil && (said || Version(head).Stateless()) {
			return true, "", r
		}
	}
	if r := checkMeta(in.Msg, head, asked, said, overHTTP); r != nil {
		return true, "", r
	}
	if !said {
		return true, Version(head), nil
	}
	return true, Version(asked), nil
}

// checkMeta checks the required members of _meta, that header and body agree, and that the version is one that navra speaks.
func checkMeta(m jsonrpc.Message, head, asked string, said, overHTTP bool) *Refused {
	known := Version(head).Stateless() || !overHTTP
	caps, hasCaps := m.Params.Get("_meta", Meta+"clientCapabilities")
	switch {
	case m.Kind() != jsonrpc.Request && !said:
		return nil // the specification asks no _meta of these
	case known && !said:
		return &Refused{http.StatusBadRequest, *invalid("_meta lacks " + Meta + "protocolVersion")}
	case !said: // an unknown version in the header alone
		return unsupported(head)
	case overHTTP && head == "":
		return mismatch("the MCP-Protocol-Version header is missing")
	case overHTTP && head != asked:
		return mismatch("MCP-Protocol-Version header and _meta differ")
	case !Version(asked).Stateless():
		return unsupported(asked)
	case m.Kind() == jsonrpc.Request && (!hasCaps || !caps.IsObject()):
		return &Refused{http.StatusBadRequest, *invalid("_meta lacks " + Meta + "clientCapabilities")}
	}
	return nil
}

// checkMirrors compares the Mcp-Method and Mcp-Name headers of a request with its body. MCP 2026-07-28,
// basic/transports §Standard Request Headers.
func checkMirrors(in Inbound) *Refused {
	if in.Msg.Kind() != jsonrpc.Request {
		return nil
	}
	if got := in.Header[HeaderMethod]; len(got) != 1 || trim(got[0]) != in.Msg.Method {
		return mismatch("the Mcp-Method header is missing or differs from the body")
	}
	want, mirrored := MirroredName(in.Msg)
	if !mirrored {
		return nil
	}
	got := in.Header[HeaderName]
	if len(got) != 1 {
		return mismatch("the Mcp-Name header is missing or given twice")
	}
	name, ok := decodeHeader(trim(got[0]))
	if !ok || name != want {
		return mismatch("the Mcp-Name header differs from the body")
	}
	return nil
}

// decodeHeader undoes the base64 form of a mirrored value: =?base64?…?=. A value with characters that a header may not carry is refused.
func decodeHeader(s string) (string, bool) {
	if rest, ok := strings.CutPrefix(s, "=?base64?"); ok {
		if enc, ok := strings.CutSuffix(rest, "?="); ok {
			b, err := base64.StdEncoding.Strict().DecodeString(enc)
			return string(b), err == nil
		}
	}
	for _, c := range []byte(s) {
		if c < 0x20 || c > 0x7e {
			return "", false
		}
	}
	return s, true
}

func trim(s string) string { return strings.Trim(s, " \t") }

func mismatch(text string) *Refused {
	return &Refused{http.StatusBadRequest, jsonrpc.Error{Code: CodeHeaderMismatch, Message: text}}
}

func unsupported(asked string) *Refused {
	var list []jsonrpc.Raw
	for _, v := range Supported() {
		list = append(list, jsonrpc.Quote(string(v)))
	}
	data := new(jsonrpc.Object).Raw("supported", jsonrpc.Array(list...)).Text("requested", asked).Done()
	return &Refused{http.StatusBadRequest, jsonrpc.Error{Code: CodeUnsupportedVersion, Message: "Unsupported protocol version", Data: data}}
}
