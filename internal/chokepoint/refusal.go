package chokepoint

import (
	"fmt"
	"net/http"

	"navra/internal/jsonrpc"
	"navra/internal/mcp"
	"navra/internal/policy"
)

// A Refusal is an error that holds what the client is answered. Status is the HTTP status the specification asks for; 0: the usual.
type Refusal struct {
	Status int
	Msg    jsonrpc.Message
}

func (r *Refusal) Error() string {
	if r.Msg.Error != nil {
		return r.Msg.Error.Message
	}
	return "denied"
}

// codeDenied is the error code of a denial by content where the method's result has no place for one.
const codeDenied = 403

func refusedAs(status int, err jsonrpc.Error) *Refusal {
	return &Refusal{Status: status, Msg: jsonrpc.Message{Error: &err}}
}

// faulty answers bytes that are no message.
func faulty(from Peer) *Refusal {
	f := from.In.Fault
	r := refusedAs(http.StatusBadRequest, f.Err)
	r.Msg.ID = f.ID
	return r
}

// statusOf is the HTTP status that goes with a protocol error: only the stateless era asks for some.
func statusOf(code int, v mcp.Version) int {
	if v.Stateless() && code == jsonrpc.CodeMethodNotFound {
		return http.StatusNotFound
	}
	return 0
}

// unknownName is how a name is answered that there is not, or that the caller may not know of: the two cannot be told apart.
func unknownName(from Peer, s mcp.Subject) *Refusal {
	switch s.Topic {
	case mcp.Tool:
		return refusedAs(0, jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Unknown tool: " + s.Name})
	case mcp.Prompt:
		return refusedAs(0, jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Unknown prompt: " + s.Name})
	case mcp.Template:
		return refusedAs(0, jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Unknown resource template: " + s.Name})
	case mcp.Resource:
		return refusedAs(0, missingResource(from.Version, s.Name))
	}
	return nil
}

func missingResource(v mcp.Version, uri string) jsonrpc.Error {
	code := -32002
	if v.Stateless() {
		code = jsonrpc.CodeInvalidParams
	}
	return jsonrpc.Error{Code: code, Message: "Resource not found", Data: new(jsonrpc.Object).Text("uri", uri).Done()}
}

// deny makes the answer to a denied crossing: by name it is what an unknown name gets; by content a result that the model
// can act on, or an error where the method has no such result.
func (p *Chokepoint) deny(from Peer, x *Crossing, o Outcome) *Refusal {
	v := x.verdict
	if v.Stage == policy.StageName && v.Denies() {
		if mcp.IsTask(from.In.Msg.Method) {
			r := unknownTask()
			r.Msg.ID = from.In.Msg.ID
			return r
		}
		if r := unknownName(from, mcp.Subject{Topic: x.facts.Topic, Name: publicName(x)}); r != nil {
			r.Msg.ID = from.In.Msg.ID
			return r
		}
	}
	reason := v.Reason
	if v.Asks() {
		reason = "ask"
	}
	about := new(jsonrpc.Object).Text("ref", x.entry.Ref).Text("stage", string(v.Stage)).Text("reason", reason).Text("outcome", string(o)).Done()
	text := denialText(v, o, x.entry.Ref)
	m := jsonrpc.Message{ID: from.In.Msg.ID}
	if from.In.Msg.Method != mcp.ToolsCall && from.In.Msg.Method != mcp.TasksResult {
		m.Error = &jsonrpc.Error{Code: codeDenied, Message: text, Data: about}
		return &Refusal{Msg: m}
	}
	m.Result = toolError(from.Version, text, new(jsonrpc.Object).Raw(mcp.Own+"denied", about).Done())
	return &Refusal{Msg: m}
}

func publicName(x *Crossing) string { return x.facts.Item.Public }

func denialText(v policy.Verdict, o Outcome, ref string) string {
	what := "denied by navra: " + v.Reason + "."
	if v.Asks() {
		what = "denied by navra: this call needs a person's approval, and nobody can be asked: " + v.Reason + "."
	}
	return fmt.Sprintf("%s %s Reference %s.", what, outcomeText(o), ref)
}

func outcomeText(o Outcome) string {
	switch o {
	case NotSent:
		return "The call was not sent (outcome: not-sent)."
	case Ran:
		return "The call has run (outcome: ran); do not repeat it blindly."
	}
	return "Whether the call ran is not known (outcome: unknown); do not repeat it blindly."
}

// toolError is a tools/call result that says that the call failed.
func toolError(v mcp.Version, text string, meta jsonrpc.Raw) jsonrpc.Raw {
	o := new(jsonrpc.Object)
	if v.Stateless() {
		o.Text("resultType", "complete")
	}
	block := new(jsonrpc.Object).Text("type", "text").Text("text", text).Done()
	return o.Raw("content", jsonrpc.Array(block)).Bool("isError", true).Raw("_meta", meta).Done()
}
