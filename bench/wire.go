package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

var errHTTP = errors.New("not an HTTP/1.1 response of the expected form")

// A wire is one HTTP/1.1 connection. net/http would do, at several times the price, and the client shares the machine
// with what it measures.
type wire struct {
	nc       net.Conn
	r        *bufio.Reader
	out      []byte
	body     []byte
	patience time.Duration // for one exchange
}

// A response's slices are good until the next exchange.
type response struct {
	status      int
	contentType []byte
	session     string
	body        []byte
}

func dial(addr string, patience time.Duration) (*wire, error) {
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return newWire(nc, patience), nil
}

func newWire(nc net.Conn, patience time.Duration) *wire {
	return &wire{nc: nc, r: bufio.NewReaderSize(nc, 64<<10), patience: patience}
}

// exchange sends a request line with headers (each line ended) and a body, and reads the response.
func (w *wire) exchange(head string, body []byte) (response, error) {
	if err := w.nc.SetDeadline(time.Now().Add(w.patience)); err != nil {
		return response{}, err
	}
	w.out = append(w.out[:0], head...)
	w.out = append(w.out, "Content-Length: "...)
	w.out = strconv.AppendInt(w.out, int64(len(body)), 10)
	w.out = append(w.out, "\r\n\r\n"...)
	w.out = append(w.out, body...)
	if _, err := w.nc.Write(w.out); err != nil {
		return response{}, err
	}
	return w.read()
}

func (w *wire) read() (res response, err error) {
	line, err := w.line()
	if err != nil {
		return res, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return res, fmt.Errorf("%w: %s", errHTTP, clip(line))
	}
	if res.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return res, fmt.Errorf("%w: %s", errHTTP, clip(line))
	}
	length, chunked := 0, false
	for {
		if line, err = w.line(); err != nil {
			return res, err
		}
		if len(line) == 0 {
			break
		}
		key, val, _ := bytes.Cut(line, []byte(":"))
		val = bytes.TrimSpace(val)
		switch {
		case bytes.EqualFold(key, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(val)); err != nil || length < 0 || length > maxBody {
				return res, fmt.Errorf("%w: %s", errHTTP, clip(line))
			}
		case bytes.EqualFold(key, []byte("Transfer-Encoding")):
			chunked = bytes.EqualFold(val, []byte("chunked"))
		case bytes.EqualFold(key, []byte("Content-Type")):
			res.contentType = append(res.contentType, val...)
		case bytes.EqualFold(key, []byte("Mcp-Session-Id")):
			res.session = string(val)
		}
	}
	w.body = w.body[:0]
	if chunked {
		err = w.chunks()
	} else {
		err = w.take(length)
	}
	res.body = w.body
	return res, err
}

func (w *wire) chunks() error {
	for {
		line, err := w.line()
		if err != nil {
			return err
		}
		size, _, _ := strings.Cut(string(line), ";")
		n, err := strconv.ParseUint(strings.TrimSpace(size), 16, 31)
		if err != nil || len(w.body)+int(n) > maxBody {
			return fmt.Errorf("%w: chunk size %q", errHTTP, size)
		}
		if err := w.take(int(n)); err != nil {
			return err
		}
		for n == 0 { // trailers
			if line, err = w.line(); err != nil || len(line) == 0 {
				return err
			}
		}
		if _, err := w.line(); err != nil {
			return err
		}
	}
}

// take appends n bytes to the body.
func (w *wire) take(n int) error {
	start := len(w.body)
	w.body = append(w.body, make([]byte, n)...)
	_, err := io.ReadFull(w.r, w.body[start:])
	return err
}

func (w *wire) line() ([]byte, error) {
	line, err := w.r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

func (w *wire) close() { w.nc.Close() }
