package blackbox

import (
	"crypto"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// The tree of RFC 6962 over the entries' hashes: entry 1 is leaf 0.
var (
	hasher = rfc6962.New(crypto.SHA256)
	ranges = compact.RangeFactory{Hash: hasher.HashChildren}
)

// A Tree is the tree over the first entries, as far as it takes to grow it and to know its root. The zero Tree is empty. It is not
// safe for concurrent use.
type Tree struct {
	size     Seq
	frontier [][32]byte // roots of the perfect trees that it consists of, one for each bit of size, the largest first
}

// TreeAt is the tree that had a checkpoint's frontier.
func TreeAt(size Seq, frontier [][32]byte) (*Tree, error) {
	if n := bits.OnesCount64(uint64(size)); len(frontier) != n {
		return nil, fmt.Errorf("frontier: %d hashes, want %d", len(frontier), n)
	}
	return &Tree{size, slices.Clone(frontier)}, nil
}

// Append adds the hash of the next entry.
func (t *Tree) Append(leaf [32]byte) {
	for n := t.size; n&1 == 1; n >>= 1 { // trees of one size become one
		last := len(t.frontier) - 1
		leaf = parent(t.frontier[last], leaf)
		t.frontier = t.frontier[:last]
	}
	t.frontier = append(t.frontier, leaf)
	t.size++
}

// parent is the hash of an inner node: SHA-256(0x01 ‖ left ‖ right).
func parent(left, right [32]byte) [32]byte {
	var b [65]byte
	b[0] = 1
	copy(b[1:], left[:])
	copy(b[33:], right[:])
	return sha256.Sum256(b[:])
}

// Size is how many entries the tree covers.
func (t *Tree) Size() Seq { return t.size }

// Root is the tree's root hash. That of the empty tree is SHA-256 of nothing.
func (t *Tree) Root() [32]byte {
	if t.size == 0 {
		return sha256.Sum256(nil)
	}
	last := len(t.frontier) - 1
	root := t.frontier[last]
	for i := last - 1; i >= 0; i-- {
		root = parent(t.frontier[i], root)
	}
	return root
}

// Frontier is what TreeAt takes to go on from here.
func (t *Tree) Frontier() [][32]byte { return slices.Clone(t.frontier) }

// ErrProof reports a proof that does not hold.
var ErrProof = errors.New("the proof does not hold")

// ProveInclusion makes the proof that entry n is in the tree of a size. leaves yields the hashes of all entries from the first on.
func ProveInclusion(leaves iter.Seq2[[32]byte, error], n, size Seq) ([][32]byte, error) {
	if n == 0 || n > size {
		return nil, fmt.Errorf("entry %d is not among the %d that the tree covers", n, size)
	}
	nodes, err := proof.Inclusion(uint64(n)-1, uint64(size))
	if err != nil {
		return nil, err
	}
	return prove(leaves, size, nodes)
}

// ProveConsistency makes the proof that the tree of a size has grown out of that of an older one.
func ProveConsistency(leaves iter.Seq2[[32]byte, error], old, size Seq) ([][32]byte, error) {
	nodes, err := proof.Consistency(uint64(old), uint64(size))
	if err != nil {
		return nil, err
	}
	return prove(leaves, size, nodes)
}

// prove gathers a proof's nodes while the tree grows over the leaves.
func prove(leaves iter.Seq2[[32]byte, error], size Seq, nodes proof.Nodes) ([][32]byte, error) {
	wanted := map[compact.NodeID][]byte{}
	for _, id := range nodes.IDs {
		wanted[id] = nil
	}
	note := func(id compact.NodeID, hash []byte) {
		if _, ok := wanted[id]; ok {
			wanted[id] = append([]byte(nil), hash...)
		}
	}
	r := ranges.NewEmptyRange(0)
	for leaf, err := range leaves {
		if err != nil {
			return nil, err
		}
		note(compact.NewNodeID(0, r.End()), leaf[:])
		if err := r.Append(leaf[:], note); err != nil {
			return nil, err
		}
		if Seq(r.End()) == size {
			break
		}
	}
	if Seq(r.End()) != size {
		return nil, fmt.Errorf("there are only %d entries", r.End())
	}
	hashes := make([][]byte, len(nodes.IDs))
	for i, id := range nodes.IDs {
		if hashes[i] = wanted[id]; hashes[i] == nil {
			return nil, fmt.Errorf("%w: a node of the tree is missing", ErrProof)
		}
	}
	hashes, err := nodes.Rehash(hashes, hasher.HashChildren)
	if err != nil {
		return nil, err
	}
	out := make([][32]byte, len(hashes))
	for i, h := range hashes {
		out[i] = [32]byte(h)
	}
	return out, nil
}

// CheckInclusion checks that an entry with this hash is number n in the tree with this root.
func CheckInclusion(leaf [32]byte, n, size Seq, path [][32]byte, root [32]byte) error {
	if n == 0 {
		return fmt.Errorf("%w: there is no entry 0", ErrProof)
	}
	if err := proof.VerifyInclusion(hasher, uint64(n)-1, uint64(size), leaf[:], slices32(path), root[:]); errors.As(err, new(proof.RootMismatchError)) { // whose text is bytes
		return fmt.Errorf("%w: the entry and its path do not lead to the root that was signed", ErrProof)
	} else if err != nil {
		return fmt.Errorf("%w: %w", ErrProof, err)
	}
	return nil
}

// CheckConsistency checks that the tree with the new root has grown out of that with the old one.
func CheckConsistency(old, size Seq, path [][32]byte, oldRoot, root [32]byte) error {
	if err := proof.VerifyConsistency(hasher, uint64(old), uint64(size), slices32(path), oldRoot[:], root[:]); err != nil {
		return fmt.Errorf("%w: %w", ErrProof, err)
	}
	return nil
}

func slices32(in [][32]byte) [][]byte {
	out := make([][]byte, len(in))
	for i := range in {
		out[i] = in[i][:]
	}
	return out
}
