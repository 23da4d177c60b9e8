package listener

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// lookEvery is the least time between two looks at a certificate's files.
const lookEvery = time.Second

// A Certificate is a pair of PEM files, read again when they change. Handshakes look at the files, at most once a second, rather than
// a watcher: what renews certificates renames files, swaps links or writes over the network, and a look finds each of these without
// a goroutine, a limit on watches or a dependency. A pair that cannot be used leaves the last good one in place.
type Certificate struct {
	cert, key string
	log       *slog.Logger
	good      atomic.Pointer[tls.Certificate]
	next      atomic.Int64 // when to look again, in Unix nanoseconds; whoever moves it looks
	busy      atomic.Bool  // somebody looks
	seen      [2]os.FileInfo
}

// LoadCertificate reads a certificate with its chain, and its key.
func LoadCertificate(cert, key string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key, log: log, seen: look(cert, key)}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", cert, key, err)
	}
	c.good.Store(&pair)
	c.next.Store(time.Now().Add(lookEvery).UnixNano())
	return c, nil
}

func (c *Certificate) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	now := time.Now()
	if now.UnixNano() >= c.next.Load() && c.busy.CompareAndSwap(false, true) { // the others go on with the last good one
		c.refresh(hello.Context())
		c.next.Store(now.Add(lookEvery).UnixNano())
		c.busy.Store(false)
	}
	return c.good.Load(), nil
}

// refresh reads the files if they changed. They are looked at before they are read: what changes in between is found the next time.
func (c *Certificate) refresh(ctx context.Context) {
	now := look(c.cert, c.key)
	if same(c.seen[0], now[0]) && same(c.seen[1], now[1]) {
		return
	}
	c.seen = now
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		c.log.WarnContext(ctx, "certificate not reloaded, the last good one stays", slog.String("file", c.cert), slog.Any("err", err))
		return
	}
	c.good.Store(&pair)
	c.log.InfoContext(ctx, "certificate reloaded", slog.String("file", c.cert), slog.Time("expires", pair.Leaf.NotAfter))
}

// look returns what the file system says of both files, nil for what is not there.
func look(cert, key string) (out [2]os.FileInfo) {
	for i, path := range []string{cert, key} {
		if info, err := os.Stat(path); err == nil {
			out[i] = info
		}
	}
	return out
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
