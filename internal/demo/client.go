package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"

	"navra/internal/jsonrpc"
)

const (
	protocol   = "2025-11-25"
	maxMessage = 16 << 20
)

// A conn carries one request to the gateway and its answer back.
type conn interface {
	ask(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, error)
	close() error
}

// overHTTP is a session of Streamable HTTP.
type overHTTP struct {
	url, token, session string
	client              http.Client
}

func (c *overHTTP) ask(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(m.Append(nil)))
	if err != nil {
		return jsonrpc.Message{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+c.token)
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
		req.Header.Set("MCP-Protocol-Version", protocol)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return jsonrpc.Message{}, err
	}
	defer resp.Body.Close()
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" {
		c.session = s
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
	if err != nil || m.ID.IsZero() {
		return jsonrpc.Message{}, err
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		b = lastEvent(b)
	}
	return parse(b)
}

// lastEvent returns the data of a stream's last event, which is the answer.
func lastEvent(stream []byte) (data []byte) {
	for line := range bytes.Lines(stream) {
		if d, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = d
		}
	}
	return data
}

func parse(b []byte) (jsonrpc.Message, error) {
	m, fault := jsonrpc.Parse(b)
	if fault != nil {
		return m, fmt.Errorf("the gateway's answer: %w", fault)
	}
	return m, nil
}

func (c *overHTTP) close() error { c.client.CloseIdleConnections(); return nil }

// overStdio is a gateway that runs as a child.
type overStdio struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startStdio starts the gateway's own binary.
func startStdio(ctx context.Context, argv, env []string) (*overStdio, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = env
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &overStdio{cmd, in, bufio.NewReader(out)}, nil
}

func (c *overStdio) ask(_ context.Context, m jsonrpc.Message) (jsonrpc.Message, error) {
	if _, err := c.in.Write(append(m.Append(nil), '\n')); err != nil || m.ID.IsZero() {
		return jsonrpc.Message{}, err
	}
	for {
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			return jsonrpc.Message{}, err
		}
		if got, err := parse(line); err != nil || got.ID == m.ID {
			return got, err // else it is a notification
		}
	}
}

func (c *overStdio) close() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }
