package catalogue

import (
	"navra/internal/jsonrpc"
	"navra/internal/schema"
)

// maxSchemas bounds the compiled schemas that are kept for when a list is read again.
const maxSchemas = 20_000

// A compiled is what became of a schema.
type compiled struct {
	schema *schema.Schema
	err    error
}

// A compiler compiles schemas.
type compiler func(jsonrpc.Raw) (*schema.Schema, error)

// compile compiles a schema, or returns what became of the same text before. b.mu is held.
func (b *Book) compile(raw jsonrpc.Raw) (*schema.Schema, error) {
	if c, ok := b.schemas[string(raw)]; ok {
		return c.schema, c.err
	}
	if len(b.schemas) >= maxSchemas {
		clear(b.schemas)
	}
	var c compiled
	c.schema, c.err = schema.Compile(raw)
	b.schemas[string(raw)] = c
	return c.schema, c.err
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
