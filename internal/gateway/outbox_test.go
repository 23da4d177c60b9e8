package gateway

import (
	"slices"
	"testing"

	"navra/internal/chokepoint"
	"navra/internal/mcp"
)

func TestOutboxHoldsEachListOnce(t *testing.T) {
	o := newOutbox()
	for _, topic := range []mcp.Topic{mcp.Tool, mcp.Prompt, mcp.Tool} {
		o.list(topic)
	}
	if topics, _ := o.take(); !slices.Equal(topics, []mcp.Topic{mcp.Tool, mcp.Prompt}) {
		t.Errorf("take = %v", topics)
	}
	o.back([]mcp.Topic{mcp.Prompt}, nil)
	o.list(mcp.Prompt)
	if topics, news := o.take(); !slices.Equal(topics, []mcp.Topic{mcp.Prompt}) || len(news) != 0 {
		t.Errorf("take = %v %v", topics, news)
	}
	select {
	case <-o.wake:
	default:
		t.Error("nobody was woken")
	}
}

// Sessions, listens and what they follow are counted for their principal, and given back.
func TestReadersAreBounded(t *testing.T) {
	rs := newReaders()
	from := chokepoint.Peer{Session: "s"}
	for range maxListens {
		if _, ok := rs.listen(from, mcp.Wish{}, func(error) {}); !ok {
			t.Fatal("refused below the bound")
		}
	}
	if _, ok := rs.listen(from, mcp.Wish{}, func(error) {}); ok {
		t.Error("taken above the bound")
	}
	for r := range rs.all {
		rs.close(r)
		rs.close(r) // does nothing
		break
	}
	if _, ok := rs.listen(from, mcp.Wish{}, func(error) {}); !ok {
		t.Error("the place of one that has ended is not free")
	}
	r := rs.session(from, 1)
	if again := rs.session(from, 1); again != r {
		t.Error("a session has two readers")
	}
	rs.leave(r)
	if rs.find("s") != r {
		t.Error("forgotten while it has a stream")
	}
	rs.leave(r)
	if rs.find("s") != nil {
		t.Error("kept though it follows nothing")
	}
	if _, _, err := rs.reserve(r, chokepoint.Watch{}); err == nil {
		t.Error("a session that is over follows something")
	}
}
