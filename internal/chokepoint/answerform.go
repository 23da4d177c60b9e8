package chokepoint

import (
	"context"
	"errors"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/schema"
)

// maxForm bounds a form's schema, in bytes: those of a round travel with the client's state.
const maxForm = 24 << 10

// A misfit says why a client's answer is none to the form that it was given. It is recorded.
type misfit struct{ why error }

func (m *misfit) Error() string { return "the answer does not fit the form: " + m.why.Error() }

// formOf is the schema that the answer to a question is held against; nil: none.
func formOf(kind mcp.Question, params jsonrpc.Raw) jsonrpc.Raw {
	if mode, _ := params.Get("mode"); kind != mcp.AskElicitation || string(mode) == `"url"` {
		return nil
	}
	form, _ := params.Get("requestedSchema")
	return form
}

var (
	errNested = errors.New("a field holds something else than a text, a number, true, false or texts")
	errHolds  = errors.New("it cannot be checked")
)

// misfitting holds an answer against the form, in the client's words: before placeholders are replaced. MCP 2025-11-25, client/elicitation
// §Requested Schema; servers trust their clients with this more often than not.
func misfitting(form, result jsonrpc.Raw) error {
	if action, _ := result.Get("action"); form == nil || string(action) != `"accept"` {
		return nil
	}
	content, _ := result.Get("content")
	content = orEmpty(content)
	for _, v := range content.Members() {
		if !flat(v) {
			return &misfit{errNested}
		}
	}
	s, err := schema.Compile(form)
	if err != nil {
		return &misfit{errHolds}
	}
	if err := s.Check(content); err != nil && s.Check(withoutNulls(content)) != nil { // null is what is left out, as in arguments
		return &misfit{err}
	}
	return nil
}

// flat reports whether a value may be in a form.
func flat(v jsonrpc.Raw) bool {
	if v.IsObject() {
		return false
	}
	for e := range v.Elements() {
		if _, text := e.Text(); !text {
			return false
		}
	}
	return true
}

// Again records that what a client answers to a question is no answer, where the client is asked once more instead.
func (p *Chokepoint) Again(ctx context.Context, from Peer, q *Question, v jsonrpc.Raw) error {
	if q == nil || q.by != p || q.Fits(v) || !q.For(from) || q.answered.Load() {
		return ErrUncleared
	}
	_, _, err := p.judgeAnswer(ctx, from, q, jsonrpc.Message{Result: v})
	if bad := (*misfit)(nil); errors.As(err, &bad) {
		return nil
	}
	return err
}
