// Package stdio serves one client over a pair of byte streams, usually the process's stdin and stdout: it turns lines into
// messages and messages into lines, and tells which program is at the other end. It knows no policy, no sessions and no methods.
package stdio

import (
	"bufio"
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"time"

	"navra/internal/auth"
	"navra/internal/mcp"
	"navra/internal/transport/duplex"
)

// Options are the parts of a connection. In, Out, Who, Handler and Logger are required.
type Options struct {
	In         io.Reader
	Out        io.Writer // gets one Write per message
	Who        auth.Principal
	Host       mcp.HostKey
	Handler    duplex.Handler
	Logger     *slog.Logger
	MaxMessage int64 // bytes of one line without its end; 0 means DefaultMaxMessage
}

// DefaultMaxMessage bounds one message, in bytes.
const DefaultMaxMessage = 4 << 20

// Hosts kill a process some 100 ms after they asked it to end (measured: Claude Code, Codex, Gemini CLI). A client that
// closes its end without a signal gets the answers that are ready within finishGrace; then, and on a signal at once,
// what still runs is cancelled and has cancelGrace to end.
const (
	finishGrace = 50 * time.Millisecond
	cancelGrace = 50 * time.Millisecond
)

// Serve serves one client until its stream or ctx ends, and returns nil then; the error is what reading or writing met
// otherwise. MCP 2025-11-25, basic/transports §stdio; MCP 2026-07-28, ditto. How messages are handed over and answered is
// [duplex.Conn.Serve]'s.
//
// A Read of In that blocks cannot be interrupted: where ctx ends first, one goroutine stays in it until it returns, and drops what it
// got. A handler that outstays its cancellation by 50 ms is left behind likewise, and can send nothing more.
func Serve(ctx context.Context, o Options) error {
	if o.MaxMessage <= 0 {
		o.MaxMessage = DefaultMaxMessage
	}
	in := &lines{r: bufio.NewReaderSize(o.In, readBytes), limit: o.MaxMessage}
	return duplex.New(duplex.Options{
		Next: in.message,
		Write: func(message []byte) error {
			_, err := o.Out.Write(append(message, '\n'))
			return err
		},
		Who: o.Who, From: mcp.Inbound{Transport: mcp.Stdio, Conn: rand.Text(), Host: o.Host},
		Handler: o.Handler, Logger: o.Logger, FinishGrace: finishGrace, CancelGrace: cancelGrace,
	}).Serve(ctx)
}
