package witness

import (
	"strings"
	"testing"

	"navra/internal/blackbox"
	"navra/internal/seal"
	"navra/internal/store"
)

// TestChangesUnderARunningNavraAreRecorded rewrites and cuts the end of a log that is open: what is committed next says so first, and nothing
// is said where others have only added to it.
func TestChangesUnderARunningNavraAreRecorded(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(t *testing.T, l *log)
		want string // "": nothing
	}{
		"rewritten": {func(t *testing.T, l *log) { l.rewrite(t, 35) }, "the end of the log was written anew"},
		"cut off":   {func(t *testing.T, l *log) { l.drop(t, "seq > 35") }, "the log ends with entry 35, and had entry 41"},
		"rewritten and made longer": {func(t *testing.T, l *log) {
			l.rewrite(t, 35)
			l.forge(t, 42, 41)
		}, "the end of the log was written anew"},
		"cut off and made longer": {func(t *testing.T, l *log) {
			l.drop(t, "seq > 40")
			l.forge(t, 41, 40)
			l.forge(t, 42, 41)
		}, "the end of the log was written anew"},
		"added to by another process": {func(t *testing.T, l *log) { l.with(t, func(db database) { commit(t, db, 3) }) }, ""},
	} {
		for store, empty := range vaults {
			t.Run(name+"/"+store, func(t *testing.T) {
				l := newLog(t, empty(t), seal.New())
				var heard []string
				l.with(t, func(db database) {
					db.Expect(lastOf(t, db), func(problem string) { heard = append(heard, problem) })
					commit(t, db, 1)
					tt.do(t, l)
					commit(t, db, 5) // once, and not again
				})
				var said []string
				for _, r := range l.rows(t) {
					if e, err := blackbox.Decode(r.Encoded); err == nil && strings.Contains(e.Reason, "changed while navra ran") {
						said = append(said, e.Reason)
					}
				}
				n := 1
				if tt.want == "" {
					n = 0
				}
				if len(said) != n || len(heard) != n || n == 1 && (!strings.Contains(said[0], tt.want) || !strings.HasSuffix(said[0], heard[0])) {
					t.Errorf("recorded %q, told %q, want %d with %q", said, heard, n, tt.want)
				}
				if f := l.against(t, Evidence{Key: l.key}); !f.OK() || f.Alarms != uint64(n) || len(f.Changed) != n {
					t.Errorf("verify: %+v, want it whole with %d changes before", f, n)
				}
			})
		}
	}
}

// TestChangesBeforeTheFirstCommitAreRecorded: what was last seen of the log counts from the start.
func TestChangesBeforeTheFirstCommitAreRecorded(t *testing.T) {
	for store, empty := range vaults {
		t.Run(store, func(t *testing.T) {
			l := newLog(t, empty(t), seal.New())
			l.with(t, func(db database) {
				known := lastOf(t, db)
				l.rewrite(t, 35)
				db.Expect(known, nil)
				commit(t, db, 1)
			})
			rows := l.rows(t)
			e, err := blackbox.Decode(rows[entries].Encoded)
			if err != nil || len(rows) != entries+2 || !strings.Contains(e.Reason, "entry 40 has another hash") {
				t.Errorf("%d entries, number 41 says %q, %v", len(rows), e.Reason, err)
			}
		})
	}
}

func lastOf(t *testing.T, db database) store.Receipt {
	t.Helper()
	head, err := db.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return head
}
