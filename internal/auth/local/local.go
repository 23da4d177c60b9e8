// Package local proves the person at this machine: the operating system's user of this process, and, where the operator
// switched authentication off on a loopback address, whoever reaches it.
package local

import (
	"net/http"
	"os"
	"os/user"
	"strconv"

	"navra/internal/auth"
)

// Name is the principal's name.
const Name = "local"

// Principal is the user that runs this process.
func Principal(dir auth.Directory) auth.Principal { return dir.Prove(Name, Subject(), "os") }

// Subject names the user: "uid:1000", or "user:NAME" where users have no numbers.
func Subject() string {
	if uid := os.Getuid(); uid >= 0 {
		return "uid:" + strconv.Itoa(uid)
	}
	if u, err := user.Current(); err == nil {
		return "user:" + u.Username
	}
	return "user:unknown"
}

// None is the authenticator of `auth: none`: everybody who reaches the listener is local. The configuration allows it on
// loopback addresses only.
func None(dir auth.Directory) auth.Authenticator { return none{dir} }

type none struct{ dir auth.Directory }

func (n none) Authenticate(*http.Request) (auth.Principal, error) {
	return n.dir.Prove(Name, "none", "none"), nil
}
