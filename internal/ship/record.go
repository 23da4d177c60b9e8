package ship

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"navra/internal/blackbox"
)

// encode makes the request of OTLP for some entries: LogsData has the same form on the wire as ExportLogsServiceRequest.
func (s *Shipper) encode(rows []blackbox.Row) ([]byte, error) {
	scope := &logs.ScopeLogs{Scope: &common.InstrumentationScope{Name: "navra/blackbox", Version: s.o.Version}}
	now := uint64(time.Now().UnixNano())
	for _, row := range rows {
		r := record(row, s.o.Payloads)
		r.ObservedTimeUnixNano = now
		scope.LogRecords = append(scope.LogRecords, r)
	}
	all := &logs.LogsData{}
	if len(rows) > 0 {
		all.ResourceLogs = []*logs.ResourceLogs{{
			Resource:  &resource.Resource{Attributes: []*common.KeyValue{text("service.name", "navra"), text("service.version", s.o.Version)}},
			ScopeLogs: []*logs.ScopeLogs{scope},
		}}
	}
	return proto.Marshal(all)
}

// record maps an entry. The body is its canonical encoding: with navra.hash and navra.prev the receiver can check the chain.
func record(row blackbox.Row, payloads bool) *logs.LogRecord {
	r := &logs.LogRecord{Body: value(string(row.Encoded)), Attributes: []*common.KeyValue{number("navra.seq", int64(row.Seq)), text("navra.hash", hex.EncodeToString(row.Hash[:]))}}
	e, err := blackbox.Decode(row.Encoded)
	if err != nil {
		r.EventName, r.SeverityNumber, r.SeverityText = "navra.unreadable", logs.SeverityNumber_SEVERITY_NUMBER_ERROR, "ERROR"
		return r
	}
	r.EventName = "navra." + string(e.Kind)
	r.TimeUnixNano = uint64(e.Time.UnixNano())
	r.SeverityNumber, r.SeverityText = severity(e.Verdict)
	if id, err := hex.DecodeString(e.Trace); err == nil && len(id) == 16 {
		r.TraceId = id
	}
	r.Attributes = append(r.Attributes, text("navra.prev", hex.EncodeToString(e.Prev[:])))
	for _, a := range [][2]string{
		{"navra.ref", e.Ref}, {"navra.principal", e.Principal}, {"navra.actor", e.Actor}, {"navra.auth", e.Auth}, {"navra.role", e.Role}, {"navra.session", e.Session}, {"navra.scope", e.Scope},
		{"navra.transport", e.Transport}, {"navra.upstream", e.Upstream}, {"navra.target", e.Target}, {"navra.verdict", e.Verdict}, {"navra.stage", e.Stage}, {"navra.reason", e.Reason},
		{"navra.outcome", e.Outcome}, {"navra.label_before", e.Before}, {"navra.label_after", e.After}, {"navra.policy", e.Policy}, {"navra.approval", e.Approval},
		{"mcp.method.name", e.Method}, {"mcp.protocol.version", e.Version}, {"jsonrpc.request.id", e.RequestID},
	} {
		if a[1] != "" {
			r.Attributes = append(r.Attributes, text(a[0], a[1]))
		}
	}
	if e.Cause > 0 {
		r.Attributes = append(r.Attributes, number("navra.cause", int64(e.Cause)))
	}
	for _, f := range e.Findings {
		r.Attributes = append(r.Attributes, number("navra.findings."+f.Name, f.N))
	}
	if payloads {
		for _, p := range row.Payloads {
			r.Attributes = append(r.Attributes, text("navra."+p.Name, string(p.Stored)))
		}
	}
	return r
}

// severity says how much a verdict asks to be looked at.
func severity(verdict string) (logs.SeverityNumber, string) {
	switch verdict {
	case "deny":
		return logs.SeverityNumber_SEVERITY_NUMBER_ERROR, "ERROR"
	case "ask":
		return logs.SeverityNumber_SEVERITY_NUMBER_WARN, "WARN"
	}
	return logs.SeverityNumber_SEVERITY_NUMBER_INFO, "INFO"
}

// value is a text, which protobuf wants in UTF-8; an entry that somebody has edited may hold other bytes.
func value(s string) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: strings.ToValidUTF8(s, "\uFFFD")}}
}

func text(key, s string) *common.KeyValue { return &common.KeyValue{Key: key, Value: value(s)} }

func number(key string, n int64) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: n}}}
}

// partial reads how many records a collector has rejected of what it took (ExportLogsServiceResponse), and why.
func partial(answer []byte) (rejected int64, why string, err error) {
	success, err := field(answer, 1, protowire.BytesType)
	if err != nil || success == nil {
		return 0, "", err
	}
	n, err1 := field(success, 1, protowire.VarintType)
	message, err2 := field(success, 2, protowire.BytesType)
	if n != nil {
		v, _ := binary.Uvarint(n)
		rejected = int64(v)
	}
	return rejected, strings.ToValidUTF8(string(message), "\uFFFD"), errors.Join(err1, err2)
}

// field returns the last value of a field, nil where there is none.
func field(b []byte, number protowire.Number, kind protowire.Type) (out []byte, err error) {
	for len(b) > 0 {
		n, t, size := protowire.ConsumeTag(b)
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		b = b[size:]
		whole := protowire.ConsumeFieldValue(n, t, b)
		if whole < 0 {
			return nil, protowire.ParseError(whole)
		}
		if n == number && t == kind {
			if out = b[:whole:whole]; kind == protowire.BytesType {
				out, _ = protowire.ConsumeBytes(out)
				out = append([]byte{}, out...)
			}
		}
		b = b[whole:]
	}
	return out, nil
}
