package telemetry

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// A Span is one finished part of a message's way. It is the chokepoint's, member by member, so that cmd converts the one to the other.
type Span struct {
	Trace        [16]byte
	ID, Parent   [8]byte // Parent is zero for the first of a trace
	State        string  // tracestate
	Kind, Name   string  // server, client or stage
	Began, Ended time.Time

	Method, Version, Transport string
	Session                    string // hashed
	RequestID                  string // as JSON
	Upstream, Tool, Prompt     string // canonical
	Verdict, Stage, Outcome    string
	Ref                        string // of the entry in the blackbox
	Failure                    string // "" where it went well
	Code                       int    // of a JSON-RPC error; 0 for none
}

var kinds = map[string]trace.SpanKind{"server": trace.SpanKindServer, "client": trace.SpanKindClient, "stage": trace.SpanKindInternal}

// record makes an OpenTelemetry span of s, under the ids that it has; gather takes it.
func (e *Exporter) record(s *Span) {
	ctx := context.WithValue(context.Background(), given{}, s)
	if s.Parent != [8]byte{} {
		state, err := trace.ParseTraceState(s.State)
		if err != nil { // a key of Level 2, which this library does not know
			state = trace.TraceState{}
		}
		ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: s.Trace, SpanID: s.Parent, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: s.Kind == "server",
		}))
	}
	_, span := e.tracer.Start(ctx, s.Name, trace.WithTimestamp(s.Began), trace.WithSpanKind(kinds[s.Kind]), trace.WithAttributes(s.attributes()...))
	if s.Failure != "" {
		span.SetStatus(codes.Error, s.Failure)
	}
	span.End(trace.WithTimestamp(s.Ended))
}

// attributes are those of OpenTelemetry's conventions for MCP, and navra's own where there are none.
func (s *Span) attributes() (out []attribute.KeyValue) {
	text := func(key attribute.Key, value string) {
		if value != "" {
			out = append(out, key.String(value))
		}
	}
	text(semconv.McpMethodNameKey, s.Method)
	text(semconv.McpProtocolVersionKey, s.Version)
	text(semconv.McpSessionIDKey, s.Session)
	text(semconv.JSONRPCRequestIDKey, s.RequestID)
	text(semconv.GenAIToolNameKey, s.Tool)
	text(semconv.GenAIPromptNameKey, s.Prompt)
	if s.Tool != "" {
		out = append(out, semconv.GenAIOperationNameExecuteTool)
	}
	switch s.Transport {
	case "stdio":
		out = append(out, semconv.NetworkTransportPipe)
	case "http", "websocket":
		out = append(out, semconv.NetworkTransportTCP, semconv.NetworkProtocolName(s.Transport))
	}
	text(semconv.ErrorTypeKey, s.Failure)
	if s.Code != 0 {
		text(semconv.RPCResponseStatusCodeKey, strconv.Itoa(s.Code))
	}
	text("navra.upstream", s.Upstream)
	text("navra.verdict", s.Verdict)
	text("navra.stage", s.Stage)
	text("navra.outcome", s.Outcome)
	text("navra.ref", s.Ref)
	return out
}

// given hands out the ids of the span that the context holds: they were on the wire before the span was told of.
type given struct{}

func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	s := ctx.Value(given{}).(*Span)
	return s.Trace, s.ID
}

func (given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	return ctx.Value(given{}).(*Span).ID
}

// gather puts finished spans into the batch. Only the exporter's own goroutine finishes any.
type gather struct{ e *Exporter }

func (gather) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (g gather) OnEnd(s sdk.ReadOnlySpan)                 { g.e.batch = append(g.e.batch, s) }
func (gather) Shutdown(context.Context) error             { return nil }
func (gather) ForceFlush(context.Context) error           { return nil }
