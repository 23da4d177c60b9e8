// Package demo is what `navra demo` plays: small MCP servers, and a scripted client that reaches only the gateway it is
// given. Everything in it is made up.
package demo

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"navra/internal/jsonrpc"
)

// A tool is one that a demo server offers. Arguments are all strings.
type tool struct {
	name, description string
	args              []string
	call              func(arg func(string) string) (text string, failed bool)
}

// Kinds are the demo servers there are.
var Kinds = []string{"notes", "web", "mail"}

// Serve runs a demo server over stdio until its input or ctx ends. A read that blocks cannot be interrupted: where ctx ends first, one
// goroutine stays in it until it returns, and drops what it got.
func Serve(ctx context.Context, kind string, in io.Reader, out io.Writer) error {
	tools, ok := map[string]func() []tool{"notes": notes, "web": web, "mail": mail}[kind]
	if !ok {
		return fmt.Errorf("there is no demo server %q; there are %s", kind, strings.Join(Kinds, ", "))
	}
	s := server{kind: kind, tools: tools(), out: out}
	lines, ended := make(chan []byte), make(chan error, 1)
	go func() { ended <- read(ctx, in, lines) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case line := <-lines:
			if m, fault := jsonrpc.Parse(line); fault == nil && m.Kind() == jsonrpc.Request {
				if err := s.answer(m); err != nil {
					return err
				}
			}
		}
	}
}

// read passes each line on, until in or ctx ends.
func read(ctx context.Context, in io.Reader, to chan<- []byte) error {
	r := bufio.NewScanner(in)
	r.Buffer(nil, maxMessage)
	for r.Scan() {
		select {
		case to <- bytes.Clone(r.Bytes()):
		case <-ctx.Done():
			return nil
		}
	}
	return r.Err()
}

type server struct {
	kind  string
	tools []tool
	out   io.Writer
}

func (s server) answer(m jsonrpc.Message) error {
	reply := jsonrpc.Message{ID: m.ID}
	switch m.Method {
	case "initialize":
		info := new(jsonrpc.Object).Text("name", "navra-demo-"+s.kind).Text("version", "1").Done()
		reply.Result = new(jsonrpc.Object).Text("protocolVersion", "2025-11-25").Raw("capabilities", jsonrpc.Raw(`{"tools":{}}`)).Raw("serverInfo", info).Done()
	case "ping":
		reply.Result = jsonrpc.Raw("{}")
	case "tools/list":
		reply.Result = new(jsonrpc.Object).Raw("tools", s.list()).Done()
	case "tools/call":
		reply.Result, reply.Error = s.call(m.Params)
	default:
		reply.Error = &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}
	}
	_, err := s.out.Write(append(reply.Append(nil), '\n'))
	return err
}

func (s server) list() jsonrpc.Raw {
	var out []jsonrpc.Raw
	for _, t := range s.tools {
		props, required := new(jsonrpc.Object), []jsonrpc.Raw{}
		for _, a := range t.args {
			props.Raw(a, jsonrpc.Raw(`{"type":"string"}`))
			required = append(required, jsonrpc.Quote(a))
		}
		schema := new(jsonrpc.Object).Text("type", "object").Raw("properties", props.Done()).Raw("required", jsonrpc.Array(required...)).Done()
		out = append(out, new(jsonrpc.Object).Text("name", t.name).Text("description", t.description).Raw("inputSchema", schema).Done())
	}
	return jsonrpc.Array(out...)
}

func (s server) call(params jsonrpc.Raw) (jsonrpc.Raw, *jsonrpc.Error) {
	text := func(path ...string) string {
		v, _ := params.Get(path...)
		t, _ := v.Text()
		return t
	}
	i := slices.IndexFunc(s.tools, func(t tool) bool { return t.name == text("name") })
	if i < 0 {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Unknown tool: " + text("name")}
	}
	said, failed := s.tools[i].call(func(name string) string { return text("arguments", name) })
	block := new(jsonrpc.Object).Text("type", "text").Text("text", said).Done()
	out := new(jsonrpc.Object).Raw("content", jsonrpc.Array(block))
	if failed {
		out.Bool("isError", true)
	}
	return out.Done(), nil
}
