package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"navra/internal/store"
)

// readTimeout bounds what is read beside a transaction: a server that went silent denies, and does not hang who waits.
const readTimeout = 5 * time.Second

// A timedRow is a row whose query ends with its reading.
type timedRow struct {
	pgx.Row
	end context.CancelFunc
}

func (r timedRow) Scan(to ...any) error {
	defer r.end()
	return r.Row.Scan(to...)
}

// row queries one row, for a time.
func (db *DB) row(ctx context.Context, statement string, args ...any) pgx.Row {
	ctx, end := context.WithTimeout(ctx, readTimeout)
	return timedRow{db.pool.QueryRow(ctx, db.in(statement), args...), end}
}

// A failure is an error of the driver as text: the driver's own hold the configuration, password included.
type failure struct {
	text string
	kind error // what callers ask for, or nil
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.kind }

func (db *DB) clean(err error) error {
	if done := (*failure)(nil); err == nil || errors.As(err, &done) {
		return err
	}
	f := &failure{text: db.secrets.Replace(err.Error())}
	for _, kind := range []error{context.Canceled, context.DeadlineExceeded, store.ErrNotFound, store.ErrStale, errReadOnly, errClosed} {
		if errors.Is(err, kind) {
			f.kind = kind
			break
		}
	}
	if why := reason(err); why != "" {
		return &store.Trouble{Why: why, Err: f}
	}
	return f
}

// reason says, in words that name nothing, why the database cannot be used; "" where it is something else.
func reason(err error) string {
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) {
		switch {
		case e.Code == "53100":
			return "the disk of the database server is full"
		case e.Code == "22012", e.Code == "0A000" && e.Routine == "RewriteQuery": // of insertAll: not all rows were taken, or a rule gives none back
			return "the database has rules or triggers on navra's tables"
		case e.Code == "25006", e.Code == "0A000": // the second to BEGIN READ WRITE, by a standby
			return "the database is read-only"
		case e.Code == "55P03", e.Code == "40P01":
			return "the database is locked by another process"
		case e.Code == "42501", strings.HasPrefix(e.Code, "28"):
			return "the database server refuses navra's user"
		case strings.HasPrefix(e.Code, "57P"), strings.HasPrefix(e.Code, "08"), e.Code == "53300":
			return unreachable
		case strings.HasPrefix(e.Code, "XX"), e.Code == "58030":
			return "the database is damaged"
		}
		return ""
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "the database does not answer in time"
	case errors.Is(err, context.Canceled), errors.Is(err, pgx.ErrNoRows), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrStale):
		return ""
	}
	var dial *pgconn.ConnectError
	if network := net.Error(nil); errors.As(err, &dial) || errors.As(err, &network) || pgconn.SafeToRetry(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return unreachable
	}
	return ""
}

const unreachable = "the database server cannot be reached"
