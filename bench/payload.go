package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
)

// Sizes of the text argument are between these bytes; a text must hold a nonce, and a gateway may refuse what is larger.
const (
	minSize = 64
	maxSize = 1 << 20
)

// variants is how many different paddings there are of one size, so that neither branch predictors nor caches see one text only.
const variants = 32

// words of the padding: prose with the punctuation, paths and numbers of a tool's result, so that filters have something to look at.
var words = strings.Fields(`the a of to and in that is was for on with as by at from report server file line value result
	error index /usr/share/doc src/main.go 2026-03-14 12:45:07 42 1337 0.75 user name order status "done" ok: total, build test
	https://example.org/page?id=7 commit branch merge review https alice@example.org config.yaml key: therefore although measured`)

// A payload makes the texts of one size.
type payload struct {
	run  string // differs between processes
	size int
	pads [variants][]byte // JSON string contents, longer than size
}

func newPayload(size int) *payload {
	var r [6]byte
	rand.Read(r[:])
	p := &payload{run: hex.EncodeToString(r[:]), size: size}
	src := mathrand.New(mathrand.NewPCG(1, 2)) // the same prose in each run
	for i := range p.pads {
		var b strings.Builder
		for col := 0; b.Len() < size; {
			w := words[src.IntN(len(words))]
			b.WriteString(w)
			if col += len(w) + 1; col > 80 {
				b.WriteByte('\n')
				col = 0
			} else {
				b.WriteByte(' ')
			}
		}
		quoted, _ := json.Marshal(b.String()) // a string always encodes
		p.pads[i] = quoted[1 : len(quoted)-1]
	}
	return p
}

// text appends to b the JSON string of call seq of connection conn; no other call of any run has the same. What stands between its quotes is size bytes.
func (p *payload) text(b []byte, conn, seq int) []byte {
	start := len(b)
	b = append(b, `"nonce `...)
	b = append(b, p.run...)
	b = append(b, '-')
	b = strconv.AppendInt(b, int64(conn), 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, int64(seq), 10)
	b = append(b, ": "...)
	pad := p.pads[seq%variants]
	n := p.size - (len(b) - start - 1)
	k := n // not inside an escape
	for k > 0 && pad[k-1] == '\\' {
		k--
	}
	b = append(b, pad[:k]...)
	for ; k < n; k++ {
		b = append(b, '.')
	}
	return append(b, '"')
}
