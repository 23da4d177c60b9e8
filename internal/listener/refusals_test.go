package listener

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"navra/internal/auth"
	"navra/internal/mcp"
)

func TestRefusalsAreSummed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Refusals
		h := Clients(nil, r.Count(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			status := http.StatusOK
			if _, err := fmt.Sscan(req.URL.Query().Get("s"), &status); err != nil {
				t.Error(err)
			}
			w.WriteHeader(status)
		})))
		ask := func(from string, status int) {
			req := httptest.NewRequest("GET", fmt.Sprint("/?s=", status), nil)
			req.RemoteAddr = from + ":1234"
			h.ServeHTTP(httptest.NewRecorder(), req)
		}
		var reports []map[string]int64 // of nobody
		var proven []string
		refuse := true
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Report(ctx, func(by Sender, c map[string]int64) error {
				switch {
				case by == Sender{}:
					reports = append(reports, c)
				case refuse:
					refuse = false
					return errors.New("not now")
				default:
					proven = append(proven, fmt.Sprint(by, c))
				}
				return nil
			})
		}()
		for range 3 {
			ask("192.0.2.1", 401)
		}
		ask("192.0.2.2", 403)
		r.Of(mcp.HTTP)(auth.Self(), 406, "Accept")
		r.Of(mcp.HTTP)(auth.Self(), 406, "Accept")
		ask("192.0.2.2", 200)
		time.Sleep(1500 * time.Millisecond)
		for i := range maxSources + 10 {
			ask(fmt.Sprintf("10.0.%d.%d", i/250, i%250), 401)
		}
		stop()
		<-done
		if len(reports) != 2 || reports[0]["192.0.2.1"] != 3 || reports[0]["192.0.2.2"] != 1 || len(reports[0]) != 2 {
			t.Fatalf("reports %v", reports)
		}
		if len(reports[1]) != maxSources+1 || reports[1]["others"] != 10 {
			t.Errorf("%d sources, others %d", len(reports[1]), reports[1]["others"])
		}
		if len(proven) != 1 || proven[0] != "{navra navra http} map[406 Accept:2]" {
			t.Errorf("of the principal: %q", proven)
		}
	})
}
