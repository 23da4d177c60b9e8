// Package policy judges: who may touch what (Name), what must not pass (Content), and where data may flow (Flow, Above).
// A Policy is immutable and its methods are pure: they take facts and return verdicts. It knows no message, no storage,
// and never waits.
package policy

// An Effect is what becomes of a crossing. The zero Effect denies.
type Effect uint8

// The effects, strictest first.
const (
	Deny Effect = iota
	Ask
	Allow
)

func (e Effect) String() string {
	switch e {
	case Allow:
		return "allow"
	case Ask:
		return "ask"
	}
	return "deny"
}

// A Stage is the step of the pipeline that decided.
type Stage string

// The stages, in their order.
const (
	StageMessage Stage = "message" // it is no valid message, or its method does not exist
	StageName    Stage = "name"
	StageAuth    Stage = "auth"   // the credential was withdrawn after it was shown
	StagePause   Stage = "pause"  // an operator has paused it
	StagePolicy  Stage = "policy" // this process does not have the newest policy yet
	StageResolve Stage = "resolve"
	StageSchema  Stage = "schema" // the arguments do not fit what the tool takes
	StageFilter  Stage = "filter"
	StageContent Stage = "content"
	StageFlow    Stage = "flow"
	StageRecord  Stage = "record"
)

// A Verdict is an effect with what decided it. The zero Verdict denies.
type Verdict struct {
	Effect Effect
	Stage  Stage
	Reason string // a sentence that the model may read; says nothing that the caller may not know
	Role   string // the role that permits, where one does
}

// Allowed is the verdict of a step that has nothing against a crossing.
func Allowed(stage Stage) Verdict { return Verdict{Effect: Allow, Stage: stage} }

// Denied is the verdict of a step that refuses.
func Denied(stage Stage, reason string) Verdict { return Verdict{Stage: stage, Reason: reason} }

// And returns the stricter of v and w. Where they are equal it is v, unless only w has a reason. A role that v named stays.
func (v Verdict) And(w Verdict) Verdict {
	if w.Effect < v.Effect || w.Effect == v.Effect && v.Reason == "" && w.Reason != "" {
		w.Role = v.Role
		return w
	}
	return v
}

// AndErr returns v, or a denial where a step could not do its work.
func (v Verdict) AndErr(stage Stage, err error) Verdict {
	if err != nil {
		return v.And(Denied(stage, "the content could not be examined"))
	}
	return v
}

// Denies, Asks and Permits tell the effect.
func (v Verdict) Denies() bool  { return v.Effect == Deny }
func (v Verdict) Asks() bool    { return v.Effect == Ask }
func (v Verdict) Permits() bool { return v.Effect == Allow }
