package upstream

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"time"

	"navra/internal/chokepoint"
)

// events reads an event stream, with a bound on each event. WHATWG HTML, §9.2 Server-sent events.
type events struct {
	r     *bufio.Reader
	limit int64
	begun bool
	cr    bool // the last line ended with CR: an LF that follows belongs to it
	line  []byte
}

// An event is one event of a stream. data is good until the next one is read.
type event struct {
	kind, id string
	hasID    bool
	data     []byte
	retry    time.Duration // 0: not told
}

func newEvents(r io.Reader, limit int64) *events {
	return &events{r: bufio.NewReaderSize(r, 32<<10), limit: limit}
}

// next returns the next event that has data, an id or a retry time. What a stream breaks off with is dropped.
func (s *events) next() (e event, err error) {
	some := false
	var data []byte
	for {
		if err := s.read(int64(len(data))); err != nil {
			return event{}, err
		}
		if len(s.line) == 0 {
			if some {
				e.data = bytes.TrimSuffix(data, []byte("\n"))
				return e, nil
			}
			continue
		}
		field, value, _ := bytes.Cut(s.line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			data, some = append(append(data, value...), '\n'), true
		case "event":
			e.kind = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 && len(value) <= maxEventID {
				e.id, e.hasID, some = string(value), true, true
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				e.retry, some = time.Duration(ms)*time.Millisecond, true
			}
		}
	}
}

// maxEventID bounds what is kept to resume a stream, in bytes.
const maxEventID = 1 << 10

// read reads a line without its end, which is LF, CR or both. used counts against the limit.
func (s *events) read(used int64) error {
	s.line = s.line[:0]
	for {
		if _, err := s.r.Peek(1); err != nil {
			return err
		}
		b, _ := s.r.Peek(s.r.Buffered())
		if s.cr && b[0] == '\n' {
			s.cr = false
			s.skip(1)
			continue
		}
		s.cr = false
		if !s.begun {
			s.begun = true
			if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
				s.skip(3)
				continue
			}
		}
		end := bytes.IndexByte(b, '\n')
		part := b
		if end >= 0 {
			part = b[:end]
		}
		if cr := bytes.IndexByte(part, '\r'); cr >= 0 {
			end, part, s.cr = cr, b[:cr], true
		}
		if size := used + int64(len(s.line)+len(part)); size > s.limit+int64(len("data: ")) {
			return chokepoint.TooLarge{Limit: s.limit, Actual: size}
		}
		s.line = append(s.line, part...)
		if end >= 0 {
			s.skip(end + 1)
			return nil
		}
		s.skip(len(b))
	}
}

// skip drops what was peeked at, which cannot fail.
func (s *events) skip(n int) { _, _ = s.r.Discard(n) }
