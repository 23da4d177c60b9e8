package mcp

import "navra/internal/jsonrpc"

// What an upstream may ask of a client.
const (
	Sampling  = "sampling/createMessage"
	Elicit    = "elicitation/create"
	RootsList = "roots/list"
)

// A Question is a kind of request that an upstream makes of a client. The zero Question is none.
type Question uint8

// The kinds of questions.
const (
	NoQuestion Question = iota
	AskSampling
	AskElicitation
	AskRoots
)

// Questions returns all kinds.
func Questions() []Question { return []Question{AskSampling, AskElicitation, AskRoots} }

// String is the word for it in rules: what a role lets upstreams ask.
func (q Question) String() string {
	return [...]string{"none", "sampling", "elicitation", "roots"}[q]
}

// Method is the request's method.
func (q Question) Method() string { return [...]string{"", Sampling, Elicit, RootsList}[q] }

// QuestionOf returns the kind of question that a method asks; NoQuestion for any other.
func QuestionOf(method string) Question {
	for _, q := range Questions() {
		if q.Method() == method {
			return q
		}
	}
	return NoQuestion
}

// Capabilities are those that have to do with the kind and that an upstream is told of. No upstream is given the context of others.
func (q Question) Capabilities() Capabilities {
	return [...]Capabilities{0, CanSample | CanSampleTools, CanElicit | CanElicitURL, CanListRoots | CanTellRoots}[q]
}

// Needs returns what a client must be able to do to be asked a question of the kind with these params.
func (q Question) Needs(params jsonrpc.Raw) Capabilities {
	switch q {
	case AskSampling:
		need := CanSample
		if _, has := params.Get("tools"); has {
			need |= CanSampleTools
		}
		return need
	case AskElicitation:
		if mode, _ := params.Get("mode"); string(mode) == `"url"` {
			return CanElicitURL
		}
		return CanElicit
	case AskRoots:
		return CanListRoots
	}
	return 0
}

// Log levels, from the least to the most severe. RFC 5424.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// A Level is a log level; the zero Level is none.
type Level uint8

// ParseLevel reads a level's name.
func ParseLevel(s string) (Level, bool) {
	for i, name := range levels {
		if s == name {
			return Level(i + 1), true
		}
	}
	return 0, false
}

func (l Level) String() string {
	if l == 0 || int(l) > len(levels) {
		return ""
	}
	return levels[l-1]
}
