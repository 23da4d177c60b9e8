package ifc

import (
	"encoding/json"
	"fmt"
)

// MarshalText writes l in the form that the store keeps: a JSON object from source to its two levels; "top" for the top.
func (l Label) MarshalText() ([]byte, error) {
	if !l.known {
		return []byte(`"top"`), nil
	}
	out := make(map[string][2]string, len(l.sources))
	for s, lv := range l.sources {
		out[s] = [2]string{lv.Integrity.String(), lv.Confidentiality.String()}
	}
	return json.Marshal(out)
}

// UnmarshalText reads what MarshalText wrote. On an error l is the top.
func (l *Label) UnmarshalText(b []byte) error {
	*l = Label{}
	if string(b) == `"top"` {
		return nil
	}
	var in map[string][2]string
	if err := json.Unmarshal(b, &in); err != nil {
		return fmt.Errorf("label: %w", err)
	}
	out := make(map[string]Level, len(in))
	for s, names := range in {
		i, err := ParseIntegrity(names[0])
		if err != nil {
			return fmt.Errorf("label: source %q: %w", s, err)
		}
		c, err := ParseConfidentiality(names[1])
		if err != nil {
			return fmt.Errorf("label: source %q: %w", s, err)
		}
		if level := (Level{i, c}); level != Neutral {
			out[s] = level
		}
	}
	*l = Label{known: true, sources: out}
	return nil
}
