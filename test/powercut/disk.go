// Package powercut says what a disk may hold after a power cut, from a record of what programs did to a folder. It knows nothing of navra.
//
// The record is one of the system calls of the real program, made by strace. A VFS of SQLite's would see the database alone, and its driver takes
// none written in Go; a file system of our own (FUSE, device mapper) needs what test machines do not give. System calls show everything that
// counts here: the database, its log, the heads file, the key, the folders, and, in the same order, what the program said to others.
//
// The disk is as bad as POSIX allows: what was written is there only once the file was synced, a name only once its folder was; of what was not
// synced any part of 4 KiB may be there, and of the changes to a folder's names any beginning. What is mapped into memory is not seen: of
// SQLite's files that is only -shm, which is made anew after a cut.
package powercut

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Kind is what an Op does.
type Kind int

// The kinds of operations.
const (
	Write    Kind = iota
	Truncate      // to Off bytes
	Sync          // of a file or a folder
	Create        // of a file
	Mkdir
	Remove
	Link // to To
	Rename
)

// appended is the offset of what is written at the end.
const appended = -1

// An Op is one operation on a path below the root. It took effect somewhere between Start and End, which count what the record holds.
type Op struct {
	Kind       Kind
	Path, To   string
	Off        int64
	Data       []byte
	Start, End int
}

// A node is a file or a folder.
type node struct {
	folder        bool
	names, stored map[string]*node // as programs see it, as the disk has it
	renames       []change

	size   int64
	data   []byte // on the disk
	writes []Op   // that are not
}

// A change is one of a folder's names; nil removes it.
type change struct {
	name string
	to   *node
	then *change // in the same step
	end  int
}

// A Disk is a folder at a moment.
type Disk struct{ root *node }

// New returns a disk that holds what a folder holds now.
func New(dir string) (*Disk, error) {
	d := &Disk{folder()}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if err != nil || rel == "." {
			return err
		}
		at := folder()
		if !e.IsDir() {
			if at.data, err = os.ReadFile(path); err != nil {
				return err
			}
			at.folder, at.size = false, int64(len(at.data))
		}
		in, name := d.parent(rel)
		in.names[name], in.stored[name] = at, at
		return nil
	})
	return d, err
}

func folder() *node {
	return &node{folder: true, names: map[string]*node{}, stored: map[string]*node{}}
}

// Play does what was done before a moment; what was under way then may not be synced. ops are in the order of their ends. An error is of what
// cannot have been: the record is not whole.
func (d *Disk) Play(ops []Op, before int) error {
	for _, op := range ops {
		if op.Start >= before || op.Kind == Sync && op.End >= before {
			continue
		}
		if err := d.do(op); err != nil {
			return err
		}
	}
	return nil
}

func (d *Disk) do(op Op) error {
	if strings.HasSuffix(op.Path, " (deleted)") {
		return nil // nobody finds it again
	}
	unknown := fmt.Errorf("operation %d on %q, which was never made", op.Kind, op.Path)
	in, name := d.parent(op.Path)
	if in == nil {
		return unknown
	}
	at := in.names[name]
	if op.Path == "." {
		at = d.root
	}
	switch op.Kind {
	case Create:
		if at == nil {
			in.change(change{name: name, to: &node{}, end: op.End})
		}
	case Mkdir:
		in.change(change{name: name, to: folder(), end: op.End})
	case Remove:
		in.change(change{name: name, end: op.End})
	case Link, Rename:
		to, as := d.parent(op.To)
		if at == nil || to == nil {
			return unknown
		}
		c := change{name: as, to: at, end: op.End}
		if op.Kind == Rename { // within one folder: all that programs here do
			c.then = &change{name: name}
		}
		to.change(c)
	case Write, Truncate, Sync:
		if at == nil {
			return unknown
		}
		at.do(op)
	}
	return nil
}

func (n *node) change(c change) {
	c.apply(n.names)
	n.renames = append(n.renames, c)
}

func (c change) apply(names map[string]*node) {
	if c.then != nil {
		delete(names, c.then.name)
	}
	if c.to == nil {
		delete(names, c.name)
		return
	}
	names[c.name] = c.to
}

func (n *node) do(op Op) {
	switch op.Kind {
	case Write:
		if op.Off == appended {
			op.Off = n.size
		}
		n.size = max(n.size, op.Off+int64(len(op.Data)))
		n.writes = append(n.writes, op)
	case Truncate:
		n.size = op.Off
		n.writes = append(n.writes, op)
	case Sync: // of what had ended when it began
		done := func(end int) bool { return end < op.Start }
		i := 0
		for ; i < len(n.writes) && done(n.writes[i].End); i++ {
			n.data = n.writes[i].on(n.data)
		}
		n.writes = slices.Clone(n.writes[i:])
		for i = 0; i < len(n.renames) && done(n.renames[i].end); i++ {
			n.renames[i].apply(n.stored)
		}
		n.renames = slices.Clone(n.renames[i:])
	}
}

// on is data after a write or a truncation; it changes data.
func (op Op) on(data []byte) []byte {
	end := op.Off + int64(len(op.Data))
	if op.Kind == Truncate && int64(len(data)) > end {
		return data[:end]
	}
	data = longer(data, end)
	copy(data[op.Off:], op.Data)
	return data
}

const block = 4096

// blocks cuts a write where the disk may.
func (op Op) blocks() (out []Op) {
	if op.Kind != Write {
		return []Op{op}
	}
	for off, data := op.Off, op.Data; len(data) > 0; {
		n := min(int64(len(data)), block-off%block)
		out = append(out, Op{Kind: Write, Off: off, Data: data[:n]})
		off, data = off+n, data[n:]
	}
	return out
}

// parent returns the folder that a path is in, as programs see it, or nil.
func (d *Disk) parent(path string) (in *node, name string) {
	parts := strings.Split(filepath.ToSlash(path), "/")
	in = d.root
	for _, p := range parts[:len(parts)-1] {
		if in = in.names[p]; in == nil || !in.folder {
			return nil, ""
		}
	}
	return in, parts[len(parts)-1]
}

// Save writes what is left after a cut into an empty folder. kept is asked of each part that was not synced whether it is on the disk all the same.
func (d *Disk) Save(dir string, kept func(path string) bool) error {
	return d.root.save(dir, ".", kept)
}

func (n *node) save(dir, path string, kept func(string) bool) error {
	if !n.folder {
		data := slices.Clone(n.data)
		for _, op := range n.writes {
			for _, part := range op.blocks() {
				if kept(path) {
					data = part.on(data)
				} else if op.Kind == Write && kept(path) { // its length alone
					data = longer(data, part.Off+int64(len(part.Data)))
				}
			}
		}
		return os.WriteFile(dir, data, 0o600)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	names := map[string]*node{}
	for name, at := range n.stored {
		names[name] = at
	}
	for _, c := range n.renames {
		if !kept(path) {
			break // what was done to names is written in order
		}
		c.apply(names)
	}
	order := make([]string, 0, len(names))
	for name := range names {
		order = append(order, name)
	}
	slices.SortFunc(order, cmp.Compare[string]) // so that a seed gives the same disk again
	for _, name := range order {
		if strings.HasSuffix(name, "-shm") {
			continue
		}
		if err := names[name].save(filepath.Join(dir, name), filepath.Join(path, name), kept); err != nil {
			return err
		}
	}
	return nil
}

// longer is data with zeros where it is shorter than size.
func longer(data []byte, size int64) []byte {
	if missing := size - int64(len(data)); missing > 0 {
		return append(data, make([]byte, missing)...)
	}
	return data
}
