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

// CancelsTasks reports whether an upstream of the principal's that has tasks of 2025-11-25 can cancel them.
func (b *Book) CancelsTasks(principal string) bool {
	s := b.For(principal)
	for upstream, l := range s.listings {
		if _, has := l.Capabilities.Get("tasks", "cancel"); has && s.Tasks(upstream) == mcp.CoreTasks {
			return true
		}
	}
	return false
}

// Unused is the definition of a tool without what it says of tasks, where its upstream has none of 2025-11-25.
func (s *Snapshot) Unused(it Item) jsonrpc.Raw {
	if it.Topic == mcp.Tool && s.Tasks(it.Upstream.Name) != mcp.CoreTasks {
		return it.Definition.Without("execution")
	}
	return it.Definition
}
