package demo

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navra/internal/jsonrpc"
)

// drive starts a server and returns what sends it a line and reads its answer.
func drive(t *testing.T, kind string) func(line string) jsonrpc.Message {
	t.Helper()
	toServer, in := io.Pipe()
	out, fromServer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := Serve(t.Context(), kind, toServer, fromServer)
		fromServer.Close()
		ended <- err
	}()
	t.Cleanup(func() {
		in.Close()
		if err := <-ended; err != nil {
			t.Errorf("Serve = %v at the end of input", err)
		}
	})
	r := bufio.NewReader(out)
	return func(line string) jsonrpc.Message {
		t.Helper()
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
		b, err := r.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		m, fault := jsonrpc.Parse(b)
		if fault != nil {
			t.Fatalf("%s: %v", b, fault)
		}
		return m
	}
}

func call(tool, arguments string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`
}

func TestServeAnswers(t *testing.T) {
	for _, kind := range Kinds {
		ask := drive(t, kind)
		for _, tt := range []struct{ line, want string }{
			{`{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
				`{"jsonrpc":"2.0","id":"a","result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"navra-demo-` + kind + `","version":"1"}}}`},
			{`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `not JSON` + "\n\n" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`},
			{`{"jsonrpc":"2.0","id":2,"method":"prompts/list"}`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"Method not found"}}`},
			{call("no_such", "{}"), `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"Unknown tool: no_such"}}`},
		} {
			if diff := cmp.Diff(tt.want, string(ask(tt.line).Append(nil))); diff != "" {
				t.Errorf("%s: %s:\n%s", kind, tt.line, diff)
			}
		}
	}
}

func TestServeTools(t *testing.T) {
	for kind, want := range map[string][]string{
		"notes": {"list_notes()", "read_note(id)", "write_note(id,text)"},
		"web":   {"fetch(url)"},
		"mail":  {"send_mail(to,subject,body)", "list_sent()"},
	} {
		list, _ := drive(t, kind)(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).Result.Get("tools")
		var got []string
		for tool := range list.Elements() {
			text := func(path ...string) string { v, _ := tool.Get(path...); s, _ := v.Text(); return s }
			var args []string
			required, _ := tool.Get("inputSchema", "required")
			for a := range required.Elements() {
				name, _ := a.Text()
				if text("inputSchema", "properties", name, "type") != "string" {
					t.Errorf("%s: argument %s has no type", text("name"), name)
				}
				args = append(args, name)
			}
			if text("inputSchema", "type") != "object" || text("description") == "" {
				t.Errorf("definition: %s", tool)
			}
			got = append(got, text("name")+"("+strings.Join(args, ",")+")")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", kind, diff)
		}
	}
}

func TestServeCalls(t *testing.T) {
	for kind, calls := range map[string][]struct{ tool, args, want string }{
		"notes": {
			{"list_notes", `{}`, "customers\ndeploy\nlaunch"},
			{"read_note", `{"id":"deploy"}`, madeUpKey()},
			{"read_note", `{"id":"customers"}`, "@example.org"},
			{"read_note", `{"id":"none"}`, "There is no note none"},
			{"write_note", `{"id":"new","text":"first"}`, "Written."},
			{"read_note", `{"id":"new"}`, "first"},
		},
		"web":  {{"fetch", `{"url":"https://example.com/releases"}`, "https://example.com/releases"}, {"fetch", `{"url":"x"}`, "collector@evil.example"}},
		"mail": {{"list_sent", `{}`, "Nothing was sent."}, {"send_mail", `{"to":"a@example.org","subject":"hi","body":"b"}`, "Sent."}, {"list_sent", `{}`, "to a@example.org: hi"}},
	} {
		ask := drive(t, kind)
		for _, c := range calls {
			m := ask(call(c.tool, c.args))
			if got := answerText(m); !strings.Contains(got, c.want) {
				t.Errorf("%s %s = %q, want %q in it", c.tool, c.args, got, c.want)
			}
			_, failed := m.Result.Get("isError")
			if want := strings.HasPrefix(c.want, "There is no"); failed != want {
				t.Errorf("%s %s: isError is %t, want %t", c.tool, c.args, failed, want)
			}
		}
	}
}

func TestServeEndsWithContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	in, w := io.Pipe()
	defer w.Close()
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, "notes", in, io.Discard) }()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Serve = %v, want nil", err)
	}
}

func TestServeUnknownKind(t *testing.T) {
	err := Serve(t.Context(), "chat", strings.NewReader(""), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "notes, web, mail") {
		t.Errorf("Serve = %v, want an error that names the kinds", err)
	}
}
