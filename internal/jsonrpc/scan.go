package jsonrpc

import (
	"strconv"
	"unicode/utf8"
)

// A scanner reads one JSON text and writes it again in the one encoding: no white space, strings escaped only where they
// must be, members in order, numbers as written. That is never longer, so it is written over what has been read. A fault of
// depth or of double names is noted and the scan goes on, since a fault of grammar further on outranks it, and the envelope stays readable.
type scanner struct {
	b      []byte // the output up to w, the input from r to n, padding of zeros
	n      int
	r, w   int
	repair bool // unpaired surrogates become U+FFFD instead of a fault

	open    []byte   // '{' or '[' for each object and array that is open
	objects []object // the open objects, as far as they are within MaxDepth
	names   []span   // the names of their members; those of a top-level object stay when it is closed
	end     int      // w when the top-level value was complete, else 0

	problem  string // the first fault of grammar, found at r
	repaired int    // unpaired surrogates
	deep     bool
	double   bool
}

// padding is how many zero bytes follow the input: no token goes on over a zero, so none looks for the end of the input,
// and plain finds eight bytes wherever it is.
const padding = 8

// scratch is a scanner's memory for small messages, on its caller's stack.
type scratch struct {
	open    [32]byte
	objects [16]object
	names   [32]span
}

func newScanner(repair bool, m *scratch) scanner {
	return scanner{repair: repair, open: m.open[:0], objects: m.objects[:0], names: m.names[:0]}
}

// The state of a scan: what may come next.
type state uint8

const (
	wantValue   state = iota
	wantElement       // a value or ]
	wantMember        // a name or }
	wantName
	wantNext // , or ] or }; after the top-level value the end
	finished
)

// run scans the whole input. The fault, if any, has no id.
func (s *scanner) run(in []byte) *Fault {
	if !utf8.Valid(in) {
		return fault(CodeParse, "invalid UTF-8")
	}
	s.n = len(in)
	s.b = make([]byte, s.n+padding)
	copy(s.b, in)
	for next := wantValue; next != finished; {
		c := s.b[s.r]
		if c <= ' ' {
			c = s.peek()
		}
		next = s.step(next, c)
	}
	switch {
	case s.problem != "":
		return fault(CodeParse, "invalid JSON at byte "+strconv.Itoa(s.r)+": "+s.problem)
	case s.deep:
		return fault(CodeInvalidRequest, "nested more than "+strconv.Itoa(MaxDepth)+" deep")
	case s.double:
		return fault(CodeInvalidRequest, "duplicate member name")
	}
	return nil
}

// output returns what has been written.
func (s *scanner) output() Raw { return s.b[:s.w:s.w] }

func fault(code int, text string) *Fault { return &Fault{Err: Error{Code: code, Message: text}} }

func (s *scanner) fail(problem string) state {
	s.problem = problem
	return finished
}

// peek skips white space and returns the next byte, 0 at the end, which no state accepts.
func (s *scanner) peek() byte {
	for {
		switch c := s.b[s.r]; c {
		case ' ', '\t', '\r', '\n':
			s.r++
		default:
			return c
		}
	}
}

// step reads what begins with c and returns what may follow.
func (s *scanner) step(want state, c byte) state {
	switch want {
	case wantNext:
		return s.next(c)
	case wantName:
		return s.member(c)
	case wantMember:
		if c == '}' {
			return s.pop(c)
		}
		return s.member(c)
	case wantElement:
		if c == ']' {
			return s.pop(c)
		}
	}
	return s.value(c)
}

// value reads a value that begins with c, of an object or array its first byte.
func (s *scanner) value(c byte) state {
	switch c {
	case '"':
		return s.text()
	case '{':
		return s.push(c, wantMember)
	case '[':
		return s.push(c, wantElement)
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return s.number()
	}
	return s.fail("a value expected")
}

func (s *scanner) push(c byte, want state) state {
	s.put(c)
	s.open = append(s.open, c)
	switch {
	case len(s.open) > MaxDepth:
		s.deep = true
	case c == '{':
		s.objects = append(s.objects, object{first: len(s.names)})
	}
	return want
}

func (s *scanner) pop(c byte) state {
	s.put(c)
	last := len(s.open) - 1
	if c == '}' && last < MaxDepth && last > 0 {
		o := len(s.objects) - 1
		s.names = s.names[:s.objects[o].first]
		s.objects = s.objects[:o]
	}
	s.open = s.open[:last]
	return s.done()
}

// put takes the byte c as it is.
func (s *scanner) put(c byte) {
	s.b[s.w] = c
	s.w++
	s.r++
}

// take takes the bytes up to the end as they are.
func (s *scanner) take(end int) {
	if s.w != s.r {
		copy(s.b[s.w:], s.b[s.r:end])
	}
	s.w += end - s.r
	s.r = end
}

// done ends a value.
func (s *scanner) done() state {
	if len(s.open) == 0 {
		s.end = s.w
	}
	return wantNext
}

// member reads a member's name and the colon.
func (s *scanner) member(c byte) state {
	if c != '"' {
		return s.fail("a member name expected")
	}
	start := s.w
	if s.text() == finished {
		return finished
	}
	if len(s.open) <= MaxDepth {
		s.addName(span{start, s.w})
	}
	if s.peek() != ':' {
		return s.fail("a colon expected")
	}
	s.put(':')
	return wantValue
}

// next reads what follows a value.
func (s *scanner) next(c byte) state {
	if len(s.open) == 0 {
		if s.r < s.n {
			return s.fail("data after the value")
		}
		return finished
	}
	in := s.open[len(s.open)-1]
	switch {
	case c == ',' && in == '{':
		s.put(c)
		return wantName
	case c == ',':
		s.put(c)
		return wantValue
	case c == '}' && in == '{', c == ']' && in == '[':
		return s.pop(c)
	}
	return s.fail("a comma or the end of the object or array expected")
}
