package filter

// knownPrefix is how many bytes of a known value are looked up at once, and the least length of one: what is shorter stands in
// ordinary text too.
const knownPrefix = 8

// known finds values that were secrets before, wherever they stand. Its cost grows with the text, not with the number of values.
type known struct {
	first    [256]bool
	byPrefix map[[knownPrefix]byte][]Finding
}

// Knowing returns a set that also finds the given secrets by their values alone, whatever stands around them: a pattern that
// needs a name or a word's edge does not see them once that is gone. s itself stays as it is.
func (s *Set) Knowing(findings []Finding) *Set {
	k := &known{byPrefix: map[[knownPrefix]byte][]Finding{}}
	for _, f := range findings {
		if len(f.Value) < knownPrefix {
			continue
		}
		k.first[f.Value[0]] = true
		prefix := [knownPrefix]byte([]byte(f.Value[:knownPrefix]))
		k.byPrefix[prefix] = append(k.byPrefix[prefix], f)
	}
	if len(k.byPrefix) == 0 {
		return s
	}
	return &Set{detectors: s.detectors, index: s.index, known: k}
}

// scan appends where known values stand in text to out.
func (k *known) scan(text string, out []Span) []Span {
	for i := 0; i+knownPrefix <= len(text); i++ {
		if !k.first[text[i]] {
			continue
		}
		for _, f := range k.byPrefix[[knownPrefix]byte([]byte(text[i:i+knownPrefix]))] {
			if end := i + len(f.Value); end <= len(text) && text[i:end] == f.Value {
				out = append(out, Span{f.Kind, i, end})
			}
		}
	}
	return out
}
