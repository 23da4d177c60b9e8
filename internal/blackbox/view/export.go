package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"navra/internal/blackbox"
)

type field struct{ name, value string }

// fields are the texts of an entry, under the names of its encoding.
func fields(e blackbox.Entry) []field {
	return []field{
		{"kind", string(e.Kind)},
		{"ref", e.Ref},
		{"principal", e.Principal},
		{"actor", e.Actor},
		{"auth", e.Auth},
		{"role", e.Role},
		{"session", e.Session},
		{"scope", e.Scope},
		{"transport", e.Transport},
		{"era", e.Era},
		{"version", e.Version},
		{"upstream", e.Upstream},
		{"method", e.Method},
		{"target", e.Target},
		{"request_id", e.RequestID},
		{"trace", e.Trace},
		{"verdict", e.Verdict},
		{"stage", e.Stage},
		{"reason", e.Reason},
		{"outcome", e.Outcome},
		{"label_before", e.Before},
		{"label_after", e.After},
		{"policy", e.Policy},
		{"approval", e.Approval},
	}
}

func counts(list []blackbox.Count) string {
	out := make([]string, len(list))
	for i, c := range list {
		out[i] = fmt.Sprintf("%s %d", c.Name, c.N)
	}
	return strings.Join(out, ", ")
}

// CSVHeader names the cells of CSV.
func CSVHeader() []string {
	out := []string{"seq", "time", "cause"}
	for _, f := range fields(blackbox.Entry{}) {
		out = append(out, f.name)
	}
	return append(out, "findings", "notes", "durations_us", "payload_bytes")
}

// CSV is an entry as cells of a spreadsheet, none of which it would take for a formula.
func CSV(e blackbox.Entry) []string {
	cause := ""
	if e.Cause > 0 {
		cause = fmt.Sprint(e.Cause)
	}
	out := []string{fmt.Sprint(e.Seq), e.Time.UTC().Format(time.RFC3339Nano), cause}
	for _, f := range fields(e) {
		out = append(out, f.value)
	}
	var sizes []blackbox.Count
	for _, p := range e.Payloads {
		sizes = append(sizes, blackbox.Count{Name: p.Name, N: p.Length})
	}
	out = append(out, counts(e.Findings), counts(e.Notes), counts(e.Durations), counts(sizes))
	for i, text := range out {
		out[i] = cell(text)
	}
	return out
}

// cell escapes what does not show, and marks as text what a spreadsheet would compute (OWASP, CSV Injection; the wide forms too).
func cell(text string) string {
	text = Printable(text)
	if start := strings.TrimLeft(text, " "); start != "" && strings.ContainsRune("=+-@＝＋－＠", []rune(start)[0]) {
		return "'" + text
	}
	return text
}

// The numbers of OCSF 1.3.0, class API Activity.
const (
	ocsfVersion  = "1.3.0"
	ocsfCategory = 6
	ocsfClass    = 6003

	ocsfRead  = 2
	ocsfOther = 99
)

type named struct {
	Name string `json:"name"`
}

type ocsfAPI struct {
	Operation string         `json:"operation"`
	Service   *named         `json:"service,omitempty"`
	Request   map[string]any `json:"request,omitempty"`
}

type ocsfActivity struct {
	ActivityID   int            `json:"activity_id"`
	Activity     string         `json:"activity_name"`
	CategoryUID  int            `json:"category_uid"`
	Category     string         `json:"category_name"`
	ClassUID     int            `json:"class_uid"`
	Class        string         `json:"class_name"`
	TypeUID      int            `json:"type_uid"`
	SeverityID   int            `json:"severity_id"`
	Severity     string         `json:"severity"`
	Time         int64          `json:"time"`
	StatusID     int            `json:"status_id"`
	Status       string         `json:"status"`
	StatusDetail string         `json:"status_detail,omitempty"`
	ActionID     int            `json:"action_id"`
	Action       string         `json:"action"`
	Actor        map[string]any `json:"actor"`
	API          ocsfAPI        `json:"api"`
	Source       named          `json:"src_endpoint"`
	Destination  *named         `json:"dst_endpoint,omitempty"`
	Resources    []named        `json:"resources,omitempty"`
	Metadata     map[string]any `json:"metadata"`
	Unmapped     map[string]any `json:"unmapped"`
}

// OCSF is an entry as an event of OCSF's class API Activity: one JSON object on one line. version is navra's.
func OCSF(e blackbox.Entry, version string) ([]byte, error) {
	o := ocsfActivity{
		ActivityID: ocsfOther, Activity: e.Method, CategoryUID: ocsfCategory, Category: "Application Activity", ClassUID: ocsfClass, Class: "API Activity",
		Time: e.Time.UnixMilli(), StatusDetail: e.Reason,
		Actor:  map[string]any{"user": named{e.Principal}},
		API:    ocsfAPI{Operation: e.Method},
		Source: named{source(e)},
		Metadata: map[string]any{
			"version": ocsfVersion, "profiles": []string{"security_control"}, "sequence": e.Seq,
			"product": map[string]any{"name": "navra", "vendor_name": "navra", "version": version},
		},
		Unmapped: unmapped(e),
	}
	switch {
	case e.Method == "":
		o.Activity, o.API.Operation = string(e.Kind), string(e.Kind)
	case strings.HasSuffix(e.Method, "/list") || strings.HasSuffix(e.Method, "/read") || strings.HasSuffix(e.Method, "/get"):
		o.ActivityID, o.Activity = ocsfRead, "Read"
	}
	o.TypeUID = ocsfClass*100 + o.ActivityID
	o.judged(e)
	if e.Ref != "" {
		o.Metadata["uid"] = e.Ref
	}
	if e.Trace != "" {
		o.Metadata["correlation_uid"] = e.Trace
	}
	if e.RequestID != "" {
		o.API.Request = map[string]any{"uid": e.RequestID}
	}
	if e.Upstream != "" {
		o.API.Service, o.Destination = &named{e.Upstream}, &named{e.Upstream}
	}
	if e.Target != "" {
		o.Resources = []named{{e.Target}}
	}
	return marshal(o)
}

// judged fills in what follows from the verdict.
func (o *ocsfActivity) judged(e blackbox.Entry) {
	switch e.Verdict {
	case "allow":
		o.SeverityID, o.Severity, o.StatusID, o.Status, o.ActionID, o.Action = 1, "Informational", 1, "Success", 1, "Allowed"
		if e.Outcome == "unknown" {
			o.StatusID, o.Status = 0, "Unknown"
		}
	case "ask":
		o.SeverityID, o.Severity, o.StatusID, o.Status, o.ActionID, o.Action = 2, "Low", ocsfOther, "Ask", 0, "Unknown" // an action has no 99
		if e.Outcome == "not-sent" {
			o.ActionID, o.Action = 2, "Denied"
		}
	case "deny":
		o.SeverityID, o.Severity, o.StatusID, o.Status, o.ActionID, o.Action = 3, "Medium", 2, "Failure", 2, "Denied"
	default:
		o.Severity, o.Status, o.Action = "Unknown", "Unknown", "Unknown"
	}
}

// source says where the message came from.
func source(e blackbox.Entry) string {
	switch {
	case e.Kind == blackbox.Own || e.Kind == blackbox.Event:
		return "navra"
	case e.Upstream != "" && (e.Kind == blackbox.OwnAnswer || e.Kind == blackbox.FromUpstream):
		return e.Upstream
	}
	return "client"
}

// unmapped is what the class has no place for.
func unmapped(e blackbox.Entry) map[string]any {
	placed := []string{"ref", "principal", "upstream", "method", "target", "request_id", "trace", "reason"}
	out := map[string]any{"seq": e.Seq, "prev": fmt.Sprintf("%x", e.Prev)}
	if e.Cause > 0 {
		out["cause"] = e.Cause
	}
	for _, f := range fields(e) {
		if f.value != "" && !slices.Contains(placed, f.name) {
			out[f.name] = f.value
		}
	}
	for _, l := range []struct {
		name string
		list []blackbox.Count
	}{{"findings", e.Findings}, {"notes", e.Notes}, {"durations_us", e.Durations}} {
		if len(l.list) > 0 {
			m := map[string]int64{}
			for _, c := range l.list {
				m[c.Name] += c.N
			}
			out[l.name] = m
		}
	}
	var payloads []map[string]any
	for _, p := range e.Payloads {
		payloads = append(payloads, map[string]any{"name": p.Name, "length": p.Length, "whole_sha256": fmt.Sprintf("%x", p.WholeProof), "stored_sha256": fmt.Sprintf("%x", p.StoredProof)})
	}
	if payloads != nil {
		out["payloads"] = payloads
	}
	return out
}
