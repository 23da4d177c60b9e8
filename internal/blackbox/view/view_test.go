package view_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"navra/internal/blackbox"
	"navra/internal/blackbox/view"
)

var now = time.Date(2026, 7, 28, 12, 34, 56, 0, time.UTC)

func denied() blackbox.Entry {
	return blackbox.Entry{
		Seq: 7, Time: now, Kind: blackbox.Request, Ref: "abcdefghijklmnop", Principal: "ann", Scope: "s1", Upstream: "mail", Method: "tools/call",
		Target: "mail/send_mail", Verdict: "deny", Stage: "flow", Reason: "private", Outcome: "not-sent", Before: "trusted, public", After: "trusted, public",
		Findings: []blackbox.Count{{Name: "aws", N: 2}}, Durations: []blackbox.Count{{Name: "policy", N: 1500}},
		Payloads: []blackbox.Payload{{Name: "arguments", Length: 12}},
	}
}

const hostile = "x\x1b[31m\u202eevil\u009b2J\n\u2066\U000e0041\x7f"

// shows reports what would steer a terminal.
func shows(text string) bool {
	for _, r := range text {
		if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x2069 || r >= 0xe0000 {
			return true
		}
	}
	return !utf8.ValidString(text)
}

func TestFilter(t *testing.T) {
	for _, tt := range []struct {
		f    view.Filter
		want bool
	}{
		{view.Filter{}, true},
		{view.Filter{Principal: "ann", Verdict: "deny", Stage: "flow", Kind: "request", Scope: "s1", Upstream: "mail", Method: "tools/call", Ref: "abcdefghijklmnop"}, true},
		{view.Filter{Principal: "ann", Verdict: "allow"}, false}, // and
		{view.Filter{Since: now}, true},                          // from it on
		{view.Filter{Until: now}, false},                         // before it
		{view.Filter{Since: now.Add(1)}, false},
		{view.Filter{Tool: "mail/*"}, true},
		{view.Filter{Tool: "*"}, true},
		{view.Filter{Tool: "send_*"}, true},
		{view.Filter{Tool: "files/*"}, false},
		{view.Filter{Tool: "send"}, false},
	} {
		if got := tt.f.Match(denied()); got != tt.want {
			t.Errorf("%+v matches: %v, want %v", tt.f, got, tt.want)
		}
	}
}

func TestGlob(t *testing.T) {
	for _, tt := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true},
		{"", "a", false},
		{"a", "a", true},
		{"?", "é", true},
		{"?", "", false},
		{"a*c*e", "abcde", true},
		{"a*c*e", "abcd", false},
		{"*b", "abab", true},
		{"file:*", "file:///a/b", true},
		{"[a]", "a", false},
		{strings.Repeat("*a", 50), strings.Repeat("a", 500) + "b", false},
	} {
		if got := view.Glob(tt.pattern, tt.text); got != tt.want {
			t.Errorf("Glob(%q, %q) = %v", tt.pattern, tt.text, got)
		}
	}
}

func TestParseTime(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2026-07-28T14:00:00+02:00": time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC),
		"2h":                        now.Add(-2 * time.Hour), "2h ago": now.Add(-2 * time.Hour), "7d": now.Add(-7 * 24 * time.Hour), "0s": now,
		"2026-07-28": time.Date(2026, 7, 28, 0, 0, 0, 0, now.Location()), "2026-07-28 14:05": time.Date(2026, 7, 28, 14, 5, 0, 0, now.Location()),
		"2026-07-28 14:05:06.5": time.Date(2026, 7, 28, 14, 5, 6, 5e8, now.Location()),
	} {
		if got, err := view.ParseTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "ago", "yesterday", "-2h", "36501d", "-1d", "2026-02-30", "2026-07-28T14:05", "2026-07-28 25:00"} {
		if got, err := view.ParseTime(text, now); err == nil {
			t.Errorf("%q = %v, want an error", text, got)
		}
	}
}

func TestTextIsEscaped(t *testing.T) {
	if got, want := view.Plain(`a "b" \ é`, 0), `a "b" \\ \u00e9`; got != want {
		t.Errorf("Plain = %s, want %s", got, want)
	}
	if got, want := view.Printable("日本 é\t\xff"), `日本 é\t\xff`; got != want {
		t.Errorf("Printable = %s, want %s", got, want)
	}
	text := []byte(`{"a":"` + hostile + `"}`)
	var a, b struct{ A string }
	encoded, err := json.Marshal(map[string]string{"a": hostile})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(json.Unmarshal(encoded, &a), json.Unmarshal(view.JSON(encoded), &b)); err != nil || a != b {
		t.Errorf("JSON changed what is meant: %q, %q, %v", a, b, err)
	}
	for _, got := range []string{view.Plain(hostile, 0), view.Printable(hostile), string(view.JSON(text)), string(view.JSON([]byte("\x9b\xff")))} {
		if shows(got) {
			t.Errorf("not escaped: %q", got)
		}
	}
}

func mean() blackbox.Entry {
	e := denied()
	e.Principal, e.Target, e.Reason, e.Method, e.Upstream, e.RequestID = hostile, hostile, hostile, hostile, hostile, hostile
	e.Findings, e.Notes, e.Before = []blackbox.Count{{Name: hostile, N: 1}}, []blackbox.Count{{Name: hostile, N: 1}}, hostile
	return e
}

func TestNothingHostileReachesATerminal(t *testing.T) {
	e := mean()
	r := view.Record{Row: blackbox.Row{Seq: e.Seq, Encoded: e.Encode(), Payloads: []blackbox.Payload{{Name: "arguments", Stored: []byte(hostile)}}}, Entry: e}
	stats := view.NewStats("tool", time.UTC)
	stats.Add(e)
	counted, err1 := stats.JSON()
	ocsf, err2 := view.OCSF(e, "1")
	whole, err3 := view.DetailJSON(r, &r, []view.Record{r})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	cells := view.Row(e, time.UTC)
	for name, got := range map[string]string{
		"table": view.NewTable(0, false, nil).Line(cells), "narrow table": view.NewTable(80, false, []view.Cells{cells}).Line(cells),
		"detail": view.Detail(r, time.UTC), "detail as JSON": string(whole), "csv": strings.Join(view.CSV(e), "|"), "ocsf": string(ocsf),
		"stats": stats.Text(), "stats as JSON": string(counted),
	} {
		if shows(got) {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, got := range map[string][]byte{"detail": whole, "ocsf": ocsf, "stats": counted} {
		if !json.Valid(got) {
			t.Errorf("%s is no JSON: %s", name, got)
		}
	}
}

func TestTableFits(t *testing.T) {
	e := denied()
	e.Reason, e.Target = strings.Repeat("why ", 40), "mail/"+strings.Repeat("x", 90)
	rows := []view.Cells{view.Row(denied(), time.UTC), view.Row(e, time.UTC), view.Unreadable(9, errors.New(strings.Repeat("bad ", 40)))}
	for width := 20; width < 400; width++ {
		table := view.NewTable(width, false, rows)
		for _, line := range append([]string{table.Header()}, table.Line(rows[0]), table.Line(rows[1]), table.Line(rows[2])) {
			if len(line) > width {
				t.Fatalf("%d wide in %d: %s", len(line), width, line)
			}
		}
		if line := table.Line(rows[0]); !strings.Contains(line, "deny") || !strings.HasPrefix(line, "7 ") {
			t.Fatalf("in %d the verdict or the number is lost: %s", width, line)
		}
	}
	if line := view.NewTable(80, false, rows).Line(rows[0]); !strings.Contains(line, "private") || !strings.Contains(line, "12:34:56") {
		t.Errorf("in 80: %s", line)
	}
	if line := view.NewTable(0, false, rows).Line(rows[1]); !strings.Contains(line, strings.Repeat("why ", 25)) {
		t.Errorf("cut without a terminal: %s", line)
	}
	plain, colour := view.NewTable(80, false, rows), view.NewTable(80, true, rows)
	if got, want := strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(colour.Line(rows[0])), plain.Line(rows[0]); got != want || colour.Line(rows[0]) == want {
		t.Errorf("colour: %q, want %q with colour", got, want)
	}
}

func TestCSVIsNoFormula(t *testing.T) {
	for _, start := range []string{"=", "+", "-", "@", "＝", " =", "\t=", "\r="} {
		e := denied()
		e.Target = start + `HYPERLINK("x")`
		got := view.CSV(e)
		if len(got) != len(view.CSVHeader()) {
			t.Fatalf("%d cells under %d names", len(got), len(view.CSVHeader()))
		}
		if cell := got[16]; !strings.HasPrefix(cell, "'") && !strings.HasPrefix(cell, `\`) {
			t.Errorf("%q became %q", e.Target, cell)
		}
	}
	if view.CSVHeader()[16] != "target" || view.CSV(denied())[16] != "mail/send_mail" {
		t.Error("the target is in another column")
	}
}

func TestOCSF(t *testing.T) {
	type event struct {
		ActivityID  int    `json:"activity_id"`
		CategoryUID int    `json:"category_uid"`
		ClassUID    int    `json:"class_uid"`
		TypeUID     int    `json:"type_uid"`
		SeverityID  int    `json:"severity_id"`
		Time        int64  `json:"time"`
		Status      string `json:"status"`
		ActionID    int    `json:"action_id"`
		Actor       struct{ User struct{ Name string } }
		API         struct{ Operation string }
		Unmapped    map[string]any
	}
	line, err := view.OCSF(denied(), "1")
	if err != nil {
		t.Fatal(err)
	}
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		t.Fatal(err)
	}
	if e.ActivityID != 99 || e.CategoryUID != 6 || e.ClassUID != 6003 || e.TypeUID != 600399 || e.SeverityID != 3 || e.Time != now.UnixMilli() || e.Status != "Failure" ||
		e.Actor.User.Name != "ann" || e.API.Operation != "tools/call" || e.Unmapped["stage"] != "flow" || fmt.Sprint(e.Unmapped["findings"]) != "map[aws:2]" {
		t.Errorf("%+v", e)
	}
	type said struct {
		status string
		action int
	}
	for verdict, want := range map[string]said{"allow": {"Success", 1}, "ask": {"Ask", 2}, "deny": {"Failure", 2}, "": {"Unknown", 0}} {
		in := denied()
		in.Verdict, in.Method = verdict, "resources/read"
		line, err := view.OCSF(in, "1")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(line, &e); err != nil || (said{e.Status, e.ActionID}) != want || e.TypeUID != 600302 {
			t.Errorf("%q: %+v, %v", verdict, e, err)
		}
	}
}

func TestDetail(t *testing.T) {
	e := denied()
	r := view.Record{Row: blackbox.Row{Seq: e.Seq, Encoded: e.Encode(), Payloads: []blackbox.Payload{{Name: "arguments", Stored: []byte(`{"to":"é"}`)}}}, Entry: e}
	got := view.Detail(r, time.FixedZone("CEST", 2*60*60))
	for _, want := range []string{"entry 7\n", "14:34:56.000000 CEST (+02:00)", "aws 2", "policy 1.5ms", "trusted, public\n", "12 bytes; kept", "      \"to\": \"é\"\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	r.Payloads = nil
	if got := view.Detail(r, time.UTC); !strings.Contains(got, "nothing is kept any more") {
		t.Errorf("a payload that was dropped:\n%s", got)
	}
	line, err := view.DetailJSON(r, nil, nil)
	if err != nil || !strings.Contains(string(line), `"stored":null`) || strings.Contains(string(line), `"cause":{`) {
		t.Errorf("%s, %v", line, err)
	}
}

func TestACallWithoutAnAnswerIsUnknown(t *testing.T) {
	sent := blackbox.Entry{Kind: blackbox.Request, Verdict: "allow", Upstream: "files", Method: "tools/call"}
	denied, self, told, own := sent, sent, sent, sent
	denied.Verdict, self.Upstream = "deny", "self"
	told.Kind, told.Method, own.Kind, own.Method = blackbox.Own, "notifications/initialized", blackbox.Own, "initialize"
	record := func(e blackbox.Entry) view.Record {
		return view.Record{Row: blackbox.Row{Encoded: e.Encode()}, Entry: e}
	}
	answer, progress := []view.Record{record(blackbox.Entry{Kind: blackbox.Answer})}, []view.Record{record(blackbox.Entry{Kind: blackbox.Notification})}
	for _, tt := range []struct {
		name    string
		e       blackbox.Entry
		answers []view.Record
		want    bool
	}{
		{"sent", sent, nil, true}, {"only progress", sent, progress, true}, {"answered", sent, answer, false}, {"denied", denied, nil, false},
		{"answered by navra", self, nil, false}, {"a notification", told, nil, false}, {"navra's own request", own, nil, true},
	} {
		if got := view.Unknown(record(tt.e), tt.answers); got != tt.want {
			t.Errorf("%s: Unknown = %v, want %v", tt.name, got, tt.want)
		}
		line, err := view.DetailJSON(record(tt.e), nil, tt.answers)
		if err != nil || strings.HasSuffix(string(line), `"outcome":"unknown"}`) != tt.want {
			t.Errorf("%s: %s, %v", tt.name, line, err)
		}
	}
}

func TestStats(t *testing.T) {
	for _, by := range append(view.By(), "") {
		s := view.NewStats(by, time.FixedZone("", 30*60))
		for i, verdict := range []string{"allow", "deny", "ask", "deny"} {
			e := denied()
			e.Verdict, e.Time = verdict, now.Add(time.Duration(i)*time.Minute)
			s.Add(e)
		}
		entries, denials, asks := 0, 0, 0
		for _, g := range s.Groups() {
			entries, denials, asks = entries+g.Entries, denials+g.Denials, asks+g.Asks
		}
		if by != "" && (entries != 4 || denials != 2 || asks != 1) {
			t.Errorf("by %s: %+v", by, s.Groups())
		}
		if by == "hour" && s.Groups()[0].Name != "2026-07-28T13:00:00+00:30" {
			t.Errorf("by hour: %+v", s.Groups())
		}
		if text := s.Text(); !strings.HasSuffix(text, "       4         2         1\n") {
			t.Errorf("by %q:\n%s", by, text)
		}
	}
}

func TestGroupsAreBounded(t *testing.T) {
	s := view.NewStats("tool", time.UTC)
	for i := range 20_000 {
		s.Add(blackbox.Entry{Target: fmt.Sprint(i)})
	}
	if n := len(s.Groups()); n > 10_001 {
		t.Errorf("%d groups", n)
	}
	if g := s.Groups()[0]; g.Name != "(others)" || g.Entries != 10_000 {
		t.Errorf("the rest: %+v", g)
	}
}
