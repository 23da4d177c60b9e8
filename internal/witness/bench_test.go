package witness

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/store"
	"navra/internal/store/sqlite"
)

// BenchmarkVerify tells the time for one entry of 20,000, with its payload.
func BenchmarkVerify(b *testing.B) {
	const n = 20_000
	db, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "navra.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	sem := make(chan struct{}, 64)
	for i := range n {
		sem <- struct{}{}
		go func() {
			defer func() { <-sem }()
			e := blackbox.Entry{Kind: blackbox.Request, Time: time.Now(), Principal: "ann", Method: "tools/call", Target: fmt.Sprint("files/t", i), Verdict: "allow", Payloads: []blackbox.Payload{blackbox.NewPayload("arguments", make([]byte, 200), make([]byte, 200))}}
			if _, err := db.Commit(b.Context(), store.Commit{Entry: e, Raise: ifc.Bottom()}); err != nil {
				b.Error(err)
			}
		}()
	}
	for range cap(sem) {
		sem <- struct{}{}
	}
	for b.Loop() {
		if f, err := Verify(b.Context(), db, Evidence{}); err != nil || !f.OK() || f.Entries != n {
			b.Fatalf("%+v, %v", f, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "entries/s")
}
