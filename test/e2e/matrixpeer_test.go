package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"navra/internal/mcp"
)

// A cellPeer is a conversation over one transport in one version.
type cellPeer struct {
	open func() message // the handshake's answer; nil in the stateless era
	send func(id, method string, params map[string]any) (answer message, before []message)
	tell func(method string, params map[string]any)
}

func modernParams(v mcp.Version, p map[string]any) map[string]any {
	if !v.Stateless() {
		return p
	}
	p = maps.Clone(p)
	if p == nil {
		p = map[string]any{}
	}
	meta := modernMeta()
	if given, ok := p["_meta"].(map[string]any); ok {
		maps.Copy(meta, given)
	}
	p["_meta"] = meta
	return p
}

func greeting(v mcp.Version) map[string]any {
	return map[string]any{"protocolVersion": string(v), "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}}
}

// peers makes a conversation over each transport. A transport that is not here fails the test.
var peers = map[mcp.Transport]func(s *setup, config string, v mcp.Version) cellPeer{
	mcp.Stdio: func(s *setup, config string, v mcp.Version) cellPeer {
		c := s.startAs(navraBin, "stdio", "--config", config)
		seen := 0
		send := func(id, method string, p map[string]any) (message, []message) {
			c.next = atoi(id) - 1
			m := c.request(method, modernParams(v, p))
			c.mu.Lock()
			defer c.mu.Unlock()
			before := slices.Clone(c.notes[seen:])
			seen = len(c.notes)
			return m, before
		}
		return cellPeer{
			open: func() message { m, _ := send("1", mcp.Initialize, greeting(v)); return m },
			send: send,
			tell: func(method string, p map[string]any) { c.notify(method, p) },
		}
	},
	mcp.HTTP: func(s *setup, config string, v mcp.Version) cellPeer {
		w := &web{t: s.t, addr: s.serve(config).Addr, modern: v.Stateless(), version: string(v)}
		return cellPeer{
			open: func() message {
				_, head, got := w.post(request(1, mcp.Initialize, greeting(v)), nil)
				w.session = head.Get("Mcp-Session-Id")
				return got[0]
			},
			send: func(id, method string, p map[string]any) (message, []message) {
				w.next = atoi(id) - 101
				_, _, got := w.raw(method, orEmpty(p), nil)
				return got[len(got)-1], got[:len(got)-1]
			},
			tell: func(method string, p map[string]any) {
				head := map[string][]string{}
				if v.Stateless() {
					head["Mcp-Protocol-Version"], head["Mcp-Method"] = []string{string(v)}, []string{method}
				}
				b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": method, "params": orEmpty(p)})
				if status, _, got := w.post(string(b), head); status != 202 || len(got) > 0 {
					s.t.Errorf("%s: status %d, %+v", method, status, got)
				}
			},
		}
	},
	mcp.WebSocket: func(s *setup, config string, v mcp.Version) cellPeer {
		sock := dial(s.t, s.serve(config).Addr, "")
		seen := 0
		send := func(id, method string, p map[string]any) (message, []message) {
			sock.next = atoi(id) - 1
			m := sock.request(method, modernParams(v, p))
			sock.mu.Lock()
			defer sock.mu.Unlock()
			before := slices.Clone(sock.others[seen:])
			seen = len(sock.others)
			return m, before
		}
		return cellPeer{
			open: func() message { m, _ := send("1", mcp.Initialize, greeting(v)); return m },
			send: send,
			tell: func(method string, p map[string]any) {
				b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": method, "params": orEmpty(p)})
				sock.write(string(b))
			},
		}
	},
}

func orEmpty(p map[string]any) map[string]any {
	if p == nil {
		return map[string]any{}
	}
	return p
}

func atoi(s string) (n int) { fmt.Sscan(s, &n); return n }
