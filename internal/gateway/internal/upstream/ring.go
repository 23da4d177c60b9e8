package upstream

import (
	"bytes"
	"io"
	"sync"
)

// ringBytes is how much of a child's stderr is kept.
const ringBytes = 16 << 10

// A ring keeps the end of what a child wrote to stderr. The zero ring is empty and ready.
type ring struct {
	mu   sync.Mutex
	last []byte // guarded by mu
}

// drain reads r to its end, so that a child never stops for a full pipe.
func (g *ring) drain(r io.Reader) {
	buf := make([]byte, 4<<10)
	for {
		n, err := r.Read(buf)
		g.mu.Lock()
		g.last = append(g.last, buf[:n]...)
		if over := len(g.last) - ringBytes; over > 0 {
			g.last = append(g.last[:0], g.last[over:]...)
		}
		g.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// tail returns the last lines, which are whole where they can be: enough for the trace of a script that fails, whose first line says why.
func (g *ring) tail() string {
	const enough = 2000
	g.mu.Lock()
	defer g.mu.Unlock()
	over := len(g.last) - enough
	if over <= 0 {
		return string(g.last)
	}
	end := g.last[over-1:]
	if i := bytes.IndexByte(end[:len(end)-1], '\n'); i >= 0 {
		return string(end[i+1:])
	}
	return string(end[1:])
}
