// Package telemetry exports spans over OTLP/HTTP to a collector that the configuration names. It is told of finished spans, with
// their ids; it knows nothing of messages and of how they are judged, and nobody waits for it.
package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

const (
	queued     = 4096            // spans that wait; more are dropped, and counted
	batched    = 512             // spans of one request
	every      = time.Second     // how long a span waits for others
	exportTime = 5 * time.Second // of one batch, with its retries
	textLimit  = 256             // bytes of an attribute
)

// Options are the parts of an Exporter. Endpoint and Logger are required.
type Options struct {
	Endpoint string            // the whole URL, http or https
	Header   map[string]Secret // sent with each request
	Version  string            // of navra
	Logger   *slog.Logger
}

// A Secret is a header's value. It prints as [redacted].
type Secret string

// Format keeps the value out of whatever prints it.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[redacted]") }

// An Exporter sends spans away. Its methods may be called concurrently. A nil Exporter can be hurried and closed.
type Exporter struct {
	queue    chan *Span
	dropped  atomic.Int64
	tracer   trace.Tracer
	provider *sdk.TracerProvider
	out      *otlptrace.Exporter
	log      *slog.Logger

	hurry  chan struct{}   // a token: send what there is
	ctx    context.Context // ends what is being exported
	cancel context.CancelFunc
	stop   chan struct{} // closed when no more is to come
	ended  chan struct{} // closed when run has returned

	batch   []sdk.ReadOnlySpan // of the goroutine in run, as is the rest
	failing bool
	told    int64 // of dropped
}

// New returns an exporter that runs until it is closed. Nothing is sent before there are spans: a collector that is not there is no
// error here.
func New(o Options) (*Exporter, error) {
	e := &Exporter{queue: make(chan *Span, queued), log: o.Logger, hurry: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	var err error
	if e.out, err = otlptrace.New(e.ctx, newClient(o)); err != nil {
		e.cancel()
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = textLimit
	e.provider = sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample()), sdk.WithIDGenerator(given{}), sdk.WithRawSpanLimits(limits), sdk.WithSpanProcessor(gather{e}),
		sdk.WithResource(resource.NewWithAttributes(semconv.SchemaURL, semconv.ServiceName("navra"), semconv.ServiceVersion(o.Version))))
	e.tracer = e.provider.Tracer("navra", trace.WithInstrumentationVersion(o.Version), trace.WithSchemaURL(semconv.SchemaURL))
	go e.run()
	return e, nil
}

// Tell hands a span over. It never waits: where too many do, the span is dropped.
func (e *Exporter) Tell(s Span) {
	select {
	case e.queue <- &s:
	default:
		e.dropped.Add(1)
	}
}

// Hurry has what was told before sent now, rather than wait for more. It does not wait itself. A nil Exporter has nothing to send.
func (e *Exporter) Hurry() {
	if e == nil {
		return
	}
	select {
	case e.hurry <- struct{}{}:
	default: // it is asked already
	}
}

// Close sends what was told before, as long as ctx allows, and ends the exporter. What is told later is dropped.
func (e *Exporter) Close(ctx context.Context) {
	if e == nil {
		return
	}
	defer e.cancel()
	defer context.AfterFunc(ctx, e.cancel)()
	close(e.stop)
	<-e.ended
}

func (e *Exporter) run() {
	defer close(e.ended)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case s := <-e.queue:
			e.take(s)
		case <-tick.C:
			e.export()
		case <-e.hurry:
			e.takeAll()
		case <-e.stop:
			e.takeAll()
			_ = e.provider.Shutdown(e.ctx) // it holds nothing
			_ = e.out.Shutdown(e.ctx)
			return
		}
	}
}

// takeAll sends all that waits.
func (e *Exporter) takeAll() {
	for len(e.queue) > 0 && e.ctx.Err() == nil {
		e.take(<-e.queue)
	}
	e.export()
}

func (e *Exporter) take(s *Span) {
	e.record(s)
	if len(e.batch) >= batched {
		e.export()
	}
}

// export sends the batch. What cannot be sent is lost: nobody keeps spans for a collector that is away.
func (e *Exporter) export() {
	if len(e.batch) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(e.ctx, exportTime)
	defer stop()
	err := e.out.ExportSpans(ctx, e.batch)
	switch {
	case err != nil && !e.failing:
		e.log.Warn("spans cannot be exported, and are lost", "err", err)
	case err == nil && e.failing:
		e.log.Warn("spans are exported again")
	}
	e.failing = err != nil
	clear(e.batch)
	e.batch = e.batch[:0]
	if n := e.dropped.Load(); n > 0 && n >= 10*e.told {
		e.told = n
		e.log.Warn("spans were dropped: the collector is too slow for them", "dropped", n)
	}
}
