package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestTelemetry(t *testing.T) {
	for _, tt := range []struct {
		text, endpoint string
		baggage        bool
		fault          string
	}{
		{"{}", "", false, ""},
		{"{baggage: pass}", "", true, ""},
		{"{baggage: drop}", "", false, ""},
		{"{otlp: {endpoint: 'http://127.0.0.1:4318'}}", "http://127.0.0.1:4318/v1/traces", false, ""},
		{"{otlp: {endpoint: 'https://c.example/otlp/'}}", "https://c.example/otlp/v1/traces", false, ""},
		{"{otlp: {endpoint: 'https://c.example/v1/traces'}}", "https://c.example/v1/traces", false, ""},
		{"{baggage: yes}", "", false, "telemetry.baggage"},
		{"{otlp: {}}", "", false, "the endpoint is missing"},
		{"{otlp: {endpoint: '127.0.0.1:4318'}}", "", false, "want the address of a collector"},
		{"{otlp: {endpoint: 'grpc://127.0.0.1:4317'}}", "", false, "want the address of a collector"},
		{"{otlp: {endpoint: 'https://u:hush@c.example'}}", "", false, "want the address of a collector"},
		{"{otlp: {endpoint: 'https://c.example?k=hush'}}", "", false, "want the address of a collector"},
		{"{otlp: {endpoint: 'https://${env:hush}'}}", "", false, "may stand only in env, in headers"},
		{"{otlp: {endpoint: 'http://c', headers: {Content-Type: hush}}}", "", false, "navra sets the header Content-Type by itself"},
	} {
		f, err := Parse("/navra.yaml", []byte("upstreams: {}\ntelemetry: "+tt.text))
		switch {
		case tt.fault != "":
			if err == nil || !strings.Contains(err.Error(), tt.fault) || strings.Contains(err.Error(), "hush") {
				t.Errorf("%s: %v, want %q", tt.text, err, tt.fault)
			}
		case err != nil || f.Telemetry.OTLP != tt.endpoint || f.Telemetry.Baggage != tt.baggage:
			t.Errorf("%s: %+v, %v", tt.text, f, err)
		}
	}
}

func TestOTLPHeader(t *testing.T) {
	f, err := Parse("/navra.yaml", []byte("upstreams: {}\ntelemetry: {otlp: {endpoint: 'http://c', headers: {api-key: '${env:KEY}', x-b: 'b${file:f}'}}}"))
	if err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprintf("%v %+v", f, f.Telemetry); strings.Contains(s, "${env:KEY}") || !strings.Contains(s, "[redacted]") {
		t.Errorf("printed %s", s)
	}
	lookup := func(name string) (string, bool) { return "k", name == "KEY" }
	got, err := f.OTLPHeader(lookup, func(path string) ([]byte, error) { return []byte(path + "\n"), nil })
	if err != nil || got["Api-Key"] != "k" || got["X-B"] != "b/f" {
		t.Errorf("OTLPHeader = %v, %v", got, err)
	}
	_, err = f.OTLPHeader(lookup, func(string) ([]byte, error) { return nil, errors.New("is not there") })
	if err == nil || !strings.Contains(err.Error(), "telemetry.otlp.headers.x-b: is not there") {
		t.Errorf("OTLPHeader: %v", err)
	}
}
