package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

type wireCase struct {
	Name, Transport string
	Frame           string // of a WebSocket: "binary", else text
	Raw             *string
	RawB64          string `json:"raw_b64"`
	Setup           struct{ Protocol, Session, Auth string }
	Expect          expectation
}

type expectation struct {
	Kind           string
	Code           *int
	ID             *json.RawMessage
	Status         []int
	HeadersPresent []string `json:"headers_present"`
	All            []expectation
	Or             []expectation
	Batch          []expectation
	BatchIDs       []int `json:"batch_ids"` // first and last: one result for each
}

// hasID reports whether an expectation says something about the id, null included.
func (e *expectation) UnmarshalJSON(b []byte) error {
	type plain expectation
	if err := json.Unmarshal(b, (*plain)(e)); err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return err
	}
	if id, ok := members["id"]; ok {
		e.ID = &id
	}
	return nil
}

func wireCases(t *testing.T) (cases []wireCase) {
	b, err := os.ReadFile("../../internal/jsonrpc/testdata/wire.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range bytes.Split(bytes.TrimSpace(b), []byte("\n")) {
		var c wireCase
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	if len(cases) < 80 {
		t.Fatalf("only %d cases", len(cases))
	}
	return cases
}

func (c wireCase) bytes(t *testing.T) []byte {
	if c.Raw != nil {
		return []byte(*c.Raw)
	}
	b, err := base64.StdEncoding.DecodeString(c.RawB64)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// check compares what came back with what is expected.
func check(want expectation, status int, head http.Header, got []message) error {
	err := checkOne(want, status, head, got)
	for _, or := range want.Or {
		if err != nil && checkOne(or, status, head, got) == nil {
			return nil
		}
	}
	return err
}

func checkOne(want expectation, status int, head http.Header, got []message) error {
	if want.Status != nil && !slices.Contains(want.Status, status) {
		return fmt.Errorf("status %d, want one of %v", status, want.Status)
	}
	for _, h := range want.HeadersPresent {
		if head.Get(h) == "" {
			return fmt.Errorf("header %s is missing", h)
		}
	}
	switch {
	case want.Kind == "none" && len(got) > 0:
		return fmt.Errorf("answered %+v, want nothing", got[0])
	case want.Kind == "none" || want.Kind == "error" && want.Code == nil:
		return nil
	case len(got) != 1:
		return fmt.Errorf("%d answers, want one", len(got))
	}
	m := got[0]
	if want.BatchIDs != nil {
		for id := want.BatchIDs[0]; id <= want.BatchIDs[1]; id++ {
			raw := json.RawMessage(fmt.Sprint(id))
			want.Batch = append(want.Batch, expectation{Kind: "result", ID: &raw})
		}
	}
	if want.Batch != nil {
		return checkBatch(want.Batch, m.Batch)
	}
	if m.Batch != nil {
		return fmt.Errorf("got an array of %d", len(m.Batch))
	}
	if (want.Kind == "result") != (m.Result != nil) || (want.Kind == "error") != (m.Error != nil) {
		return fmt.Errorf("got %s %+v, want a %s", m.Result, m.Error, want.Kind)
	}
	if want.Code != nil && m.Error.Code != *want.Code {
		return fmt.Errorf("code %d (%s), want %d", m.Error.Code, m.Error.Message, *want.Code)
	}
	if want.ID != nil {
		id := "null"
		if m.ID != nil {
			id = string(m.ID)
		}
		if !sameJSON(id, string(*want.ID)) {
			return fmt.Errorf("id %s, want %s", id, *want.ID)
		}
	}
	return nil
}

// checkBatch compares the members of an array, in any order.
func checkBatch(want []expectation, got []message) error {
	if len(got) != len(want) {
		return fmt.Errorf("an array of %d, want %d", len(got), len(want))
	}
	left := slices.Clone(got)
	for _, w := range want {
		i := slices.IndexFunc(left, func(m message) bool { return checkOne(w, 0, nil, []message{m}) == nil })
		if i < 0 {
			return fmt.Errorf("nothing fits %+v in %+v", w, left)
		}
		left = slices.Delete(left, i, i+1)
	}
	return nil
}

// sameJSON compares ids: type and digits.
func sameJSON(a, b string) bool {
	var x, y any
	for text, to := range map[string]*any{a: &x, b: &y} {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if d.Decode(to) != nil {
			return false
		}
	}
	return x == y || a == b
}

func TestWireOverStdio(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	for _, c := range wireCases(t) {
		if c.Transport != "any" && c.Transport != "stdio" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			s := *s
			s.t = t
			cl := s.start(navraBin, "wrap", "--", fixtureBin, "odd")
			if c.Setup.Session != "none" {
				h := map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}}
				if c.Setup.Protocol != "" {
					h["protocolVersion"] = c.Setup.Protocol
				}
				cl.next = 1_000_000
				if m := cl.request("initialize", h); m.Error != nil {
					t.Fatal(m.Error)
				}
			}
			raw := string(c.bytes(t))
			if c.Transport == "any" {
				raw += "\n"
			}
			if _, err := cl.in.Write([]byte(raw)); err != nil {
				t.Fatal(err)
			}
			want := max(1, len(c.Expect.All))
			if c.Expect.Kind == "none" {
				want = 0
			}
			got := cl.take1(t, want)
			if len(c.Expect.All) == 0 {
				if err := check(c.Expect, 0, nil, got); err != nil {
					t.Error(err)
				}
				return
			}
			for _, e := range c.Expect.All {
				if !slices.ContainsFunc(got, func(m message) bool { return check(e, 0, nil, []message{m}) == nil }) {
					t.Errorf("nothing fits %+v in %+v", e, got)
				}
			}
		})
	}
}

// take1 returns the n messages that came, and then shows with a ping that the connection is usable and nothing more came before it.
func (c *client) take1(t *testing.T, n int) []message {
	t.Helper()
	count := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(unasked(c.notes))
	}
	for late := time.After(patience); count() < n; {
		select {
		case <-c.arrived:
		case <-c.closed:
			t.Fatalf("the connection ended\n%s", c.stderr)
		case <-late:
			t.Fatalf("no answer\n%s", c.stderr)
		}
	}
	c.next = 2_000_000
	if m := c.request("ping", map[string]any{}); m.Result == nil {
		t.Errorf("ping afterwards: %+v", m)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return unasked(c.notes)
}

func TestWireOverHTTP(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	upstream := fmt.Sprintf("upstreams: {odd: {command: [%q, odd]}}\n", fixtureBin)
	open := s.serve(s.serveConfig("open.yaml", "auth: none\nprincipals: {local: {roles: [local-default]}}\n"+upstream))
	lockedConfig := s.serveConfig("locked.yaml", "auth: {tokens: true}\nprincipals: {ann: {roles: [local-default]}}\n"+upstream)
	locked := s.serve(lockedConfig)
	token, _ := s.runOut("token", "create", "ann", "--config", lockedConfig)
	for _, c := range wireCases(t) {
		if c.Transport != "any" && c.Transport != "http" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			g := open
			if c.Setup.Auth == "bearer" {
				g = locked
			}
			w := &web{t: t, addr: g.Addr}
			if w.version = c.Setup.Protocol; c.Setup.Session != "none" {
				if c.Setup.Auth == "bearer" {
					w.token = strings.TrimSpace(token)
				}
				w.open()
				w.token = ""
			}
			var status int
			var head http.Header
			var got []message
			if c.Transport == "any" {
				status, head, got = w.post(string(c.bytes(t)), nil)
				if c.Expect.Kind == "none" && status != http.StatusAccepted {
					t.Errorf("status %d, want 202", status)
				}
			} else {
				raw := c.bytes(t)
				for k, v := range map[string]string{"{{HOST}}": g.Addr, "{{SESSION}}": w.session, "{{ALLOWED_ORIGIN}}": "https://app.example"} {
					raw = bytes.ReplaceAll(raw, []byte(k), []byte(v))
				}
				status, head, got = rawHTTP(t, g.Addr, raw)
			}
			if err := check(c.Expect, status, head, got); err != nil {
				t.Errorf("%v (status %d, %+v)", err, status, got)
			}
		})
	}
}
