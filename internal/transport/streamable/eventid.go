package streamable

import (
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"strings"

	"navra/internal/jsonrpc"
)

// How a stream was born, which begins its name.
const (
	bornPOST = 'p'
	bornGET  = 'g'
)

const (
	// maxEventID bounds what is read of a Last-Event-ID, in bytes.
	maxEventID = 256
	// maxNamed bounds the request id that is put into event ids, in bytes.
	maxNamed = 64
)

// A seq numbers the events of one stream, from 1. As a position it is that of the last event that was read.
type seq uint64

// A position is what an event id says: a stream, the event, and, for the stream of one request, the id of that request. The name
// of the stream is 128 bits of chance: nobody finds another's. The request's id is for a stream that is not kept any more: its client can
// then be told so as the answer. MCP 2025-11-25, basic/transports §Resumability and Redelivery.
type position struct {
	stream  string
	at      seq
	request jsonrpc.ID
}

// newName makes the name of a stream.
func newName(born byte) string { return string(born) + rand.Text() }

func (p position) String() string {
	s := p.stream + "." + strconv.FormatUint(uint64(p.at), 10)
	if raw := p.request.Raw(); raw != nil && len(raw) <= maxNamed {
		s += "." + base64.RawURLEncoding.EncodeToString(raw)
	}
	return s
}

// born says how the stream was born; 0 where the position names none.
func (p position) born() byte {
	if p.stream == "" {
		return 0
	}
	return p.stream[0]
}

// parsePosition reads an event id. What navra cannot have written is the zero position.
func parsePosition(s string) position {
	parts := strings.Split(s, ".")
	if len(s) > maxEventID || len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[0][0] != bornPOST && parts[0][0] != bornGET {
		return position{}
	}
	n, err := strconv.ParseUint(parts[1], 10, 62)
	if err != nil {
		return position{}
	}
	p := position{stream: parts[0], at: seq(n)}
	if len(parts) == 3 {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
		if err != nil || len(raw) > maxNamed {
			return position{}
		}
		m, fault := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","method":"x","id":` + string(raw) + `}`)) // it may be anything
		if fault != nil || m.ID.IsZero() {
			return position{}
		}
		p.request = m.ID
	}
	return p
}
