package sqlite

import (
	"errors"
	"strings"

	"modernc.org/sqlite"
)

// guarded is what the name of navra's own connections has, and of no others: see dsn.
const guarded = "trusted_schema%28OFF%29"

// guard has a connection refuse what a view or trigger would do: navra makes none, and who may write to the file could show each reader other entries by
// the one, or have entries vanish that were said to be written by the other. It is asked when a statement is prepared, which is done anew where the
// schema was changed.
func guard(conn sqlite.ExecQuerierContext, dsn string) error {
	if !strings.Contains(dsn, guarded) {
		return nil
	}
	c, ok := conn.(sqlite.AuthorizerRegisterer)
	if !ok {
		return errors.New("the driver knows no authorizer")
	}
	return c.RegisterAuthorizer(func(_ sqlite.AuthorizerActionCode, _, _, _, triggerOrView string) sqlite.AuthorizerReturnCode {
		if triggerOrView != "" {
			return sqlite.AuthorizerDeny
		}
		return sqlite.AuthorizerOK
	})
}
