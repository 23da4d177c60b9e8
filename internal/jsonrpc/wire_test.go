package jsonrpc

import (
	"bufio"
	"encoding/base64"
	"os"
	"testing"
)

// A wireCase is a line of testdata/wire.jsonl: what a client sends, and what it must get.
type wireCase struct {
	name   string
	raw    []byte
	expect Raw
	batch  bool // the session's version has batches
}

func wireCases(t *testing.T) (cases []wireCase) {
	t.Helper()
	file, err := os.Open("testdata/wire.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line, err := ParseValue(lines.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if member(line, "transport") != "any" {
			continue
		}
		c := wireCase{name: member(line, "name"), raw: []byte(member(line, "raw"))}
		if in, ok := line.Get("raw_b64"); ok && !in.IsNull() {
			text, _ := in.Text()
			if c.raw, err = base64.StdEncoding.DecodeString(text); err != nil {
				t.Fatal(err)
			}
		}
		c.expect, _ = line.Get("expect")
		setup, _ := line.Get("setup")
		c.batch = member(setup, "protocol") == "2025-03-26"
		cases = append(cases, c)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return cases
}

func member(v Raw, name string) string {
	at, _ := v.Get(name)
	text, _ := at.Text()
	return text
}

// Each case is as good as decided here: what Parse takes, the layers above answer.
func TestWireCases(t *testing.T) {
	cases := wireCases(t)
	if len(cases) < 50 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if !c.batch {
				if why := judge(c.raw, c.expect); why != "" {
					t.Errorf("Parse(%q): %s, want %s", c.raw, why, c.expect)
				}
				return
			}
			if _, f := Parse(c.raw); f == nil || f.Err.Code != CodeInvalidRequest {
				t.Errorf("Parse of a batch = %v, want %d", f, CodeInvalidRequest)
			}
			judgeBatch(t, c)
		})
	}
}

// judgeBatch takes a batch apart as its one reader does, with ParseValue and Parse for each element.
func judgeBatch(t *testing.T, c wireCase) {
	v, err := ParseValue(c.raw)
	if err != nil {
		t.Fatal(err)
	}
	var wants []Raw
	if list, ok := c.expect.Get("batch"); ok {
		for want := range list.Elements() {
			wants = append(wants, want)
		}
	}
	for element := range v.Elements() {
		m, f := Parse(element)
		if m.Kind() == Notification || wants == nil {
			continue
		}
		if len(wants) == 0 {
			t.Fatalf("element %s: no answer expected", element)
		}
		if why := judge(element, wants[0]); why != "" {
			t.Errorf("element %s: %s (%v), want %s", element, why, f, wants[0])
		}
		wants = wants[1:]
	}
	if len(wants) > 0 {
		t.Errorf("%d answers missing", len(wants))
	}
}

// judge returns what is wrong with Parse(raw), "" where it is as expect wants.
func judge(raw []byte, expect Raw) string {
	m, f := Parse(raw)
	code := int64(0)
	if v, ok := expect.Get("code"); ok {
		code, _ = v.Int()
	}
	id := m.ID
	if f != nil {
		id = f.ID
	}
	if want, ok := expect.Get("id"); ok && !(want.IsNull() && id.IsZero()) && string(want) != id.String() {
		return "id " + id.String()
	}
	switch {
	case member(expect, "kind") == "none":
		if f != nil || m.Kind() != Notification && m.Kind() != Response {
			return "to be answered"
		}
	case member(expect, "kind") == "result", code == CodeMethodNotFound:
		if f != nil || m.Kind() != Request {
			return "refused"
		}
	case f == nil || int64(f.Err.Code) != code:
		return "not refused with that code"
	}
	return ""
}
