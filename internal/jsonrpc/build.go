package jsonrpc

import "strconv"

// With returns object v with the member set: in its place if it is there, else last. v that is nil or no object is {};
// a nil value takes the member away. v itself is left as it is.
func (v Raw) With(name string, value Raw) Raw {
	if len(value) == 0 {
		return v.Without(name)
	}
	if !v.IsObject() {
		v = Raw("{}")
	}
	if at, ok := v.find(name); ok {
		out := make(Raw, 0, len(v)+len(value))
		return append(append(append(out, v[:at.value]...), value...), v[at.end:]...)
	}
	last := len(v) - 1 // the brace
	out := append(make(Raw, 0, len(v)+len(name)+len(value)+len(`,"":`)), v[:last]...)
	if last > 1 {
		out = append(out, ',')
	}
	out = append(appendText(out, name), ':')
	return append(append(out, value...), '}')
}

// Without returns object v without the member; v itself if it is not there.
func (v Raw) Without(name string) Raw {
	at, ok := v.find(name)
	if !ok {
		return v
	}
	start, end := at.name, at.end
	switch {
	case v[end] == ',':
		end++
	case v[start-1] == ',':
		start--
	}
	return append(append(make(Raw, 0, len(v)), v[:start]...), v[end:]...)
}

// An Object builds a JSON object, member by member, in order. The caller sees to it that no name comes twice. The zero
// Object is empty and ready.
type Object struct{ b []byte }

// Raw adds a member with any value; nil adds nothing.
func (o *Object) Raw(name string, v Raw) *Object {
	if len(v) > 0 {
		o.name(name)
		o.b = append(o.b, v...)
	}
	return o
}

// Text adds a member with a string.
func (o *Object) Text(name, s string) *Object {
	o.name(name)
	o.b = appendText(o.b, s)
	return o
}

// Int adds a member with an integer.
func (o *Object) Int(name string, n int64) *Object {
	o.name(name)
	o.b = strconv.AppendInt(o.b, n, 10)
	return o
}

// Bool adds a member with true or false.
func (o *Object) Bool(name string, v bool) *Object {
	o.name(name)
	o.b = strconv.AppendBool(o.b, v)
	return o
}

// Done returns the object and leaves o empty, ready for another.
func (o *Object) Done() Raw {
	b := o.b
	o.b = nil
	if b == nil {
		b = []byte{'{'}
	}
	return append(b, '}')
}

func (o *Object) name(name string) {
	separator := byte(',')
	if o.b == nil {
		separator = '{'
	}
	o.b = append(appendText(append(o.b, separator), name), ':')
}

// Array returns the array of vs; [] for none. A nil element is null.
func Array(vs ...Raw) Raw {
	size := len("[]")
	for _, v := range vs {
		size += max(len(v), len("null")) + len(",")
	}
	b := append(make(Raw, 0, size), '[')
	for i, v := range vs {
		if i > 0 {
			b = append(b, ',')
		}
		if len(v) == 0 {
			v = Raw("null")
		}
		b = append(b, v...)
	}
	return append(b, ']')
}
