package gateway

import (
	"testing"

	"navra/internal/auth"
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

// What was dropped since the newest policy could not be read is made up for, once, when it can.
func TestMissedNewsIsMadeUpFor(t *testing.T) {
	rs := newReaders()
	session := rs.session(chokepoint.Peer{Session: "s", In: mcp.Inbound{Transport: mcp.HTTP}}, 1)
	listen, _ := rs.listen(chokepoint.Peer{}, mcp.Wish{}, func(error) {})
	free := func(auth.Principal, string) error { return nil }
	for _, r := range []*reader{session, listen} {
		it, _, err := rs.reserve(r, chokepoint.Watch{})
		if err != nil {
			t.Fatal(err)
		}
		told := func() int {
			_, news := r.out.take()
			return len(news)
		}
		rs.makeUp(free, true)
		rs.makeUp(free, false)
		if n := told(); n != 0 {
			t.Errorf("nothing was missed, and %d are told", n)
		}
		rs.missed(r, it.watch)
		rs.makeUp(free, true)
		if n := told(); n != 0 {
			t.Errorf("the policy cannot be read yet, and %d are told", n)
		}
		rs.makeUp(free, false)
		rs.makeUp(free, false)
		if n := told(); n != 1 {
			t.Errorf("%d are told, want one", n)
		}
	}
}
