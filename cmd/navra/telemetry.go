package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"navra/internal/chokepoint"
	"navra/internal/config"
	"navra/internal/telemetry"
)

// telemetryOptions say where spans go, and whether clients' baggage goes on. The zero value: nowhere, and no.
type telemetryOptions struct {
	Endpoint string // "" for nowhere
	Header   map[string]telemetry.Secret
	Baggage  bool
	Hurried  bool // the host that ends navra waits for next to nothing
}

// How long the last spans may take at the end. Hosts kill a process on stdio some 100 ms after they asked it to end.
const (
	lastSpans        = time.Second
	lastSpansHurried = 40 * time.Millisecond
)

func (o telemetryOptions) farewell() time.Duration {
	if o.Hurried {
		return lastSpansHurried
	}
	return lastSpans
}

// telemetryPlan maps a configuration to them.
func telemetryPlan(f *config.File) (telemetryOptions, error) {
	header, err := f.OTLPHeader(os.LookupEnv, os.ReadFile)
	if err != nil {
		return telemetryOptions{}, err
	}
	o := telemetryOptions{Endpoint: f.Telemetry.OTLP, Baggage: f.Telemetry.Baggage, Header: map[string]telemetry.Secret{}}
	for name, value := range header {
		o.Header[name] = telemetry.Secret(value)
	}
	return o, nil
}

// otlpHeaders is the variable that headers for wrap's --otlp come from: a command line is no place for secrets.
const otlpHeaders = "NAVRA_OTLP_HEADERS"

// wrapTelemetry reads what wrap is told without a configuration.
func wrapTelemetry(endpoint string) (o telemetryOptions, err error) {
	if endpoint == "" {
		return o, nil
	}
	var ok bool
	if o.Endpoint, ok = config.TracesURL(endpoint); !ok {
		return o, usageError{errors.New("--otlp wants the address of a collector, such as http://127.0.0.1:4318")}
	}
	o.Header = map[string]telemetry.Secret{}
	for pair := range strings.SplitSeq(os.Getenv(otlpHeaders), ",") {
		name, value, has := strings.Cut(strings.TrimSpace(pair), "=")
		if !has && name != "" || has && name == "" {
			return o, fmt.Errorf("%s wants NAME=VALUE, several with commas between them", otlpHeaders)
		}
		if has {
			o.Header[name] = telemetry.Secret(value)
		}
	}
	return o, nil
}

// open returns the exporter, nil for none.
func (o telemetryOptions) open(log *slog.Logger) (*telemetry.Exporter, error) {
	if o.Endpoint == "" {
		return nil, nil
	}
	return telemetry.New(telemetry.Options{Endpoint: o.Endpoint, Header: o.Header, Version: version, Logger: log})
}

// tell is what the chokepoint tells of spans with; nil where nobody listens.
func tell(e *telemetry.Exporter) func(chokepoint.Span) {
	if e == nil {
		return nil
	}
	return func(s chokepoint.Span) { e.Tell(telemetry.Span(s)) }
}

// sendLast begins to send what is left of the spans; what it returns waits for that.
func (r *running) sendLast(ctx context.Context) (wait func()) {
	ctx, stop := context.WithTimeout(ctx, r.lastSpans)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.spans.Close(ctx)
	}()
	return func() {
		<-done
		stop()
	}
}
