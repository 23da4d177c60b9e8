package gateway

import (
	"testing"

	"navra/internal/chokepoint"
	"navra/internal/mcp"
)

// A session that follows nothing and has no stream is not kept, whatever it has tried.
func TestIdleReadersAreForgotten(t *testing.T) {
	rs := newReaders()
	from := chokepoint.Peer{Session: "s", In: mcp.Inbound{Transport: mcp.HTTP}}
	r := rs.session(from, 0)
	if _, _, err := rs.reserve(r, chokepoint.Watch{}); err != nil {
		t.Fatal(err)
	}
	rs.spare(r)
	if rs.find("s") != r {
		t.Error("a session that follows something is forgotten")
	}
	rs.forget(r, (chokepoint.Watch{}).Key())
	rs.spare(r)
	if rs.find("s") != nil || len(rs.all) != 0 || len(rs.watches) != 0 || len(rs.lanes) != 0 {
		t.Errorf("kept: %+v", rs)
	}
	r = rs.session(from, 1)
	rs.spare(r)
	if rs.find("s") != r {
		t.Error("a session with a stream is forgotten")
	}
	rs.leave(r)
	if rs.find("s") != nil || len(rs.all) != 0 {
		t.Errorf("kept after its stream: %+v", rs)
	}
}
