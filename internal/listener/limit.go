package listener

import (
	"io"
	"net"
	"sync"
	"time"
)

const (
	// maxGoodbyes is how many connections over the limit are told so at once; more are closed without a word.
	maxGoodbyes = 64
	// goodbyeTime is how long a connection over the limit may take to read that.
	goodbyeTime = time.Second
	// goodbyeBytes bounds what is read from it meanwhile.
	goodbyeBytes = 64 << 10
)

const busy = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 26\r\n\r\n" +
	"too many connections here\n"

// limit bounds how many of ln's connections are open at once. Those above are accepted and closed at once, so that nobody waits in
// the system's queue behind them; where speak is set, they are answered with 503 first.
func limit(ln net.Listener, most int, speak bool) net.Listener {
	l := &limited{Listener: ln, free: make(chan struct{}, most)}
	if speak {
		l.goodbyes = make(chan struct{}, maxGoodbyes)
	}
	return l
}

type limited struct {
	net.Listener
	free     chan struct{} // holds one for each open connection
	goodbyes chan struct{} // holds one for each connection that is being told
	told     sync.WaitGroup
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &counted{Conn: c, leave: sync.OnceFunc(func() { <-l.free })}, nil
		default:
			l.turnAway(c)
		}
	}
}

// Close closes the listener and waits for those that are being told.
func (l *limited) Close() error {
	err := l.Listener.Close()
	l.told.Wait()
	return err
}

func (l *limited) turnAway(c net.Conn) {
	select {
	case l.goodbyes <- struct{}{}: // never where it is nil
	default:
		_ = c.Close() // nothing was written that could be lost
		return
	}
	l.told.Go(func() {
		defer func() { <-l.goodbyes }()
		goodbye(c)
	})
}

// goodbye tells a client that there is no room. Its request is read, since closing a connection with unread bytes would take the answer
// back. What fails here fails for a client that is turned away anyway.
func goodbye(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(goodbyeTime))
	if _, err := io.WriteString(c, busy); err != nil {
		return
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(c, goodbyeBytes))
}

// counted leaves its place when it is closed.
type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}
