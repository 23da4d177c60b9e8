package sqlite

import (
	"sync/atomic"
	"testing"

	"navra/internal/blackbox"
)

// TestPagesOfALogThatGrows: pages are read at once, and one may see what was committed after another was read. No entry is left out for that: whoever
// verifies would call it missing, and who signs or ships would never come back to it.
func TestPagesOfALogThatGrows(t *testing.T) {
	const early = 257 // the pages below it are read before there are more entries than about so many; their rows have one each
	for rows := 1; rows <= maxRow; rows++ {
		for head := early - maxRow; head <= early+maxRow; head++ {
			var read atomic.Int32
			look := func(s span) (p pageOf[blackbox.Seq]) {
				last, n := int64(5000), 0
				if read.Add(1) == 1 || s.to < early {
					last = int64(head)
				}
				p.to = s.to
				for seq := int64(1); seq <= last; seq += int64(n) {
					n = 1
					if seq > int64(head) {
						n = rows
					}
					end := seq + int64(n) - 1
					if end < s.from || end > s.to {
						continue
					}
					if len(p.list) >= s.most {
						p.more = true
						break
					}
					for i := range n {
						p.list = append(p.list, blackbox.Seq(seq+int64(i)))
					}
					p.last = end
				}
				return p
			}
			want := blackbox.Seq(1)
			for n, err := range pages(1, func(n blackbox.Seq) blackbox.Seq { return n }, look) {
				if err != nil || n != want {
					t.Fatalf("rows of %d entries after %d: entry %d, %v, want %d", rows, head, n, err, want)
				}
				if want++; want > 4000 {
					break
				}
			}
			if want <= 4000 {
				t.Errorf("rows of %d entries after %d: it ended before entry %d", rows, head, want)
			}
		}
	}
}
