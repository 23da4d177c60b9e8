package gateway

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"

	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// Bounds on a batch: elements, those that run at the same time, and bytes of all answers together.
const (
	maxBatch       = 100
	batchAtOnce    = 16
	maxBatchAnswer = 16 << 20
)

// codeSize is navra's code for content over a size limit.
const codeSize = -32002

// batch reports whether the message is an array that the peer may send.
func batch(from chokepoint.Peer) bool {
	f := from.In.Fault
	return f != nil && f.Batch != nil && from.Refused == nil && from.Version.Batches()
}

// carryBatch carries the elements of an array across, each by itself as if it had come alone, and sends the answers as one
// array. MCP 2025-03-26, basic/index §Batching; JSON-RPC 2.0 §6.
func (g *Gateway) carryBatch(ctx context.Context, from chokepoint.Peer, out mcp.Sink, registered func()) error {
	elements := slices.Collect(from.In.Fault.Batch.Elements())
	if n := len(elements); n == 0 || n > maxBatch {
		f := *from.In.Fault
		f.Batch, f.Err.Message = nil, fmt.Sprintf("a batch has 1 to %d elements, not %d", maxBatch, n)
		from.In.Fault = &f
		return g.cross(ctx, from, out)
	}
	g.active.Add(1)
	defer g.active.Add(-1)
	answers := &answers{out: out}
	var calls []func()
	seen := map[jsonrpc.ID]bool{}
	for _, raw := range elements {
		call, done := g.element(ctx, from, raw, seen, answers)
		calls = append(calls, call)
		defer done()
	}
	registered()
	var work sync.WaitGroup
	slots := make(chan struct{}, batchAtOnce)
	for _, call := range calls {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			call()
		})
	}
	work.Wait()
	if len(answers.list) == 0 {
		return nil
	}
	return out.Together(answers.list)
}

// element registers one element of a batch and returns what carries it across.
func (g *Gateway) element(ctx context.Context, from chokepoint.Peer, raw jsonrpc.Raw, seen map[jsonrpc.ID]bool, to *answers) (call, done func()) {
	from.In.Registered = nil
	from.In.Msg, from.In.Fault = jsonrpc.Parse(raw)
	id, fault := from.In.Msg.ID, from.In.Fault
	stateless, _, _ := mcp.EraOf(from.In)
	switch {
	case fault != nil:
		id = fault.ID
	case stateless:
		from.Refused = refuse(http.StatusBadRequest, "Invalid request: messages of the stateless era may not be in a batch")
	case from.In.Msg.Method == mcp.Initialize && !id.IsZero():
		from.Refused = refuse(http.StatusBadRequest, "Invalid request: initialize may not be in a batch")
	case from.In.Msg.Kind() == jsonrpc.Request && seen[id]:
		from.Refused = refuse(http.StatusBadRequest, "Invalid request: the id is given twice in the batch")
	}
	seen[id] = true
	sink := &elementSink{to: to, asks: fault != nil || from.In.Msg.Kind() == jsonrpc.Request}
	if !sink.asks {
		return func() { g.guard(ctx, sink, id, func() error { return g.notice(ctx, from, sink) }) }, func() {}
	}
	ctx, _, _, done = g.track(ctx, &from)
	return func() {
		g.guard(ctx, sink, id, func() error {
			if from.Refused == nil && fault == nil {
				g.prepare(ctx, from)
			}
			return g.cross(ctx, from, sink)
		})
	}, done
}

// guard runs one element, and answers for it where it breaks: the others have theirs.
func (g *Gateway) guard(ctx context.Context, sink *elementSink, id jsonrpc.ID, run func() error) {
	err := func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("panic: %T", v)
				g.log.ErrorContext(ctx, "element of a batch panicked", "panic", err, "stack", string(debug.Stack()))
			}
		}()
		return run()
	}()
	if err == nil {
		return
	}
	g.log.ErrorContext(ctx, "element of a batch not handled", "err", err)
	if sink.asks {
		sink.add(mcp.Broken(id))
	}
}

// answers gathers what the elements of one batch are answered.
type answers struct {
	out mcp.Sink

	mu   sync.Mutex
	list []jsonrpc.Message // guarded by mu
	size int64             // of list in bytes; guarded by mu
}

// An elementSink takes what goes back for one element.
type elementSink struct {
	to       *answers
	asks     bool
	answered bool // guarded by to.mu
}

func (s *elementSink) Open(string) {}

// Send lets notifications through and gathers the answer.
func (s *elementSink) Send(m jsonrpc.Message) error {
	if m.Method != "" {
		return s.to.out.Send(m)
	}
	s.add(m)
	return nil
}

func (s *elementSink) Refuse(_ int, m jsonrpc.Message) error {
	s.add(m)
	return nil
}

func (s *elementSink) Together([]jsonrpc.Message) error { panic("a batch in a batch") }

// add gathers an answer, once. One that has no room beside the others is replaced by an error that says so.
func (s *elementSink) add(m jsonrpc.Message) {
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	if !s.asks || s.answered {
		return
	}
	s.answered = true
	size := int64(len(m.Append(nil)))
	if s.to.size+size > maxBatchAnswer {
		data := new(jsonrpc.Object).Text("reason", "size").Int("limit", maxBatchAnswer).Int("actual", s.to.size+size).Text("outcome", "ran").Done()
		m = jsonrpc.Message{ID: m.ID, Error: &jsonrpc.Error{
			Code: codeSize, Message: "the answers to the batch are over the size limit together; the call ran, its answer is left out (outcome: ran)", Data: data,
		}}
		size = int64(len(m.Append(nil)))
	}
	s.to.size += size
	s.to.list = append(s.to.list, m)
}
