package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"navra/internal/store/postgres"
	server "navra/test/postgres"
)

func TestOpenRefuses(t *testing.T) {
	base := server.Start(t)
	c := raw(t, base)
	newer, theirs, guest := schemaOf(t)+"_newer", schemaOf(t)+"_theirs", schemaOf(t)+"_guest"
	own := guest + ` "own"`
	quoted := pgx.Identifier{own}.Sanitize()
	for _, statement := range []string{
		"CREATE SCHEMA " + newer, "CREATE TABLE " + newer + ".schema_version AS SELECT 99::bigint AS version",
		"CREATE SCHEMA " + theirs, "CREATE TABLE " + theirs + ".x (x int)", "CREATE ROLE " + guest + " LOGIN",
	} {
		exec(t, c, statement)
	}
	for _, tt := range []struct {
		rule, url string
		o         postgres.Options
		want      string
	}{
		{"a newer schema", base, postgres.Options{Schema: newer}, "newer navra"},
		{"another program's schema", base, postgres.Options{Schema: theirs}, "another program"},
		{"nothing to be read", base, postgres.Options{Schema: schemaOf(t), ReadOnly: true}, "start the gateway once"},
		{"a schema that may not be made", strings.Replace(base, "postgres@", guest+"@", 1), postgres.Options{Schema: own}, "CREATE SCHEMA " + quoted + " AUTHORIZATION"},
		{"a database that is not there", strings.Replace(base, "/postgres?", "/nowhere?", 1), postgres.Options{}, "nowhere"},
	} {
		db, err := postgres.Open(t.Context(), tt.url, tt.o)
		if err == nil {
			db.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "store ") {
			t.Errorf("%s: %v, want an error with %q", tt.rule, err, tt.want)
		}
	}
	exec(t, c, "CREATE SCHEMA "+quoted+" AUTHORIZATION "+guest)
	db := open(t, strings.Replace(base, "postgres@", guest+"@", 1), postgres.Options{Schema: own})
	if _, err := db.Commit(t.Context(), entry("x")); err != nil {
		t.Errorf("in a schema that was made for it: %v", err)
	}
}

func TestReadOnlyWritesNothing(t *testing.T) {
	db := open(t, server.Start(t), postgres.Options{})
	if _, err := db.Commit(t.Context(), entry("x")); err != nil {
		t.Fatal(err)
	}
	reader := open(t, server.Start(t), postgres.Options{ReadOnly: true})
	_, err := reader.Commit(t.Context(), entry("y"))
	if err == nil || reader.Keep(t.Context(), "k", nil) == nil {
		t.Errorf("a reader wrote: %v", err)
	}
	if last, err := reader.Last(t.Context()); err != nil || last != 1 {
		t.Errorf("Last = %d, %v, want 1", last, err)
	}
}

// TestPasswordIsShownNowhere opens databases that cannot be, and one that can.
func TestPasswordIsShownNowhere(t *testing.T) {
	const password = "hunter2 %/@:"
	var log bytes.Buffer
	o := postgres.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), Schema: schemaOf(t)}
	user := url.UserPassword("postgres", password).String()
	base := server.Start(t)
	for _, address := range []string{
		"postgres://" + user + "@127.0.0.1:1/x",
		"postgres://" + user + "@127.0.0.1:1,127.0.0.1:2/x?connect_timeout=1",
		"postgres://postgres:hunter2 %/@h/x",
		"postgres://" + user + "@h:port/x",
		"postgres://" + user + "@h/x?sslmode=hunter2",
		"postgres://" + user + "@h/x?sslrootcert=/no/hunter2",
		"postgres://127.0.0.1:1/x?user=u&password=" + url.PathEscape(password),
		"postgres://127.0.0.1:1/" + url.PathEscape(password) + "?user=u&password=" + url.PathEscape(password),
		strings.Replace(base, "postgres@", user+"@", 1),
	} {
		db, err := postgres.Open(t.Context(), address, o)
		if err == nil {
			err = db.Close()
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			for _, verb := range []string{"%v", "%+v", "%#v", "%q"} {
				fmt.Fprintf(&log, verb+"\n", e)
			}
		}
	}
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the password is shown:\n%s", log.String())
	}
	if !strings.Contains(log.String(), "127.0.0.1") {
		t.Errorf("no error says where the database was looked for:\n%s", log.String())
	}
}
