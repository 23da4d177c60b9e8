package e2e

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A wire stands between navra and a PostgreSQL server, and can be slow, silent or cut.
type wire struct {
	ln     net.Listener
	target string
	silent atomic.Bool  // nothing is passed on
	delay  atomic.Int64 // nanoseconds before what the server says is passed on
	cut    atomic.Int32 // at which COMMIT from now the connection is cut, when the server has done it; 0: never
	cuts   atomic.Int32

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
	work  sync.WaitGroup
}

func newWire(t *testing.T, socket string) *wire {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	give(t, err)
	w := &wire{ln: ln, target: socket}
	w.work.Go(w.accept)
	t.Cleanup(func() {
		ln.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			c.Close()
		}
		w.mu.Unlock()
		w.silent.Store(false)
		w.work.Wait()
	})
	return w
}

func (w *wire) url() string {
	return "postgres://postgres@" + w.ln.Addr().String() + "/postgres?sslmode=disable"
}

func (w *wire) accept() {
	for {
		in, err := w.ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("unix", w.target)
		if err != nil {
			in.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, in, out)
		w.mu.Unlock()
		w.work.Go(func() { w.pass(out, in, false) })
		w.work.Go(func() { w.pass(in, out, true) })
	}
}

// committed is the server's message that a COMMIT is done.
var committed = []byte("C\x00\x00\x00\x0bCOMMIT\x00")

func (w *wire) pass(to, from net.Conn, server bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		for w.silent.Load() {
			time.Sleep(10 * time.Millisecond)
		}
		if server {
			time.Sleep(time.Duration(w.delay.Load()))
			if bytes.Contains(b[:n], committed) && w.cut.Load() > 0 && w.cut.Add(-1) == 0 {
				w.cuts.Add(1)
				return
			}
		}
		if _, failed := to.Write(b[:n]); failed != nil || err != nil {
			return
		}
	}
}
