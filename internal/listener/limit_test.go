package listener

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(t *testing.T, ln net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

func TestLimit(t *testing.T) {
	for _, speak := range []bool{true, false} {
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln := limit(inner, 2, speak)
		got := make(chan net.Conn)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				got <- c
			}
		}()
		dial(t, inner)
		first := <-got
		dial(t, inner)
		second := <-got
		for range maxGoodbyes + 10 { // they harm nobody, however many
			dial(t, inner)
		}
		over := dial(t, inner)
		if _, err := io.WriteString(over, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err == nil && !speak {
			if b, err := io.ReadAll(over); err == nil && len(b) > 0 {
				t.Errorf("a TLS client was told %q in clear text", b)
			}
		}
		first.Close()
		first.Close() // leaves its place only once
		dial(t, inner)
		third := <-got
		for end := time.Now().Add(10 * time.Second); speak; { // those before are given up within goodbyeTime
			status, body := over503(t, inner)
			if status == 503 && body == "too many connections here\n" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("over the limit: %d %q", status, body)
			}
		}
		second.Close()
		third.Close()
		ln.Close()
		<-ended
	}
}

// over503 asks over a new connection and returns status and body; 0 where it was closed without a word.
func over503(t *testing.T, ln net.Listener) (int, string) {
	t.Helper()
	c := dial(t, ln)
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return 0, ""
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.Header.Get("Retry-After") == "" {
		t.Errorf("over the limit: %v, %v", resp.Header, err)
	}
	return resp.StatusCode, string(body)
}
