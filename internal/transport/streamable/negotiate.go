package streamable

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// The two media types of the transport.
const (
	typeJSON   = "application/json"
	typeStream = "text/event-stream"
)

// supportedBody says what is wrong with a body's type, "" for nothing: it must be JSON in UTF-8, as it is. A web page can send that across
// sites only after asking.
func supportedBody(h http.Header) string {
	types := h["Content-Type"]
	if len(types) != 1 {
		return "Content-Type must be " + typeJSON
	}
	media, params, err := mime.ParseMediaType(types[0])
	if err != nil || media != typeJSON {
		return "Content-Type must be " + typeJSON
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return "the charset must be utf-8"
	}
	for _, encoding := range h["Content-Encoding"] {
		if !strings.EqualFold(strings.TrimSpace(encoding), "identity") {
			return "a Content-Encoding is not supported"
		}
	}
	return ""
}

// accepted is what a client takes for an answer.
type accepted struct{ json, stream bool }

// accepts reads the Accept header. One that is absent or empty takes anything. RFC 9110 §12.5.1.
func accepts(h http.Header) accepted {
	list := strings.Join(h["Accept"], ",")
	if strings.TrimSpace(list) == "" {
		return accepted{true, true}
	}
	json, stream := mediaRange{name: typeJSON}, mediaRange{name: typeStream}
	for part := range strings.SplitSeq(list, ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := 1.0
		if text, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(text, 64); err != nil || !(q >= 0 && q <= 1) {
				continue
			}
		}
		json.match(media, q)
		stream.match(media, q)
	}
	return accepted{json.q > 0, stream.q > 0}
}

// A mediaRange is a media type with the quality that the most specific range gave it so far.
type mediaRange struct {
	name     string
	q        float64
	specific int
}

func (m *mediaRange) match(media string, q float64) {
	group, _, _ := strings.Cut(m.name, "/")
	specific := 0
	switch media {
	case m.name:
		specific = 3
	case group + "/*":
		specific = 2
	case "*/*":
		specific = 1
	}
	if specific > m.specific || specific == m.specific && specific > 0 && q > m.q {
		m.specific, m.q = specific, q
	}
}
