package chokepoint_test

import (
	"errors"
	"strings"
	"testing"

	"navra/internal/catalogue"
	"navra/internal/chokepoint"
	"navra/internal/jsonrpc"
	"navra/internal/policy"
)

// typed gives the bench's principals an upstream with tools that say what they take and give.
func typed(o *chokepoint.Options) {
	tools := []jsonrpc.Raw{
		jsonrpc.Raw(`{"name":"read","inputSchema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false},` +
			`"outputSchema":{"type":"object","properties":{"key":{"type":"string","maxLength":20}},"required":["key"]}}`),
		jsonrpc.Raw(`{"name":"remote","inputSchema":{"$schema":"https://json-schema.org/draft-07/schema","type":"object","properties":{"a":{"$ref":"http://169.254.169.254/x"}}}}`),
	}
	for _, who := range []string{"ann", "bob"} {
		o.Catalogue.Install(who, "files", catalogue.Listing{Capabilities: jsonrpc.Raw(`{"tools":{}}`), Tools: tools})
	}
}

// Arguments that do not fit the tool's schema are not sent; the model is told which member is wrong, and that it may try again.
func TestArgumentsFitTheSchema(t *testing.T) {
	b := newBenchWith(t, permissive(), nil, typed)
	for args, want := range map[string]string{
		`{}`:                        "it lacks path",
		`{"path":7}`:                "/path: it is of type number, not string",
		`{"path":"a","paht":"b"}`:   "members that are not known: paht",
		`{"path":"a"}`:              "",
		`{"path":"a","n":null}`:     "", // as if it were not there
		`{"path":null}`:             "/path: it is of type null, not string",
		`{"path":"` + aws() + `"}`:  "",
		`{"` + aws() + `":1}`:       "it lacks path",
		`{"path":"a","n":1e999999}`: "members that are not known: n",
	} {
		_, ask, err := b.Admit(t.Context(), call(t, b.ann, "files__read", args))
		if want == "" {
			if err != nil || ask != nil {
				t.Errorf("%s: %v", args, err)
			}
			continue
		}
		refusal := (*chokepoint.Refusal)(nil)
		if !errors.As(err, &refusal) {
			t.Errorf("%s: %v, want a refusal", args, err)
			continue
		}
		text := string(refusal.Msg.Result)
		if !strings.Contains(text, "denied by navra: the arguments do not fit the tool's inputSchema: ") || !strings.Contains(text, want) || !strings.Contains(text, "not-sent") || !strings.Contains(text, `"isError":true`) {
			t.Errorf("%s: answered %s, want %q", args, text, want)
		}
	}
	for _, e := range b.entries(t) {
		if e.Verdict == "deny" && e.Stage != string(policy.StageSchema) || strings.Contains(e.Reason, aws()) {
			t.Errorf("entry %d: %s at %s: %s", e.Seq, e.Verdict, e.Stage, e.Reason)
		}
	}
	if _, _, err := b.Admit(t.Context(), call(t, b.ann, "files__remote", `{"a":1}`)); err == nil || !strings.Contains(err.Error(), "Unknown tool") {
		t.Errorf("a tool whose schema refers elsewhere: %v, want it to be held back", err)
	}
}

// A result keeps the promise of its tool's outputSchema, or is an error that says so.
func TestStructuredContentIsThere(t *testing.T) {
	pseudonymise := permissive()
	pseudonymise.Results = policy.Pseudonymise
	for _, tt := range []struct {
		name   string
		o      policy.Options
		result string
		want   string // in the answer; "" for the result as it is
	}{
		{"as promised", permissive(), `{"content":[],"structuredContent":{"key":"k","more":[1]},"x":1}`, ""},
		{"not as promised, by the upstream's doing", permissive(), `{"content":[],"structuredContent":{"key":7}}`, ""},
		{"left out", permissive(), `{"content":[{"type":"text","text":"t"}]}`, "upstream files left out the structuredContent"},
		{"left out of an error", permissive(), `{"content":[],"isError":true}`, ""},
		{"a secret in it that is replaced by something longer", pseudonymise, `{"content":[],"structuredContent":{"key":"` + aws() + `"}}`, "was taken out of the structuredContent"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBenchWith(t, tt.o, nil, typed)
			from := call(t, b.ann, "files__read", `{"path":"a"}`)
			m := b.admit(t, from)
			got, err := b.Release(t.Context(), m.Answer(jsonrpc.Message{ID: jsonrpc.IntID(1), Result: jsonrpc.Raw(tt.result)}, 0), from)
			if err != nil {
				t.Fatal(err)
			}
			text := string(got.Msg.Result)
			if tt.want == "" && text != tt.result {
				t.Errorf("got %s, want it as it was", text)
			}
			if tt.want != "" && (!strings.Contains(text, tt.want) || !strings.Contains(text, `"isError":true`) || strings.Contains(text, `"structuredContent":`) || strings.Contains(text, aws())) {
				t.Errorf("got %s, want an error with %q", text, tt.want)
			}
		})
	}
}
