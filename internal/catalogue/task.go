package catalogue

import (
	"navra/internal/jsonrpc"
	"navra/internal/mcp"
)

// Tasks is the form of tasks that an upstream has.
func (s *Snapshot) Tasks(upstream string) mcp.TaskForm {
	l := s.listings[upstream]
	return mcp.TasksOf(l.Capabilities, l.Version)
}

// HasTasks reports whether an upstream of the principal's has tasks in that form.
func (b *Book) HasTasks(principal string, form mcp.TaskForm) bool {
	s := b.For(principal)
	for upstream := range s.listings {
		if form != mcp.NoTasks && s.Tasks(upstream) == form {
			return true
		}
	}
	return false
}

// OffersTasks reports whether a client that knows tasks in that form can have any: those of 2025-11-25 are made of those of the extension, too.
func (b *Book) OffersTasks(principal string, form mcp.TaskForm) bool {
	return b.HasTasks(principal, form) || form == mcp.CoreTasks && b.HasTasks(principal, mcp.ExtendedTasks)
}

// CancelsTasks reports whether an upstream of the principal's that has tasks can cancel them: one that has the extension always can.
func (b *Book) CancelsTasks(principal string) bool {
	s := b.For(principal)
	for upstream, l := range s.listings {
		if _, has := l.Capabilities.Get("tasks", "cancel"); has && s.Tasks(upstream) == mcp.CoreTasks || s.Tasks(upstream) == mcp.ExtendedTasks {
			return true
		}
	}
	return false
}

// optional is how a tool is called whose upstream decides call by call whether to make a task of it.
var optional = jsonrpc.Raw(`{"taskSupport":"optional"}`)

// Tasked is the definition of a tool with what it says of tasks to a client of 2025-11-25: nothing where its upstream has none.
func (s *Snapshot) Tasked(it Item) jsonrpc.Raw {
	if it.Topic != mcp.Tool {
		return it.Definition
	}
	switch s.Tasks(it.Upstream.Name) {
	case mcp.CoreTasks:
		return it.Definition
	case mcp.ExtendedTasks:
		return it.Definition.With("execution", optional)
	}
	return it.Definition.Without("execution")
}
