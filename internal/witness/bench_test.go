//go:build unix

package witness

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"navra/internal/blackbox"
	"navra/internal/ifc"
	"navra/internal/store"
	"navra/internal/store/sqlite"
)

// BenchmarkVerify tells how fast a log is verified, its tree included: entries of calls, with small payloads and with the largest, of many callers and of
// one, beside how fast this machine hashes.
func BenchmarkVerify(b *testing.B) {
	b.Run("payload=200", func(b *testing.B) { verifying(b, 20_000, 200, 64) })
	b.Run("payload=4096", func(b *testing.B) { verifying(b, 8_000, blackbox.MaxStored, 64) })
	b.Run("payload=4096,callers=1", func(b *testing.B) { verifying(b, 8_000, blackbox.MaxStored, 1) })
	b.Run("sha256", func(b *testing.B) {
		block := make([]byte, blackbox.MaxStored)
		for b.Loop() {
			sha256.Sum256(block)
		}
		b.ReportMetric(float64(b.N)*blackbox.MaxStored/1e6/b.Elapsed().Seconds(), "MB/s")
	})
}

func verifying(b *testing.B, n, size, callers int) {
	db, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "navra.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	fillWith(b, db, n, callers, make([]byte, size))
	before := cpu(b)
	for b.Loop() {
		if f, err := Verify(b.Context(), db, Evidence{}); err != nil || !f.OK() || f.Entries != uint64(n) {
			b.Fatalf("%+v, %v", f, err)
		}
	}
	used := cpu(b) - before
	all := float64(b.N) * float64(n)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(used.Nanoseconds())/1e3/all, "cpu-µs/entry")
	b.ReportMetric(all/b.Elapsed().Seconds(), "entries/s")
	b.ReportMetric(all*float64(size)/1e6/b.Elapsed().Seconds(), "MB/s")
}

// fillWith has callers commit n entries with a payload.
func fillWith(b *testing.B, db store.Store, n, callers int, payload []byte) {
	var wg sync.WaitGroup
	for first := range callers {
		wg.Go(func() {
			for i := first; i < n; i += callers {
				e := blackbox.Entry{Kind: blackbox.Request, Time: time.Now(), Principal: "ann", Method: "tools/call", Target: fmt.Sprint("files/t", i), Verdict: "allow", Payloads: []blackbox.Payload{blackbox.NewPayload("arguments", payload, payload)}}
				if _, err := db.Commit(b.Context(), store.Commit{Entry: e, Raise: ifc.Bottom()}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
