package catalogue

import (
	"fmt"
	"sync"

	"navra/internal/jsonrpc"
	"navra/internal/schema"
)

// Bounds on compiled schemas. Few bytes of a schema make many when it is compiled.
const (
	maxSchemas     = 20_000    // that are kept for when a list is read again
	maxKept        = 512 << 20 // bytes of them, about
	maxSchemaBytes = 256 << 20 // bytes of those of one list, about
)

// A compiled is what became of a schema.
type compiled struct {
	schema *schema.Schema
	err    error
}

// A compiler compiles schemas.
type compiler func(jsonrpc.Raw) (*schema.Schema, error)

// A shelf keeps compiled schemas, by their text. It holds nobody up while one is compiled: that may take a tenth of a second, and an upstream may
// have thousands.
type shelf struct {
	mu   sync.Mutex
	kept map[string]compiled // guarded by mu
	size int                 // of kept, in bytes, about; guarded by mu
}

// compile compiles a schema, or returns what became of the same text before.
func (s *shelf) compile(raw jsonrpc.Raw) (*schema.Schema, error) {
	s.mu.Lock()
	c, ok := s.kept[string(raw)]
	s.mu.Unlock()
	if ok {
		return c.schema, c.err
	}
	c.schema, c.err = schema.Compile(raw)
	size := len(raw)
	if c.err == nil {
		size += c.schema.Size()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) >= maxSchemas || s.size+size > maxKept {
		clear(s.kept)
		s.size = 0
	}
	s.kept[string(raw)] = c
	s.size += size
	return c.schema, c.err
}

// within is compile as long as what it makes has room.
func (compile compiler) within(room int) compiler {
	return func(raw jsonrpc.Raw) (*schema.Schema, error) {
		if room < 0 {
			return nil, errNoRoom
		}
		s, err := compile(raw)
		room -= len(raw)
		if err == nil {
			room -= s.Size()
		}
		return s, err
	}
}

var errNoRoom = fmt.Errorf("those of the tools before it take more than %d MiB", maxSchemaBytes>>20)

// warm compiles the schemas of a list, before anybody waits for them.
func (l Listing) warm(compile compiler) {
	compile = compile.within(maxSchemaBytes)
	for _, def := range l.Tools {
		_, _, _ = compile.ofTool(def)
	}
}

// ofTool compiles the schemas of a tool. why says why the tool is left out: a schema that cannot be checked, because it is not valid or refers
// elsewhere, checks nothing.
func (compile compiler) ofTool(def jsonrpc.Raw) (input, output *schema.Schema, why string) {
	raw, _ := def.Get("inputSchema")
	input, err := compile(raw)
	if err != nil {
		return nil, nil, "its inputSchema: " + err.Error()
	}
	if raw, has := def.Get("outputSchema"); has {
		if output, err = compile(raw); err != nil {
			return nil, nil, "its outputSchema: " + err.Error()
		}
	}
	return input, output, ""
}
