package chokepoint

import (
	"net/http"

	"navra/internal/catalogue"
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

const (
	maxTaskID    = 1 << 10 // bytes of an upstream's id of a task
	maxTTLDigits = 15      // of how long a client wants a task to be kept
)

// A task is a call that goes on after its request was answered.
type task struct {
	id     string // the upstream's
	public string // what the client knows it by; "" where the task is navra's own affair
	mapped bool   // its client knows tasks of 2025-11-25, and its upstream those of the extension
	kept   bool   // the call has ended at once: navra keeps the result, and the id is its own
}

// A wish says whether a call is to be made as a task of 2025-11-25.
type wish uint8

const (
	noTask     wish = iota
	asTask          // the client asks for it
	ownTask         // the tool is only called so, and the client does not know tasks: navra waits for the result
	mappedTask      // the client asks for it, and the upstream is let make one of the extension's
)

// taskContext binds a task's id to who it was given to.
func taskContext(principal string) []byte { return []byte("task\x00" + principal) }

// sealTask makes the id by which the client knows a task that a call of its made. It says all that is needed to ask for the task again, so
// that navra keeps nothing of it.
func (p *Chokepoint) sealTask(c *clearance, t task) string {
	o := new(jsonrpc.Object).Text("upstream", c.lane.upstream).Text("id", t.id).Text("tool", c.x.facts.Item.Public)
	o.Text("session", c.lane.session).Text("caps", c.lane.caps.String())
	if t.mapped {
		o.Bool("mapped", true).Bool("kept", t.kept)
	}
	return p.vault.Seal(o.Done(), taskContext(c.from.Who.Name()))
}

// An openedTask is what a sealed id says.
type openedTask struct {
	*task
	item catalogue.Item // the tool that was called
	lane Lane           // that the task was made over
	over bool           // its session is not the one that asks
}

// openTask reads an id that a client gives. What was not made here for this principal, or is of a tool that it does not see any more, is unknown.
func (p *Chokepoint) openTask(from Peer, id string) (openedTask, bool) {
	plain, err := p.vault.Open(id, taskContext(from.Who.Name()))
	if err != nil {
		return openedTask{}, false
	}
	text := func(name string) string {
		raw, _ := jsonrpc.Raw(plain).Get(name)
		s, _ := raw.Text()
		return s
	}
	snapshot := p.book.For(from.Who.Name())
	it, ok := snapshot.Find(mcp.Tool, text("tool"))
	form := mcp.TasksIn(from.Version)
	is := func(name string) bool {
		raw, _ := jsonrpc.Raw(plain).Get(name)
		return string(raw) == "true"
	}
	has := form // of the upstream
	if is("mapped") {
		has = mcp.ExtendedTasks
	}
	if !ok || form == mcp.NoTasks || is("mapped") && form != mcp.CoreTasks || it.Upstream.Name != text("upstream") || snapshot.Tasks(it.Upstream.Name) != has {
		return openedTask{}, false
	}
	t := openedTask{task: &task{id: text("id"), public: id, mapped: is("mapped"), kept: is("kept")}, item: it, lane: p.lane(from, it.Upstream.Name)}
	t.over = t.lane.session != text("session")
	if t.lane.principal != catalogue.Everyone { // the process that has the task may not be the one for what this request can be asked, or may be by now
		t.lane.caps = mcp.ParseCapabilities(text("caps"))
	}
	return t, true
}

// unknownTask is how an id is answered that is none, or is not the caller's: the two cannot be told apart.
func unknownTask() *Refusal {
	return refusedAs(0, jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Invalid params: unknown task"})
}

// aboutTask resolves a request about a task: it is about the tool that was called, and the same rules hold for it.
func (p *Chokepoint) aboutTask(from Peer, x *Crossing, id string) *Refusal {
	x.entry.Target = ""
	t, ok := p.openTask(from, id)
	if !ok {
		return unknownTask()
	}
	x.facts.Topic, x.facts.Item = mcp.Tool, t.item
	x.entry.Upstream, x.entry.Target = t.item.Upstream.Name, t.item.Canonical()
	if t.over {
		return refusedAs(0, jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Invalid params: unknown task; it belonged to a session that is over"})
	}
	if t.kept {
		if _, has := p.kept.get(keptAt(t.lane, from.Who.Name(), t.id), p.now()); !has {
			return unknownTask()
		}
	}
	x.task, x.made, x.label, x.bound = t.task, t.lane, t.item.Label(), true // what the call sends was judged when it was made
	x.body = x.trail.carry(jsonrpc.Raw("{}"))
	if from.In.Msg.Method != mcp.TasksUpdate {
		return nil
	}
	inputs, _ := from.In.Msg.Params.Get("inputResponses")
	if !inputs.IsObject() {
		return refusedAs(http.StatusBadRequest, jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Invalid params: inputResponses must be an object"})
	}
	x.retry = &retry{inputs: inputs, kinds: map[string]mcp.Question{}}
	return nil
}

// mayTask refuses a method about tasks where none are offered, and in the stateless era to a client that does not say it knows them.
func (p *Chokepoint) mayTask(from Peer) *Refusal {
	form := mcp.TasksIn(from.Version)
	switch {
	case !p.book.OffersTasks(from.Who.Name(), form), from.In.Msg.Method == mcp.TasksList && !p.book.HasTasks(from.Who.Name(), form):
		return refusedAs(statusOf(jsonrpc.CodeMethodNotFound, from.Version), jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"})
	case form == mcp.ExtendedTasks && from.Caps&mcp.CanTask == 0:
		return undeclared(from)
	}
	return nil
}

// undeclared refuses what only a client may ask for that says it knows tasks.
func undeclared(from Peer) *Refusal {
	r := (&clearance{from: from}).lacking(mcp.CanTask)
	return &Refusal{Status: r.Status, Msg: r.Msg}
}

// takesTasks is the extension where a call's upstream has it and its client declared it, or knows the tasks of the other era and is about one; zero else.
func (p *Chokepoint) takesTasks(from Peer, x *Crossing, upstream string) mcp.Capabilities {
	m := from.In.Msg.Method
	if x.wish == mappedTask || x.task != nil && x.task.mapped {
		return mcp.CanTask
	}
	if (m == mcp.ToolsCall || mcp.IsTask(m)) && p.book.For(from.Who.Name()).Tasks(upstream) == mcp.ExtendedTasks {
		return from.Caps & mcp.CanTask
	}
	return 0
}

// wishes says whether a call becomes a task of 2025-11-25, by what its client asks for and its tool allows. MCP 2025-11-25,
// basic/utilities/tasks §Tool-Level Negotiation.
func (p *Chokepoint) wishes(from Peer, it catalogue.Item) (wish, *Refusal) {
	if from.In.Msg.Method != mcp.ToolsCall {
		return noTask, nil
	}
	asked, has := from.In.Msg.Params.Get("task")
	use, form := mcp.TaskForbidden, p.book.For(from.Who.Name()).Tasks(it.Upstream.Name)
	switch form {
	case mcp.CoreTasks:
		use = mcp.TaskUseOf(it.Definition)
	case mcp.ExtendedTasks: // it decides call by call
		use = mcp.TaskOptional
	}
	if !has && use != mcp.TaskRequired { // nearly all calls
		return noTask, nil
	}
	if mcp.TasksIn(from.Version) != mcp.CoreTasks || !p.book.OffersTasks(from.Who.Name(), mcp.CoreTasks) {
		if use == mcp.TaskRequired {
			return ownTask, nil
		}
		return noTask, nil // a client that asks for what was not offered is served without
	}
	refuse := func(code int, text string) (wish, *Refusal) {
		return noTask, refusedAs(0, jsonrpc.Error{Code: code, Message: text})
	}
	ttl, limited := asked.Get("ttl")
	_, whole := ttl.Int()
	switch {
	case has && (!asked.IsObject() || limited && !ttl.IsNull() && (!whole || len(ttl) > maxTTLDigits || ttl[0] == '-')):
		return refuse(jsonrpc.CodeInvalidParams, "Invalid params: task is no object with a ttl")
	case has && use == mcp.TaskForbidden:
		return refuse(jsonrpc.CodeMethodNotFound, "Method not found: this tool is not called as a task")
	case !has:
		return refuse(jsonrpc.CodeMethodNotFound, "Method not found: this tool is called as a task only")
	}
	if form == mcp.ExtendedTasks {
		return mappedTask, nil
	}
	return asTask, nil
}

// tasked adds to params that go on what is said of tasks: whose they are about, or that the call is to become one.
func (c *clearance) tasked(params jsonrpc.Raw) jsonrpc.Raw {
	if c.task != nil {
		return params.With("taskId", jsonrpc.Quote(c.task.id))
	}
	if c.wish == noTask || c.wish == mappedTask {
		return params
	}
	o := new(jsonrpc.Object)
	if ttl, has := c.from.In.Msg.Params.Get("task", "ttl"); has && c.wish == asTask && !ttl.IsNull() {
		o.Raw("ttl", ttl)
	}
	return params.With("task", o.Done())
}

// Concerns reports whether m is about the task of that id of its upstream's.
func (m ToUpstream) Concerns(id string) bool {
	return m.c != nil && m.c.task != nil && m.c.task.id == id
}
