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
		if speak { // those before are given up within goodbyeTime
			time.Sleep(goodbyeTime + 200*time.Millisecond)
			told := dial(t, inner)
			io.WriteString(told, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(told), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || string(body) != "too many connections here\n" {
				t.Errorf("over the limit: %d %q, %v", resp.StatusCode, body, err)
			}
		}
		second.Close()
		third.Close()
		ln.Close()
		<-ended
	}
}
