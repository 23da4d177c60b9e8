package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"navra/internal/blackbox"
)

const timeLong = "2006-01-02 15:04:05.000000 MST (-07:00)"

const maxBody = 64 << 10 // bytes of an indented payload: deep nesting is shown as it is

// A Record is an entry with what is still kept of its payloads.
type Record struct {
	blackbox.Row
	Entry blackbox.Entry
}

// stored returns what is kept of a payload, and whether it is.
func (r Record) stored(name string) ([]byte, bool) {
	i := slices.IndexFunc(r.Payloads, func(p blackbox.Payload) bool { return p.Name == name })
	if i < 0 {
		return nil, false
	}
	return r.Payloads[i].Stored, true
}

// Detail is an entry whole, for a person, with the time in loc.
func Detail(r Record, loc *time.Location) string {
	e := r.Entry
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-12s %s\n", name, value)
		}
	}
	fmt.Fprintf(&b, "entry %d\n", e.Seq)
	line("time", e.Time.In(loc).Format(timeLong))
	if e.Cause > 0 {
		line("cause", fmt.Sprintf("entry %d", e.Cause))
	}
	for _, f := range fields(e) {
		if f.name != "label_before" && f.name != "label_after" {
			line(f.name, Plain(f.value, 0))
		}
	}
	if e.Before != e.After {
		line("label", Plain(e.Before, 0)+"  ->  "+Plain(e.After, 0))
	} else {
		line("label", Plain(e.After, 0))
	}
	line("findings", Plain(counts(e.Findings), 0))
	line("notes", Plain(counts(e.Notes), 0))
	var took []string
	for _, d := range e.Durations {
		took = append(took, Plain(d.Name, 0)+" "+(time.Duration(d.N)*time.Microsecond).String())
	}
	line("durations", strings.Join(took, ", "))
	line("hash", fmt.Sprintf("%x", r.Hash))
	for _, p := range e.Payloads {
		kept, ok := r.stored(p.Name)
		if !ok {
			line(Plain(p.Name, 0), fmt.Sprintf("%d bytes, of which nothing is kept any more", p.Length))
			continue
		}
		line(Plain(p.Name, 0), fmt.Sprintf("%d bytes; kept, with secrets taken out:", p.Length))
		b.WriteString(body(kept))
	}
	return b.String()
}

// Unknown reports whether a request went to an upstream and no answer is recorded, which answers are all that refer to it: whether it ran
// is then not known. It is on its way, or its gateway was killed.
func Unknown(r Record, answers []Record) bool {
	e := r.Entry
	asks := e.Kind == blackbox.Request || e.Kind == blackbox.Own && !strings.HasPrefix(e.Method, "notifications/")
	return asks && e.Verdict == "allow" && e.Upstream != "" && e.Upstream != "self" &&
		!slices.ContainsFunc(answers, func(a Record) bool { return a.Entry.Kind == blackbox.Answer || a.Entry.Kind == blackbox.OwnAnswer })
}

// body is what is kept of a payload, indented where it is whole JSON.
func body(kept []byte) string {
	var out, b bytes.Buffer
	if json.Indent(&out, kept, "", "  ") != nil || out.Len() > maxBody {
		out.Reset()
		out.Write(kept)
	}
	for l := range strings.Lines(out.String()) {
		b.WriteString("    " + Printable(strings.TrimRight(l, "\r\n")) + "\n")
	}
	return b.String()
}

type shownPayload struct {
	Name   string  `json:"name"`
	Length int64   `json:"length"`
	Stored *string `json:"stored"` // null: removed
}

type shownRecord struct {
	Entry    json.RawMessage `json:"entry"`
	Payloads []shownPayload  `json:"payloads"`
}

func (r Record) shown() shownRecord {
	s := shownRecord{Entry: r.Encoded, Payloads: []shownPayload{}}
	for _, p := range r.Entry.Payloads {
		one := shownPayload{Name: p.Name, Length: p.Length}
		if kept, ok := r.stored(p.Name); ok {
			text := string(kept)
			one.Stored = &text
		}
		s.Payloads = append(s.Payloads, one)
	}
	return s
}

// DetailJSON is an entry whole as one JSON object: entry as recorded, payloads, and where there are such its cause and its answers;
// "outcome":"unknown" for a call without an answer.
func DetailJSON(r Record, cause *Record, answers []Record) ([]byte, error) {
	out := struct {
		shownRecord
		Cause   *shownRecord  `json:"cause,omitempty"`
		Answers []shownRecord `json:"answers,omitempty"`
		Outcome string        `json:"outcome,omitempty"`
	}{shownRecord: r.shown()}
	if Unknown(r, answers) {
		out.Outcome = "unknown"
	}
	if cause != nil {
		s := cause.shown()
		out.Cause = &s
	}
	for _, a := range answers {
		out.Answers = append(out.Answers, a.shown())
	}
	return marshal(out)
}

// marshal is a value as one line of JSON in which nothing is hidden.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return JSON(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}
