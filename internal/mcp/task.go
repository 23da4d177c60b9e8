package mcp

import (
	"strings"

	"navra/internal/jsonrpc"
)

// Tasks are calls that go on after their requests were answered: in 2025-11-25 as a part of the protocol that a client asks for, in 2026-07-28
// as an extension by which a server chooses to answer so. MCP 2025-11-25, basic/utilities/tasks; the extension's specification.
const (
	TasksGet    = "tasks/get"
	TasksResult = "tasks/result"
	TasksList   = "tasks/list"
	TasksCancel = "tasks/cancel"
	TasksUpdate = "tasks/update"
	TaskStatus  = "notifications/tasks/status"
	TaskNews    = "notifications/tasks" // of the extension, to who listens

	TaskExtension = Meta + "tasks"
	RelatedTask   = Meta + "related-task"
)

// IsTask reports whether a request method is about tasks.
func IsTask(method string) bool { return strings.HasPrefix(method, "tasks/") }

// A TaskForm is the form of tasks that a server has. The zero TaskForm is none.
type TaskForm uint8

// The forms of tasks.
const (
	NoTasks       TaskForm = iota
	CoreTasks              // of 2025-11-25
	ExtendedTasks          // of 2026-07-28
)

// TasksIn is the form of tasks that a version has.
func TasksIn(v Version) TaskForm {
	switch {
	case v.Stateless():
		return ExtendedTasks
	case v == V20251125:
		return CoreTasks
	}
	return NoTasks
}

// TasksOf is the form of tasks for tools that a server of version v says it has with its capabilities.
func TasksOf(capabilities jsonrpc.Raw, v Version) TaskForm {
	path := []string{"tasks", "requests", "tools", "call"}
	form := TasksIn(v)
	if form == ExtendedTasks {
		path = []string{"extensions", TaskExtension}
	}
	if m, _ := capabilities.Get(path...); form != NoTasks && m.IsObject() {
		return form
	}
	return NoTasks
}

// A TaskUse says whether a tool is called as a task.
type TaskUse uint8

// How a tool is called.
const (
	TaskForbidden TaskUse = iota
	TaskOptional
	TaskRequired
)

// TaskUseOf reads a tool's definition. MCP 2025-11-25, schema: ToolExecution.
func TaskUseOf(definition jsonrpc.Raw) TaskUse {
	raw, _ := definition.Get("execution", "taskSupport")
	switch string(raw) {
	case `"optional"`:
		return TaskOptional
	case `"required"`:
		return TaskRequired
	}
	return TaskForbidden
}

// TaskEnded reports whether a status is one that a task keeps, and whether it is a status at all.
func TaskEnded(status string) (ended, known bool) {
	switch status {
	case "working", "input_required":
		return false, true
	case "completed", "failed", "cancelled":
		return true, true
	}
	return false, false
}
