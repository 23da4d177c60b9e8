package stdio

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"navra/internal/jsonrpc"
)

const (
	readBytes = 64 << 10 // of one read
	// keptBytes bounds the buffer that is kept between lines.
	keptBytes = 256 << 10
	// codeSize is navra's code for content over a size limit.
	codeSize = -32002
)

// message returns the next line that is more than white space, as a message or as why it is none.
func (l *lines) message() (jsonrpc.Message, *jsonrpc.Fault, error) {
	for {
		line, size, err := l.next()
		switch {
		case errors.Is(err, io.EOF):
			return jsonrpc.Message{}, nil, io.EOF
		case err != nil:
			return jsonrpc.Message{}, nil, fmt.Errorf("reading from the client: %w", err)
		case size > l.limit:
			return jsonrpc.Message{}, tooLong(l.limit, size), nil
		case len(bytes.Trim(line, " \t\r")) == 0:
			continue
		}
		m, fault := jsonrpc.Parse(line)
		return m, fault, nil
	}
}

// tooLong is the fault for a line over the limit; nothing of it was kept, so it has no id.
func tooLong(limit, actual int64) *jsonrpc.Fault {
	data := new(jsonrpc.Object).Text("reason", "size").Int("limit", limit).Int("actual", actual).Done()
	return &jsonrpc.Fault{Err: jsonrpc.Error{Code: codeSize, Message: "content over the size limit", Data: data}}
}

// lines cuts a stream at each LF and at nothing else.
type lines struct {
	r     *bufio.Reader
	limit int64
	buf   []byte
}

// next returns the next line without its LF and one CR before it, good until the following call. Of a line over the limit
// only the size is returned. The last line may lack its LF.
func (l *lines) next() (line []byte, size int64, err error) {
	if cap(l.buf) > keptBytes {
		l.buf = nil
	}
	l.buf = l.buf[:0]
	var last byte
	for more := true; more; {
		part, err := l.r.ReadSlice('\n')
		if err == nil {
			part = part[:len(part)-1]
		}
		if len(part) > 0 {
			last = part[len(part)-1]
		}
		size += int64(len(part))
		if size <= l.limit+1 { // one more, for a CR
			l.buf = append(l.buf, part...)
		}
		more = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !more && (size == 0 || !errors.Is(err, io.EOF)) {
			return nil, 0, err
		}
	}
	if last == '\r' {
		size--
	}
	if size > l.limit {
		return nil, size, nil
	}
	return l.buf[:size], size, nil
}
