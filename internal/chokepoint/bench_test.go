package chokepoint_test

import (
	"context"
	"strings"
	"testing"

	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/store"
)

// forgetful is a store that keeps no entry, so that what the chokepoint itself costs can be seen.
type forgetful struct{ store.Store }

func (forgetful) Commit(context.Context, store.Commit) (store.Receipt, error) {
	return store.Receipt{Seq: 1}, nil
}

// BenchmarkCall is one call there and back, without the store's write.
func BenchmarkCall(b *testing.B) {
	for _, bb := range []struct {
		name, parent string
		watched      bool
		size         int // of the text there and back
	}{{"plain", "", false, 200}, {"with a trace", parent, false, 200}, {"exported", parent, true, 200}, {"64KB", "", false, 64 << 10}} {
		b.Run(bb.name, func(b *testing.B) {
			cp := newBenchWith(b, permissive(), func(s store.Store) store.Store { return forgetful{s} }, func(o *chokepoint.Options) {
				if bb.watched {
					o.Spans = func(chokepoint.Span) {}
				}
			})
			text := strings.Repeat("plan ", bb.size/5)
			from := call(b, cp.ann, "files__read", `{"path":"`+text+`"}`)
			if bb.parent != "" {
				from.In.Msg.Params = from.In.Msg.Params.With("_meta", parse(b, `{"traceparent":"`+bb.parent+`"}`))
			}
			answer := jsonrpc.Message{Result: jsonrpc.Raw(`{"content":[{"type":"text","text":"` + text + `"}]}`)}
			b.ReportAllocs()
			for b.Loop() {
				m := cp.admit(b, from)
				c, err := m.Spend(cp.Chokepoint)
				if err != nil || len(c.Bytes(mcp.V20251125)) == 0 {
					b.Fatal(err)
				}
				if _, err := cp.Release(b.Context(), m.Answer(answer, 0), from); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
