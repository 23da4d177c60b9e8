package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

const statelessMeta = `"_meta":{"` + metaVersion + `":"` + version2026 + `","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}`

// A session is one client: one connection, and in the stateful era one MCP session. Its calls follow each other. It is not safe for concurrent use.
type session struct {
	wire    *wire
	era     string
	common  string // request line and headers of every POST
	call    string // those of tools/call
	conn    int
	seq     int
	payload *payload
	body    []byte
	text    []byte
	id      string // in the stateful era
}

// maxCalls bounds the calls of one session, so that no two sessions use one id.
const maxCalls = 10_000_000

// openSession connects, opens a session as its era asks, and sees that there is a tool called echo.
func openSession(target, token, era string, conn int, p *payload, patience time.Duration) (*session, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	w, err := dial(u.Host, patience)
	if err != nil {
		return nil, err
	}
	s := &session{wire: w, era: era, conn: conn, payload: p}
	s.common = "POST " + u.Path + " HTTP/1.1\r\nHost: " + u.Host + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
	if token != "" {
		s.common += "Authorization: Bearer " + token + "\r\n"
	}
	if err := s.open(); err != nil {
		w.close()
		return nil, err
	}
	return s, nil
}

func (s *session) open() error {
	if s.era == stateless {
		s.common += "MCP-Protocol-Version: " + version2026 + "\r\n"
		s.call = s.common + "Mcp-Method: tools/call\r\nMcp-Name: echo\r\n"
		if _, err := s.ask("server/discover", statelessMeta); err != nil {
			return err
		}
	} else {
		res, err := s.ask("initialize", `"protocolVersion":"`+version2025+`","capabilities":{},"clientInfo":{"name":"bench","version":"1"}`)
		if err != nil {
			return err
		}
		if s.id = res.session; s.id == "" {
			return errors.New("initialize: the answer has no Mcp-Session-Id")
		}
		s.common += "MCP-Protocol-Version: " + version2025 + "\r\nMcp-Session-Id: " + s.id + "\r\n"
		s.call = s.common
		res, err = s.wire.exchange(s.common, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		if err != nil {
			return fmt.Errorf("notifications/initialized: %w", err)
		}
		if res.status != http.StatusAccepted {
			return fmt.Errorf("notifications/initialized: status %d: %s", res.status, clip(res.body))
		}
	}
	return s.findEcho()
}

func (s *session) findEcho() error {
	params := ""
	if s.era == stateless {
		params = statelessMeta
	}
	res, err := s.ask("tools/list", params)
	if err != nil {
		return err
	}
	if !bytes.Contains(res.body, []byte(`"name":"echo"`)) {
		return fmt.Errorf("tools/list: there is no tool echo in %s", clip(res.body))
	}
	return nil
}

// ask sends a request other than tools/call; an error in its answer is one here.
func (s *session) ask(method, params string) (response, error) {
	head := s.common
	if s.era == stateless {
		head += "Mcp-Method: " + method + "\r\n"
	}
	res, err := s.wire.exchange(head, []byte(`{"jsonrpc":"2.0","id":`+s.nextID()+`,"method":"`+method+`","params":{`+params+`}}`))
	if err != nil {
		return res, fmt.Errorf("%s: %w", method, err)
	}
	found := false
	err = messages(res.contentType, res.body, func(m []byte) error {
		found = found || member(m, "result") != nil
		return nil
	})
	if err != nil || !found || res.status != http.StatusOK {
		return res, fmt.Errorf("%s: status %d: %s", method, res.status, clip(res.body))
	}
	return res, nil
}

func (s *session) nextID() string {
	s.seq++
	return strconv.FormatInt(int64(s.conn)*maxCalls+int64(s.seq), 10)
}

// echo makes one call, checks its answer, and returns how long the answer took.
func (s *session) echo() (time.Duration, error) {
	if s.seq++; s.seq >= maxCalls {
		return 0, fmt.Errorf("more than %d calls in one session; use a smaller -time", maxCalls)
	}
	w := want{id: int64(s.conn)*maxCalls + int64(s.seq)}
	s.text = s.payload.text(s.text[:0], s.conn, s.seq)
	w.text = s.text
	b := append(s.body[:0], `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendInt(b, w.id, 10)
	b = append(b, `,"method":"tools/call","params":{`...)
	if s.era == stateless {
		b = append(append(b, statelessMeta...), ',')
	}
	b = append(b, `"name":"echo","arguments":{"text":`...)
	b = append(b, s.text...)
	s.body = append(b, "}}}"...)

	start := time.Now()
	res, err := s.wire.exchange(s.call, s.body)
	took := time.Since(start)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("%w within %v", errLost, s.wire.patience)
	case err != nil:
		err = fmt.Errorf("%w: %w", errLost, err)
	case res.status != http.StatusOK:
		err = fmt.Errorf("%w: status %d: %s", errRefused, res.status, clip(res.body))
	default:
		err = w.check(res.contentType, res.body)
	}
	if err != nil {
		err = fmt.Errorf("connection %d, call %d: %w", s.conn, s.seq, err)
	}
	return took, err
}

// close ends the session and the connection.
func (s *session) close() {
	if s.id != "" {
		s.wire.exchange("DELETE"+s.common[len("POST"):], nil)
	}
	s.wire.close()
}
