package streamable

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"navra/internal/jsonrpc"
)

// codeSize is navra's code for content over a size limit.
const codeSize = -32002

// errTooLong reports a body over the limit.
type errTooLong struct{ limit, actual int64 }

func (errTooLong) Error() string { return "content over the size limit" }

// fault is what becomes of the message: nothing of it was parsed, so it has no id.
func (e errTooLong) fault() *jsonrpc.Fault {
	data := new(jsonrpc.Object).Text("reason", "size").Int("limit", e.limit).Int("actual", e.actual).Done()
	return &jsonrpc.Fault{Err: jsonrpc.Error{Code: codeSize, Message: e.Error(), Data: data}}
}

// body reads the request's body, within limit bytes and bodyTime. A length that is told is checked before anything is read; where none is told,
// errTooLong holds what was read so far.
func (x *exchange) body(limit int64) ([]byte, error) {
	told := x.r.ContentLength
	if told > limit {
		return nil, errTooLong{limit, told}
	}
	if err := x.rc.SetReadDeadline(time.Now().Add(bodyTime)); err == nil {
		defer func() { _ = x.rc.SetReadDeadline(time.Time{}) }() // a connection that is gone needs none
	}
	buf := bytes.NewBuffer(make([]byte, 0, max(told, 0)+bytes.MinRead))
	n, err := buf.ReadFrom(io.LimitReader(x.r.Body, limit+1))
	switch {
	case err != nil:
		return nil, err
	case n > limit:
		return nil, errTooLong{limit, n}
	}
	return buf.Bytes(), nil
}

// unread answers a body that could not be read to its end.
func (x *exchange) unread(err error) {
	x.w.Header().Set("Connection", "close")
	if errors.Is(err, os.ErrDeadlineExceeded) {
		x.refuse(http.StatusRequestTimeout, "the body took too long")
		return
	}
	x.refuse(http.StatusBadRequest, "the body breaks off")
}
