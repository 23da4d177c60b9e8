package jsonrpc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// messages are calls of about the sizes named: arguments of short members, and one long text with line feeds.
func messages() map[string][]byte {
	call := func(arguments string) []byte {
		return []byte(`{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"create_issue","arguments":{` + arguments +
			`},"_meta":{"progressToken":17}}}`)
	}
	var members []string
	for i := range 30 {
		members = append(members, fmt.Sprintf(`"member%d":{"n":%d.5,"t":"text"}`, i, i))
	}
	return map[string][]byte{
		"200B":     call(`"owner":"acme","repo":"rocket","title":"Engine does not start"`),
		"1KB":      call(strings.Join(members, ",")),
		"64KBtext": call(`"text":"` + strings.Repeat(`A line of some length, with a \"quoted\" word in it.\n`, 1200) + `"`),
		"64KBtree": call(`"rows":[` + strings.Repeat(`{"id":12345,"name":"some name","tags":["a","b"],"ok":true},`, 1100) + `0]`),
	}
}

func BenchmarkParse(b *testing.B) {
	for _, name := range []string{"200B", "1KB", "64KBtext", "64KBtree"} {
		in := messages()[name]
		b.Run("navra/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				if _, f := Parse(in); f != nil {
					b.Fatal(f)
				}
			}
		})
		b.Run("jsontext/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				v := jsontext.Value(append([]byte(nil), in...))
				if !v.IsValid() || v.Compact() != nil {
					b.Fatal("refused")
				}
			}
		})
	}
}

// One object with very many names costs no more for each than one with few.
func BenchmarkNames(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		var o Object
		for i := range n {
			o.Int(fmt.Sprint("name", i), 1)
		}
		in := o.Done()
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseValue(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMapStrings(b *testing.B) {
	v := value(b, string(messages()["1KB"]))
	b.SetBytes(int64(len(v)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.MapStrings(func(_ string, _ bool, s string) (string, bool) { return s, false }); err != nil {
			b.Fatal(err)
		}
	}
}
